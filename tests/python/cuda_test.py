"""Tensors on a GPU over the backend "psring", two ranks on one GPU: every collective, DDP's gradients beside gloo's, and
what ParameterServer and Sharded say. PSRING_TEST_DEVICE=cpu runs the same on the CPU."""

import os
import statistics
import sys
import time
import unittest
import warnings
from pathlib import Path

DEVICE = os.environ.get("PSRING_TEST_DEVICE", "cuda")
# Before PyTorch is imported: the parent must not touch the GPU, since the ranks are forked from it.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
if DEVICE == "cuda" and not any(Path("/dev").glob("nvidia[0-9]*")):
    print("SKIPPED: there is no GPU")
    sys.exit(0)
try:
    import torch
except ImportError:
    print("SKIPPED: no PyTorch (Debian: python3-torch)")
    sys.exit(0)
if not hasattr(torch, "set_default_device"):
    print("SKIPPED: needs PyTorch 2.0 or later")
    sys.exit(0)

import numpy as np
import torch.distributed as dist
from torch import nn

import collectives
import models
import psring.torch
from ranks import Failed, Ranks, run

SIZE = 2
torch.set_num_threads(1)


def on_device(call):
    """`call`, with all tensors on the device, and kernels that give the same bits each time."""

    def on(rank, size, *arguments):
        warnings.filterwarnings("ignore", "(?s).*determinis")  # the loss has no such kernel
        warnings.filterwarnings("ignore", "(?s).*will be deprecated")
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.allow_tf32 = False
        with torch.device(DEVICE):
            return call(rank, size, *arguments)

    return on


def first_gradients(rank, size, model):
    torch.manual_seed(0)
    wrapped = nn.parallel.DistributedDataParallel(model())
    x, y = (each.to(DEVICE) for each in model.batch(torch.Generator("cpu").manual_seed(1 + rank)))
    nn.functional.cross_entropy(wrapped(x), y).backward()
    gradients = torch.cat([p.grad.flatten() for p in wrapped.parameters()])
    assert gradients.device.type == DEVICE, gradients.device
    return gradients.cpu().numpy()


class Cuda(unittest.TestCase):
    def test_every_collective_gives_the_bits_of_the_cpu(self):
        expected = run(collectives.run, SIZE)
        left = run(on_device(collectives.run), SIZE)
        for rank in range(SIZE):
            self.assertEqual(expected[rank].keys(), left[rank].keys())
            for name, tensors in expected[rank].items():
                for ours, theirs in zip(left[rank][name], tensors, strict=True):
                    np.testing.assert_array_equal(ours, theirs, err_msg=f"rank {rank}: {name}")

    def test_gradients_of_ddp_are_those_over_gloo(self):
        for model in (models.ConvNet, models.GPT):
            ours = run(on_device(first_gradients), SIZE, "psring", arguments=(model,))
            theirs = run(on_device(first_gradients), SIZE, "gloo", arguments=(model,))
            for rank in range(SIZE):
                np.testing.assert_array_equal(ours[rank], theirs[rank], err_msg=f"{model.__name__}, rank {rank}")

    def test_training_under_ddp_ends_as_over_gloo(self):
        for model, optimizer, options in (("conv", "sgd", {}), ("gpt", "adamw", {"bucket_cap_mb": 0.01})):
            def train(rank, size):
                return models.train(rank, size, model, optimizer, 20, **options)

            ours, theirs = run(on_device(train), SIZE), run(on_device(train), SIZE, "gloo")
            np.testing.assert_array_equal(ours[0], ours[1], err_msg=model)
            np.testing.assert_array_equal(ours[0], theirs[0], err_msg=model)

    def test_a_collective_waits_for_the_stream_and_the_stream_for_it(self):
        def call(rank, size):
            big = torch.randn(4096, 4096)
            sums = []
            for turn in range(5):
                product = big @ big @ big  # under way when the next line takes a view of it
                part = product[:64].sum() * 0 + torch.full((1 << 16,), float(rank + turn))
                work = dist.all_reduce(part, async_op=True)
                work.wait()
                sums.append((part * 2).cpu().unique().tolist())
            return sums

        self.assertEqual(run(on_device(call), SIZE), [[[2.0 * (1 + 2 * turn)] for turn in range(5)]] * SIZE)

    def test_servers_and_sharding_refuse_a_module_on_a_gpu(self):
        if DEVICE == "cpu":
            self.skipTest("the module is on the CPU")
        ways = {
            "ParameterServer": lambda m: psring.torch.ParameterServer(m, torch.optim.SGD(m.parameters(), lr=0.1)),
            "Sharded": lambda m: psring.torch.Sharded(m, torch.optim.SGD(m.parameters(), lr=0.1)),
        }
        for name, wrap in ways.items():
            def call(rank, size):
                wrap(models.ConvNet())

            for result in Ranks(on_device(call), SIZE).results():
                self.assertIsInstance(result, Failed, name)
                self.assertEqual(result.kind, "UsageError", result)
                self.assertIn("is on cuda:0", result.text)

    def test_time_of_a_step_under_ddp(self):
        """No bound: a figure for the report."""

        def call(rank, size):
            torch.use_deterministic_algorithms(False)
            module = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(8)))
            wrapped = nn.parallel.DistributedDataParallel(module)
            x = torch.randn(64, 2048)
            times = []
            for _ in range(20):
                begin = time.perf_counter()
                wrapped(x).square().mean().backward()
                float(next(module.parameters()).grad.sum())
                times.append(time.perf_counter() - begin)
            return statistics.median(times[5:])

        ours, theirs = run(on_device(call), SIZE)[0], run(on_device(call), SIZE, "gloo")[0]
        print(f"forward and backward under DDP, 128 MiB of gradients: psring {1e3 * ours:.1f} ms, gloo {1e3 * theirs:.1f} ms, "
              f"{theirs / ours:.2f} times as fast", flush=True)


if __name__ == "__main__":
    unittest.main()
