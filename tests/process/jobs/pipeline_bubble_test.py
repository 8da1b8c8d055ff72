"""The bubble of a pipeline: measured in the steps of real processes, within a tenth of (p - 1) / (m + p - 1)."""

import json
import unittest

from support import ProgramTest

MICRO_BATCH_S = 0.05  # forward and backward of a micro-batch in one stage: long beside what a busy machine adds
STEPS = 5
TRIES = 5  # on a busy machine: other programs only make steps longer


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

    def run_once(self, stages, micros, schedule, out):
        """How far the bubble's share and the step's time are from what the schedule says, whichever is farther."""
        self.assert_done(self.train(
            "--strategy", "ddp", "--workers", stages, "--pipeline", stages, "--pipeline-schedule", schedule,
            "--model", "mlp:16-16-16-16-4", "--data", "synthetic", "--global-batch", 8, "--accumulate", micros,
            "--stages", "0-1,2-3" if stages == 2 else "0,1,2,3", "--compute", f"sleep:{MICRO_BATCH_S * stages * micros:g}s",
            "--steps", STEPS, "--out", out))
        expected = (stages - 1) / (micros + stages - 1)
        summary = json.loads((self.folder / out / "summary.json").read_text())
        self.assertAlmostEqual(summary["pipeline"]["predicted_bubble"], expected)
        bubble, took = self.fastest(out)
        # A step takes as long as m + p - 1 micro-batches of one stage.
        return max(abs(bubble / expected - 1), abs(took / (MICRO_BATCH_S * (micros + stages - 1)) - 1))

    def test_bubble(self):
        for stages in (2, 4):
            for micros in (1, 2, 4, 8):
                for schedule in ("gpipe", "1f1b"):
                    with self.subTest(stages=stages, micros=micros, schedule=schedule):
                        off = []
                        while not off or (min(off) >= 0.1 and len(off) < TRIES):
                            off.append(self.run_once(stages, micros, schedule, f"{stages}-{micros}-{schedule}-{len(off)}"))
                        self.assertLess(min(off), 0.1, off)


if __name__ == "__main__":
    unittest.main()
