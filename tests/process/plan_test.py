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
        self.assertGreater(fit["lines"]["compute.Linear.forward.f32"]["points"], 3)
        self.assertGreater(len(self.rows("--hosts", 2, "--global-batch", 64, "--fit", "fit.json")), 3)
        self.refused(2, "compute.Embedding", "plan", "--model", "gpt:layers=1,dim=64,heads=2,context=32", "--data",
                     "synthetic", "--fit", "fit.json", "--global-batch", 2)


if __name__ == "__main__":
    unittest.main()
