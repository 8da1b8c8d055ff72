"""--servers mixed:K: a server in each worker's process and K standalone ones, which own more. The bits are those of one
process, bytes and memory are as predicted (assert_done), and what cannot work is refused in one line."""

import json
import re
import shutil
import unittest

from support import ProgramTest

MODEL = ["--data", "synthetic", "--model", "mlp:128-128-64-10", "--global-batch", 12]
JOB = [*MODEL, "--optimizer", "adamw", "--seed", 3, "--workers", 3]
USAGE = 2


class Mixed(ProgramTest):
    def summary(self, run="run"):
        return json.loads((self.folder / run / "summary.json").read_text())

    def reference(self, steps, workers=3):
        arguments = [*MODEL, "--optimizer", "adamw", "--seed", 3, "--strategy", "single", "--virtual-workers", workers]
        self.assert_done(self.train(*arguments, "--steps", steps, "--out", "single"))
        model = self.model("single")
        shutil.rmtree(self.folder / "single")
        return model

    def test_the_bits_of_one_process(self):
        wanted = self.reference(20)
        for strategy in ("ps", "ps-zero2", "ps-zero3"):
            for mixed in ("mixed:1", "mixed:2"):
                for way in ("shm", "tcp"):
                    with self.subTest(f"{strategy} {mixed} {way}"):
                        result = self.train(*JOB, "--strategy", strategy, "--servers", mixed, "--steps", 20,
                                            "--transport", way, "--out", "run")
                        self.assert_done(result)
                        self.assertIn("as predicted", result.out)
                        self.assertEqual(self.model("run"), wanted)
                        shutil.rmtree(self.folder / "run")

    def test_rows_and_processes(self):
        """A worker's row is its process's, with its server; the standalone server owns more, and is a process."""
        result = self.train(*JOB, "--servers", "mixed:1", "--steps", 5, "--out", "run")
        self.assert_done(result)
        self.assertRegex(result.out, r"3 workers with a server in each process, which holds \d+ of \d+ elements \(2\d\.\d %\), "
                                     r"and 1 standalone server, which holds \d+ of \d+ elements \(3\d\.\d %\)")
        summary = self.summary()
        self.assertEqual(sorted(summary["roles"]), [f"server {rank}" for rank in range(4)] + [f"worker {rank}" for rank in range(3)])
        elements = [summary["roles"][f"server {rank}"]["elements"] for rank in range(4)]
        self.assertGreater(elements[0], 1.7 * max(elements[1:]))  # twice in large units
        self.assertEqual(sorted(log.name for log in (self.folder / "run" / "logs").iterdir()),
                         ["coordinator.log", "server-0.log", "worker-0.log", "worker-1.log", "worker-2.log"])
        measured = {(entry["role"], entry["direction"]): entry["measured"] // 5 for entry in summary["bytes"]}
        for entry in summary["bytes"]:
            self.assertEqual(entry["measured"], entry["predicted"], entry)
        whole = 4 * sum(elements)
        for rank in range(3):
            for direction in ("sent", "received"):  # all but its own server's part, and its server's to two others
                self.assertEqual(measured[f"worker {rank}", direction], whole + 4 * elements[1 + rank])
        self.assertEqual(measured["servers", "sent"], 3 * whole - 4 * sum(elements[1:]))
        booked = [entry for entry in summary["memory"] if entry["role"].startswith("server") and "predicted" in entry]
        self.assertEqual({entry["role"] for entry in booked}, {f"server {rank}" for rank in range(4)})
        for entry in booked:
            self.assertEqual(entry["peak"], entry["predicted"], entry)

    def test_checkpoints_fit_any_cut(self):
        steps = ["--steps", 30]
        wanted = self.reference(30)
        mixed, even = ["--servers", "mixed:2"], ["--servers", 2]
        for first, second in ((mixed, even), (even, mixed), (mixed, ["--servers", "mixed:1"]), (mixed, ["--strategy", "zero1"])):
            with self.subTest(f"{first} {second}"):
                self.assert_done(self.train(*JOB, *first, "--steps", 20, "--checkpoint-every", 4, "--checkpoint-keep", 2,
                                            "--out", "first"))
                self.assertEqual(sorted(path.name for path in (self.folder / "first" / "checkpoints").iterdir()),
                                 ["step-00000016", "step-00000020"])
                self.assert_done(self.train(*JOB, *second, *steps, "--resume", "first/checkpoints/step-00000016",
                                            "--out", "second"))
                self.assertEqual(self.model("second"), wanted)
                for run in ("first", "second"):
                    shutil.rmtree(self.folder / run)

    def test_losses(self):
        """A standalone server, a colocated one, which takes its worker with it, and a worker: all begin again."""
        wanted = self.reference(60)
        for fault in ("kill:server:0@step=33", "kill:server:2@step=33", "kill:worker:2@step=33"):
            with self.subTest(fault):
                result = self.train(*JOB, "--servers", "mixed:1", "--steps", 60, "--checkpoint-every", 10, "--checkpoint-keep",
                                    1, "--max-restarts", 2, "--fault", fault, "--heartbeat-timeout", 2, "--out", "run")
                self.assert_done(result)
                self.assertRegex(result.out, r"the job begins again with step (20|30)")
                self.assertEqual(self.model("run"), wanted)
                self.assertEqual(self.summary()["losses"], 1)
                shutil.rmtree(self.folder / "run")

    def test_interrupted_and_resumed(self):
        self.assert_done(self.train(*JOB, "--servers", "mixed:1", "--steps", 20, "--checkpoint-every", 5, "--out", "run"))
        wanted = self.model("run")
        shutil.rmtree(self.folder / "run" / "checkpoints" / "step-00000020")
        self.assert_done(self.run_program("psring", "resume", "run"))
        self.assertEqual(self.model("run"), wanted)

    def test_by_hand_and_by_agents(self):
        wanted = self.reference(20)
        job = [*JOB, "--servers", "mixed:1", "--steps", 20, "--key", self.key(), "--out", "run"]
        coordinator = self.start("psring", "coordinator", *job)
        line = coordinator.stdout.readline()
        endpoint = re.match(r"coordinator at (\S+): waiting for 3 workers and 1 server;", line).group(1)
        common = ["--rdzv-endpoint", endpoint, "--key", "job.key"]
        roles = [self.start("psring-worker", *common) for _ in range(3)] + [self.start("psring-server", *common)]
        for process in (coordinator, *roles):
            self.assert_done(self.finish(process))
        self.assertEqual(self.model("run"), wanted)
        shutil.rmtree(self.folder / "run")
        coordinator = self.start("psring", "coordinator", *job, "--nodes", 2)
        endpoint = re.match(r"coordinator at (\S+):", coordinator.stdout.readline()).group(1)
        agents = [self.start("psring", "agent", "--rdzv-endpoint", endpoint, "--key", "job.key", "--logs", f"logs-{i}")
                  for i in range(2)]
        for process in (coordinator, *agents):
            self.assert_done(self.finish(process))
        self.assertEqual(self.model("run"), wanted)

    def test_with_other_options(self):
        for options in (["--precision", "bf16"], ["--compress", "int8"], ["--clip-norm", 0.5], ["--eval-every", 2],
                        ["--optimizer-on", "worker"], ["--consistency", "ssp:2"], ["--backup-workers", 1], ["--local-reduce"],
                        ["--accumulate", 2, "--strategy", "ps-zero2"], ["--encrypt", "on", "--transport", "tcp"],
                        ["--freeze", 0], ["--events", "on"], ["--link", "1gbit"], ["--aggregate", "median"]):
            with self.subTest(options):
                self.assert_done(self.train(*JOB, "--servers", "mixed:1", "--steps", 6, *options, "--out", "run"))
                shutil.rmtree(self.folder / "run")

    def test_compared(self):
        result = self.run_program("psring", "compare", "--strategies", "ps,ps-colocated,ddp", *JOB, "--servers", "1,mixed:1,n",
                                  "--steps", 4, "--out", "cmp")
        self.assert_done(result)
        for label in ("ps s=1", "ps s=mixed:1", "ps s=3", "ps-colocated s=1", "ps-colocated", "ddp"):
            self.assertEqual(len(re.findall(rf"^{label} +\d.* =? ", result.out, re.M)), 1, (label, result.out))

    def test_memory_before_the_run(self):
        self.assert_done(self.train(*JOB, "--servers", "mixed:1", "--steps", 2, "--out", "run"))
        result = self.run_program("psring", "memory", *JOB, "--servers", "mixed:1", "--strategies", "ps", "--json")
        self.assert_done(result)
        (row,) = json.loads(result.out)
        booked = {}
        for entry in self.summary()["memory"]:
            booked.setdefault(entry["role"], {})[entry["category"]] = entry["peak"]
        for role, field in (("server 0", "server"), ("server 3", "colocated_server")):
            for category in row[field].keys() - {"total"}:
                self.assertEqual(row[field][category], booked[role][category], (role, category))
        self.assertGreater(row["server"]["total"], row["colocated_server"]["total"])
        self.assertIn("standalone server", self.run_program("psring", "memory", *JOB, "--servers", "mixed:1", "--strategies",
                                                            "ps").out)

    def test_planned(self):
        """The busiest card moves the bytes of the formula; a step takes at least their time, and beats both ends."""
        arguments = ["--model", "mlp:2048-2048-2048-10", "--data", "synthetic", "--compute", "sleep:1ms", "--link", "100mbit",
                     "--hosts", 4, "--global-batch", 4]
        self.assert_done(self.run_program("psring", "plan", *arguments, "--strategies", "ps,ps-colocated", "--json", "plan.json"))
        rows = {row["label"]: row for row in json.loads((self.folder / "plan.json").read_text())["rows"]}
        for k in (1, 2):
            row = rows[f"ps s=mixed:{k}"]
            self.assertEqual((row["placement"], row["servers"], row["hosts"]), ("mixed", 4 + k, 4 + k))
            n = 4
            optimum = 2 * n * (n - 1) / (n * n + k * n - 2 * k)
            colocated = rows["ps-colocated s=4"]
            self.assertAlmostEqual(row["sent_bytes"] / colocated["sent_bytes"], optimum / 1.5, delta=0.002)
            self.assertGreater(row["step_s"] / colocated["step_s"], optimum / 1.5 - 0.002)
            self.assertLess(row["step_s"] / colocated["step_s"], 1.03 * optimum / 1.5)
            self.assertLess(row["step_s"], rows[f"ps s={k}"]["step_s"])
        result = self.run_program("psring", "plan", *arguments, "--strategies", "ps", "--servers", "mixed:1", "--steps", 2,
                                  "--out", "job.toml")
        self.assert_done(result)
        self.assertIn('servers = "mixed:1"', (self.folder / "job.toml").read_text())
        self.assert_done(self.train("--config", "job.toml", "--model", "mlp:16-16-4", "--out", "run"))

    def test_manifests(self):
        result = self.run_program("psring", "manifests", "--kubernetes", "--image", "psring:1", "--runs-claim", "runs", *JOB, "--servers", "mixed:2", "--steps", 3)
        self.assert_done(result)
        self.assertEqual(re.findall(r"completions: (\d+)", result.out), ["1", "2", "3"])

    def test_refused(self):
        def refuse(arguments, *words):
            with self.subTest(" ".join(map(str, arguments))):
                self.assert_refused(self.train(*JOB, "--steps", 2, *arguments), USAGE, *words)

        refuse(["--servers", "mixed"], "--servers", "mixed:K", "'mixed'")
        refuse(["--servers", "mixed:"], "--servers")
        refuse(["--servers", "mixed:x"], "--servers", "'x'")
        refuse(["--servers", "some"], "--servers", "mixed:K", "'some'")
        refuse(["--servers", "mixed:0"], "--servers mixed:0", "--placement colocated")
        refuse(["--servers", "mixed:3"], "--servers mixed:3", "3 workers", "use --servers 3")
        refuse(["--servers", "mixed:4"], "--servers mixed:4", "3 workers", "use --servers 4")
        for strategy, reason in (("ddp", "has none"), ("dp", "has one"), ("ps-colocated", "no standalone servers; use ps")):
            refuse(["--strategy", strategy, "--servers", "mixed:1"], "--servers mixed:1", strategy, reason)
        mixed = ["--servers", "mixed:1"]
        refuse([*mixed, "--placement", "colocated"], "--servers mixed:1", "--placement colocated")
        refuse([*mixed, "--replicas", 1], "--replicas 1", "--servers mixed:1", "standalone servers")
        refuse([*mixed, "--elastic", "2:3", "--max-restarts", 1], "--elastic 2:3", "--servers mixed:1")
        refuse([*mixed, "--fault", "drop:worker:0=1%"], "--fault drop:worker:0=1%", "standalone servers")


if __name__ == "__main__":
    unittest.main()
