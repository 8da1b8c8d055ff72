"""Whole jobs on one GPU, which its workers share, or on one that the host plays: the same losses whatever the strategy,
bytes and memory as predicted, and a worker that is lost ends the others."""

import json
import os
import pathlib
import sys
import unittest

from support import ProgramTest

PLAYED = "PSRING_PLAYED" in os.environ  # a step takes the host as long as many of a GPU
if not PLAYED and not pathlib.Path("/dev/nvidiactl").exists():
    print("SKIPPED: there is no GPU")
    sys.exit(0)

LIMIT = 60 if PLAYED else 240  # seconds of a run: on one GPU workers take turns by slices of milliseconds
STEPS = 8 if PLAYED else 50
WAYS = ("ddp", "zero1", "zero2", "zero3", "ps", "ps-zero2", "ps-zero3", "ps-colocated", "dp")
SMALL = ["--model", "gpt:layers=2,dim=32,heads=2,context=8,vocab=64", "--data", "synthetic:samples=64"]
GPT = [*(SMALL if PLAYED else ["--model", "gpt:layers=2,dim=64,heads=1,context=64,vocab=128", "--data", "synthetic"]),
       "--global-batch", 8, "--optimizer", "adamw", "--lr", 0.001, "--seed", 5, "--steps", STEPS]
ON_DEVICE = ["--device", "cuda", "--share-gpu"]

# How far losses of one job may be apart whose sums of f32 run in different orders: on n workers a product has fewer
# rows, so cuBLASLt may choose another kernel, and gradients are added up by rank.
# - A sum of K terms is off by about sqrt(K) roundings of 2^-24; with K at most 256 (4 x dim), 1e-6 of its size. The
#   loss comes after 4 products a layer and the head's, 9 in all, whose errors at worst add up: 9e-6. It is the loss's
#   own, so it does not grow with steps.
# - Gradients are off by as much, 1e-6, and so is each of AdamW's updates of lr a step, in a direction that at worst
#   adds up: the loss changes by lr x sum |g| x 1e-6. These jobs lose less than 0.1 a step, which is lr x sum |g| as
#   far as AdamW's updates go downhill, and the loss is above 1: 1e-7 a step.
# The same jobs on two processors with different kernels (AVX-512, SSE4.1), 1, 2 and 4 workers, are 1e-7 apart after 50
# steps, since errors do not all add up. A GPU's exponentials and tanh are other functions than the host's, some
# roundings off where a sum is sqrt(K): ten times as far is allowed there.
OWN_SUM = 9e-6
A_STEP = 1e-7
OTHER_FUNCTIONS = 10


class GpuJobs(ProgramTest):
    def setUp(self):
        super().setUp()
        self.environment["PSRING_TEST_FOLDER"] = str(self.folder)

    def train(self, *arguments):
        return super().train(*arguments, limit=LIMIT)

    def losses(self, name, *arguments, job=GPT):
        """The mean over the workers, by step."""
        out = self.folder / name
        self.assert_done(self.train(*job, "--out", out, *arguments))
        sums = {}
        for line in (out / "metrics.jsonl").read_text().splitlines():
            row = json.loads(line)
            if "loss" in row:
                total, samples = sums.get(row["step"], (0, 0))
                sums[row["step"]] = (total + row["loss"] * row["samples"], samples + row["samples"])
        self.assertEqual(len(sums), job[job.index("--steps") + 1], name)
        return [total / samples for _, (total, samples) in sorted(sums.items())]

    def assert_alike(self, losses, expected, factor=1):
        apart = [abs(got - wanted) / wanted for got, wanted in zip(losses, expected, strict=True)]
        beyond = [step for step, by in enumerate(apart) if not by < factor * (OWN_SUM + step * A_STEP)]
        if beyond:
            most = max(beyond, key=lambda step: apart[step])
            self.fail(f"{factor} x ({OWN_SUM:g} + {A_STEP:g} a step) apart or more in {len(beyond)} of {len(apart)} steps: "
                      f"first {apart[beyond[0]]:.2e} in step {beyond[0]}, most {apart[most]:.2e} in step {most}")

    def test_all_ways_learn_alike(self):
        alone = self.losses("alone", "--strategy", "single", "--device", "cuda")
        self.assert_alike(alone, self.losses("host", "--strategy", "single"), OTHER_FUNCTIONS)
        self.assertEqual(alone, self.losses("again", "--strategy", "single", "--device", "cuda"), "the same bits")
        one_by_one = self.losses("one by one", "--strategy", "single", "--device", "cuda", "--cuda-graphs", "off")
        self.assertEqual(alone, one_by_one, "the same bits without graphs")
        # 4 workers run no strategy that exchanges tensor by tensor, because each exchange waits for the GPU's turns.
        for workers, ways in ((2, ("ddp-naive", *WAYS)), (4, ("ddp", "zero3", "ps") if PLAYED else WAYS)):
            for strategy in ways:
                with self.subTest(strategy=strategy, workers=workers):
                    name = f"{strategy}-{workers}"
                    losses = self.losses(name, "--strategy", strategy, "--workers", workers, *ON_DEVICE)
                    self.assert_alike(losses, alone)

    def test_servers_on_a_gpu(self):
        on_host = self.losses("host", "--strategy", "ps", "--workers", 2, "--servers", 2, *ON_DEVICE)
        there = self.losses("there", "--strategy", "ps", "--workers", 2, "--servers", 2, *ON_DEVICE, "--server-device",
                            "cuda")
        self.assertEqual(on_host, there, "the same bits")

    def test_workers_with_a_gpu_each(self):
        """Their memory is registered with NCCL where it is worth it, and in the same way on all of them."""
        if not PLAYED and not pathlib.Path("/dev/nvidia1").exists():
            self.skipTest("there is one GPU")
        self.environment["PSRING_TEST_GPUS"] = "2"
        job = ["--model", "mlp:784-400-10", "--data", "synthetic:samples=64", "--global-batch", 16, "--seed", 5, "--steps", 4,
               "--workers", 2, "--device", "cuda"]
        for strategy in ("ddp", "zero1", "zero3"):
            with self.subTest(strategy=strategy):
                losses = []
                for sharing, way in (([], "from memory that is registered"), (["--share-gpu"], "through its sockets")):
                    name = strategy + "".join(sharing)
                    losses.append(self.losses(name, "--strategy", strategy, *sharing, job=job))
                    self.assertIn(way, (self.folder / name / "logs" / "worker-0.log").read_text())
                self.assertEqual(losses[0], losses[1], "the same bits")

    def test_what_a_run_tells(self):
        self.losses("run", "--strategy", "ps", "--workers", 2, *ON_DEVICE, "--trace", "on")
        summary = json.loads((self.folder / "run" / "summary.json").read_text())
        for worker in ("worker 0", "worker 1"):
            told = summary["roles"][worker]
            on_gpu = sum(of["peak"] for name, of in told["memory"].items() if name not in ("staging", "rss_peak"))
            self.assertEqual(told["gpu"]["booked_peak"], on_gpu)
        for row in summary["memory"]:
            if "predicted" in row:
                self.assertEqual(row["peak"], row["predicted"], row)
        tracks = {}
        for event in json.loads((self.folder / "run" / "trace.json").read_text())["traceEvents"]:
            if event["ph"] == "X" and event["pid"] < 1000:
                tracks.setdefault((event["pid"], event["tid"]), []).append(event)
        self.assertEqual(sorted(tracks), [(1, 0), (1, 1), (2, 0), (2, 1)])
        for (_, track), events in tracks.items():
            names = [event["name"].split()[0] for event in events]
            self.assertIn("forward", names)
            self.assertEqual("waits" in names, track == 1)
            ends = [event["ts"] + event["dur"] for event in events]
            if track == 1:
                for end, event in zip(ends, events[1:]):
                    self.assertLess(end - event["ts"], 2, "of one queue: one after the other, but for rounding")

    def test_a_lost_worker_ends_the_others(self):
        for strategy in ("ddp", "zero3", "ps"):
            with self.subTest(strategy=strategy):
                result = self.train(*GPT[:-1], 100000, "--strategy", strategy, "--workers", 2, *ON_DEVICE,
                                    "--fault", "kill:worker:1@step=5", "--heartbeat-timeout", 3)
                self.assert_refused(result, 4, "worker 1")
                self.assertLess(result.seconds, 20 if PLAYED else 60)  # of it, the contexts of a GPU and NCCL

    def test_errors_of_kernels_are_told_with_a_trace_too(self):
        for trace in ("off", "on"):
            result = self.train("--strategy", "single", "--device", "cuda", "--data", "synthetic:samples=64", "--steps", 3,
                                "--global-batch", 8, "--model", "gpt:layers=1,dim=512,heads=1,context=8,vocab=32",
                                "--trace", trace, "--out", trace)
            self.assert_refused(result, 1, "attention", "no kernel")

    def test_one_gpu_is_not_shared_unless_that_is_asked_for(self):
        job = [64 if before == "--global-batch" else word for before, word in zip(["", *GPT], GPT)]
        result = self.train(*job, "--strategy", "ddp", "--workers", 2 if PLAYED else 64, "--device", "cuda")
        self.assert_refused(result, 2, "--share-gpu")


if __name__ == "__main__":
    unittest.main()
