"""psring.torch.Sharded: equality with DDP, bytes and memory by formula, states, misuse, faults."""

import copy
import os
import signal
import sys
import time
import unittest

try:
    import torch
except ImportError:
    print("SKIPPED: no PyTorch (Debian: python3-torch)")
    sys.exit(0)

import numpy as np
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import psring
import psring.torch
from equality_test import MODELS, has_no_gradient, parts
from models import Block
from ranks import SCALE, Failed, Ranks, run

STEPS = 50
LIMIT = 1e-6
HEARTBEAT = 3.0 * SCALE
torch.set_num_threads(1)


def blocks(module, recurse, unwrapped_params):
    """Units: blocks of the GPT, and everything with parameters in the conv net; the rest belongs to the root."""
    return recurse or isinstance(module, (Block, nn.Conv2d))


def leaves(module, recurse, unwrapped_params):
    return recurse or not list(module.children())


def wrapped_by_ddp(module, _optimizer):
    return nn.parallel.DistributedDataParallel(module)


def optimizer_of(kind, module):
    if kind == "sgd":
        return torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
    return torch.optim.AdamW(module.parameters())


def train(rank, model, optimizer, module, steps=range(STEPS)):
    """This rank's losses."""
    losses = []
    for step in steps:
        x, y = module.batch(torch.Generator().manual_seed(1 + rank + 1000 * step))
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def made(name, kind, wrap):
    torch.manual_seed(0)
    module = MODELS[name]()
    optimizer = optimizer_of(kind, module)
    return wrap(module, optimizer), optimizer, module


def against_ddp(rank, size, name, kind, stage):
    model, optimizer, module = made(name, kind, wrapped_by_ddp)
    ddp = parts(module), train(rank, model, optimizer, module)
    ddp = parts(module), ddp[1]
    model, optimizer, module = made(
        name, kind, lambda m, o: psring.torch.Sharded(m, o, stage=stage, auto_wrap_policy=blocks)
    )
    losses = train(rank, model, optimizer, module)
    done, predicted = model.traffic()
    with model.gathered():
        sharded = parts(module), losses
    sizes = [(unit.name, unit.count, unit.read) for unit in model._units]
    return ddp, sharded, (done, predicted, model.step_bytes()), model.memory(), sizes


class AgainstDdp(unittest.TestCase):
    def check_bytes(self, moved, size, stage, units):
        """The formulas of docs/formulas.md, in elements of 4 bytes."""
        done, predicted, step = moved
        whole = 4 * sum(count for _, count, _ in units)
        read = 4 * sum(count for _, count, is_read in units if is_read)
        times = whole + (whole + read if stage == 3 else whole)
        self.assertEqual(step.sent * size, (size - 1) * times)
        self.assertEqual(step.received, step.sent)
        self.assertEqual(done, predicted)
        self.assertEqual(done.sent, STEPS * step.sent)
        self.assertEqual(done.received, STEPS * step.received)

    def check_memory(self, memory, kind, size, stage, units):
        whole = 4 * sum(count for _, count, _ in units)
        part = whole // size
        self.assertEqual(memory["parameters"].peak, whole if stage < 3 else part)
        self.assertEqual(memory["gradients"].peak, whole if stage == 1 else part)
        self.assertEqual(memory["optimizer"].peak, part * (1 if kind == "sgd" else 2))
        self.assertEqual(memory["communication"].now, 0)

    def check(self, name, kind):
        for size in (1, 2, 3, 4):
            for stage in (1, 2, 3):
                with self.subTest(model=name, optimizer=kind, workers=size, stage=stage):
                    results = run(against_ddp, size, arguments=(name, kind, stage), seconds=240)
                    (ddp, losses), (sharded, other_losses), moved, memory, units = results[0]
                    self.assertGreater(len(units), 2)
                    far = {each: np.linalg.norm(ddp[each] - sharded[each]) / np.linalg.norm(ddp[each]) for each in ddp}
                    kept = {each for each in far if kind == "sgd" or not has_no_gradient(each)}
                    worst = max(kept, key=far.__getitem__)
                    print(f"{name}, {kind}, {size} workers, stage {stage}: {far[worst]:.1e} ({worst})", flush=True)
                    self.assertLess(far[worst], LIMIT)
                    np.testing.assert_allclose(other_losses, losses, rtol=1e-5)
                    self.check_bytes(moved, size, stage, units)
                    self.check_memory(memory, kind, size, stage, units)
                    for _, (state, _), *_ in results[1:]:
                        self.assertTrue(all(np.array_equal(state[each], sharded[each]) for each in sharded))

    def test_conv_net(self):
        self.check("conv", "sgd")
        self.check("conv", "adamw")

    def test_gpt(self):
        self.check("gpt", "sgd")
        self.check("gpt", "adamw")


if __name__ == "__main__":
    unittest.main()
