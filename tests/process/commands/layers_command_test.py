"""Convolutions, dropout and real targets on the command line: the same model however it is trained, interrupted or
simulated; and what does not fit is refused in one line."""

import hashlib
import json
import unittest

from support import ProgramTest

USAGE, DATA = 2, 3
CONV = ["--model", "conv:1x4x4-3c3-r3-p2-d0.25-4", "--data", "synthetic:samples=64"]
JOB = [*CONV, "--global-batch", 12, "--steps", 9, "--optimizer", "adam", "--seed", 3]


class Layers(ProgramTest):
    def sha256(self, run):
        return hashlib.sha256((self.folder / run / "model.safetensors").read_bytes()).hexdigest()

    def test_compare(self):
        """Bits, bytes and memory as predicted: compare ends with status 6 otherwise."""
        result = self.run_program("psring", "compare", "--strategies", "single,ps,ps-zero3,dp,ddp,zero2,zero3", "--workers", 3,
                                  *JOB, "--accumulate", 2, "--activation-checkpointing", "unit")
        self.assert_done(result)
        for strategy in ("ps ", "dp ", "ddp ", "zero3 "):
            self.assertRegex(result.out, rf"(?m)^{strategy}.* = ")

    def test_interrupted_runs_drop_the_same(self):
        """A restarted worker, and a run that is continued, end in the bits of a run that nothing disturbs."""
        for strategy in ("ps", "zero3"):
            with self.subTest(strategy):
                common = ["--strategy", strategy, "--workers", 2, *JOB]
                self.assert_done(self.train(*common, "--out", f"{strategy}-whole"))
                self.assert_done(self.train(*common, "--out", f"{strategy}-lost", "--checkpoint-every", 2, "--max-restarts", 2,
                                            "--fault", "kill:worker:1@step=5"))
                self.assertEqual(self.sha256(f"{strategy}-lost"), self.sha256(f"{strategy}-whole"))
                first = [str(x) for x in common]
                first[first.index("--steps") + 1] = "4"
                self.assert_done(self.train(*first, "--out", f"{strategy}-first", "--checkpoint-every", 4))
                self.assert_done(self.train(*common, "--out", f"{strategy}-second", "--resume", f"{strategy}-first"))
                self.assertEqual(self.sha256(f"{strategy}-second"), self.sha256(f"{strategy}-whole"))

    def test_simulated(self):
        self.assert_done(self.train("--strategy", "ddp", "--workers", 2, *JOB, "--out", "run"))
        self.assert_done(self.run_program("psring", "step", "--strategies", "ddp", "--workers", 2, *JOB, "--out", "scene.json"))
        (scene,) = json.loads((self.folder / "scene.json").read_text())["scenes"]
        self.assertEqual(scene["model_sha256"], self.sha256("run"))

    def test_images(self):
        """More than a third above chance after few steps."""
        self.assert_done(self.train("--strategy", "ddp", "--workers", 2, "--model", "conv:1x28x28-8c3-p2-16c3-p2-10", "--data",
                                    "fashion-mnist", "--global-batch", 64, "--steps", 60, "--optimizer", "adam", "--lr", 0.003,
                                    "--out", "run"))
        self.assertGreater(json.loads((self.folder / "run" / "summary.json").read_text())["test_accuracy"], 0.5)

    def test_csv(self):
        lines = ["x,y,sum"] + [f"{i / 100},{i % 7 / 7},{i / 100 + i % 7 / 7}" for i in range(100)]
        (self.folder / "sums.csv").write_text("\n".join(lines))
        self.assert_done(self.train("--strategy", "ps", "--workers", 2, "--model", "mse-mlp:2-16-1", "--data",
                                    "csv:train=sums.csv,test=sums.csv", "--global-batch", 20, "--steps", 300, "--optimizer", "adam",
                                    "--lr", 0.01, "--out", "run"))
        self.assertLess(json.loads((self.folder / "run" / "summary.json").read_text())["test_loss"], 0.01)

    def test_refused(self):
        (self.folder / "short.csv").write_text("1,2,3\n1,2\n")
        for status, expected, *arguments in (
            (USAGE, "odd kernel", "--model", "conv:1x4x4-3c2-4", "--data", "synthetic"),
            (USAGE, "below 1", "--model", "mlp:16-d1.5-4", "--data", "synthetic"),
            (DATA, "line 2 has 2 columns", "--model", "mse-mlp:2-1", "--data", "csv:short.csv"),
            (DATA, "0 real targets a sample, 1 expected", "--model", "mse-mlp:784-1", "--data", "fashion-mnist"),
            (DATA, "its samples have targets", "--model", "gelu-mlp:dim=2", "--data", "csv:short.csv"),
        ):
            with self.subTest(arguments):
                self.assert_refused(self.train("--strategy", "single", *arguments, "--steps", 1), status, expected)


if __name__ == "__main__":
    unittest.main()
