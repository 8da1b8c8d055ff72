"""The bubble of a pipeline: measured in the steps of real processes, within a tenth of (p - 1) / (m + p - 1)."""

import json
import unittest

from support import ProgramTest

MICRO_BATCH_S = 0.05  # forward and backward of a micro-batch in one stage: long beside what a busy machine adds
STEPS = 5


class BubbleTest(ProgramTest):
    def fastest(self, out):
        """(the share of the bubble, seconds) of the fastest step: other programs only make steps longer."""
        steps = {}
        for line in (self.folder / out / "metrics.jsonl").read_text().splitlines():
            row = json.loads(line)
            if "bubble_s" in row and row["step"] > 0:  # in the first one the stages begin at different moments
                steps.setdefault(row["step"], []).append((row["step_s"], row["bubble_s"]))
        took, bubble = min(tuple(map(sum, zip(*rows))) for rows in steps.values())
        return bubble / took, took / len(steps[1])

    def test_bubble(self):
        for stages in (2, 4):
            for micros in (1, 2, 4, 8):
                for schedule in ("gpipe", "1f1b"):
                    with self.subTest(stages=stages, micros=micros, schedule=schedule):
                        out = f"{stages}-{micros}-{schedule}"
                        self.assert_done(self.train(
                            "--strategy", "ddp", "--workers", stages, "--pipeline", stages, "--pipeline-schedule", schedule,
                            "--model", "mlp:16-16-16-16-4", "--data", "synthetic", "--global-batch", 8, "--accumulate", micros,
                            "--stages", "0-1,2-3" if stages == 2 else "0,1,2,3", "--compute", f"sleep:{MICRO_BATCH_S * stages * micros:g}s", "--steps", STEPS,
                            "--out", out))
                        summary = json.loads((self.folder / out / "summary.json").read_text())
                        pipeline = summary["pipeline"]
                        expected = (stages - 1) / (micros + stages - 1)
                        self.assertAlmostEqual(pipeline["predicted_bubble"], expected)
                        bubble, took = self.fastest(out)
                        self.assertAlmostEqual(bubble / expected, 1, delta=0.1)
                        # A step takes as long as m + p - 1 micro-batches of one stage.
                        self.assertAlmostEqual(took / (MICRO_BATCH_S * (micros + stages - 1)), 1, delta=0.1)


if __name__ == "__main__":
    unittest.main()
