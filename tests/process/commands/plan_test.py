"""psring plan ranks strategies by the bounds that they are known to have, and writes a job that train takes; psring fit
writes a file that plan takes; both name what is wrong."""

import json
import re
import statistics
import unittest

from support import ProgramTest

MODEL = ["--model", "mlp:256-256-10", "--data", "synthetic"]
CLUSTER = ["--hosts", 8, "--link-between", "1gbit,0.1ms", "--global-batch", 64, "--tflops", 1]


class Plan(ProgramTest):
    def rows(self, *arguments):
        self.assert_done(self.run_program("psring", "plan", *MODEL, *arguments, "--json", "plan.json"))
        return json.loads((self.folder / "plan.json").read_text())["rows"]

    def refused(self, status, text, *arguments):
        result = self.run_program("psring", *arguments)
        self.assertEqual(result.status, status, result)
        self.assertIn(text, result.err)
        self.assertEqual(result.err.count("\n"), 1, result.err)

    def test_one_server_is_the_bottleneck(self):
        rows = {row["label"]: row for row in self.rows(*CLUSTER, "--strategies", "ps,ddp,ps-colocated", "--bucket", "25M")}
        self.assertEqual(rows["ps s=1"]["bound"], "server link")
        self.assertEqual(rows["ps s=1"]["hosts"], 9)
        self.assertGreater(rows["ps s=1"]["step_s"], 3 * rows["ddp"]["step_s"])
        self.assertAlmostEqual(rows["ps-colocated s=8"]["step_s"] / rows["ddp"]["step_s"], 1, delta=0.2)

    def test_tables(self):
        """Memory is that of psring memory, to the byte; the output says which work on rows takes no time."""
        model = ["--model", "dlrm:dense=4,features=4,dim=8", "--data", "criteo-like:samples=2000", "--global-batch", 64]
        done = self.run_program("psring", "plan", *model, "--strategies", "ps,ddp,zero3", "--hosts", 2, "--servers", 2, "--tflops", 1,
                                "--json", "plan.json")
        self.assert_done(done)
        self.assertIn("the time of their exchange, but not that of the work to find and update them", " ".join(done.out.split()))
        self.assertIn("left out: zero3", done.out)
        rows = {row["label"].split()[0]: row for row in json.loads((self.folder / "plan.json").read_text())["rows"]}
        counted = self.run_program("psring", "memory", *model, "--strategies", "ps,ddp", "--workers", 2, "--servers", 2, "--epochs", 1,
                                   "--hosts", 2, "--json")
        for entry in json.loads(counted.out):
            process = max(entry["worker"]["total"], entry["server"]["total"])
            self.assertEqual(rows[entry["strategy"]]["process_bytes"], process, entry["strategy"])
        self.refused(2, "--data", "plan", *model[:2], "--tflops", 1)
        self.refused(2, "--fault link:worker:1=10mbit", "plan", *model, "--tflops", 1, "--fault", "jitter:worker:*=50% link:worker:1=10mbit")

    def test_rows_of_tables(self):
        """A job moves the predicted bytes, frames counted, to 1 %; where links bound, its step takes the predicted time."""
        job = ["--model", "dlrm:dense=4,features=8,dim=32", "--data", "criteo-like:samples=10k", "--global-batch", 512, "--steps", 12,
               "--link", "10mbit,0.2ms"]
        ways = {"ps": 2, "hybrid": 2, "hybrid-async": 2, "ps-colocated": None}
        for strategy, servers in ways.items():
            with self.subTest(strategy):
                given = [*job, *(["--servers", servers] if servers else [])]
                self.assert_done(self.run_program("psring", "plan", *given, "--strategies", strategy, "--hosts", 2, "--tflops", 0.01,
                                                  "--json", "plan.json"))
                (row,) = json.loads((self.folder / "plan.json").read_text())["rows"]
                self.assert_done(self.train("--strategy", strategy, "--workers", 2, *given, "--out", strategy))
                summary = json.loads((self.folder / strategy / "summary.json").read_text())
                payload = {(part["role"], part["direction"]): part["measured"] / 12 for part in summary["bytes"]}
                lines = (self.folder / strategy / "metrics.jsonl").read_text().splitlines()
                steps = [step for step in map(json.loads, lines) if "bytes_sent" in step]  # without the evaluation
                if strategy.startswith("hybrid"):  # servers have rows alone
                    headers = 2 * 2 * 128  # two frames of each worker and way: one piece at each server
                    for direction, end in (("received", "server_receives"), ("sent", "server_sends")):
                        predicted = servers * (row["row_bytes"][end] - headers)
                        self.assertAlmostEqual(predicted / payload["servers", direction], 1, delta=0.001)
                # A server in the process sends what its worker receives. In hybrid, collectives send control frames as well.
                moved = statistics.mean(step["bytes_sent"] + (step["bytes_received"] if servers is None else 0) for step in steps)
                self.assertAlmostEqual(row["sent_bytes"] / moved, 1, delta=0.02 if strategy.startswith("hybrid") else 0.01)
                measured = statistics.median(step["step_s"] for step in steps if step["step"] > 1)
                self.assertAlmostEqual(row["step_s"] / measured, 1, delta=0.15)
                self.assertIn(row["bound"], ("worker link", "latency"))

    def test_a_fast_network_is_hidden(self):
        (row,) = self.rows("--strategies", "ddp", "--hosts", 2, "--link-between", "100gbit", "--global-batch", 64,
                           "--tflops", 1e-6, "--bucket", "25M")
        self.assertEqual(row["bound"], "compute")
        self.assertLess(row["exposed_s"], 0.01 * row["step_s"])

    def test_4096_workers(self):
        rows = self.rows("--hosts", 512, "--workers-per-host", 8, "--global-batch", 4096, "--tflops", 1)
        self.assertGreater(len(rows), 5)

    def test_the_first_row_can_be_trained(self):
        result = self.run_program("psring", "plan", *MODEL, "--hosts", 2, "--global-batch", 8, "--compute", "sleep:2ms",
                                  "--link", "1gbit,0.1ms", "--steps", 2, "--out", "job.toml")
        self.assert_done(result)
        self.assertIn("beats", result.out.replace("are equal within", "beats"))
        self.assert_done(self.train("--config", "job.toml", "--out", "run"))

    def test_the_file_of_a_row_describes_a_job(self):
        """Commands that take a job take the file: those with a list of strategies, too. The others name what they lack."""
        self.key()
        for strategy, given in (("ddp", ["--bucket", "5M"]), ("ps", ["--bucket", "5M"]), ("pp:2+ddp", []), ("ps", ["--servers", "mixed:1"])):
            with self.subTest(strategy, given=given):
                self.assert_done(self.run_program("psring", "plan", *MODEL, "--hosts", 4, "--global-batch", 8, "--compute", "sleep:2ms", "--link",
                                                  "1gbit,0.1ms", "--steps", 2, "--strategies", strategy, *given, "--out", "job.toml"))
                file = ["--config", "job.toml"]
                text = (self.folder / "job.toml").read_text()
                self.assertEqual("bucket" in text, strategy == "ddp", text)  # a server has no buckets, and train refuses them
                self.assert_done(self.train(*file, "--out", f"run-{strategy}-{len(given)}-{given[:1]}"))
                label = strategy.removeprefix("pp:2+")
                memory = self.run_program("psring", "memory", *file)
                self.assert_done(memory)
                self.assertIn(f"\n{label} ", memory.out)
                self.assertEqual({line.split()[0] for line in memory.out.splitlines()[2:] if line and ":" not in line}, {label})
                if label == "ddp":  # the command line takes precedence
                    more = self.run_program("psring", "memory", *file, "--strategies", "zero1")
                    self.assert_done(more)
                    self.assertIn("\nzero1 ", more.out)
                if "mixed" not in text:
                    step = self.run_program("psring", "step", *file, "--compute", "model", "--out", "scene.json")
                    self.assert_done(step)
                    self.assertEqual([scene["strategy"] for scene in json.loads((self.folder / "scene.json").read_text())["scenes"]],
                                     [label])
                self.assert_done(self.run_program("psring", "compare", *file, "--out", f"compared-{strategy}-{len(given)}-{given[:1]}"))
                coordinator = self.start("psring", "coordinator", *file, "--key", "job.key", "--out", f"job-{strategy}-{len(given)}-{given[:1]}")
                self.assertIn("waiting for 4 workers", coordinator.stdout.readline())
                coordinator.kill()
                self.finish(coordinator)
                self.assert_done(self.run_program("psring", "manifests", "--kubernetes", "--image", "x", "--runs-claim", "y", *file))
                self.refused(2, "--config job.toml, line", "plan", *file, "--tflops", 1)
                for command in (["doctor"], ["fit"], ["agent", "--key", "job.key"]):
                    self.refused(2, "unknown key", *command, *file)
        (self.folder / "both.toml").write_text('strategies = "ps"\nstrategy = "ddp"\n')
        self.refused(2, "--config both.toml, line 2: key 'strategy' is that of line 1", "memory", "--config", "both.toml")

    def test_the_choice_of_algorithms_is_the_run_s(self):
        """A table in --fit is an option of the job: in the prediction, and in the file of a row that has a use for it."""
        fit = json.loads((self.folder / self.costs("fit.json", lines=[], processors=2)).read_text())
        fit["all_reduce"] = [{"ranks": 2, "up_to_bytes": 2**60, "algorithm": "star", "segment_bytes": 65536}]
        (self.folder / "fit.json").write_text(json.dumps(fit))
        job = ["--hosts", 2, "--global-batch", 8, "--compute", "sleep:2ms", "--link", "1gbit,0.1ms", "--steps", 2, "--fit", "fit.json"]
        for strategy, tuned in (("ddp", True), ("ps", False)):
            self.rows(*job, "--strategies", strategy, "--out", "job.toml")
            self.assertEqual('tuning = "fit.json"' in (self.folder / "job.toml").read_text(), tuned)
            self.assert_done(self.train("--config", "job.toml", "--out", strategy))
        fit["all_reduce"] = [{"ranks": 2}]
        (self.folder / "fit.json").write_text(json.dumps(fit))
        self.refused(3, "--fit fit.json: a row of the tuning table", "plan", *MODEL, *job)

    def costs(self, name, **factors):
        """A fit in which some messages cost something, 1 ms of latency or of a processor, and nothing else does."""
        none = {"unit": "byte", "fixed_s": 0, "per_unit_s": 0, "per_element_s": 0, "points": 0, "median_error": 0,
                "worst_error": 0, "fixed_error": 0, "per_unit_error": 0, "most": 0}
        ways = ["ring.tcp", "ring.tcp-encrypted", "ring.shaped"] + [f"server.{way}" for way in ("shm", "tcp", "tcp-encrypted", "shaped")]
        names = [f"{kind}.{way}" for kind in ("hop", "work", "batch") for way in ways]
        names += ["memory.copy", "server.aggregate", *(f"update.{rule}" for rule in ("sgd", "sgd-momentum", "adam", "adamw"))]
        lines = {line: none for line in names} | {line: {**none, "fixed_s": 0.001} for line in factors.pop("lines")}
        for line in factors.pop("without", []):
            del lines[line]
        factors = {"slowdown": 1, "deviation": 0, "sleep_s": 0, **factors}
        (self.folder / name).write_text(json.dumps({
            "format": "psring-fit", "version": 3, "host": "x", "processor": "x", "processors": factors.pop("processors"),
            "lines": lines, "factors": factors}))
        return name

    def test_measured_costs_count(self):
        job = ["--strategies", "ddp", "--hosts", 4, "--link", "1gbit,0.1ms", "--global-batch", 64, "--compute", "sleep:2ms",
               "--bucket", "25M"]
        free = self.costs("free.json", lines=[], processors=2)
        hops = self.costs("hops.json", lines=["hop.ring.shaped"], processors=2)
        works = self.costs("works.json", lines=["work.ring.shaped"], processors=2)
        late = self.costs("late.json", lines=[], processors=2, sleep_s=0.001)
        step = {name: self.rows(*job, "--fit", name)[0]["step_s"] for name in (free, hops, works, late)}
        self.assertGreater(step[hops], step[free] + 0.003)
        self.assertGreater(step[works], step[free] + 0.003)
        self.assertAlmostEqual(step[late], step[free] + 0.006, delta=0.003)  # two layers and an activation, both ways
        on_two = self.rows(*job, "--fit", works)[0]["step_s"]
        on_four = self.rows(*job, "--fit", self.costs("four.json", lines=["work.ring.shaped"], processors=4))[0]["step_s"]
        self.assertGreater(on_two, on_four)

    def test_a_figure_that_the_fit_lacks(self):
        """It is an error that says which one, and what measures it; momentum has the figure of sgd with momentum."""
        job = ["--strategies", "ddp", "--hosts", 4, "--global-batch", 64, "--compute", "sleep:2ms"]
        for without, options in {"update.sgd-momentum": ["--optimizer", "momentum"], "hop.ring.tcp-encrypted": ["--encrypt", "on"],
                                 "server.aggregate": []}.items():
            fit = self.costs("part.json", lines=[], processors=2, without=[without])
            self.refused(2, f"--fit: has no {without}; psring fit --out FILE measures it", "plan", *MODEL, *job, *options, "--fit", fit)
        self.rows(*job, "--encrypt", "off", "--fit", self.costs("part.json", lines=[], processors=2, without=["update.sgd-momentum"]))
        file = self.folder / self.costs("whole.json", lines=[], processors=2)
        fit = json.loads(file.read_text())
        fit["lines"]["update.sgd-momentum"]["per_unit_s"] = 1e-7
        file.write_text(json.dumps(fit))
        momentum, sgd, plain = (self.rows(*job, *options, "--fit", "whole.json")[0]["step_s"] for options in
                                (["--optimizer", "momentum"], ["--optimizer", "sgd", "--momentum", 0.9], []))
        self.assertEqual(momentum, sgd)
        self.assertGreater(momentum, plain + 0.005)

    def test_without_a_fit(self):
        """Messages and encryption cost what they do on the machine that the output names."""
        job = [*CLUSTER[:2], "--link-between", "100gbit", "--global-batch", 64, "--tflops", 1, "--strategies", "ddp,ps"]
        for strategy in ("ddp", "ps"):
            encrypted, open_, free = ({row["strategy"]: row["step_s"] for row in self.rows(*job, *options)}[strategy] for options in
                                      (["--encrypt", "on"], ["--encrypt", "off"],
                                       ["--encrypt", "off", "--fit", self.costs("free.json", lines=[], processors=64)]))
            self.assertGreater(encrypted, 1.5 * open_, strategy)
            self.assertGreater(open_, 1.2 * free, strategy)
        for more in ([], ["--sweep", "hosts=2,4"]):
            said = self.run_program("psring", "plan", *MODEL, *job, *more)
            self.assert_done(said)
            self.assertRegex(" ".join(said.out.split()), "costs of a message and of encryption: measured on .*; psring fit measures yours")
            self.assertNotIn("psring fit", self.run_program("psring", "plan", *MODEL, *job, *more, "--fit", "free.json").out)

    def test_hosts_on_one_machine(self):
        """They share its processors: a message of each of eight hosts takes a processor's time from all."""
        job = ["--strategies", "ddp,ps", "--servers", 8, "--hosts", 8, "--global-batch", 64, "--compute", "sleep:2ms", "--link-between",
               "1gbit,0.1ms", "--encrypt", "off"]
        works = self.costs("works.json", lines=["work.ring.tcp", "work.server.tcp"], processors=2)
        apart, together = ({row["strategy"]: row for row in self.rows(*job, "--fit", works, *more)} for more in ([], ["--one-machine"]))
        for strategy in ("ddp", "ps"):
            self.assertGreater(together[strategy]["step_s"], 3 * apart[strategy]["step_s"])
        self.assertEqual(together["ps"]["bound"], "processors")
        for sweep in ([], ["--sweep", "hosts=2,8"]):
            text = self.run_program("psring", "plan", *MODEL, *job, "--fit", works, "--one-machine", *sweep)
            self.assert_done(text)
            self.assertIn("the hosts share one machine's processors\n", text.out)

    def test_stragglers(self):
        job = ["--strategies", "ddp", "--hosts", 4, "--link", "10gbit", "--global-batch", 64, "--compute", "sleep:100ms"]
        even = self.rows(*job)[0]["step_s"]
        uneven = self.rows(*job, "--fault", "jitter:worker:*=50%")[0]["step_s"]
        self.assertAlmostEqual(uneven / even, 1 + 0.5 * 3 / 5, delta=0.02)

    def test_workers_that_wait_for_nobody(self):
        job = ["--hosts", 4, "--link", "20mbit,1ms", "--compute", "sleep:60ms", "--global-batch", 64, "--servers", 2]
        steps = {row["label"]: row["step_s"] for row in self.rows(*job, "--strategies", "ps,ps-ssp,ps-async")}
        self.assertEqual(steps["ps-ssp s=2"], steps["ps-async s=2"])
        self.assertLess(steps["ps-async s=2"], 0.95 * steps["ps s=2"])
        self.assertGreater(steps["ps-async s=2"], 0.06)

    def test_every_kind_of_row_can_be_trained(self):
        """The file of each row is a job that train takes, with the row's options."""
        tested = 0
        for strategy in ("single", "dp", "ddp", "ddp-naive", "zero1", "zero2", "zero3", "ps", "ps-zero2", "ps-zero3", "ps-colocated"):
            command = ["psring", "plan", *MODEL, "--strategies", strategy, "--hosts", 2, "--workers-per-host", 2, "--global-batch", 16,
                       "--tflops", 1, "--steps", 1, "--choose", "compress,precision,accumulate,activation-checkpointing",
                       "--json", "plan.json"]
            self.assert_done(self.run_program(*command))
            rows = json.loads((self.folder / "plan.json").read_text())["rows"]
            kinds = {}
            for number, row in enumerate(rows, 1):
                tuned = {"servers", "bucket", "prefetch", "accumulate"}
                kinds.setdefault((*sorted(row["options"].keys() - tuned), row["options"].get("compress")), number)
            tested += len(kinds)
            self.check_jobs(command, rows, kinds.values())
        self.assertGreater(tested, 40)

    def check_jobs(self, command, rows, numbers):
        """Trains each row. The file of the last one is the plan's; the others have their options in the same form."""
        for number in numbers:
            row = rows[number - 1]
            with self.subTest(row["label"]):
                lines = "".join(f'{name} = "{value}"\n' for name, value in row["options"].items())
                (self.folder / "job.toml").write_text(lines)
                if number == list(numbers)[-1]:
                    self.assert_done(self.run_program(*command, "--out", "job.toml", "--row", number))
                    text = (self.folder / "job.toml").read_text()
                    self.assertTrue(text.startswith(f"# psring plan: {row['label']}, "))
                    self.assertEqual("".join(line for line in text.splitlines(True) if not line.startswith("#")), lines)
                run = f"{row['strategy']}-{number}"
                self.assert_done(self.train("--config", "job.toml", "--out", run))
                job = json.loads((self.folder / run / "run.json").read_text())["job"]
                self.assertEqual((job["strategy"], job["workers"]), (row["strategy"], 1 if row["strategy"] == "single" else 4))
                for name in ("servers", "compress", "precision", "accumulate", "shard_group", "prefetch"):
                    if name.replace("_", "-") in row["options"]:
                        self.assertEqual(str(job[name]), row["options"][name.replace("_", "-")])

    def test_choosing_more(self):
        cluster = [*CLUSTER, "--fit", self.costs("free.json", lines=[], processors=64)]
        few = self.rows(*cluster, "--strategies", "ps,ddp,zero3")
        self.assertFalse(any(row["inexact"] for row in few))
        rows = self.rows(*cluster, "--strategies", "ps,ddp,zero3", "--choose", "compress,precision")
        labels = {row["label"].split(" bucket")[0]: row for row in rows}
        self.assertEqual({row["label"]: row["step_s"] for row in rows if not row["inexact"]}, {row["label"]: row["step_s"] for row in few})
        plain, int8, bf16 = (labels["ps s=1" + more] for more in ("", " compress=int8", " precision=bf16"))
        self.assertTrue(int8["inexact"] and bf16["inexact"])
        # Pushes have a quarter of the bytes, answers all of them: the server's card at 1 Gbit/s is busy with these alone. It
        # answers all workers at the same time, as TCP does, and is idle until the first pushes of the next step come.
        self.assertLess(int8["step_s"], 0.95 * plain["step_s"])
        self.assertGreater(int8["step_s"] / (int8["sent_bytes"] / 125e6), 1)
        self.assertLess(int8["step_s"] / (int8["sent_bytes"] / 125e6), 1.15)
        self.assertLess(bf16["step_s"], 0.6 * plain["step_s"])
        self.assertIn("*", self.run_program("psring", "plan", *MODEL, *CLUSTER, "--choose", "compress").out)
        self.refused(2, "--choose: expected compress, precision", "plan", *MODEL, *CLUSTER, "--choose", "lr")
        self.refused(2, "--compress is given", "plan", *MODEL, *CLUSTER, "--choose", "compress", "--compress", "int8")
        for rate in ("inf", "nan", "0", "1e99", "0x10", "f32=inf"):
            self.refused(2, f"--tflops: expected a rate such as 50, or f32=20,bf16=150, got '{rate}'", "plan", *MODEL, "--tflops", rate)
        for flag, value, why in (("--memory", "0G", "> 0"), ("--top", 0, "> 0"), ("--row", 2, "--out")):
            self.refused(2, why, "plan", *MODEL, *CLUSTER, flag, value)
        self.refused(2, "--tflops: has no rate of f32", "plan", *MODEL, "--tflops", "bf16=1")
        # No row has an option if no job can have it, and the plan says why.
        result = self.run_program("psring", "plan", *MODEL, "--tflops", "f32=1", "--choose", "precision")
        self.assert_done(result)
        self.assertIn("left out: --choose precision: --tflops: has no rate of bf16", result.out)

    def test_compressed_bytes(self):
        """The bytes of the busiest card are those that a run with the same options counts, and its messages' heads."""
        options = [*MODEL, "--global-batch", 8, "--compute", "sleep:2ms", "--link", "1gbit,0.1ms", "--steps", 3]
        for strategy in ("ps", "ddp", "zero1", "zero3"):
            for compress in ("none", "int8", "top-k:ratio=0.05", "power-sgd:rank=2"):
                if compress.startswith("power") and strategy not in ("ddp", "zero1"):
                    continue
                with self.subTest(strategy, compress=compress):
                    more = [*options, "--compress", compress, *(["--reshard-after-forward", "on"] if strategy == "zero3" else [])]
                    self.assert_done(self.train(*more, "--strategy", strategy, "--workers", 4, "--out", f"{strategy}-{compress[:5]}"))
                    summary = json.loads((self.folder / f"{strategy}-{compress[:5]}" / "summary.json").read_text())
                    # A server's card carries every worker's gradients; one server is the busiest.
                    moved = max(entry["measured"] for entry in summary["bytes"]) / 3
                    self.assert_done(self.run_program("psring", "plan", *more, "--strategies", strategy, "--hosts", 4, "--json", "plan.json"))
                    rows = json.loads((self.folder / "plan.json").read_text())["rows"]
                    (row,) = [row for row in rows if row["servers"] in (0, 1)]
                    self.assertAlmostEqual(row["sent_bytes"] / moved, 1, delta=0.04)

    def test_ways_to_fit(self):
        """Where no row fits, the plan computes activations again, and cuts the batch."""
        gpt = ["--model", "gpt:layers=4,dim=64,heads=4,context=64,vocab=256", "--data", "synthetic", "--hosts", 2, "--tflops", 1,
               "--global-batch", 64, "--strategies", "ddp"]

        def plan(*arguments):
            self.assert_done(self.run_program("psring", "plan", *gpt, *arguments, "--json", "plan.json"))
            (row,) = json.loads((self.folder / "plan.json").read_text())["rows"]
            return row

        whole = plan()
        self.assertNotIn("accumulate", whole["options"])
        fitting = plan("--memory", int(whole["process_bytes"] / 3))
        self.assertTrue(fitting["fits"])
        self.assertLessEqual(fitting["process_bytes"], whole["process_bytes"] / 3)
        self.assertTrue({"accumulate", "activation-checkpointing"} & fitting["options"].keys())
        self.assertFalse(fitting["inexact"])
        # An option that was given stays, and so nothing fits.
        given = plan("--memory", int(whole["process_bytes"] / 3), "--accumulate", 1, "--activation-checkpointing", "off")
        self.assertFalse(given["fits"])
        # Computing activations again takes the time of a forward pass, but for the last unit.
        again = plan("--activation-checkpointing", "unit")
        self.assertGreater(again["compute_s"], 1.15 * whole["compute_s"])
        self.assertLess(again["compute_s"], 1.34 * whole["compute_s"])

    def test_published_traffic(self):
        """Rings, servers and hybrid shards as their papers compute them, on a network that nothing hides, without costs of messages."""
        options = ["--model", "gelu-mlp:dim=1024,layers=8", "--data", "synthetic", "--tflops", 1000, "--bucket", "25M",
                   "--reshard-after-forward", "on", "--fit", self.costs("free.json", lines=[], processors=64)]
        parameters = 4 * 8 * 1024 * 1024
        hosts, rate = 16, 1.25e9

        def plan(*more):
            self.assert_done(self.run_program("psring", "plan", *options, "--hosts", hosts, "--link-between", "10gbit", "--global-batch",
                                              hosts * 8, *more, "--json", "plan.json"))
            return {row["series"][-1]: row for row in json.loads((self.folder / "plan.json").read_text())["rows"]}

        rows = plan("--strategies", "ddp,ps,zero3")
        size = rows["ddp"]["sent_bytes"] / (2 * (hosts - 1) / hosts)
        self.assertAlmostEqual(size / parameters, 1, delta=0.01)
        # Patarasuk, Yuan, JPDC 2009: 2 (n - 1) / n M, for any n.
        self.assertAlmostEqual(rows["ddp"]["step_s"] / (2 * (hosts - 1) / hosts * size / rate), 1, delta=0.05)
        # Li et al., OSDI 2014: s servers' cards carry n M / s each way.
        for servers, row in ((1, rows["ps s=1"]), (hosts // 4, rows["ps s=hosts/4"])):
            self.assertAlmostEqual(row["sent_bytes"] / (hosts * size / servers), 1, delta=0.02)
            self.assertGreater(row["step_s"], 0.98 * hosts * size / servers / rate)
        # Rajbhandari et al., SC 2020, section 7: stage 3 moves 3 M, half as much again as data parallelism.
        self.assertAlmostEqual(rows["zero3"]["sent_bytes"] / rows["ddp"]["sent_bytes"], 1.5, delta=0.02)
        # Zhao et al., VLDB 2023, section 3.2.2: per GPU 2 M (W - 1) / W with replicas, 3 M (W - 1) / W with full shards,
        # 2 M (W - 1) / (G W) with shards in each host of G; the card is that of all G.
        group, all_ranks = 8, hosts * 8
        rows = plan("--workers-per-host", group, "--strategies", "zero3")
        hybrid, full = rows["zero3 group=host"], rows["zero3"]
        published = 2 * size * (all_ranks - 1) / (group * all_ranks)
        self.assertAlmostEqual(hybrid["sent_bytes"] / group / published, 1, delta=1 / hosts + 0.01)
        self.assertLess(hybrid["sent_bytes"], 0.7 * full["sent_bytes"])

    def test_the_reason(self):
        """The sentence below the table has the figures of the rows that it compares."""
        for kind, options in {"its busiest card carries": ["ddp,ps", "--servers", 1, "--tflops", 1],
                              "are exposed communication": ["ddp,ddp-naive", "--tflops", 1],
                              "it needs 8 hosts, the second 9 hosts": ["ddp,ps", "--servers", 1, "--tflops", 1e-7],
                              "which does not fit into memory": ["ddp,zero1", "--tflops", 1, "--memory", "800K", "--optimizer", "adam", "--accumulate", 1,
                                                                 "--activation-checkpointing", "off"],
                              "it computes": ["ddp", "--choose", "precision", "--tflops", "f32=1e-6,bf16=1e-5"],
                              "are equal within 0.5 %": ["ddp,zero1,ps", "--tflops", 1e-6],
                              "": ["zero1", "--tflops", 1]}.items():
            with self.subTest(options):
                self.assert_done(self.run_program("psring", "plan", *MODEL, *CLUSTER[:-2], "--bucket", "25M", "--strategies", *options, "--json", "plan.json"))
                plan = json.loads((self.folder / "plan.json").read_text())
                reason, rows = plan["reason"]["en"], plan["rows"]
                if len(rows) == 1:
                    self.assertEqual(plan["reason"], {"en": "", "zh": ""})
                    continue
                self.assertTrue(reason.startswith(rows[0]["label"]), reason)
                self.assertIn(rows[1]["label"], reason)
                self.assertIn(kind, reason)
                figures = re.compile(r"\d+\.?\d*(?!\w)")
                self.assertEqual(sorted(figures.findall(plan["reason"]["zh"])), sorted(figures.findall(reason)))

    def test_a_sweep_has_all_rows(self):
        result = self.run_program("psring", "plan", *MODEL, "--strategies", "ddp,ps,ps-colocated", "--sweep", "hosts=1..64", "--global-batch", 32,
                                  "--tflops", 1, "--json", "sweep.json")
        self.assert_done(result)
        sweep = json.loads((self.folder / "sweep.json").read_text())
        self.assertEqual([(point["value"], point["x"], point["mesh"]["workers"]) for point in sweep["points"]],
                         [(str(n), n, n) for n in (1, 2, 4, 8, 16, 32)])
        self.assertIn("hosts=64: --global-batch 32", sweep["values_left_out"][0])
        self.assertIn("left out: hosts=64", result.out)
        for point in sweep["points"]:
            self.assertEqual({row["strategy"] for row in point["rows"]}, {"ddp", "ps", "ps-colocated"})
            for row in point["rows"]:
                self.assertAlmostEqual(row["per_host"], 32 / row["step_s"] / row["hosts"], delta=1e-6 * row["per_host"])

        def at(point, series, of):
            (row,) = [row for row in sweep["points"][point]["rows"] if series in row["series"]]
            return row[of]

        self.assertGreater(len(sweep["crossings"]), 0)
        for one in sweep["crossings"]:
            sign = -1 if one["of"] == "step_s" else 1
            for point, better, worse in ((one["point"], one["before"], one["after"]), (one["point"] + 1, one["after"], one["before"])):
                self.assertGreater(sign * at(point, better, one["of"]), sign * at(point, worse, one["of"]))
            self.assertGreater(one["x"], sweep["points"][one["point"]]["x"])
            self.assertLess(one["x"], sweep["points"][one["point"] + 1]["x"])
        # Each host's samples per second stay the same if each worker keeps its batch, and nothing has to be sent.
        self.assert_done(self.run_program("psring", "plan", *MODEL, "--strategies", "ddp", "--sweep", "hosts=1..8", "--batch-size", 32,
                                          "--tflops", 1e-6, "--json", "sweep.json"))
        rates = [point["rows"][0]["per_host"] for point in json.loads((self.folder / "sweep.json").read_text())["points"]]
        self.assertLess(max(rates) / min(rates), 1.01)
        for name, values in {"workers-per-host": "1,2", "link-within": "10gbit,1us;100gbit,1us", "tflops": "1,2", "memory": "1G,2G", "servers": "1,2,n",
                             "bucket": "1M..4M", "accumulate": "1,2", "compress": "none,int8", "precision": "f32,bf16", "units": "layer,root",
                             "model": "mlp:16-16-10;mlp:256-256-10", "optimizer": "sgd,adam", "prefetch": "1,2", "shard-group": "2,4"}.items():
            with self.subTest(name):
                self.assert_done(self.run_program("psring", "plan", "--data", "synthetic", "--hosts", 4, "--tflops", 1, "--strategies", "ps,zero3",
                                                  "--sweep", f"{name}={values}"))

    GPT = ["--model", "gpt:layers=4,dim=64,heads=4,context=32,vocab=64", "--data", "synthetic"]

    def meshes(self, *arguments):
        result = self.run_program("psring", "plan", *self.GPT, *arguments, "--json", "plan.json")
        self.assert_done(result)
        return json.loads((self.folder / "plan.json").read_text()), result.out

    def test_meshes_are_proposed(self):
        """Tensor groups within a host whose heads can be divided, and no more stages than blocks."""
        plan, _ = self.meshes("--hosts", 4, "--workers-per-host", 8, "--global-batch", 256, "--tflops", 1)
        found = {(row["mesh"]["tensor"], row["mesh"]["pipeline"], row["strategy"]) for row in plan["rows"] if row["mesh"]["data"] < 32}
        self.assertEqual(found - {(1, 1, "single")}, {(t, p, "zero1") for t in (1, 2, 4) for p in (1, 2, 4) if t * p > 1})
        for row in plan["rows"]:
            mesh = row["mesh"]
            self.assertEqual(mesh["data"] * mesh["tensor"] * mesh["pipeline"], 32)
            if mesh["pipeline"] > 1:
                self.assertEqual(row["options"]["pipeline-schedule"], "1f1b")
                self.assertIn(int(row["options"]["accumulate"]), (mesh["pipeline"], 4 * mesh["pipeline"]))
                self.assertGreater(row["bubble"], 0)
                self.assertLess(row["bubble"] * row["step_s"] + row["compute_s"] + row["exposed_s"], 1.001 * row["step_s"])
            else:
                self.assertEqual(row["bubble"], 0)
        # None if the user chooses.
        plan, out = self.meshes("--hosts", 4, "--global-batch", 64, "--tflops", 1, "--strategies", "ddp")
        self.assertEqual([row["label"].split()[0] for row in plan["rows"]], ["ddp"])
        self.assertNotIn("bubble", out)

    def test_named_meshes(self):
        """Words as compare reads them; a mesh without a strategy is one copy of the model on as many hosts as it needs."""
        plan, out = self.meshes("--hosts", 4, "--global-batch", 64, "--tflops", 1, "--strategies", "ddp,tp:2,pp:4:1f1b,pp:2+zero1,tp:2+pp:2+zero3,pp:2+ps,tp:3+ddp,tp:8")
        rows = {row["label"].split()[0]: row for row in plan["rows"]}
        self.assertEqual({label: row["hosts"] for label, row in rows.items()}, {"ddp": 4, "tp:2": 2, "pp:4:1f1b": 4, "pp:2+zero1": 4, "tp:2+pp:2+zero3": 4})
        self.assertIn("bubble", out)
        left_out = " ".join(plan["left_out"])
        self.assertIn("predicts no servers in a mesh", left_out)
        self.assertIn("cannot be divided by 3", left_out)
        self.assertIn("the cluster has only 4 workers", left_out)
        for words, text in {"tp:0": "expected tp:N", "pp:2:9": "expected", "tp:2:gpipe": "expected tp:N", "ddp+zero1": "names two strategies"}.items():
            self.refused(2, text, "plan", *self.GPT, "--tflops", 1, "--hosts", 4, "--strategies", words)
        self.refused(2, "give the mesh in one of them", "plan", *self.GPT, "--tflops", 1, "--hosts", 4, "--tensor", 2, "--strategies", "tp:2+ddp")

    def test_words_that_mean_the_same(self):
        job = ["plan", *MODEL, "--hosts", 4, "--global-batch", 8, "--tflops", 1, "--strategies"]
        self.refused(2, "'ps' is listed twice", *job, "ps,ddp,ps")
        self.refused(2, "'pp:2' is listed twice", *job, "pp:2,pp:2")
        self.refused(2, "'tp:2+pp:2' and 'pp:2:gpipe+tp:2' are the same", *job, "tp:2+pp:2,pp:2:gpipe+tp:2")
        for word in ("pp:1", "tp:1+pp:2", "pp:4:", "pp:01"):
            self.refused(2, f"'{word.split('+')[0]}' in '{word}'", *job, word)
        self.refused(2, "'pp:4+' has an empty part", *job, "pp:4+")
        self.rows("--hosts", 4, "--global-batch", 8, "--tflops", 1, "--strategies", "pp:2,pp:2+ddp,pp:2:1f1b")  # three ways
        for axis in (["--pipeline", 100], ["--tensor", 3]):  # an error names the axis
            self.refused(2, f"{axis[0]} {axis[1]} ", "plan", *MODEL, "--hosts", 4, "--global-batch", 8, "--tflops", 1, *axis)

    def test_meshes_that_cannot_be_predicted(self):
        for words in ("pp:2+single", "pp:2+dp", "single+pp:2"):
            self.refused(2, "the strategy cannot divide a model", "plan", *self.GPT, "--tflops", 1, "--hosts", 4, "--strategies", words)
        # 3 workers in a host: groups of 2 or 4 would lie partly in a host and partly between hosts.
        odd = ["--tflops", 1, "--hosts", 4, "--workers-per-host", 3, "--global-batch", 12]
        for words in ("tp:2+ddp", "tp:4+ddp", "pp:4", "pp:2+ddp", "tp:2+pp:2+zero1"):
            self.refused(2, "only if they divide or fill hosts, which have 3", "plan", *self.GPT, *odd, "--strategies", words)
        self.assert_done(self.run_program("psring", "plan", *self.GPT, *odd, "--json", "plan.json"))
        self.assertFalse([row["label"] for row in json.loads((self.folder / "plan.json").read_text())["rows"] if row["mesh"]["tensor"] > 1])

    def test_the_standard_model(self):
        """Without --model, and with figures that leave little room for names in a table of 80 columns."""
        for cluster in ([], ["--hosts", 4], ["--workers-per-host", 8]):
            self.assert_done(self.run_program("psring", "plan", "--tflops", 1, *cluster))

    def test_a_mesh_can_be_trained(self):
        """The options of a row are a job that train takes; bytes and memory of the job are those that the row says."""
        words = ["pp:2:1f1b+zero1", "tp:2+pp:2", "tp:2+ddp", "pp:4"]
        job = [*self.GPT, "--hosts", 4, "--link", "1gbit,0.1ms", "--global-batch", 32, "--tflops", 0.1, "--steps", 3]
        for word in words:
            with self.subTest(word):
                result = self.run_program("psring", "plan", *job, "--strategies", word, "--out", "job.toml", "--json", "plan.json")
                self.assert_done(result)
                (row,) = json.loads((self.folder / "plan.json").read_text())["rows"]
                run = re.sub(r"\W", "-", word)
                self.assert_done(self.train("--config", "job.toml", "--out", run))
                summary = json.loads((self.folder / run / "summary.json").read_text())
                booked = {}
                for check in summary["memory"]:
                    booked.setdefault(check["role"], 0)
                    booked[check["role"]] += check["peak"]
                self.assertEqual(row["process_bytes"], max(booked.values()))

    def test_micro_batches_of_two_sizes(self):
        """A step computes all samples of its batch, into however many micro-batches it is cut."""
        job = ["--hosts", 2, "--strategies", "pp:2", "--tflops", 0.001, "--link-between", "100gbit", "--accumulate", 8]
        computes = {}
        for batch in (8, 15, 16):
            plan, _ = self.meshes(*job, "--global-batch", batch)
            (row,) = plan["rows"]
            computes[batch] = row["compute_s"]
        self.assertAlmostEqual(computes[15] / computes[8], 15 / 8, delta=0.001)
        self.assertAlmostEqual(computes[16] / computes[8], 2, delta=0.001)

    def test_models_that_no_host_can_hold(self):
        for word in ("ddp", "pp:4", "tp:2+pp:2", "pp:2+zero3"):
            with self.subTest(word):
                self.refused(3, "its parameters take", "plan", "--model", "gpt:layers=2,dim=4294967296,heads=2", "--data",
                             "synthetic", "--tflops", 1, "--hosts", 4, "--strategies", word)

    def test_in_chinese(self):
        english = self.run_program("psring", "plan", *MODEL, *CLUSTER)
        chinese = self.run_program("psring", "plan", *MODEL, *CLUSTER, "--lang", "zh", env={"LANG": "C"})
        self.assert_done(chinese)
        self.assertEqual(self.run_program("psring", "plan", *MODEL, *CLUSTER, env={"LANG": "zh_CN.UTF-8"}).out, english.out)
        self.assertIn("8 个 worker，8 台主机", chinese.out)
        for word in ("strategy", "hosts", "exposed", "beats", "worker link"):
            self.assertIn(word, english.out.replace("are equal", "beats are equal"))
            self.assertNotIn(word, chinese.out)
        for line in chinese.out.splitlines():
            wide = sum(2 if ord(c) > 0x2e7f else 1 for c in line)
            self.assertLessEqual(wide, 80, line)
        self.assert_done(self.run_program("psring", "plan", *MODEL, *CLUSTER, "--lang", "zh", "--sweep", "hosts=1..4"))
        self.refused(2, "--lang: expected en or zh", "plan", *MODEL, *CLUSTER, "--lang", "de")

    def test_a_sweep(self):
        result = self.run_program("psring", "plan", *MODEL, "--strategies", "ddp,ps", "--sweep", "hosts=1..8",
                                  "--global-batch", 64, "--tflops", 1)
        self.assert_done(result)
        self.assertEqual([line.split()[0] for line in result.out.splitlines()[2:6]], ["1", "2", "4", "8"])

    def test_mistakes(self):
        self.refused(2, "--tflops", "plan", *MODEL)
        self.refused(2, "--one-machine: expected with --fit", "plan", *MODEL, "--tflops", 1, "--one-machine")
        self.refused(2, "--link-between", "plan", *MODEL, "--tflops", 1, "--link-between", "fast")
        self.refused(2, "--sweep", "plan", *MODEL, "--tflops", 1, "--sweep", "lr=1,2")
        self.refused(2, "--out with --sweep", "plan", *MODEL, "--tflops", 1, "--sweep", "hosts=1,2", "--out", "job.toml")
        self.refused(2, "--row 99: the plan has rows 1 to", "plan", *MODEL, "--tflops", 1, "--row", 99)
        self.refused(2, "--tflops: expected a rate", "plan", *MODEL, "--tflops", "fast")
        self.refused(2, "--memory", "plan", *MODEL, "--tflops", 1, "--memory", "much")
        self.refused(2, "--global-batch", "plan", *MODEL, "--tflops", 1, "--hosts", 3, "--global-batch", 64)
        self.refused(2, "--hosts", "plan", *MODEL, "--tflops", 1, "--hosts", 5000)
        self.refused(3, "--fit", "plan", *MODEL, "--fit", "missing.json")
        self.refused(2, "--key", "fit", "--peer", "127.0.0.1:1")

    def test_a_fit(self):
        result = self.run_program("psring", "fit", "--models", "mlp:64-64-10", "--out", "fit.json")
        self.assert_done(result)
        fit = json.loads((self.folder / "fit.json").read_text())
        lines = fit["lines"]
        self.assertGreater(lines["compute.Linear.forward.f32"]["points"], 3)
        for line in ("compute.Linear.backward.bf16", "server.aggregate", "update.adam", "memory.copy", "hop.ring.tcp",
                     "work.ring.tcp-encrypted", "hop.server.shm", "work.server.tcp", "batch.server.shaped", "hop.ring.shaped"):
            self.assertIn(line, lines)
            self.assertGreater(lines[line]["fixed_s"] + lines[line]["per_unit_s"] + lines[line]["per_element_s"], 0)
        self.assertGreaterEqual(fit["factors"]["slowdown"], 1)
        self.assertGreater(fit["factors"]["sleep_s"], 0)
        self.assertGreater(len(self.rows("--hosts", 2, "--global-batch", 64, "--fit", "fit.json")), 3)
        self.refused(2, "compute.Embedding", "plan", "--model", "gpt:layers=1,dim=64,heads=2,context=32", "--data",
                     "synthetic", "--fit", "fit.json", "--global-batch", 2)


if __name__ == "__main__":
    unittest.main()
