"""What a run leaves behind: psring compare's table, and every file of the run folder."""

import csv
import fcntl
import json
import math
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import time
import unittest

from support import BIN, ENDLESS, LIMIT, TINY, ProgramTest

STEPS = 30
METRICS = ["step", "epoch", "worker", "time_s", "loss", "lr", "samples", "step_s", "compute_s", "comm_s",
           "exposed_comm_s", "bytes_sent", "bytes_received", "staleness"]
BOUND = r"(compute|memory|latency|unknown|processors|server|slowest worker)"  # of processes that share memory
CATEGORIES = ["parameters", "gradients", "optimizer", "activations", "communication", "staging", "index"]


class Compare(ProgramTest):
    def setUp(self):
        super().setUp()
        self.began = time.monotonic()
        self.result = self.run_program("psring", "compare", *TINY, "--strategies", "single,ps", "--steps", STEPS,
                                       "--workers", 2, "--servers", 2, "--eval-every", 10, "--trace", "on", "--out", "cmp")
        self.ended = time.monotonic()
        self.assert_done(self.result)
        self.run_of_ps = self.folder / "cmp" / "ps"

    def lines(self, name):
        return [json.loads(line) for line in (self.run_of_ps / name).read_text().splitlines()]

    def test_all(self):
        for part in (self.table, self.copies, self.metrics, self.comparison_file, self.manifest, self.summary, self.memory, self.trace):
            with self.subTest(part.__name__):
                part()

    def table(self):
        text = self.result.out
        table = text[text.index("strategy "):text.index("samples/s: training")]
        self.assertLessEqual(max(map(len, text.splitlines()[:-1])), 100)  # the last is a path
        self.assertNotIn("✗", table)
        head = re.split(r" {1,}", table.splitlines()[0])
        self.assertEqual(head, ["strategy", "cluster", "samples/s", "ms/step", "exposed", "bytes/step", "peak", "MiB", "equal",
                                "acc", "bound", "by"])
        self.assertRegex(table, rf"(?m)^single .* 0 ✓ .* — +[\d.]+ +{BOUND}$")
        self.assertRegex(table, rf"(?m)^ps .* 8192 ✓ .* = +[\d.]+ +{BOUND}$")
        self.assertRegex(table, r"(?m)^  servers +16384 ✓ +\d+\.\d ✓$")
        verdicts = text[text.index("What bounds each"):].splitlines()
        self.assertRegex(verdicts[1], r"^single: computes for [\d.]+ of [\d.]+ ms.* → ")
        for figure in self.figures("ps"):
            self.assertLessEqual(figure["exposed_comm_s"]["median"], figure["step_s"]["median"])

    def figures(self, strategy):
        compared = json.loads((self.folder / "cmp" / "compare.json").read_text())
        return [row for row in compared["rows"] if row["strategy"] == strategy]

    def copies(self):
        """As JSON, CSV and Markdown, with the bytes and the memory of every process."""
        (ps,) = self.figures("ps")
        self.assertEqual((ps["equality"], ps["largest_difference"], ps["ok"]), ("=", 0, True))
        self.assertEqual({entry["process"] for entry in ps["runs"][0]["memory"]},
                         {"worker 0", "worker 1", "server 0", "server 1"})
        self.assertEqual({entry["difference"] for entry in ps["runs"][0]["bytes"]}, {0})
        with open(self.folder / "cmp" / "table.csv", newline="") as file:
            table = list(csv.DictReader(file))
        self.assertEqual([(row["strategy"], row["role"]) for row in table],
                         [("single", "workers"), ("ps", "workers"), ("ps", "servers")])
        self.assertEqual([row["bytes_per_step"] for row in table], ["0", "8192", "16384"])
        with open(self.folder / "cmp" / "memory.csv", newline="") as file:
            memory = [row for row in csv.DictReader(file) if row["strategy"] == "ps" and row["category"] == "gradients"]
        self.assertEqual([(row["process"], row["peak"], row["difference"]) for row in memory],
                         [("worker 0", "4096", "0"), ("worker 1", "4096", "0"), ("server 0", "0", "0"), ("server 1", "0", "0")])
        for row in memory:  # of its own pages all count, of shared ones a part
            self.assertTrue(1 << 20 < int(row["pss_peak"]) <= int(row["rss_peak"]), row)
        self.assertLessEqual(ps["runs"][0]["pss_together_peak"], sum(ps["runs"][0]["pss_peak"].values()))
        self.assertIn("| ps |", (self.folder / "cmp" / "compare.md").read_text())

    def metrics(self):
        lines = self.lines("metrics.jsonl")
        steps = [line for line in lines if "loss" in line]
        for line in steps:
            self.assertEqual(list(line), METRICS)
        self.assertEqual(sorted((line["worker"], line["step"]) for line in steps),
                         [(worker, step) for worker in (0, 1) for step in range(STEPS)])
        for column in ("bytes_sent", "bytes_received"):  # with frames' headers
            moved = sum(line[column] for line in steps if line["worker"] == 0) / (STEPS * 4096)
            self.assertTrue(1 <= moved <= 1.5, f"{column}: {moved} of the payload")
        tests = [line for line in lines if "test_accuracy" in line]
        self.assertEqual(sorted((line["worker"], line["step"]) for line in tests),
                         [(worker, step) for worker in (0, 1) for step in (10, 20, 30)])

    def comparison_file(self):
        with open(self.folder / "cmp" / "compare.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(set(rows[0]), {"strategy", "run", "test_loss", "test_accuracy", *METRICS})
        for strategy, workers in (("single", 1), ("ps", 2)):
            own = [row for row in rows if row["strategy"] == strategy]
            self.assertEqual(len([row for row in own if row["loss"]]), workers * STEPS)
            self.assertEqual(len([row for row in own if row["test_accuracy"]]), workers * 3)

    def manifest(self):
        run = json.loads((self.run_of_ps / "run.json").read_text())
        self.assertEqual(list(run), ["version", "commit", "command", "seed", "hosts", "processors", "mixed_processors",
                                     "link", "job", "launch", "other_programs"])
        self.assertEqual(run["command"][1:3], ["compare", "--data"])
        self.assertEqual((run["job"]["strategy"], run["job"]["steps"], run["job"]["epochs"]), ("ps", STEPS, 1))
        used = [run["job"][option] for option in ("lr", "momentum", "weight_decay", "eps")]
        self.assertEqual(used, [0.1, 0, 0, None])  # those of sgd, which has no eps
        self.assertEqual(sorted(run["hosts"]), ["server 0", "server 1", "worker 0", "worker 1"])

    def summary(self):
        summary = json.loads((self.run_of_ps / "summary.json").read_text())
        for figure in ("final_loss", "test_accuracy", "samples_per_second", "worker_peak_bytes", "server_peak_bytes"):
            self.assertGreater(summary[figure], 0, figure)
        bytes_of = {(entry["role"], entry["direction"]): entry for entry in summary["bytes"]}
        self.assertEqual(len(bytes_of), 6)
        for who, entry in bytes_of.items():
            self.assertEqual(entry["measured"], entry["predicted"], who)
        self.assertEqual(bytes_of["worker 1", "sent"]["measured"], STEPS * 4096)
        for role, report in summary["roles"].items():
            self.assertEqual([name for name in report["memory"] if name != "rss_peak"], CATEGORIES, role)
        logs = sorted(log.name for log in (self.run_of_ps / "logs").iterdir())
        self.assertEqual(logs, ["coordinator.log", "server-0.log", "server-1.log", "worker-0.log", "worker-1.log"])
        self.assertIn("shared memory", (self.run_of_ps / "logs" / "worker-1.log").read_text())

    def memory(self):
        last = {}
        for line in self.lines("memory.jsonl"):
            self.assertEqual(list(line), ["time_s", "role", "rank", *CATEGORIES, "rss", "pss"])
            self.assertTrue(self.began <= line["time_s"] <= self.ended, line)
            self.assertGreater(line["rss"], 1 << 20)
            last[line["role"], line["rank"]] = line
        self.assertEqual(sorted(last), [("server", 0), ("server", 1), ("worker", 0), ("worker", 1)])
        self.assertEqual(last["worker", 0]["gradients"]["peak"], 4096)
        self.assertGreaterEqual(last["server", 0]["parameters"]["peak"], 2048)

    def trace(self):
        events = json.loads((self.run_of_ps / "trace.json").read_text())["traceEvents"]
        names = {event["pid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
        self.assertEqual(sorted(names.values()), ["server 0", "server 1", "worker 0", "worker 1"])
        spans = {name: [] for name in names.values()}
        for event in events:
            if event["ph"] == "X":
                spans[names[event["pid"]]].append((event["name"], event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6))
        for name, own in spans.items():  # one clock for all: the one that this test reads, too
            self.assertLessEqual(self.began, min(begin for _, begin, _ in own), name)
            self.assertGreaterEqual(self.ended, max(end for _, _, end in own), name)
        self.assertEqual([name for name, _, _ in spans["worker 0"]].count("step"), STEPS)
        frames = {name for name, _, _ in spans["server 0"]}
        self.assertTrue({"push_pull of worker 0, unit 0", "push_pull of worker 1, unit 0"} <= frames, frames)


class Colocated(ProgramTest):
    def test_one_push_a_host(self):
        self.assert_done(self.train(*TINY, "--strategy", "ps-colocated", "--steps", 5, "--workers", 3, "--servers", 2,
                                    "--local-reduce", "--out", "run"))
        summary = json.loads((self.folder / "run" / "summary.json").read_text())
        measured = {(entry["role"], entry["direction"]): entry["measured"] // 5 for entry in summary["bytes"]}
        for entry in summary["bytes"]:
            self.assertEqual(entry["measured"], entry["predicted"], entry)
        m = measured["worker 2", "received"]
        self.assertEqual(measured["servers", "received"], m // 2)  # worker 0's push to server 1
        self.assertEqual(measured["servers", "sent"], 2 * m)

    def test_a_worker_s_row_is_its_process_s(self):
        self.assert_done(self.train(*TINY, "--strategy", "ps-colocated", "--steps", 5, "--workers", 3, "--servers", 2,
                                    "--out", "run"))
        summary = json.loads((self.folder / "run" / "summary.json").read_text())
        measured = {(entry["role"], entry["direction"]): entry["measured"] // 5 for entry in summary["bytes"]}
        for entry in summary["bytes"]:
            self.assertEqual(entry["measured"], entry["predicted"], entry)
        m = measured["worker 2", "sent"]  # no server there: all that there is
        for direction in ("sent", "received"):
            self.assertEqual([measured[f"worker {rank}", direction] for rank in range(3)], [m // 2 + m, m // 2 + m, m])
            self.assertEqual(measured["servers", direction], 2 * m)
        reports = summary["roles"]
        self.assertEqual(sorted(reports), ["server 0", "server 1", "worker 0", "worker 1", "worker 2"])
        booked = {role: sum(entry["peak"] for category, entry in report["memory"].items() if category in CATEGORIES)
                  for role, report in reports.items()}
        self.assertEqual(summary["worker_peak_bytes"], booked["worker 0"] + booked["server 0"])
        self.assertEqual([role for role, report in reports.items() if "rss_peak" in report["memory"]],
                         ["worker 0", "worker 1", "worker 2"])
        logs = sorted(log.name for log in (self.folder / "run" / "logs").iterdir())
        self.assertEqual(logs, ["coordinator.log", "worker-0.log", "worker-1.log", "worker-2.log"])
        self.assertIn("through this process's own memory", (self.folder / "run" / "logs" / "worker-1.log").read_text())


class Asynchrony(ProgramTest):
    """assert_done: bytes and memory are as predicted."""

    def test_who_makes_fewer_steps_moves_fewer_bytes(self):
        for fault in ("slow:worker:2=8x", "slow:worker:0=8x"):
            with self.subTest(fault):
                out = self.folder / fault.replace(":", "-")
                self.assert_done(self.train(*TINY, "--strategy", "ps", "--workers", 3, "--servers", 2, "--backup-workers", 1,
                                            "--compute", "sleep:2ms", "--steps", 40, "--fault", fault, "--out", out))
                roles = json.loads((out / "summary.json").read_text())["roles"]
                made = [roles[f"worker {rank}"]["steps"] for rank in range(3)]
                self.assertLess(min(made), max(made))
        for rank in (0, 2):
            with self.subTest(colocated=rank):
                self.assert_done(self.train(*TINY, "--strategy", "ps-colocated", "--workers", 3, "--backup-workers", 1,
                                            "--compute", "sleep:2ms", "--steps", 40, "--fault", f"slow:worker:{rank}=8x"))

    def test_the_slowest_may_be_who_saves(self):
        out = self.folder / "saved"
        self.assert_done(self.train(*TINY, "--strategy", "ps", "--workers", 3, "--servers", 2, "--backup-workers", 1,
                                    "--steps", 40, "--checkpoint-every", 4, "--checkpoint-keep", 0,
                                    "--fault", "slow:worker:0=20x", "--out", out))
        saved = sorted(int(each.name.split("-")[-1]) for each in (out / "checkpoints").iterdir())
        self.assertEqual(saved, list(range(4, 41, 4)))

    def test_one_worker_s_residual_is_saved_without_servers_that_have_none(self):
        self.assert_done(self.train(*TINY, "--strategy", "dp", "--workers", 1, "--compress", "top-k", "--steps", 8,
                                    "--checkpoint-every", 4))

    def test_workers_that_clip_what_they_push(self):
        for strategy in ("ps-ssp", "ps-async"):
            with self.subTest(strategy):
                self.assert_done(self.train(*TINY, "--strategy", strategy, "--workers", 2, "--steps", 20, "--clip-norm", 1))


class ShardGroups(ProgramTest):
    def test_groups_side_by_side(self):
        """Over links of which one ends before the other: all are waited for."""
        result = self.run_program("psring", "compare", *TINY, "--strategies", "ddp,zero1,zero2,zero3", "--workers", 4,
                                  "--shard-group", "1,2,4", "--steps", 5, "--link", "1gbit", "--wide", "--out", "run")
        self.assert_done(result)
        rows = json.loads((self.folder / "run" / "compare.json").read_text())["rows"]
        self.assertEqual(len(rows), 10)
        self.assertIn("n = 2 ×", result.out)


    def test_parameters_once_a_host(self):
        result = self.run_program("psring", "compare", *TINY, "--strategies", "zero3", "--workers", 4, "--shard-group",
                                  "host,2", "--share-host-parameters", "--steps", 5, "--out", "run")
        self.assert_done(result)
        for group, equal in (("host", "="), ("2", "≈")):
            self.assertRegex(result.out, rf"zero3 shard-group={group} .* ✓ .* ✓ +{equal} ")


class Progress(ProgramTest):
    """Shown while the job runs; ended by Ctrl-C, because how long a job takes is nobody's promise."""

    ARGUMENTS = ["train", *ENDLESS, "--strategy", "single"]

    def interrupt(self, job):
        job.send_signal(signal.SIGINT)
        self.assertEqual(job.wait(LIMIT), 130)

    def test_plain(self):
        job = self.start("psring", *self.ARGUMENTS)
        line = next(line for line in job.stdout if line.startswith("single "))
        self.assertRegex(line, r"^single step \d+/100000000  loss \d+\.\d+  \d+ samples/s a worker  \d+ (s|min|h \d+ min) left\n$")
        self.interrupt(job)

    def test_terminal(self):
        """What does not fit is left out; the time left always fits."""
        ours, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        job = subprocess.Popen([BIN / "psring", *self.ARGUMENTS], cwd=self.folder, env=self.environment,
                               stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal)
        os.close(terminal)
        text = b""
        while not (bar := re.search(rb"\r(single \[#*\.*\] step \d+/100000000 [^\r]* left) *\r", text)):
            text += os.read(ours, 4096)  # fails where the job has ended
        self.assertLess(len(bar.group(1)), 80)
        self.interrupt(job)
        os.close(ours)


class ShapedLink(ProgramTest):
    """--link changes when tensors arrive, and nothing else."""

    def test_all(self):
        job = [*TINY, "--steps", 5, "--workers", 2, "--servers", 2]
        # 2 workers push 2 kB a step to each of 2 servers, at 125 kB/s, and pull as much.
        shaped = self.train(*job, "--link", "1mbit,2ms", "--out", "shaped")
        self.assert_done(shaped)
        self.assert_done(self.train(*job, "--out", "plain"))
        shaped, plain = self.folder / "shaped", self.folder / "plain"
        self.assertEqual((shaped / "model.safetensors").read_bytes(), (plain / "model.safetensors").read_bytes())
        self.assertEqual(json.loads((shaped / "run.json").read_text())["link"], "1mbit,2ms")
        self.assertIsNone(json.loads((plain / "run.json").read_text())["link"])
        self.assertIn("shaped to 1 Mbit/s, 2 ms", (shaped / "logs" / "worker-1.log").read_text())
        steps = [json.loads(line) for line in (shaped / "metrics.jsonl").read_text().splitlines()]
        for step in steps:
            if "loss" in step:
                self.assertGreater(step["step_s"], 0.02)


class Freeze(ProgramTest):
    FROZEN = ["--data", "synthetic", "--model", "mlp:16-16-16-4", "--global-batch", "12", "--optimizer", "adam",
              "--freeze", "layers.0,layers.1"]

    def test_all_ways(self):
        """A list of units is no list of runs; and what is frozen is not pushed."""
        result = self.run_program("psring", "compare", *self.FROZEN, "--strategies", "single,ps,ps-zero3,ddp,zero1,zero3",
                                  "--steps", 3, "--workers", 2, "--servers", 2, "--out", "cmp")
        self.assert_done(result)
        rows = json.loads((self.folder / "cmp" / "compare.json").read_text())["rows"]
        self.assertEqual([(row["strategy"], row["equality"], row["ok"]) for row in rows],
                         [("single", "—", True), *((way, "=", True) for way in ("ps", "ps-zero3", "ddp", "zero1", "zero3"))])
        summary = json.loads((self.folder / "cmp" / "ps" / "summary.json").read_text())
        sent = [each["measured"] for each in summary["bytes"] if (each["role"], each["direction"]) == ("worker 0", "sent")]
        self.assertEqual(sent, [3 * 4 * 512])  # 4 x 16 and 4 elements, each tensor placed in 256

    def test_it_is_said(self):
        result = self.train(*self.FROZEN, "--strategy", "ps", "--steps", 2, "--out", "run")
        self.assert_done(result)
        self.assertIn("not trained: 544 parameters, of layers.0, layers.1\n", result.out)
        gpt = ["--model", "gpt:layers=3,dim=8,heads=2,context=4,vocab=8", "--data", "synthetic", "--global-batch", "4",
               "--strategy", "ps", "--steps", 1]
        blocks = self.train(*gpt, "--freeze", "h.0,h.1", "--out", "blocks")
        self.assertIn(", of h.0, h.1\n", blocks.out)
        half = self.train(*gpt, "--freeze", "unit.2", "--out", "half")  # of h.0, whose other half is trained
        self.assertIn(", of unit.2\n", half.out)


class Sweep(ProgramTest):
    def test_rows(self):
        """A row a point, once: a strategy without servers does the same at every number of them."""
        result = self.run_program("psring", "compare", *TINY, "--strategies", "ps,ddp,single", "--steps", 2,
                                  "--workers", "2,3", "--servers", "1,n", "--lr", "0.1", "--out", "cmp")
        self.assert_done(result)
        rows = re.findall(r"(?m)^((?:ps|ddp|single)\b.*?)  .* [=—] .*$", result.out)
        self.assertEqual(rows, ["ps n=2 s=1", "ps n=2 s=2", "ps n=3 s=1", "ps n=3 s=3", "ddp n=2", "ddp n=3", "single"])
        self.assertTrue((self.folder / "cmp" / "ps-n=3-s=3".replace("=", "-") / "summary.json").exists())
        with open(self.folder / "cmp" / "compare.csv", newline="") as file:
            self.assertEqual({row["strategy"] for row in csv.DictReader(file)}, set(rows))

    def test_options_that_a_strategy_has_not(self):
        result = self.run_program("psring", "compare", *TINY, "--strategies", "ddp,ddp-naive", "--steps", 2, "--workers", 2,
                                  "--overlap", "on,off", "--out", "cmp")
        self.assert_done(result)
        rows = re.findall(r"(?m)^(ddp\b.*?)  .* = .*$", result.out)
        self.assertEqual(rows, ["ddp overlap=on", "ddp overlap=off", "ddp-naive"])

    def test_link(self):
        result = self.run_program("psring", "compare", *TINY, "--strategies", "ps,ddp", "--steps", 2, "--workers", 2,
                                  "--link", "100kbit", "--out", "cmp")
        self.assert_done(result)
        self.assertRegex(result.out, r"(?m)^ps .* server link$")
        self.assertRegex(result.out, r"(?m)^ps: a worker's link alone needs 327\.7 ms, a server's 655\.4; the step took [\d.]+ → ")
        self.assertRegex(result.out, r"(?m)^ddp: the link alone needs 327\.7 ms; the step took [\d.]+")

    def test_links(self):
        """A list of rates, each with its delay where it has any, in any case."""
        result = self.run_program("psring", "compare", *TINY, "--strategies", "ps", "--steps", 2, "--workers", 2,
                                  "--link", "1Gbit,0.2ms,10GBIT", "--out", "cmp")
        self.assert_done(result)
        self.assertEqual(re.findall(r"(?m)^(ps\b.*?)  .* = .*$", result.out), ["ps link=1Gbit,0.2ms", "ps link=10GBIT"])
        self.assertEqual(json.loads((self.folder / "cmp" / "ps-link-1Gbit-0.2ms" / "run.json").read_text())["link"], "1Gbit,0.2ms")
        refused = self.train(*TINY, "--link", "1gbit,10gbit", "--steps", 2)
        self.assert_refused(refused, 2, "--link: expected one rate, got '1gbit,10gbit'", "psring compare")

    def test_a_straggler(self):
        result = self.run_program("psring", "compare", *TINY, "--strategies", "ddp,ps,ps-async", "--steps", 14, "--workers", 2,
                                  "--compute", "sleep:50ms", "--fault", "slow:worker:1=4x", "--out", "cmp")
        self.assert_done(result)
        text = " ".join(result.out.split())
        for way in ("ddp", "ps"):
            self.assertRegex(result.out, rf"(?m)^{way} .* slowest worker$")
            self.assertRegex(text, rf"{way}: worker 1 computes for \d\d\d\.\d ms a step, the others for \d+\.\d; all wait for "
                                   r"worker 1 → ps-async, or ps with --backup-workers 1, does not wait for it")
        # Others that take the processors are the bound of steps in which nobody waits.
        self.assertRegex(text, r"ps-async: (?:worker 1 computes for \d\d\d\.\d ms a step, the others for \d+\.\d; nobody waits → |"
                               r"computes for .* → end the other programs; .* other programs took )")
        self.assertIn("inexact: the result depends on timing", text)
        self.assertIn("\nchecking bits: single with 2 virtual workers step ", result.out)

    def test_more_processes_than_processors(self):
        """Their times are marked, each in its row, and the line below says why."""
        workers = 2 * len(os.sched_getaffinity(0))
        result = self.run_program("psring", "compare", "--data", "synthetic", "--model", "mlp:64-64-4", "--strategies", "ddp",
                                  "--workers", workers, "--global-batch", 8 * workers, "--steps", 5, "--out", "cmp")
        self.assert_done(result)
        self.assertRegex(result.out, r"(?m)^ddp +[\d.]+ +\d+\* +[\d.]+\* +[\d.]+\* ")
        text = " ".join(result.out.split())
        self.assertIn("*: not comparable", text)
        self.assertRegex(text, rf"times are not comparable: {workers} threads on {workers // 2} processors?")
        (row,) = json.loads((self.folder / "cmp" / "compare.json").read_text())["rows"]
        self.assertIn(f"{workers} threads", row["not_comparable"])

    def test_compressed_is_inexact_for_another_reason(self):
        result = self.run_program("psring", "compare", *TINY, "--strategies", "ps", "--steps", 2, "--workers", 2,
                                  "--compress", "int8", "--out", "cmp")
        self.assert_done(result)
        self.assertIn("inexact with --compress: repeatable", result.out)
        self.assertNotIn("timing", result.out)

    def test_runs(self):
        """By turns: the second time backwards. A folder each, and all lines of all in compare.csv."""
        result = self.run_program("psring", "compare", *TINY, "--strategies", "ps,ddp", "--steps", 2, "--workers", 2,
                                  "--runs", 3, "--wide", "--out", "cmp")
        self.assert_done(result)
        began = {(strategy, run): (self.folder / "cmp" / strategy / f"run-{run}" / "job.json").stat().st_mtime_ns
                 for strategy in ("ps", "ddp") for run in (1, 2, 3)}
        self.assertEqual(sorted(began, key=began.get),
                         [("ps", 1), ("ddp", 1), ("ddp", 2), ("ps", 2), ("ps", 3), ("ddp", 3)])
        self.assertRegex(result.out, r"(?m)^ps .* [\d.]+ % .* = ")
        self.assertRegex(result.out, r"(?m)^ddp +2 workers +gradients +(\d+) +\1 +\+0$")
        self.assertRegex(result.out, r"(?m)^ps +server 0 +\d+\.\d +\d+\.\d +\d+\.\d$")
        with open(self.folder / "cmp" / "compare.csv", newline="") as file:
            lines = [(row["strategy"], row["run"], row["worker"], row["step"]) for row in csv.DictReader(file) if row["loss"]]
        self.assertEqual(sorted(lines), sorted((strategy, run, worker, step) for strategy in ("ps", "ddp")
                                               for run in "123" for worker in "01" for step in "01"))
        steps = []
        for run in "123":
            summary = json.loads((self.folder / "cmp" / "ps" / f"run-{run}" / "summary.json").read_text())
            steps.append(summary["step_s"])
        rows = json.loads((self.folder / "cmp" / "compare.json").read_text())["rows"]
        self.assertEqual(rows[0]["step_s"], {"median": sorted(steps)[1], "least": min(steps), "most": max(steps)})

    def test_a_way_that_diverges_is_left_out_of_the_table_and_the_others_go_on(self):
        result = self.run_program("psring", "compare", "--strategies", "single", *TINY, "--steps", 5, "--lr", "1e30,0.1", "--out", "cmp")
        self.assert_refused(result, 3, "lr=1e30", "not finite")
        self.assertIn("ended early: single lr=1e30", result.out)
        self.assertTrue((self.folder / "cmp" / "single-lr-0.1" / "summary.json").exists())
        self.assertIn("single lr=0.1", (self.folder / "cmp" / "compare.md").read_text())
        self.assertNotIn("1e30", (self.folder / "cmp" / "compare.md").read_text())

    def test_a_run_that_fails(self):
        """What the others measured is shown, and what failed is named."""
        result = self.run_program(os.environ["PSRING_WRONG_STRATEGIES"], "compare", *TINY, "--strategies", "ddp,breaks",
                                  "--steps", 3, "--workers", 2, "--out", "cmp")
        self.assert_refused(result, 3, "breaks: ", "broken in step 1")
        self.assertRegex(result.out, r"(?m)^ddp .* ✓ .* =")
        self.assertIn("ended early: breaks", result.out)

    def test_lists_that_are_none(self):
        for words in (["--workers", "2,,3"], ["--workers", "2,2"], ["--servers", "1,x"], ["--steps", "2,3x"]):
            with self.subTest(words):
                result = self.run_program("psring", "compare", *TINY, "--strategies", "ps", *words)
                self.assert_refused(result, 2, words[0])


class TextModel(ProgramTest):
    """A text model is judged by perplexity, and its speed is in tokens. The fields of other models stay."""

    def test_all(self):
        self.file("text", b"in the beginning " * 200)
        result = self.train("--strategy", "ddp", "--workers", 2, "--model", "gpt:layers=1,dim=16,heads=2,context=16",
                            "--data", "text:text", "--global-batch", 4, "--steps", 4, "--out", "run")
        self.assert_done(result)
        self.assertRegex(result.out, r"(?m)^ddp: 4 steps, loss [\d.]+, test perplexity [\d.]+; \d+ tokens/s, ")
        summary = json.loads((self.folder / "run" / "summary.json").read_text())
        self.assertAlmostEqual(summary["tokens_per_second"], 16 * summary["samples_per_second"], delta=1)
        self.assertAlmostEqual(math.log(summary["test_perplexity"]), summary["test_loss"], places=6)
        self.assertIn("test_accuracy", summary)
        lines = [json.loads(line) for line in (self.folder / "run" / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual({line["worker"] for line in lines if "test_perplexity" in line}, {0, 1})


class Extensions(ProgramTest):
    """An exception of a program's own part is told as such: which worker, which part, what it said. Exit status 1."""

    def run_with(self, *arguments):
        result = self.run_program(os.environ["PSRING_WRONG_STRATEGIES"], "train", "--steps", 3, "--global-batch", 12, *arguments)
        self.assertNotIn("internal error", result.err)
        return result

    def test_a_strategy(self):
        result = self.run_with("--data", "synthetic", "--model", "mlp:16-4", "--strategy", "throws", "--workers", 2)
        self.assert_refused(result, 1, "worker ", "strategy throws, step 1, threw std::runtime_error: mine broke")

    def test_a_layer(self):
        result = self.run_with("--data", "synthetic", "--model", "throws:in=layer", "--strategy", "ps", "--workers", 1)
        self.assert_refused(result, 1, "worker 0", "layer 0 (unit 'mine') in forward threw std::out_of_range: my row")

    def test_a_data_set(self):
        result = self.run_with("--data", "throws", "--model", "mlp:16-4", "--strategy", "ps", "--workers", 1)
        self.assert_refused(result, 1, "worker 0", "the data set, reading sample ", "threw std::runtime_error: my file")

    def test_a_factory(self):
        result = self.run_with("--data", "synthetic", "--model", "throws:in=factory", "--strategy", "ps")
        self.assert_refused(result, 1, "--model throws:in=factory threw int, which is no std::exception")


class WrongStrategies(ProgramTest):
    """What a strategy promises is checked: a difference is marked in the table, and is exit status 6."""

    def compare(self, strategy):
        program = os.environ["PSRING_WRONG_STRATEGIES"]
        result = self.run_program(program, "compare", *TINY, "--strategies", strategy, "--steps", 3, "--workers", 2)
        self.assert_refused(result, 6, "✗ in the table")
        return result.out

    def test_equality(self):
        table = self.compare("claims-equality")
        self.assertRegex(table, r"(?m)^claims-equality .* 0 ✓ .* ✗ .*$")
        self.assertRegex(table, r"✗ claims-equality: final parameters are not those of .*: [\d.e-]+ apart")

    def test_bytes(self):
        table = self.compare("claims-bytes")
        self.assertRegex(table, r"(?m)^claims-bytes .* 0 ✗ .* inexact .*$")
        self.assertIn("✗ claims-bytes: worker 0 sent: 0 bytes in the run, predicted 12 (-12)\n", table)

    def test_memory(self):
        table = self.compare("claims-memory")
        self.assertRegex(table, r"(?m)^claims-memory .* [0-9.]+ ✗ +inexact .*$")
        self.assertRegex(table, r"✗ claims-memory: worker 0 booked \d+ bytes for gradients, predicted 4 \(\+\d+\)\n")

    def test_nothing_claimed(self):
        """Shown as such, beside how far it is from the reference of others, and right whatever it does."""
        result = self.run_program(os.environ["PSRING_WRONG_STRATEGIES"], "compare", *TINY, "--strategies",
                                  "claims-nothing,ddp", "--steps", 3, "--workers", 2, "--out", "cmp")
        self.assert_done(result)
        self.assertRegex(result.out, r"(?m)^claims-nothing .* 0 — .* — +inexact .*$")
        rows = json.loads((self.folder / "cmp" / "compare.json").read_text())["rows"]
        self.assertGreater(rows[0]["largest_difference"], 0)
        self.assertEqual(rows[1]["largest_difference"], 0)


class LateWorkers(ProgramTest):
    def test_evaluations(self):
        """A worker that passes over updates has its rows of every evaluation all the same."""
        self.assert_done(self.train(*TINY, "--strategy", "ps", "--workers", 3, "--servers", 1, "--backup-workers", 1,
                                    "--steps", 60, "--eval-every", 3, "--fault", "slow:worker:2=20x", "--out", "run"))
        lines = [json.loads(line) for line in (self.folder / "run" / "metrics.jsonl").read_text().splitlines()]
        made = {line["step"] for line in lines if line["worker"] == 2 and "loss" in line}
        self.assertLess(len(made), 60, "worker 2 was never late")
        rows = {}
        for line in lines:
            if "test_rows" in line:
                rows.setdefault(line["step"], []).append((line["worker"], line["test_rows"]))
        self.assertEqual(sorted(rows), list(range(3, 61, 3)))
        for step, of in rows.items():
            self.assertEqual(sorted(of), sorted(rows[60]), step)
        self.assertEqual([worker for worker, _ in sorted(rows[60])], [0, 1, 2])


if __name__ == "__main__":
    unittest.main()
