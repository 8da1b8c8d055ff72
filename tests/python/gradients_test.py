"""What programs do with gradients: the outcome is PyTorch's, or it is refused by name."""

import copy
import sys
import unittest

try:
    import torch
except ImportError:
    print("SKIPPED: no PyTorch (Debian: python3-torch)")
    sys.exit(0)

import torch.nn.functional as F
from torch import nn

import psring
import psring.torch
from ranks import Failed, Ranks, run

WORKERS = 2


def every(module, recurse, unwrapped_params):
    return True


class Spectral(nn.Module):
    """A filter whose weights are complex numbers in a real parameter, as GFNet's and FNO's are."""

    def __init__(self, conjugate):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 2) * 0.5)
        self.conjugate = conjugate

    def forward(self, x):
        weight = torch.view_as_complex(self.weight)
        return torch.fft.irfft(torch.fft.rfft(x) * (weight.conj() if self.conjugate else weight), n=8)


class Twice(nn.Module):
    """Its second layer is used by rank 0 alone."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x, rank):
        return self.first(x) + self.second(x) if rank == 0 else self.first(x)


def batch(rank, step):
    draw = torch.Generator().manual_seed(10 * step + rank)
    return torch.randn(4, 6, generator=draw), torch.randn(4, 3, generator=draw)


def wrapped(module, optimizer, way):
    if way.startswith("sharded"):
        return psring.torch.Sharded(module, optimizer, stage=int(way[-1]), auto_wrap_policy=every)
    return psring.torch.ParameterServer(module, optimizer, zero=int(way[-1]), auto_wrap_policy=every)


def views(rank, size, way, conjugate):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 8), Spectral(conjugate), nn.Linear(8, 3))
    plain = copy.deepcopy(module)
    optimizer, own = (torch.optim.SGD(each.parameters(), lr=0.5) for each in (module, plain))
    model = wrapped(module, optimizer, way)
    for step in range(4):
        for each in (optimizer, own):
            each.zero_grad()
        x, y = batch(rank, step)
        F.mse_loss(model(x), y).backward()
        sum(F.mse_loss(plain(x), y) / size for x, y in (batch(r, step) for r in range(size))).backward()
        optimizer.step()
        own.step()
    with model.gathered():
        pairs = list(zip(module.parameters(), plain.parameters()))
        away = max(float((a - b).abs().max()) for a, b in pairs)
    if way.startswith("zero"):
        model.close()
    return away


def said(body):
    try:
        body()
    except psring.UsageError as error:
        return str(error)
    return "accepted"


def model_of(way, module):
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    if way == "sharded":
        return psring.torch.Sharded(module, optimizer, stage=2), optimizer
    return psring.torch.ParameterServer(module, optimizer, updates=way), optimizer


def alone(rank, size, way):
    """Steps with gradients that were exchanged with nobody."""
    lines = []
    for how in ("step", "backward"):
        model, optimizer = model_of(way, nn.Linear(6, 3))
        x, y = batch(rank, 0)
        loss = F.mse_loss(model(x), y)
        with model.no_sync():
            if how == "step":
                loss = F.mse_loss(model(x), y)
            loss.backward()
        lines.append(said(optimizer.step))
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()  # goes on
    return lines


def changed(rank, size, how):
    """Changes of pushed gradients that autograd does not count."""
    module = nn.Linear(6, 3)
    model, optimizer = model_of("server", module)
    x, y = batch(rank, 0)
    F.mse_loss(model(x), y).backward()
    if how == "clip":
        nn.utils.clip_grad_value_(module.parameters(), 1e-4)
    else:
        module.weight.grad.numpy()[...] *= 2
    line = said(optimizer.step)
    model.job.barrier()
    model.job.abort("the test is over")
    model._served._ended = True
    return line


def unused(rank, size):
    """With updates="mean" gradients are the means when backward returns, also where some are zeros."""
    torch.manual_seed(0)
    module = Twice()
    plain = copy.deepcopy(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    model = psring.torch.ParameterServer(module, optimizer, updates="mean", find_unused_parameters=True)
    x, y = batch(rank, 0)
    F.mse_loss(model(x, rank), y).backward()
    for r in range(size):
        x, y = batch(r, 0)
        (F.mse_loss(plain(x, r), y) / size).backward()
    away = max(float((a.grad - b.grad).abs().max()) for a, b in zip(module.parameters(), plain.parameters()))
    optimizer.step()
    model.close()
    return away


class Looking(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 3))

    def forward(self, keys):
        return F.embedding(keys, self.weight, sparse=True)


def sparse(rank, size, way):
    model, _ = model_of(way, Looking())
    line = said(lambda: model(torch.tensor([1, 2])).sum().backward())
    model.job.barrier()
    model.job.abort("the test is over")
    if way != "sharded":
        model._served._ended = True
    return line


def scripted(rank, size, way):
    return said(lambda: model_of(way, torch.jit.script(nn.Linear(6, 3))))


def differ(rank, size, what):
    module = nn.Linear(6, 3)
    if what == "frozen" and rank == 1:
        module.bias.requires_grad_(False)
    optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=[0.5, 0.1][rank * (what == "lr")])
    psring.torch.ParameterServer(module, optimizer, updates=["server", "mean"][rank * (what == "updates")])


class Gradients(unittest.TestCase):
    def test_views_of_another_type(self):
        for way in ("sharded 2", "sharded 3", "zero 2", "zero 3"):
            for conjugate in (False, True):
                with self.subTest(way, conjugate=conjugate):
                    self.assertLess(max(run(views, WORKERS, arguments=(way, conjugate))), 1e-6)

    def test_gradients_of_this_worker_alone(self):
        for way in ("sharded", "mean"):
            for lines in run(alone, WORKERS, arguments=(way,)):
                for line in lines:
                    self.assertRegex(line, "the gradient of '(weight|bias)' is this worker's own")

    def test_changes_that_autograd_does_not_count(self):
        for how in ("clip", "numpy"):
            for line in run(changed, WORKERS, backend=None, arguments=(how,)):
                self.assertRegex(line, "the gradient of '(weight|bias)' was changed after it was pushed")

    def test_sparse_gradients_and_scripts(self):
        for way in ("sharded", "mean", "server"):
            with self.subTest(way):
                backend = "psring" if way == "sharded" else None
                for line in run(sparse, WORKERS, backend=backend, arguments=(way,)):
                    self.assertIn("the gradient of 'weight' is sparse", line)
                for line in run(scripted, WORKERS, arguments=(way,)):
                    self.assertIn("the module is a ScriptModule", line)

    def test_means_with_unused_parameters(self):
        self.assertLess(max(run(unused, WORKERS, backend=None)), 1e-6)

    def test_ranks_that_ask_for_something_else(self):
        expected = {
            "lr": "rank 1 has --lr 0.1, rank 0 has --lr 0.5",
            "updates": "rank 1 has updates='mean', rank 0 has updates='server'",
            "frozen": r"rank 1 has parameter 'bias' \(3,\), frozen, rank 0 has parameter 'bias' \(3,\)",
        }
        for what, line in expected.items():
            for result in Ranks(differ, WORKERS, backend=None, arguments=(what,)).results():
                with self.subTest(what):
                    self.assertIsInstance(result, Failed)
                    self.assertRegex(result.text, line)


if __name__ == "__main__":
    unittest.main()
