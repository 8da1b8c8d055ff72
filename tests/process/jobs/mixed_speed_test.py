"""--servers mixed:K lies between colocated servers alone and standalone servers alone: with four workers, and one or two
standalone servers, its step is shorter than with either, its bytes are those of the formula, and its bits are the same."""

import json
import unittest

from support import ProgramTest

WORKERS = 4
ELEMENTS = 784 * 1024 + 1024 * 1024 + 1024 * 10 + 1024 + 1024 + 10
JOB = ["--data", "synthetic", "--model", "mlp:784-1024-1024-10", "--global-batch", 16, "--seed", 3, "--steps", 5,
       "--compute", "sleep:20ms"]
LINK = ["--workers", WORKERS, "--link", "100mbit"]


class MixedSpeed(ProgramTest):
    def step(self, name, *options):
        """The shortest step, by its slowest worker: other programs only make steps longer."""
        result = self.train(*JOB, *LINK, *options, "--out", name)
        self.assert_done(result)
        self.assertIn("as predicted", result.out)
        steps = {}
        for line in (self.folder / name / "metrics.jsonl").read_text().splitlines():
            row = json.loads(line)
            if row.get("step_s") is not None and row["step"] >= 2:
                steps[row["step"]] = max(steps.get(row["step"], 0), row["step_s"])
        return min(steps.values())

    def test_between_both_ends(self):
        self.assert_done(self.train(*JOB, "--strategy", "single", "--virtual-workers", WORKERS, "--out", "single"))
        wanted = self.model("single")
        colocated = self.step("colocated", "--strategy", "ps-colocated")
        for k in (1, 2):
            with self.subTest(k):
                alone = self.step(f"alone-{k}", "--strategy", "ps", "--servers", k)
                mixed = self.step(f"mixed-{k}", "--strategy", "ps", "--servers", f"mixed:{k}")
                self.assertLess(mixed, colocated)
                self.assertLess(mixed, alone)
                for run in (f"alone-{k}", f"mixed-{k}"):
                    self.assertEqual(self.model(run), wanted)
                # Cuts of a unit fall on blocks of 256, which the bytes of a share may differ by.
                out = (WORKERS - k) / (WORKERS**2 + k * WORKERS - 2 * k)
                share = 1 - out + (WORKERS - 1) * out
                summary = json.loads((self.folder / f"mixed-{k}" / "summary.json").read_text())
                for entry in summary["bytes"]:
                    self.assertEqual(entry["measured"], entry["predicted"], entry)
                    if entry["role"].startswith("worker"):
                        self.assertAlmostEqual(entry["measured"] / 5 / (4 * ELEMENTS * share), 1, delta=0.01)


if __name__ == "__main__":
    unittest.main()
