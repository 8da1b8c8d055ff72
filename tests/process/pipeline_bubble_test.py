"""The bubble of a pipeline: measured in the steps of real processes, within a tenth of (p - 1) / (m + p - 1)."""

import json
import unittest

from support import ProgramTest

SLEEP_S = 0.4  # forward and backward of a step, over all stages
STEPS = 5


class BubbleTest(ProgramTest):
    def test_bubble(self):
        for stages in (2, 4):
            for micros in (1, 2, 4, 8):
                for schedule in ("gpipe", "1f1b"):
                    with self.subTest(stages=stages, micros=micros, schedule=schedule):
                        out = f"{stages}-{micros}-{schedule}"
                        self.assert_done(self.train(
                            "--strategy", "ddp", "--workers", stages, "--pipeline", stages, "--pipeline-schedule", schedule,
                            "--model", "mlp:16-16-16-16-4", "--data", "synthetic", "--global-batch", 8, "--accumulate", micros,
                            "--stages", "0-1,2-3" if stages == 2 else "0,1,2,3", "--compute", f"sleep:{SLEEP_S}s", "--steps", STEPS,
                            "--out", out))
                        summary = json.loads((self.folder / out / "summary.json").read_text())
                        pipeline = summary["pipeline"]
                        expected = (stages - 1) / (micros + stages - 1)
                        self.assertAlmostEqual(pipeline["predicted_bubble"], expected)
                        self.assertAlmostEqual(pipeline["bubble"] / expected, 1, delta=0.1)
                        # A step takes as long as m + p - 1 micro-batches of one stage.
                        self.assertAlmostEqual(summary["step_s"] / (SLEEP_S / stages / micros * (micros + stages - 1)), 1, delta=0.1)


if __name__ == "__main__":
    unittest.main()
