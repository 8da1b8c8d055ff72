"""Whole jobs on one GPU, which its workers share: the same losses whatever the strategy, bytes and memory as predicted,
and a worker that is lost ends the others."""

import json
import pathlib
import sys
import unittest

from support import ProgramTest

if not pathlib.Path("/dev/nvidiactl").exists():
    print("SKIPPED: there is no GPU")
    sys.exit(0)

GPT = ["--model", "gpt:layers=2,dim=64,heads=1,context=64,vocab=128", "--data", "synthetic", "--global-batch", 8,
       "--optimizer", "adamw", "--lr", 0.001, "--seed", 5, "--steps", 50]
ON_DEVICE = ["--device", "cuda", "--share-gpu"]


class GpuJobs(ProgramTest):
    def losses(self, name, *arguments):
        """The mean over the workers, by step."""
        out = self.folder / name
        self.assert_done(self.train(*GPT, "--out", out, *arguments))
        sums = {}
        for line in (out / "metrics.jsonl").read_text().splitlines():
            row = json.loads(line)
            if "loss" in row:
                total, samples = sums.get(row["step"], (0, 0))
                sums[row["step"]] = (total + row["loss"] * row["samples"], samples + row["samples"])
        self.assertEqual(len(sums), 50, name)
        return [total / samples for _, (total, samples) in sorted(sums.items())]

    def test_all_ways_learn_alike(self):
        on_host = self.losses("host", "--strategy", "single")
        alone = self.losses("alone", "--strategy", "single", "--device", "cuda")
        self.assertEqual(alone, self.losses("again", "--strategy", "single", "--device", "cuda"), "the same bits")
        for i, (device, host) in enumerate(zip(alone, on_host)):
            self.assertLess(abs(device - host), 1e-3 * host, f"step {i}")
        for workers in (2, 4):
            for strategy in ("ddp-naive", "ddp", "zero1", "zero2", "zero3", "ps", "ps-zero2", "ps-zero3"):
                with self.subTest(strategy=strategy, workers=workers):
                    losses = self.losses(f"{strategy}-{workers}", "--strategy", strategy, "--workers", workers, *ON_DEVICE)
                    for i, (got, expected) in enumerate(zip(losses, alone)):
                        self.assertLess(abs(got - expected), 1e-5 * expected, f"step {i}")

    def test_a_lost_worker_ends_the_others(self):
        for strategy in ("ddp", "zero3", "ps"):
            with self.subTest(strategy=strategy):
                result = self.train(*GPT[:-1], 100000, "--strategy", strategy, "--workers", 2, *ON_DEVICE,
                                    "--fault", "kill:worker:1@step=30", "--heartbeat-timeout", 3)
                self.assert_refused(result, 4, "worker 1")

    def test_one_gpu_is_not_shared_unless_that_is_asked_for(self):
        result = self.train(*GPT, "--strategy", "ddp", "--workers", 64, "--device", "cuda")
        self.assert_refused(result, 2, "--share-gpu")


if __name__ == "__main__":
    unittest.main()
