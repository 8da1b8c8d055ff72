"""psring plan ranks strategies by the bounds that they are known to have, and writes a job that train takes; psring fit
writes a file that plan takes; both name what is wrong."""

import json
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

    def costs(self, name, **factors):
        """A fit with one line for each of some messages: 1 ms of latency, and 1 ms of a processor."""
        none = {"unit": "byte", "fixed_s": 0, "per_unit_s": 0, "per_element_s": 0, "points": 0, "median_error": 0,
                "worst_error": 0, "fixed_error": 0, "per_unit_error": 0, "most": 0}
        lines = {line: {**none, "fixed_s": 0.001} for line in factors.pop("lines")}
        (self.folder / name).write_text(json.dumps({
            "format": "psring-fit", "version": 2, "host": "x", "processor": "x", "processors": factors.pop("processors"),
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

    def test_stragglers(self):
        job = ["--strategies", "ddp", "--hosts", 4, "--link", "10gbit", "--global-batch", 64, "--compute", "sleep:100ms"]
        even = self.rows(*job)[0]["step_s"]
        uneven = self.rows(*job, "--fault", "jitter:worker:*=50%")[0]["step_s"]
        self.assertAlmostEqual(uneven / even, 1 + 0.5 * 3 / 5, delta=0.02)

    def test_a_sweep(self):
        result = self.run_program("psring", "plan", *MODEL, "--strategies", "ddp,ps", "--sweep", "hosts=1..8",
                                  "--global-batch", 64, "--tflops", 1)
        self.assert_done(result)
        self.assertEqual([line.split()[0] for line in result.out.splitlines()[2:]], ["1", "2", "4", "8"])

    def test_mistakes(self):
        self.refused(2, "--tflops", "plan", *MODEL)
        self.refused(2, "--link-between", "plan", *MODEL, "--tflops", 1, "--link-between", "fast")
        self.refused(2, "--sweep", "plan", *MODEL, "--tflops", 1, "--sweep", "lr=1,2")
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
                     "work.ring.tcp-encrypted", "hop.server.shm", "work.server.tcp", "hop.ring.shaped"):
            self.assertIn(line, lines)
            self.assertGreater(lines[line]["fixed_s"] + lines[line]["per_unit_s"] + lines[line]["per_element_s"], 0)
        self.assertGreaterEqual(fit["factors"]["slowdown"], 1)
        self.assertGreater(fit["factors"]["sleep_s"], 0)
        self.assertGreater(len(self.rows("--hosts", 2, "--global-batch", 64, "--fit", "fit.json")), 3)
        self.refused(2, "compute.Embedding", "plan", "--model", "gpt:layers=1,dim=64,heads=2,context=32", "--data",
                     "synthetic", "--fit", "fit.json", "--global-batch", 2)


if __name__ == "__main__":
    unittest.main()
