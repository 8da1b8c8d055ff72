"""Evaluation of a test set: of its first samples alone (--eval-samples), with progress, and ended early by a signal."""

import json
import re
import signal
import time
import unittest

from support import LIMIT, ProgramTest, until

# An evaluation that takes some seconds on any machine: 40,000 samples of 34 MFLOP each. The tests end it early.
LONG = ["--data", "synthetic:samples=400000", "--model", "mlp:16-4096-4096-4", "--global-batch", 12, "--workers", 2]


class EvalSamples(ProgramTest):
    JOB = ["--data", "synthetic", "--model", "mlp:16-16-4", "--global-batch", 12, "--steps", 4]

    def evaluations(self, run):
        lines = [json.loads(line) for line in (self.folder / run / "metrics.jsonl").read_text().splitlines()]
        by_step = {}
        for line in lines:
            if "test_loss" in line:
                step = by_step.setdefault(line["step"], {"rows": 0, "correct": 0})
                step["rows"] += line["test_rows"]
                step["correct"] += line["test_correct"]
        return by_step

    def test_the_same_samples_under_every_strategy(self):
        found = {}
        for number, strategy in enumerate(["single --virtual-workers 2", "ps", "ddp", "zero3", "ps-zero3"]):
            run = f"run{number}"
            workers = [] if strategy.startswith("single") else ["--workers", 2]
            self.assert_done(self.train(*self.JOB, "--strategy", *strategy.split(), *workers, "--eval-samples", 7, "--eval-every", 2, "--out", run))
            found[strategy] = self.evaluations(run)
        for strategy, evaluations in found.items():
            self.assertEqual(sorted(evaluations), [2, 4], strategy)
            self.assertEqual({each["rows"] for each in evaluations.values()}, {7}, strategy)
            self.assertEqual(evaluations, found["ps"], strategy)

    def test_more_than_there_are(self):
        self.assert_refused(self.train(*self.JOB, "--eval-samples", 10**6), 2, "--eval-samples 1000000: the test set of --data synthetic has")


class LongEvaluation(ProgramTest):
    def start_until_it_evaluates(self, strategy):
        job = self.start("psring", "train", *LONG, "--strategy", strategy, "--steps", 2, "--checkpoint-every", 1, "--out", "run")
        pattern = rf"{strategy} step 2/2  evaluated \d+ %  0 s left"
        until(lambda: re.match(pattern, job.stdout.readline()) or job.poll() is not None, "no progress of the evaluation")
        self.assertIsNone(job.poll())
        return job

    def test_a_signal(self):
        """It ends the evaluation in all workers. The model is complete."""
        for strategy in ("ddp", "zero3"):
            with self.subTest(strategy):
                job = self.start_until_it_evaluates(strategy)
                job.send_signal(signal.SIGINT)
                result = self.finish(job)
                self.assert_refused(result, 130, "interrupted at step 2; checkpoint ")
                self.assertNotIn("psring resume", result.err)
                self.assertTrue((self.folder / "run" / "model.safetensors").exists())
                self.assertNotIn("test_loss", (self.folder / "run" / "metrics.jsonl").read_text())
                self.assert_done(self.run_program("psring", "report", "run"))
                (self.folder / "run").rename(self.folder / strategy)

    def test_between_steps(self):
        job = self.start("psring", "train", *LONG, "--strategy", "ps", "--steps", 1000, "--eval-every", 1, "--checkpoint-every", 1000, "--out", "run")
        until(lambda: "evaluated" in job.stdout.readline(), "no progress of the evaluation")
        begin = time.monotonic()
        job.send_signal(signal.SIGTERM)
        self.assert_refused(self.finish(job, LIMIT), 143, "interrupted at step ", "continue with: psring resume")
        self.assertLess(time.monotonic() - begin, LIMIT / 10)


if __name__ == "__main__":
    unittest.main()
