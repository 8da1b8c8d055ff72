"""Bad input: one line on stderr that names the flag or the file, the status of the design, and nothing left over."""

import gzip
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import unittest

from support import BIN, LIMIT, TINY, ProgramTest

USAGE, DATA, LOST, UNAUTHORISED = 2, 3, 4, 5


def idx(values, *extents, magic=0x0800):
    head = struct.pack(">I", magic | len(extents)) + b"".join(struct.pack(">I", extent) for extent in extents)
    return head + bytes(values)


def safetensors(header, data=b"", claimed=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", claimed if claimed is not None else len(text)) + text + data


class Flags(ProgramTest):
    def refuse(self, arguments, *words, status=USAGE):
        with self.subTest(" ".join(map(str, arguments))):
            self.assert_refused(self.train(*TINY, "--steps", 2, *arguments), status, *words)
            self.assertFalse((self.folder / "runs").exists(), "a run that never was has a folder")

    def test_placement(self):
        self.refuse(["--placement", "here"], "--placement", "colocated", "'here'")
        self.refuse(["--strategy", "ddp", "--placement", "colocated"], "--placement colocated", "ddp", "no servers")
        self.refuse(["--strategy", "ps-colocated", "--placement", "standalone"], "--placement standalone", "ps-colocated")
        self.refuse(["--strategy", "ps-zero3", "--placement", "colocated", "--servers", "3"], "--servers 3", "there are 2")

    def test_the_classic_has_one_server(self):
        self.refuse(["--strategy", "dp", "--servers", "2"], "--servers 2", "dp has one")
        self.refuse(["--strategy", "dp", "--algorithm", "ring"], "--algorithm ring", "no all-reduces")

    def test_local_reduce(self):
        self.refuse(["--local-reduce", "--aggregate", "median"], "--local-reduce", "median")
        self.refuse(["--local-reduce", "--link", "1gbit"], "--local-reduce", "--link 1gbit")
        self.refuse(["--local-reduce", "--strategy", "ddp"], "--local-reduce", "ddp", "no servers")
        self.refuse(["--local-reduce", "--strategy", "dp"], "--local-reduce", "dp", "push a worker")

    def test_asynchrony(self):
        for text in ("ssp", "ssp:-1", "asp:1", "now"):
            self.refuse(["--consistency", text], "--consistency", "ssp:K", f"'{text}'" if text != "ssp:-1" else "-1")
        asp = ["--strategy", "ps-async"]
        self.refuse(["--strategy", "ddp", "--consistency", "asp"], "--consistency asp", "ddp", "bsp by nature")
        self.refuse([*asp, "--remedy", "hope"], "--remedy", "scale-lr", "'hope'")
        self.refuse(["--remedy", "scale-lr"], "--remedy scale-lr", "no stale gradients")
        self.refuse([*asp, "--optimizer", "lamb"], "--optimizer lamb", "--consistency bsp")
        for flag in (["--optimizer-on", "worker"], ["--aggregate", "median"], ["--local-reduce"],
                     ["--backup-workers", "1"], ["--checkpoint-every", "1"], ["--precision", "f16"],
                     ["--comm-dtype", "f16"], ["--loss-scale", "1024"]):
            self.refuse([*asp, *flag], flag[0], "--consistency asp")
        for flag in (["--accumulate", "2"], ["--clip-norm", "1"]):
            self.refuse(["--strategy", "ps-zero2", "--consistency", "asp", *flag], flag[0], "--consistency asp")
        self.refuse(["--backup-workers", "2"], "--backup-workers 2", "2 workers")
        self.refuse(["--strategy", "ddp", "--backup-workers", "1"], "--backup-workers 1", "no servers")
        for flags, why in ((["--local-reduce"], "all of a host"), (["--optimizer-on", "worker"], "miss updates"),
                           (["--precision", "f16"], "skipped"), (["--comm-dtype", "f16"], "skipped"),
                           (["--loss-scale", "dynamic"], "skipped"), (["--loss-scale", "64"], "skipped")):
            self.refuse(["--backup-workers", "1", *flags], "--backup-workers 1", " ".join(flags), why)

    def test_compression(self):
        self.refuse(["--compress", "int4"], "--compress", "int8", "'int4'")
        self.refuse(["--compress", "top-k:ratio=2"], "--compress top-k:ratio=2", "ratio")
        self.refuse(["--strategy", "ddp-naive", "--compress", "int8"], "--compress int8", "ddp-naive")
        self.refuse(["--compress", "power-sgd:rank=33"], "--compress power-sgd:rank=33", "1 to 32")
        self.refuse(["--strategy", "ps", "--compress", "power-sgd"], "--compress power-sgd", "ddp or zero1", "--strategy ps")
        self.refuse(["--strategy", "zero2", "--compress", "power-sgd"], "--compress power-sgd", "--strategy zero2")
        self.refuse(["--strategy", "zero1", "--workers", "2", "--shard-group", "1", "--compress", "power-sgd"],
                    "--compress power-sgd", "--shard-group 1")
        self.refuse(["--compress", "int8", "--comm-dtype", "bf16"], "--compress int8", "--comm-dtype")
        self.refuse(["--compress", "int8", "--precision", "bf16"], "--compress int8", "--comm-dtype f32")
        self.refuse(["--compress", "int8", "--checkpoint-every", "1", "--workers", "3", "--backup-workers", "1"],
                    "--compress int8", "--backup-workers", "--error-feedback off")
        self.refuse(["--error-feedback", "maybe"], "--error-feedback", "'maybe'")
        self.refuse(["--error-feedback", "off"], "--error-feedback off", "--compress")
        self.refuse(["--strategy", "single", "--error-feedback", "off"], "--error-feedback off", "single")

    def test_faults(self):
        for fault, word in (("slow", "KIND:ROLE:RANK"), ("slow:worker:1", "4x"), ("slow:worker:1=4", "4x"),
                            ("slow:worker:1=0.5x", "1x"), ("slow:server:0=4x", "worker"), ("jitter:worker:*=200%", "100%"),
                            ("jam:worker:1=4x", "jitter"), ("kill:agent:0@step=1", "server"), ("kill:worker:0", "@step"),
                            ("kill:worker:0@noon", "@time"), ("slow:worker:0=2x@step=3", "lasts"),
                            ("slow:worker:0=1e99x", "1000000x"), ("kill:worker:0@time=1e99s", "a year"),
                            ("slow:worker:9=2x", "no worker 9"), ("link:worker:1=10mbit", "--link"),
                            ("link:worker:1=fast", "10mbit")):
            self.refuse(["--fault", fault], f"--fault {fault}", word)
        for fault, steps in (("kill:worker:0@step=2", "0 to 1"), ("stop:server:0@step=3", "0 to 2")):
            self.refuse(["--fault", fault], f"--fault {fault}", f"at step {steps}")
        self.refuse(["--workers", "2", "--consistency", "asp", "--fault", "kill:server:0@step=5"], "at step 0 to 4")
        for text in ("sleep", "sleep:5", "sleep:-1ms", "nap:5ms"):
            self.refuse(["--compute", text], "--compute", "sleep:50ms", f"'{text}'")

    def test_shard_group(self):
        job = ["--strategy", "zero3", "--workers", "4"]
        self.refuse([*job, "--shard-group", "3"], "--shard-group 3", "4 workers")
        for group in ("0", "two", "-1", ""):
            self.refuse([*job, f"--shard-group={group or '.'}"], "--shard-group", f"'{group or '.'}'")
        for strategy, why in (("ddp", "cut"), ("ps", "cut"), ("ps-zero3", "cut"), ("single", "cut")):
            self.refuse(["--strategy", strategy, "--shard-group", "host"], "--shard-group host", strategy, why)

    def test_share_host_parameters(self):
        flag = "--share-host-parameters"
        for other in (["--link", "1gbit"], ["--transport", "tcp"], ["--algorithm", "ring"], ["--prefetch", "0"],
                      ["--reshard-after-forward", "off"]):
            self.refuse(["--strategy", "zero3", flag, *other], flag, other[0], other[1])
        for strategy in ("zero2", "ddp", "ps-zero3", "single"):
            self.refuse(["--strategy", strategy, flag], flag, strategy, "gathers no")

    def test_links_of_one_process(self):
        for flag, value in (("--transport", "tcp"), ("--link", "1gbit"), ("--encrypt", "on")):
            self.refuse(["--strategy", "single", flag, value], f"{flag} {value}", "single is one process")
            table = self.run_program("psring", "compare", *TINY, "--strategies", "single", flag, value, "--predict-link", "none")
            self.assert_refused(table, USAGE, f"{flag} {value}", "single is one process")

    def test_freeze(self):
        self.refuse(["--freeze", "layers.0,h.1"], "--freeze layers.0,h.1", "'h.1'", "layers.0, layers.1")
        self.refuse(["--freeze", "layers.*"], "--freeze layers.*", "nothing is left to train", "layers.0, layers.1")

    def test_numbers(self):
        self.refuse(["--workers", "0"], "--workers", "> 0")
        self.refuse(["--workers", "-1"], "--workers", "'-1'")
        self.refuse(["--workers", "two"], "--workers", "'two'")
        self.refuse(["--workers", "99999999999999999999"], "--workers")
        self.refuse(["--workers", "4096"], "--workers", "4096")
        self.refuse(["--workers", "5"], "--global-batch 12", "5 workers")
        self.refuse(["--epochs", "3"], "--steps", "--epochs")
        for flag, value in (("--threads", "1025"), ("--server-threads", "100000000"), ("--servers", "2049"),
                            ("--accumulate", "99999999999"), ("--nodes", "4294967297")):
            self.refuse([flag, value], flag, value)
        for flag, value in (("--steps", "99999999999"), ("--epochs", "99999999999"), ("--epochs", "4294967296")):
            result = self.train(*TINY, flag, value)
            self.assert_refused(result, USAGE, flag, value)
        result = self.train("--data", "synthetic:samples=20", "--model", "mlp:4-2", "--global-batch", 21, "--workers", 1)
        self.assert_refused(result, USAGE, "--global-batch 21", "20 samples")
        self.refuse(["--batch-size", "0"], "--batch-size", "--global-batch")
        self.refuse(["--lr", "nan"], "--lr", "nan")
        for flag, optimizer in (("--lr", "sgd"), ("--momentum", "sgd"), ("--weight-decay", "sgd"), ("--clip-norm", "sgd"), ("--eps", "adam")):
            # 0 and infinity in f32; too large a rate shows itself
            for value in ("1e-46", "1e39") if flag not in ("--lr", "--clip-norm") else ("1e-46",):
                self.refuse(["--optimizer", optimizer, flag, value], flag, "f32", f"got {float(value):g}")
        self.refuse(["--strategy", "ps-async", "--remedy", "dc-asgd:lambda=1e39"], "--remedy dc-asgd", "1e+39")
        self.refuse(["--meeting", "folder"], "--meeting", "launcher")
        self.refuse(["--strategy", "ddp", "--streams", "2", "--transport", "shm"], "--streams 2", "--transport shm")
        self.refuse(["--lr", "fast"], "--lr", "'fast'")
        self.refuse(["--clip-norm", "inf"], "--clip-norm", "inf")
        self.refuse(["--heartbeat-timeout", "1e300"], "--heartbeat-timeout", "1e+300")
        self.refuse(["--accumulate", "100"], "--accumulate 100")
        self.refuse(["--nodes", "0"], "--nodes")
        self.refuse(["--nodes", "2"], "--nodes", "--key")

    def test_names(self):
        for flag in ("--strategy", "--optimizer", "--schedule", "--aggregate", "--consistency", "--transport",
                     "--link", "--encrypt", "--shuffle", "--pad", "--units", "--freeze", "--optimizer-on", "--trace"):
            self.refuse([flag, "banana"], flag, "'banana'")
        self.refuse(["--aggregate", "trimmed-mean:k=5"], "--aggregate", "2 workers")
        self.refuse(["--pad", "none", "--aggregate", "median"], "--pad none", "--aggregate", "'median'")
        self.refuse(["--link", "100mbit", "--transport", "shm"], "--link 100mbit", "--transport shm")
        self.refuse(["--banana"], "--banana", "--help")
        self.refuse(["banana"], "banana")

    def test_models(self):
        base = ["--steps", 2, "--data", "synthetic"]
        for model, words in (
            ("banana", ["--model", "'banana'"]),
            ("mlp:784-x-10", ["--model", "'x'"]),
            ("gpt:layers=2,fingers=3", ["--model", "'fingers'", "layers"]),
            ("gpt:layers=two", ["--model", "layers", "'two'"]),
            ("gpt:layers=4000000000", ["--model", "4000000000 layers"]),
        ):
            with self.subTest(model):
                self.assert_refused(self.train(*base, "--model", model), USAGE, *words)
        for model in ("mlp:784-4000000000-10", "mlp:4-9000000000000000000-9000000000000000000-2"):
            with self.subTest(model):
                self.assert_refused(self.train(*base, "--model", model), DATA, f"--model {model}", "GiB")
                self.assertFalse((self.folder / "runs").exists())

    def test_options_of_another_rule_or_strategy(self):
        self.refuse(["--optimizer", "sgd", "--betas", "0.9,0.99"], "--betas", "sgd")
        self.refuse(["--optimizer", "adam", "--momentum", "0.9"], "--momentum", "adam")
        self.refuse(["--optimizer", "adam", "--nesterov"], "--nesterov", "adam")
        self.refuse(["--strategy", "single", "--servers", "2"], "--servers 2", "single")
        self.refuse(["--strategy", "single", "--workers", "2"], "--workers 2", "--virtual-workers")
        self.refuse(["--strategy", "single", "--aggregate", "median"], "--aggregate median", "single")
        self.refuse(["--strategy", "ps", "--virtual-workers", "2"], "--virtual-workers")
        for flag, value, strategy in (("--optimizer-on", "worker", "ddp"), ("--server-threads", "2", "single"),
                                      ("--bucket", "1M", "ps"), ("--overlap", "off", "ddp-naive"),
                                      ("--bucket-order", "forward", "single"), ("--algorithm", "ring", "ps"), ("--streams", "2", "ps")):
            self.refuse(["--strategy", strategy, flag, value], flag, strategy)
        self.refuse(["--strategy", "ddp", "--streams", "17"], "--streams", "16")
        self.refuse(["--strategy", "ddp", "--tuning", "nowhere.json"], "nowhere.json", status=DATA)
        self.file("broken.json", b'{"all_reduce": [{"ranks": 2}]}')
        self.refuse(["--strategy", "ddp", "--tuning", "broken.json"], "broken.json", "'algorithm'", status=DATA)
        self.refuse(["--strategy", "ps:k=1"], "--strategy", "'k'")
        self.refuse(["--encrypt", "on", "--transport", "shm"], "--encrypt on", "--transport shm")
        self.refuse(["--schedule", "cosine:warmup=-1"], "--schedule cosine:warmup", ">= 0", "'-1'")
        for flag in ("--init", "--out"):
            self.refuse([flag, ""], flag, "a value")

    def test_config_files(self):
        self.file("good.toml", b'lr = 0.5\nseed = 3\nbetas = 0.8,0.9\noptimizer = "adam"\n')
        self.assert_done(self.train(*TINY, "--steps", 1, "--config", "good.toml", "--seed", 4, "--out", "run"))
        job = json.loads((self.folder / "run" / "job.json").read_text())
        self.assertEqual([job[k] for k in ("lr", "seed", "beta1", "optimizer")], [0.5, 4, 0.8, "adam"])
        self.file("bad.toml", b"lr = 0.5\nbanana = 3\n")
        self.refuse(["--config", "bad.toml"], "bad.toml", "'banana'")
        self.file("worse.toml", b"lr = fast\n")
        self.refuse(["--config", "worse.toml"], "worse.toml, line 1: --lr", "'fast'")
        self.file("none.toml", b"\nworkers = 0\n")
        self.refuse(["--config", "none.toml"], "none.toml, line 2: --workers", "> 0")
        self.file("nul.toml", b'seed = 4\nout = "run\0tail"\n')
        self.refuse(["--config", "nul.toml"], "nul.toml, line 2: a NUL byte")
        self.refuse(["--config", "nowhere.toml"], "nowhere.toml", status=DATA)
        self.refuse(["--config", "."], "--config: .: is a folder, not a regular file", status=DATA)

    def test_commands(self):
        self.assert_refused(self.run_program("psring"), USAGE, "train")
        self.assert_refused(self.run_program("psring", "banana"), USAGE, "'banana'", "train")
        self.assert_refused(self.run_program("psring", "compare", "--strategies", "ps,ps"), USAGE, "--strategies", "'ps'")
        self.assert_refused(self.run_program("psring", "compare", "--strategies", "single,banana"), USAGE, "'banana'")
        # A flag that one strategy has is left out of the others' rows; a flag that no strategy has would do nothing.
        for flag, value, strategies in (("--overlap", "off", "single,ps"), ("--bucket", "1M,2M", "ps"),
                                        ("--servers", "2", "ddp"), ("--virtual-workers", "2", "ps,ddp")):
            result = self.run_program("psring", "compare", "--strategies", strategies, flag, value)
            self.assert_refused(result, USAGE, flag)
        for program in ("psring-server", "psring-worker"):
            self.assert_refused(self.run_program(program), USAGE, "--rdzv-endpoint")
            self.assert_refused(self.run_program(program, "--rdzv-endpoint", "127.0.0.1:1"), USAGE, "--key")
        for program, *arguments in (["psring"], ["psring", "train"], ["psring", "compare"], ["psring", "coordinator"],
                                    ["psring", "agent"], ["psring", "keygen"], ["psring-server"], ["psring-worker"]):
            result = self.run_program(program, *arguments, "--help")
            self.assert_done(result)
            self.assertIn(f"Usage: {' '.join([program, *arguments])}", result.out)
            self.assertNotIn("role-worker", result.out)
        for program in ("psring", "psring-server", "psring-worker"):
            self.assertRegex(self.run_program(program, "--version").out, r"^psring \d+\.\d+\.\d+ \(\w+\)\n$")


class LostOutput(ProgramTest):
    """Results that cannot be written to standard output: no command says that it is done."""

    JOB = [*TINY, "--steps", 2]
    COMMANDS = [["--help"], ["--version"], ["train", "--help"], ["memory", *TINY], ["plan", *TINY, "--tflops", 1], ["step", *JOB],
                ["train", *JOB, "--strategy", "single", "--out", "one"], ["compare", *JOB, "--strategies", "single,ddp", "--out", "two"], ["doctor"],
                ["report", "run"], ["trace", "run"], ["manifests", "--kubernetes", "--image", "x", "--runs-claim", "y"], ["check"], ["options"]]

    def refused(self, why, *words, **options):
        result = subprocess.run([str(word) for word in words], stderr=subprocess.PIPE, text=True, cwd=self.folder, env=self.environment, timeout=90,
                                **options)
        self.assertEqual(result.returncode, DATA, words)
        # The reason is not known any more if an earlier line could not be written.
        self.assertRegex(result.stderr, rf"\Apsring: standard output: cannot write(: {why})?\n\Z")

    def test_a_full_disk(self):
        self.assert_done(self.train(*self.JOB, "--out", "run", "--trace", "on"))
        for command in self.COMMANDS:
            with self.subTest(command), open("/dev/full", "w") as full:
                self.refused("No space left on device", BIN / "psring", *command, stdout=full)
        for program in ("psring-server", "psring-worker", "psring-bench"):
            with self.subTest(program), open("/dev/full", "w") as full:
                self.refused("No space left on device", BIN / program, "--help", stdout=full)

    def test_a_file_that_may_not_grow(self):
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

        with open(self.folder / "memory", "w") as file:
            self.refused("File too large", BIN / "psring", "memory", *TINY, stdout=file, preexec_fn=limit)

    def test_a_reader_that_has_gone(self):
        """Who ignores SIGPIPE is told by the status; otherwise the signal ends the program."""
        for ignores in (True, False):
            read, write = os.pipe()
            os.close(read)
            words = [BIN / "psring", "memory", *TINY]
            if ignores:
                self.refused("Broken pipe", *words, stdout=write, preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_IGN))
            else:
                result = subprocess.run(words, stdout=write, stderr=subprocess.PIPE, cwd=self.folder, env=self.environment, timeout=90)
                self.assertEqual((result.returncode, result.stderr), (-signal.SIGPIPE, b""))
            os.close(write)

    def test_another_status_remains(self):
        with open("/dev/full", "w") as full:
            result = subprocess.run([BIN / "psring", "doctor"], stdout=full, stderr=subprocess.PIPE, text=True, cwd=self.folder, env=self.environment,
                                    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80)))
        self.assertEqual((result.returncode, result.stderr), (DATA, ""))  # that a check fails


class Files(ProgramTest):
    IMAGES = bytes(range(16)) * 8  # 8 of 4 x 4
    LABELS = [0, 1, 2, 3] * 2

    def dataset(self, **replaced):
        files = {}
        for part in ("train", "t10k"):
            files[f"{part}-images-idx3-ubyte.gz"] = gzip.compress(idx(self.IMAGES, 8, 4, 4))
            files[f"{part}-labels-idx1-ubyte.gz"] = gzip.compress(idx(self.LABELS, 8))
        files.update({name.replace("_", "-") + ".gz": content for name, content in replaced.items()})
        for name, content in files.items():
            self.file(f"data/{name}", content)

    def train_on(self, data, *arguments):
        return self.train("--model", "mlp:16-8-4", "--global-batch", 8, "--steps", 2, "--data", data, *arguments)

    def test_idx(self):
        self.dataset()
        self.assert_done(self.train_on("idx:data"))
        whole = gzip.compress(idx(self.IMAGES, 8, 4, 4))
        images = "train-images-idx3-ubyte"
        for what, name, content in (
            ("cut off", images, whole[:-12]),
            ("fewer bytes than its header says", images, gzip.compress(idx(self.IMAGES[:-5], 8, 4, 4))),
            ("wrong magic number", images, gzip.compress(idx(self.IMAGES, 8, 4, 4, magic=0x0D00))),
            ("claims terabytes", images, gzip.compress(idx(b"", 0xFFFFFFFF, 0xFFFF, 0xFFFF))),
            ("no images", images, b""),
            ("other number of labels", "train-labels-idx1-ubyte", gzip.compress(idx(self.LABELS[:4], 4))),
            ("labels that training has not", "t10k-labels-idx1-ubyte", gzip.compress(idx([0, 1, 2, 9] * 2, 8))),
        ):
            with self.subTest(what):
                self.dataset(**{name.replace("-", "_"): content})
                self.assert_refused(self.train_on("idx:data"), DATA, name)
        with self.subTest("labels that the model has not"):
            self.dataset(train_labels_idx1_ubyte=gzip.compress(idx([0, 1, 2, 9] * 2, 8)))
            self.assert_refused(self.train_on("idx:data"), DATA, "data/train-labels-idx1-ubyte.gz: label 9 of sample 3",
                                "--model mlp:16-8-4, whose 4 classes are 0 to 3")

    def test_missing(self):
        self.assert_refused(self.train_on("idx:nowhere"), DATA, "nowhere")
        gpt = ["--model", "gpt:layers=1,dim=8,heads=1,context=8", "--global-batch", 4, "--steps", 1]
        self.assert_refused(self.train(*gpt, "--data", "text:nowhere.txt"), DATA, "nowhere.txt")
        self.file("short.txt", b"a")
        self.assert_refused(self.train(*gpt, "--data", "text:short.txt"), DATA, "short.txt")
        self.file("odd.bin", b"abc")
        self.assert_refused(self.train(*gpt, "--data", "tokens:odd.bin"), DATA, "odd.bin")

    def test_initial_parameters(self):
        weights = {"dtype": "F32", "shape": [16, 16], "data_offsets": [0, 1024]}
        for what, content, word in (
            ("empty", b"", "truncated"),
            ("terabytes of header", safetensors(b"{}", claimed=1 << 42), "header"),
            ("no JSON", safetensors(b"{{{{"), "bad header: it is not JSON, from byte 2 on"),
            ("a tensor beyond the file", safetensors({"layers.0.weight": weights}), ""),
            ("another shape", safetensors({"layers.0.weight": {**weights, "shape": [8, 32]}}, bytes(1024)), "shape"),
            ("tensors missing", safetensors({"layers.0.weight": weights}, bytes(1024)), "layers."),
        ):
            with self.subTest(what):
                self.file("init.safetensors", content)
                result = self.train(*TINY, "--steps", 2, "--init", "init.safetensors")
                self.assert_refused(result, DATA, "init.safetensors", word)
        self.assert_refused(self.train(*TINY, "--steps", 2, "--init", "nowhere"), DATA, "nowhere")
        with self.subTest("not a number"):
            self.assert_done(self.train(*TINY, "--steps", 1, "--out", "run"))
            self.file("init.safetensors", self.model("run")[:-4] + struct.pack("<f", float("nan")))
            result = self.train(*TINY, "--steps", 2, "--init", "init.safetensors")
            self.assert_refused(result, DATA, "init.safetensors", "tensor layers.1.bias: element 3 is nan")

    def test_run_folder(self):
        self.assert_done(self.train(*TINY, "--steps", 2, "--out", "run"))
        before = self.model("run")
        self.assert_refused(self.train(*TINY, "--steps", 3, "--out", "run"), USAGE, "--out run")
        self.assertEqual(self.model("run"), before)
        self.assert_refused(self.train(*TINY, "--steps", 3, "--out", "/proc/run"), DATA, "--out /proc/run")
        self.assert_refused(self.train(*TINY, "--steps", 9, "--lr", "1e10", "--out", "failed"), DATA, "not finite")
        manifest = json.loads((self.folder / "failed" / "run.json").read_text())
        self.assertEqual((manifest["job"]["lr"], manifest["hosts"]), (1e10, {}))
        result = self.train(*TINY, "--steps", 9, "--out", "failed")
        self.assert_refused(result, USAGE, "--out failed", "which has failed", "remove it or choose another --out")
        compare = ["compare", *TINY, "--strategies", "single", "--steps", 2, "--out", "both"]
        self.assert_done(self.run_program("psring", *compare))
        self.assert_refused(self.run_program("psring", *compare), USAGE, "--out", "both/single", "holds a run")


class NotFinite(ProgramTest):
    def test_names_step_and_unit(self):
        for strategy in ("single", "ps"):
            with self.subTest(strategy):
                result = self.train(*TINY, "--steps", 50, "--lr", "1e10", "--strategy", strategy)
                self.assert_refused(result, DATA, "step ", "unit 'layers.", "not finite")

    def test_a_model_that_is_not_finite_is_not_saved(self):
        last = ["--steps", 1, "--lr", "1e39"]  # no later step would show it
        for strategy in ("single", "ps", "ps-zero3", "ddp"):
            with self.subTest(strategy):
                result = self.train(*TINY, *last, "--strategy", strategy, "--out", f"last-{strategy}")
                self.assert_refused(result, DATA, "after step 0, the last", "NaN or infinity", "not saved")
                self.assertFalse((self.folder / f"last-{strategy}" / "model.safetensors").exists())

    def test_a_run_that_skips_all_steps(self):
        result = self.train(*TINY, "--steps", 150, "--precision", "f16", "--loss-scale", "16777216")
        self.assert_refused(result, DATA, "step 100", "of the last 100 steps were skipped")


class Connections(ProgramTest):
    def listen(self):
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        return f"127.0.0.1:{listener.getsockname()[1]}"

    def coordinator(self, *arguments):
        process = self.start("psring", "coordinator", *TINY, "--steps", 2, "--workers", 1, "--key", self.key(),
                             "--out", "run", *arguments)
        return process, process.stdout.readline().split()[2].rstrip(":")

    def test_port_in_use(self):
        taken = self.listen()
        self.key()
        self.assert_refused(self.train(*TINY, "--steps", 2, "--listen", taken, "--out", "run"), USAGE, "--listen", taken)
        result = self.run_program("psring", "coordinator", *TINY, "--key", "job.key", "--listen", taken, "--out", "other")
        self.assert_refused(result, USAGE, "--listen", taken)
        for address in ("banana", "127.0.0.1:99999", "127.0.0.1:-1", "127.0.0.1", "::1:0", "nobody.invalid:0"):
            for command in ("train", "coordinator"):
                result = self.run_program("psring", command, *TINY, "--key", "job.key", "--listen", address)
                self.assert_refused(result, USAGE, f"--listen {address}", "expected HOST:PORT")
        self.assert_done(self.train(*TINY, "--steps", 2, "--listen", "localhost:0", "--out", "local"))
        self.assert_done(self.train(*TINY, "--steps", 2, "--out", "run"))  # the folder is free for another attempt

    def test_key_files(self):
        self.key()
        self.assert_refused(self.run_program("psring", "keygen", "job.key"), USAGE, "job.key")
        self.assert_refused(self.run_program("psring", "keygen", "nowhere/a.key"), DATA, "nowhere/a.key")
        os.chmod(self.folder / "job.key", 0o644)
        os.chmod(self.file("text.key", b"banana\n"), 0o600)
        os.mkfifo(self.folder / "pipe.key", 0o600)
        for program, *arguments in (["psring", "train", *TINY, "--steps", 2], ["psring", "coordinator", *TINY],
                                    ["psring", "agent", "--rdzv-endpoint", "127.0.0.1:1"],
                                    ["psring-server", "--rdzv-endpoint", "127.0.0.1:1"],
                                    ["psring-worker", "--rdzv-endpoint", "127.0.0.1:1"]):
            for key, status in (("job.key", UNAUTHORISED), ("text.key", DATA), ("none.key", DATA), ("pipe.key", DATA),
                                (".", DATA)):
                with self.subTest(f"{program} {arguments[:1]} {key}"):
                    self.assert_refused(self.run_program(program, *arguments, "--key", key), status, "--key", key)

    def test_wrong_key(self):
        process, endpoint = self.coordinator()
        self.key("other.key")
        for program in (["psring-worker"], ["psring-server"], ["psring", "agent"]):
            with self.subTest(program):
                result = self.run_program(*program, "--rdzv-endpoint", endpoint, "--key", "other.key")
                self.assert_refused(result, UNAUTHORISED, "--key", endpoint)
        result = self.run_program("psring-worker", "--rdzv-endpoint", endpoint, "--key", "job.key", "--rank", 5)
        self.assert_refused(result, USAGE, "worker 5", "1 worker")
        result = self.run_program("psring", "agent", "--rdzv-endpoint", endpoint, "--key", "job.key")
        self.assert_refused(result, USAGE, endpoint, "by hand")
        # None of them has done the job any harm.
        server = self.start("psring-server", "--rdzv-endpoint", endpoint, "--key", "job.key")
        self.assert_done(self.run_program("psring-worker", "--rdzv-endpoint", endpoint, "--key", "job.key"))
        self.assert_done(self.finish(server))
        self.assert_done(self.finish(process))

    def test_nobody_there(self):
        self.key()
        common = ["--rdzv-endpoint", "127.0.0.1:1", "--key", "job.key", "--join-timeout", "0.5"]
        for program in (["psring-worker"], ["psring-server"], ["psring", "agent"]):
            with self.subTest(program):
                self.assert_refused(self.run_program(*program, *common, limit=LIMIT / 10), LOST, "127.0.0.1:1", "0.5 s")
        for endpoint in ("banana", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:99999", "nobody.invalid:80"):
            common[1] = endpoint
            for program in (["psring-worker"], ["psring", "agent"]):
                result = self.run_program(*program, *common)
                self.assert_refused(result, USAGE, f"--rdzv-endpoint {endpoint}", "expected HOST:PORT")

    def test_nobody_comes(self):
        process, _ = self.coordinator("--join-timeout", "0.5")
        self.assert_refused(self.finish(process, LIMIT / 10), LOST, "0.5 s (--join-timeout)", "1 worker and 1 server")

    def test_bind(self):
        process, endpoint = self.coordinator()
        common = ["--rdzv-endpoint", endpoint, "--key", "job.key"]
        for program in ("psring-worker", "psring-server"):
            for address in ("240.1.2.3", "banana"):
                result = self.run_program(program, *common, "--bind", address)
                self.assert_refused(result, USAGE, f"--bind {address}")
        # It was looked at before they joined: the job still waits for them.
        server = self.start("psring-server", *common, "--bind", "lo")
        self.assert_done(self.run_program("psring-worker", *common, "--bind", "127.0.0.1"))
        self.assert_done(self.finish(server))
        self.assert_done(self.finish(process))

    def test_bad_environment(self):
        self.key()
        result = self.run_program("psring-worker", "--key", "job.key",
                                  env={"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "RANK": "first"})
        self.assert_refused(result, USAGE, "RANK=first")


if __name__ == "__main__":
    unittest.main()
