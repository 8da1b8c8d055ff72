"""The causal sentences of the lessons, each with the assertion that stands behind it: change the cause, see the effect.

A sentence with 'because', 'so', 'therefore', 'which is why', 因为, 所以 or 因此 claims a cause. scripts/lessons refuses a page with such
a word outside of the sentences listed here, a listed sentence that no longer stands in its page, and an assertion that fails. A
`command` runs in the lesson's folder after the lesson's own commands, once for all entries that name it; `holds` is an expression
over what the commands wrote (Records).
"""

import csv
import dataclasses
import json
import pathlib
import re

from teach.scenes import figures_of, losses_of, scenes_of

WORDS = {"en": re.compile(r"(?i)\b(?:because|so|therefore|hence|thus|(?:which|this|that) is why)\b"),
         "zh": re.compile("因为|所以|因此|因而|于是")}


@dataclasses.dataclass
class Cause:
    lesson: str
    english: str  # as on the page, with one blank for a line's end
    chinese: str  # "": the Chinese page claims no cause here
    holds: str
    command: str = ""


SLOW = ("psring step --strategies ddp --algorithm ring --workers 4 --data synthetic --model gelu-mlp:dim=512,layers=1 --global-batch 4"
        " --steps 4 --link 1gbit,0.1ms --gflops 0.1 --out slow.json")
RING = ("psring compare --strategies ddp --bucket 16K,1M --workers 4 --data synthetic --model mlp:64-64-64-64-10 --global-batch 16"
        " --steps 5 --algorithm ring --out ring")
TWICE = ("psring memory --strategies ddp,zero1,zero2,zero3 --optimizer adamw --workers 4 --global-batch 16 --model gelu-mlp:dim=256,layers=6"
         " --precision bf16 --json >twice.json")
MANY = "psring memory --parameters 7B --workers 2048 --strategies ddp,zero1,zero2 --json >many.json"
ZERO2 = ("psring step --strategies zero2 --workers 4 --data synthetic --model gelu-mlp:dim=128,layers=6 --global-batch 16 --steps 4"
         " --optimizer adamw --gflops 0.3 --link ")
AXES = ("psring memory --strategies tp:4,tp:2+zero3 --workers 4 --model gelu-mlp:dim=128,layers=8 --global-batch 16 --optimizer adamw"
        " --json >axes.json")
DELAYED = ("psring step --strategies zero1 --workers 3 --data synthetic --model mlp:16-16-4 --global-batch 12 --steps 16"
           " --optimizer adamw --gflops 0.01 --link 10mbit,3ms --out delayed.json")
PAIR = ("psring step --strategies ddp --workers 2 --compress int8 --link 10mbit,20ms --data synthetic --model gelu-mlp:dim=128,layers=6"
        " --batch-size 4 --steps 4 --gflops 1 --out pair.json")
DISTINCT = ("python3 -c \"print(chr(10).join(f'{i}{chr(9)}{i}{chr(9)}1' for i in range(20000)))\" >distinct.tsv\n"
            "psring compare --strategies ps --workers 2 --model mf:dim=8 --data pairs:distinct.tsv --global-batch 64,4096 --steps 2"
            " --out distinct >/dev/null")

CAUSES = [
    Cause("01", "Computing takes almost no time here, so the time of a step is the time of its communication",
          "这里计算几乎不花时间，所以一步的时间就是在 1 Gbit/s 链路上通信的时间",
          "exposed('collectives.json', 'ddp algorithm=ring') > 0.99 * ms('collectives.json', 'ddp algorithm=ring')"
          " and exposed('slow.json', 'ddp') < 0.7 * ms('slow.json', 'ddp')", SLOW),
    Cause("01", "A steady step takes the same time, too, because each card carries the same bytes.",
          "稳定之后一步的时间也相同，因为每块网卡传送的字节相同。",
          "near(ms('zero1.json', 'zero1'), ms('zero1.json', 'ddp'), 0.01) and sent('zero1.json', 'zero1') == sent('zero1.json', 'ddp')"
          " and sent('collectives.json', 'ddp algorithm=exchange') == 2 * sent('zero1.json', 'ddp')"
          " and near(ms('collectives.json', 'ddp algorithm=exchange'), 2 * ms('zero1.json', 'ddp'), 0.06)"),
    Cause("01", "sends the same number, so both together send as many bytes as a worker of `zero1`.",
          "也发送这么多，所以两者合计正是 `zero1` 的 worker 所发送的。",
          "server_sent('servers.json', 'ps-colocated') == sent('servers.json', 'ps-colocated')"
          " and 2 * sent('servers.json', 'ps-colocated') == sent('zero1.json', 'zero1')"),
    Cause("02", "`ps` with four extra machines is the fastest, because twice as many cards work.",
          "另加四台机器的 `ps` 最快，因为工作的网卡多一倍。",
          "ms('four.json', 'ps') < 0.85 * ms('four.json', 'ddp') < ms('servers.json', 'ps s=2')"
          " and ms('four.json', 'ps') < 0.85 * ms('four.json', 'ps-colocated')"),
    Cause("03", "At 0.1 asp is ahead, because it makes four updates in place of one.", "学习率 0.1 时 asp 领先，因为它用四次更新代替一次。",
          "loss('asp.json', 'ps-async lr=0.1 remedy=none') < loss('bsp.json', 'ps lr=0.1') - 0.1"
          " and near(loss('asp.json', 'ps-async lr=0.1 remedy=scale-lr'), loss('bsp.json', 'ps lr=0.1'), 0.02)"),
    Cause("04", "the gradient of the first layer is complete only when backward has ended, so nothing can hide the last bucket.",
          "第一层的梯度要到反向结束才完整，所以没有什么能掩盖最后一个桶。",  # the all-reduce of a bucket: 2 · 3/4 of it, and four delays
          "all(exposed('buckets.json', f'ddp bucket={size}K') > 1.5 * size * 1024 * 8 / 1e9 * 1e3 + 4 * 0.05 for size in (32, 64, 128, 256))"),
    Cause("04", "`exchange` adds in rank order, so neither buckets nor time can change a sum.",
          "`exchange` 按 rank 顺序相加，所以桶和时间都不会改变和。",
          "all(cell('lesson4', f'ddp bucket={size}', 'equality') == '=' and cell('ring', f'ddp bucket={size}', 'equality') == '≈'"
          " for size in ('16K', '1M'))", RING),
    Cause("05", "No stage of ZeRO shards the outputs, because each worker has its own samples.",
          "ZeRO 的任何一级都不切分这些输出，因为每个 worker 有自己的样本。",
          "all(booked('memory.json', f'zero{stage}', 'activations') == booked('memory.json', 'ddp', 'activations')"
          " and booked('twice.json', f'zero{stage}', 'activations') == booked('memory.json', f'zero{stage}', 'activations') + 8 * 3072"
          " for stage in (1, 2, 3))", TWICE),
    Cause("06", "and never more than four times, because parameters and gradients stay whole.",
          "永远不会低于四分之一，因为参数和梯度仍然完整。",
          "4 * booked('many.json', 'zero1', 'total') > booked('many.json', 'ddp', 'total') > 3.99 * booked('many.json', 'zero1', 'total')"
          " and booked('many.json', 'ddp', 'total') > 7.9 * booked('many.json', 'zero2', 'total')", MANY),
    Cause("06", "backward waits until the first reduction has landed; so a slow network costs time, and never memory.",
          "所以慢的网络只花时间，从不多占内存。",
          "ms('narrow.json', 'zero2') > 10 * ms('stages.json', 'zero2') and peak('narrow.json', 'zero2') == peak('stages.json', 'zero2')",
          ZERO2 + "20mbit,0.05ms --out narrow.json"),
    Cause("06", "So each micro-batch is reduced: four times the gradient's bytes and once the parameters'",
          "所以每个微批都要归约：梯度的字节四次，参数的字节一次",
          "sent('micro.json', 'zero2') == 3 / 4 * 5 * 6 * 128 * 128 * 4 and sent('two.json', 'zero2') == 3 / 4 * 3 * 6 * 128 * 128 * 4"
          " and sent('micro.json', 'zero1') == 3 / 4 * 2 * 6 * 128 * 128 * 4", ZERO2 + "1gbit,0.05ms --accumulate 2 --out two.json"),
    Cause("07", "each unit is gathered twice, for forward and for backward, and its gradient is reduced once, so (n − 1)/n · (2 M + M)",
          "每个单元收集两次，前向一次、反向一次，梯度归约一次，所以是 (n − 1)/n · (2 M + M)",
          "sent('fsdp.json', 'zero3') == 3 / 4 * 3 * 6 * 128 * 128 * 4"
          " and sent('reshard.json', 'zero3 reshard-after-forward=off') == 3 / 4 * 2 * 6 * 128 * 128 * 4"),
    Cause("09", "But no unit is gathered, so no memory is needed for units on the way", "但是没有单元要收集，所以不需要存放途中单元的内存",
          "booked('axes.json', 'tp:4', 'communication') == 0 < booked('axes.json', 'tp:2+zero3', 'communication')", AXES),
    Cause("09", "add up the summands of y in another order than one matrix product does, so results differ by rounding",
          "次序与一次矩阵乘法不同，所以结果有舍入的差别",
          "[cell('axes', each, 'equality') for each in ('ddp', 'pp:2+ddp', 'tp:2', 'tp:2+pp:2')] == ['=', '=', '≈', '≈']"),
    Cause("10", "The bits are the same because nothing in a step depends on time", "结果逐比特相同，因为一步中没有什么取决于时间",
          "ms('delayed.json', 'zero1') > 5 * ms('kills.json', 'zero1') and model('delayed.json', 'zero1') == model('kills.json', 'zero1')",
          DELAYED),
    Cause("12", "codes cannot be added up on the way round a ring, so each worker sends its own to all n − 1 others.",
          "编码不能在绕环的途中相加，所以每个 worker 把自己的编码发给其余 n − 1 个。",
          "sent('codes.json', 'ddp compress=int8') == 3 * sent('pair.json', 'ddp')", PAIR),
    Cause("12", "without error feedback it costs more, because small gradients are lost for good.",
          "没有误差反馈时代价更大，因为小的梯度永远丢失了。",
          "cell('lesson12off', 'ddp', 'test_loss') > cell('lesson12', 'ddp compress=top-k', 'test_loss') + 0.5"
          " and near(cell('lesson12', 'ddp compress=int8', 'test_loss'), cell('lesson12', 'ddp compress=none', 'test_loss'), 0.05)"),
    # keys that never repeat: 64 times the samples need 64 times the keys; 2,048 bytes are the dense parameters
    Cause("13", "64 times the samples need 26 times the keys, because a larger batch repeats the frequent ones.",
          "样本多 64 倍，键只多 26 倍，因为较大的 batch 会重复常见的键。",
          "cell('batches', 'ps global-batch=4096', 'bytes_per_step') - 4096 < 0.5 * 64 * (cell('batches', 'ps global-batch=64', 'bytes_per_step') - 4096)"
          " and cell('distinct', 'ps global-batch=4096', 'bytes_per_step') - 2048"
          " == 64 * (cell('distinct', 'ps global-batch=64', 'bytes_per_step') - 2048)", DISTINCT),
]


def causes_of(lesson):
    return [cause for cause in CAUSES if cause.lesson == lesson]


def one_line(text, language):
    """The text with a blank for each line's end, or nothing between Chinese characters."""
    if language == "zh":
        text = re.sub(r"(?<=[^\x00-\x7f])[ \t]*\n[ \t]*(?=[^\x00-\x7f])", "", text)
    return re.sub(r"\s+", " ", text)


def faults_of(prose, sentences, language):
    """Yields a message for each listed sentence that the prose lacks, and for each causal word outside of the listed sentences."""
    prose = one_line(prose, language)
    covered = []
    for sentence in sentences:
        places = [match.span() for match in re.finditer(re.escape(sentence), prose)]
        if not places:
            yield f"scripts/teach/causes.py lists a sentence that the page lacks: {sentence}"
        covered += places
    for word in WORDS[language].finditer(prose):
        if not any(begin <= word.start() and word.end() <= end for begin, end in covered):
            near = prose[max(0, word.start() - 60):word.end() + 60]
            yield f"'{word[0]}' claims a cause without an assertion in scripts/teach/causes.py: …{near}…"


class Records:
    """What the commands of a lesson wrote in its folder, for assertions. A scene or a row is named by its label."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def scene(self, file, label):
        found = [scene for scene in scenes_of(self.folder / file) if scene["label"] == label]
        if len(found) != 1:
            raise ValueError(f"{file}: {len(found)} scenes are called '{label}'")
        return found[0]

    def cell(self, run, strategy, column):
        """A cell of a comparison's table.csv: the workers' row."""
        with open(self.folder / run / "table.csv") as file:
            rows = [row for row in csv.DictReader(file) if row["strategy"] == strategy and row.get("role", "workers") == "workers"]
        if len(rows) != 1:
            raise ValueError(f"{run}/table.csv: {len(rows)} rows of '{strategy}'")
        text = rows[0][column]
        return float(text) if re.fullmatch(r"-?\d+(\.\d+)?(e[+-]?\d+)?", text) else text

    def booked(self, file, strategy, category):
        """Bytes of a worker, from `psring memory --json`."""
        (job,) = [job for job in json.loads((self.folder / file).read_text()) if job["strategy"] == strategy]
        value = job["worker"][category]
        return value["bytes"] if isinstance(value, dict) else value

    def server_sent(self, file, label):
        """Bytes that each server sends in a step; all servers send as many."""
        scene = self.scene(file, label)
        sent = {sum(process["sent"]) / scene["steps"] for process in scene["processes"] if process["role"] == "server"}
        if len(sent) != 1:
            raise ValueError(f"{file}: servers send {sorted(sent)} bytes")
        return sent.pop()

    def names(self):
        figure = {"ms": "step_ms", "exposed": "exposed_ms", "sent": "sent_bytes", "peak": "peak_bytes"}
        return {**{name: lambda file, label, key=key: figures_of(self.scene(file, label))[key] for name, key in figure.items()},
                "loss": lambda file, label: sum(losses_of(self.scene(file, label))) / len(losses_of(self.scene(file, label))),
                "model": lambda file, label: self.scene(file, label)["model_sha256"],
                "server_sent": self.server_sent, "cell": self.cell, "booked": self.booked,
                "near": lambda one, other, share: abs(one - other) <= share * abs(other)}

    def holds(self, expression):
        safe = {"__builtins__": {"all": all, "any": any, "abs": abs, "min": min, "max": max}}
        return eval(expression, {**safe, **self.names()})  # the repository's own text
