"""psring.torch.Tables: equality with PyTorch's sparse embeddings, the forms of a call, steps, bytes, misuse, faults."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import signal
import sys
import unittest
from typing import Any, Callable

try:
    import torch
except ImportError:
    print("SKIPPED: no PyTorch (Debian: python3-torch)")
    sys.exit(0)

import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import psring
import psring.torch
from psring.torch import _served_job
from ranks import SCALE, Failed, Ranks, run, status_of_fork

ROWS = 50
WIDTH = 4


class Net(nn.Module):
    """Two sparse embeddings, one of them used twice, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.ads = nn.EmbeddingBag(ROWS, WIDTH, mode="sum", sparse=True)
        self.user = nn.Embedding(ROWS, WIDTH, padding_idx=0, sparse=True)
        self.head = nn.Linear(2 * WIDTH, 1)

    def forward(self, ads: torch.Tensor, offsets: torch.Tensor, users: torch.Tensor) -> torch.Tensor:
        people = self.user(users[:, 0]) + self.user(users[:, 1])
        return self.head(torch.cat([self.ads(ads, offsets), people], 1)).squeeze(1)


def batch(rank: int, step: int, size: int = 6) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
    draw = torch.Generator().manual_seed(1000 * step + rank)
    lengths = torch.randint(0, 5, (size,), generator=draw)  # some bags are empty
    offsets = lengths.cumsum(0) - lengths
    ads = torch.randint(0, ROWS, (int(lengths.sum()),), generator=draw)
    users = torch.randint(0, ROWS, (size, 2), generator=draw)
    return (ads, offsets, users), torch.randint(0, 2, (size,), generator=draw).float()


def optimizers(kind: str, net: nn.Module) -> list[torch.optim.Optimizer]:
    """PyTorch's, for a net with sparse embeddings: of the linear layer, and of the embeddings."""
    sparse = [*net.ads.parameters(), *net.user.parameters()]
    rule: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
        "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
        "adam": lambda p: torch.optim.SparseAdam(p, lr=0.01),
    }
    return [torch.optim.SGD(net.head.parameters(), lr=0.1), rule[kind](sparse)]


def plain(_rank: int, _size: int, kind: str, steps: int, workers: int) -> tuple[list[float], dict[str, torch.Tensor]]:
    """The losses of PyTorch in one process, which are the means over the workers' batches, and the state."""
    net = Net()
    updates = optimizers(kind, net)
    losses = []
    for step in range(steps):
        loss = 0.0
        for update in updates:
            update.zero_grad()
        for rank in range(workers):
            x, y = batch(rank, step)
            part = F.binary_cross_entropy_with_logits(net(*x), y) / workers
            part.backward()
            loss += part.item()
        if kind == "adam":  # SparseAdam wants one gradient a row
            for p in (net.ads.weight, net.user.weight):
                p.grad = p.grad.coalesce()
        for update in updates:
            update.step()
        losses.append(loss)
    return losses, {name: value.numpy().copy() for name, value in net.state_dict().items()}


def served(rank: int, size: int, kind: str, steps: int, dense: str) -> Any:
    """The same over servers."""
    tables = psring.torch.Tables(servers=2, optimizer=kind, lr={"sgd": None, "adagrad": 0.1, "adam": 0.01}[kind])
    net: Any = psring.torch.convert(Net(), tables)
    assert [name for name, _ in net.named_parameters()] == ["head.weight", "head.bias"]
    update = torch.optim.SGD(net.parameters(), lr=0.1)
    whole: Any = net
    if dense == "ddp":
        whole = nn.parallel.DistributedDataParallel(net)
    elif dense == "ps":
        whole = psring.torch.ParameterServer(net, update)
    tables.attach(update)
    losses = []
    for step in range(steps):
        x, y = batch(rank, step)
        update.zero_grad()
        loss = F.binary_cross_entropy_with_logits(whole(*x), y)
        loss.backward()
        update.step()
        losses.append(loss.item())
    state = {**net.head.state_dict(prefix="head."), **tables.state_dict()}
    measured, predicted = tables.traffic()
    assert measured == predicted, (measured, predicted)
    assert tables.steps == steps
    tables.close()
    if dense == "ps":
        whole.close()
    return losses, {name: value.numpy().copy() for name, value in state.items()}


def close(a: Any, b: Any, within: float = 1e-5) -> bool:
    return float(abs(a - b).max()) <= within


def alone(function: Callable[..., Any], **how: Any) -> Any:
    """The result of a worker that is alone in its job."""
    return run(function, 1, backend=None, **how)[0]


class Equality(unittest.TestCase):
    def check(self, kind: str, workers: int, dense: str = "none", steps: int = 100) -> None:
        losses, state = alone(plain, arguments=(kind, steps, workers))  # autograd and a later fork exclude each other
        backend = "psring" if dense == "ddp" else None
        results = run(served, workers, backend=backend, arguments=(kind, steps, dense))
        for step in range(steps):
            mean = sum(result[0][step] for result in results) / workers
            self.assertAlmostEqual(mean, losses[step], delta=1e-4, msg=f"step {step}")
        for _, got in results:
            for name, value in state.items():
                self.assertTrue(close(value, got[name]), f"{name} {abs(value - got[name]).max()}")
            self.assertTrue(all((got[name] == results[0][1][name]).all() for name in got))

    def test_sgd_in_one_process(self) -> None:
        self.check("sgd", 1)

    def test_sgd_of_two_workers_beside_ddp(self) -> None:
        self.check("sgd", 2, "ddp")

    def test_sgd_of_two_workers_beside_a_parameter_server(self) -> None:
        self.check("sgd", 2, "ps", steps=20)

    def test_adagrad(self) -> None:
        self.check("adagrad", 1, steps=50)

    def test_adam(self) -> None:
        self.check("adam", 2, "ddp", steps=50)


def forms(_rank: int, _size: int) -> list[str]:
    """The forms of a call beside PyTorch's module with the same rows: outputs, then gradients by a step of sgd."""
    failures = []
    keys = torch.tensor([3, 1, 3, 7, 0, 1, 9, 3])
    offsets = torch.tensor([0, 3, 3, 6])
    weights = torch.tensor([0.5, -1.0, 2.0, 1.0, 0.0, 3.0, 1.5, 1.0])
    last = torch.tensor([0, 3, 3, 8])
    matrix = keys.view(4, 2)
    cases: list[tuple[str, Any, dict[str, Any], tuple[Any, ...]]] = []
    for mode in ("sum", "mean", "max"):
        cases += [
            (mode, nn.EmbeddingBag, {"mode": mode}, (keys, offsets)),
            (f"{mode} of int32", nn.EmbeddingBag, {"mode": mode}, (keys.int(), offsets.int())),
            (f"{mode} of a matrix", nn.EmbeddingBag, {"mode": mode}, (matrix,)),
            (f"{mode}, last offset", nn.EmbeddingBag, {"mode": mode, "include_last_offset": True}, (keys, last)),
            (f"{mode}, padding", nn.EmbeddingBag, {"mode": mode, "padding_idx": 3}, (keys, offsets)),
            (f"{mode}, only empty bags", nn.EmbeddingBag, {"mode": mode}, (keys[:0], torch.tensor([0, 0]))),
            (f"{mode}, no bag", nn.EmbeddingBag, {"mode": mode}, (keys[:0], offsets[:0])),
        ]
    cases += [
        ("weights", nn.EmbeddingBag, {"mode": "sum"}, (keys, offsets, weights)),
        ("weights, last offset", nn.EmbeddingBag, {"mode": "sum", "include_last_offset": True}, (keys, last, weights)),
        ("weights, padding", nn.EmbeddingBag, {"mode": "sum", "padding_idx": 3}, (keys, offsets, weights)),
        ("weights of a matrix", nn.EmbeddingBag, {"mode": "sum"}, (matrix, None, weights.view(4, 2))),
        ("embedding", nn.Embedding, {}, (keys,)),
        ("embedding of a matrix", nn.Embedding, {}, (matrix,)),
        ("embedding, padding", nn.Embedding, {"padding_idx": 3}, (matrix,)),
        ("embedding of nothing", nn.Embedding, {}, (keys[:0],)),
    ]
    tables = psring.torch.Tables(servers=2, optimizer="sgd", lr=0.5)
    expected: Any = nn.ModuleDict()
    weighted = str([name for name, *_ in cases].index("weights"))
    for number, (_, kind, how, _arguments) in enumerate(cases):
        torch.manual_seed(number)
        # PyTorch has no sparse gradients with mode="max".
        expected[str(number)] = kind(10, WIDTH, sparse=how.get("mode") != "max", **how)
    got: Any = nn.ModuleDict({name: copy.deepcopy(module) for name, module in expected.items()})
    for module in got.values():
        module.sparse = True
    psring.torch.convert(got, tables)
    update = torch.optim.SGD(expected.parameters(), lr=0.5)
    for number, (name, _, _, arguments) in enumerate(cases):
        outcomes = []
        of_weights = []
        for modules in (expected, got):
            mine = [each.clone() if each is not None else None for each in arguments]
            if len(mine) == 3:
                mine[2].requires_grad_(True)
            out = modules[str(number)](*mine)
            (out * torch.arange(out.numel()).view_as(out)).sum().backward()
            outcomes.append(out.detach())
            of_weights.append(mine[2].grad if len(mine) == 3 else torch.zeros(1))
        if outcomes[0].shape != outcomes[1].shape or not torch.allclose(*outcomes, atol=1e-6):
            failures.append(f"{name}: {outcomes}")
        if not torch.allclose(*of_weights, atol=1e-4):
            failures.append(f"{name}: gradients of weights {of_weights}")
    of_weights = []
    for modules in (expected, got):  # a pass for the gradients of weights alone
        mine = weights.clone().requires_grad_(True)
        of_weights += torch.autograd.grad(modules[weighted](keys, offsets, mine).sum(), mine)
    if not torch.allclose(*of_weights, atol=1e-4):
        failures.append(f"gradients of weights alone {of_weights}")
    update.step()
    tables.step()
    after = tables.state_dict()
    for number, (name, _, _, _) in enumerate(cases):
        if not torch.allclose(expected[str(number)].weight, after[f"{number}.weight"], atol=1e-4):
            failures.append(f"{name}: rows after a step")
    tables.close()
    return failures


def steps_of(_rank: int, _size: int) -> None:
    """Which passes change rows, and which do not."""
    tables = psring.torch.Tables(servers=2, lr=1.0)
    bag = tables.EmbeddingBag("bag", WIDTH, mode="sum", init="constant:0.5")
    one = torch.tensor([[-5], [2**62]])

    def value() -> float:
        with torch.no_grad():
            return float(bag(one)[0, 0])

    assert value() == 0.5
    bag(one)  # forward without backward
    bag.eval()
    bag(one)
    bag.train()
    tables.step()
    assert value() == 0.5 and tables.state_dict()["bag.keys"].numel() == 0
    out = bag(one).sum() + bag(one[:1]).sum()  # twice in a forward pass
    out.backward()
    tables.step()
    assert value() == -1.5
    assert tables.state_dict()["bag.keys"].tolist() == [-5, 2**62]
    assert tables.state_dict()["bag.values"][:, 0].tolist() == [-1.5, -0.5]
    out = bag(one).sum()
    out.backward(retain_graph=True)
    out.backward()  # gradients add up, as in PyTorch
    bag(one).sum().backward()  # an accumulated pass
    tables.step()
    assert value() == -4.5
    try:
        out.backward()
        raise AssertionError("a second backward pass of a freed graph")
    except RuntimeError as error:
        assert "second time" in str(error), error
    old = bag(one).sum()
    tables.step()
    old.backward()  # of rows of the step before: its gradient belongs to this step
    tables.step()
    assert value() == -5.5
    many = bag(torch.arange(40).view(1, 40))
    many.sum().backward()
    tables.step()
    assert tables.state_dict()["bag.keys"].numel() == 42
    tables.close()


def at_own_pace(rank: int, size: int) -> None:
    """Under asp each step is an update at once: workers with different numbers of steps, which read their own writes."""
    tables = psring.torch.Tables(servers=2, lr=0.5, options=("--consistency", "asp"))
    bag = tables.EmbeddingBag("bag", WIDTH, mode="sum", init="constant:0")
    own = torch.tensor([[10 + rank]])
    table, keys, gradients = tables._tables.all["bag"], torch.tensor([5, 77, 77]), torch.full((3, WIDTH), 2.0)
    for step in range(4 + 3 * rank):
        bag(torch.tensor([[5, 10 + rank]])).sum().backward()
        table.add(keys.data_ptr(), 3, gradients.data_ptr())
        tables.step()
        with torch.no_grad():
            assert bag(own).tolist() == [[-0.5 * (step + 1)] * WIDTH], bag(own)
    tables._flush()
    dist.barrier()
    steps = sum(4 + 3 * each for each in range(size))
    with torch.no_grad():
        assert bag(torch.tensor([[5], [77]])).tolist() == [[-1.5 * steps] * WIDTH, [-2.0 * steps] * WIDTH]
    moved, predicted = tables.traffic()
    assert moved == predicted, (moved, predicted)
    dist.barrier()
    tables.close()


def attached(_rank: int, _size: int) -> None:
    """The learning rate of each step, and zero_grad."""
    for own in (None, 1.0):
        tables = psring.torch.Tables(lr=own)
        bag = tables.EmbeddingBag("bag", 1, mode="sum", init="constant:0")
        head = nn.Linear(1, 1)
        update = torch.optim.SGD(head.parameters(), lr=1.0)
        tables.attach(update)
        schedule = torch.optim.lr_scheduler.StepLR(update if own is None else tables.optimizer, 1, 0.5)
        key = torch.tensor([[1]])
        for _ in range(3):
            bag(key).sum().backward()
            update.zero_grad()  # drops it
            late = bag(key).sum()
            update.zero_grad()
            late.backward()
            update.zero_grad()  # drops it, too
            bag(key).sum().backward()
            update.step()
            schedule.step()
        with torch.no_grad():
            assert float(bag(key)) == -1.75, float(bag(key))
        tables.close()


def own_optimizer(_rank: int, _size: int) -> None:
    """The rule's own zero_grad, and a step with a closure."""
    tables = psring.torch.Tables(lr=1.0)
    bag = tables.EmbeddingBag("bag", 1, mode="sum", init="constant:0")
    key = torch.tensor([[1]])

    def closure() -> torch.Tensor:
        tables.optimizer.zero_grad()
        loss = bag(key).sum()
        loss.backward()
        return loss

    bag(key).sum().backward()
    assert float(tables.optimizer.step(closure)) == 0
    with torch.no_grad():
        assert float(bag(key)) == -1, float(bag(key))
    tables.close()


def changed(_rank: int, _size: int) -> None:
    """What a backward pass needs was changed in place after the forward pass."""
    tables = psring.torch.Tables(lr=1.0)
    bag = tables.EmbeddingBag("bag", 2, mode="sum")
    for what in ("weights", "offsets"):
        for trained in (False, True):
            keys, offsets = torch.tensor([1, 2, 2, 5]), torch.tensor([0, 2])
            weights = torch.ones(4, requires_grad=trained)
            out = bag(keys, offsets, weights)
            keys.zero_()  # is not needed any more
            with torch.no_grad():
                {"weights": weights, "offsets": offsets}[what][1:] = 0
            try:
                out.sum().backward()
                raise AssertionError(f"{what} were changed, and nothing was said")
            except RuntimeError as error:
                assert "modified by an inplace operation" in str(error), error
    tables.close()


def rules(_rank: int, _size: int) -> None:
    """rowwise-adagrad and ftrl, by their formulas in f64."""
    g = torch.tensor([0.5, -1.0, 2.0, 0.25])
    tables = psring.torch.Tables(optimizer=psring.torch.RowWiseAdagrad(lr=0.05))
    bag = tables.EmbeddingBag("bag", 4, mode="sum", init="constant:0.5")
    w, s = torch.full((4,), 0.5).double(), 0.0
    for _ in range(5):
        (bag(torch.tensor([[7]])) * g).sum().backward()
        tables.step()
        s += float((g.double() ** 2).mean())
        w -= 0.05 * g.double() / (s**0.5 + 1e-8)
    assert close(tables.state_dict()["bag.values"][0].double(), w, 1e-6)
    tables.close()
    tables = psring.torch.Tables(optimizer="ftrl:l1=0.1,beta=1", lr=0.1)
    bag = tables.EmbeddingBag("bag", 4, mode="sum", init="constant:0")
    w, z, n = (torch.zeros(4).double() for _ in range(3))
    for _ in range(5):
        (bag(torch.tensor([[7]])) * g).sum().backward()
        tables.step()
        square = n + g.double() ** 2
        z += g.double() - (square.sqrt() - n.sqrt()) / 0.1 * w
        n = square
        w = torch.where(z.abs() <= 0.1, torch.zeros_like(z), -(z - z.sign() * 0.1) / ((1 + n.sqrt()) / 0.1))
    assert close(tables.state_dict()["bag.values"][0].double(), w, 1e-6)
    tables.close()


def bytes_of(rank: int, size: int, transport: str) -> None:
    """Prefetched rows, and the bytes of keys, rows and gradients."""
    tables = psring.torch.Tables(servers=3, lr=0.1, options=("--transport", transport))
    bags = [tables.EmbeddingBag("a", 8, mode="sum"), tables.EmbeddingBag("b", 2, mode="sum", dtype=torch.bfloat16)]
    draw = torch.Generator().manual_seed(rank)
    batches = [torch.randint(0, 300, (20, 10), generator=draw) for _ in range(6)]
    different = [len(keys.unique()) for keys in batches]
    for step, keys in enumerate(batches):
        if step + 1 < len(batches):
            tables.prefetch(a=batches[step + 1], b=batches[step + 1])
        if step > 0:
            pulled = tables.traffic()[1].received
        sum(bag(keys).sum() for bag in bags).backward()
        if step > 0:
            assert tables.traffic()[1].received == pulled  # the rows were on their way already
        tables.step()
    measured, predicted = tables.traffic()
    assert measured == predicted, (measured, predicted)
    assert measured == psring._accounts.Moved(
        *(sum(column) for column in zip(*(tables.step_bytes(a=count, b=count) for count in different)))
    )
    assert tables.memory()["parameters"].peak > 0
    tables.job.barrier()
    total = sum(bag(torch.arange(300).view(1, -1)).sum() for bag in bags).detach()
    tables.job.barrier()
    tables.close()
    assert torch.isfinite(total)


def states(rank: int, _size: int) -> Any:
    """Saving and loading, with keys of any value, more than one batch may have."""
    tables = psring.torch.Tables(servers=3, optimizer="adagrad", lr=0.1)
    bag = tables.EmbeddingBag("bag", 3, mode="sum", most_keys=64)
    draw = torch.Generator().manual_seed(5)
    keys = torch.randint(-(2**63), 2**63 - 1, (1000,), generator=draw).unique()
    values = torch.randn(len(keys), 3, generator=draw)
    if rank == 0:
        tables.load_state_dict({"bag.keys": keys, "bag.values": values})
    else:
        tables.load_state_dict({"bag.keys": keys[:0], "bag.values": values[:0]})
    with torch.no_grad():
        assert torch.equal(bag(keys[:40].view(-1, 1)), values[:40])
    state = tables.state_dict()
    assert torch.equal(state["bag.keys"], keys) and torch.equal(state["bag.values"], values)
    bag(keys[:10].view(1, 10)).sum().backward()
    tables.step()
    state = tables.state_dict()
    assert not torch.equal(state["bag.values"], values)
    tables.job.barrier()
    tables.load_state_dict({"bag.weight": torch.ones(5, 3)})
    tables.load_state_dict({}, strict=False)
    with torch.no_grad():
        assert float(bag(torch.arange(5).view(1, -1)).sum()) == 15
    tables.job.barrier()
    tables.close()
    return {name: value.numpy().copy() for name, value in state.items()}


def jobs_in_turn(rank: int, _size: int, ahead: Any) -> None:
    """Two jobs: rank 0 still begins the first one when rank 1 has reached a store for the second one."""
    own, begun, stores = _served_job._store, _served_job.Servers.joined, []

    def store(seconds: float) -> Any:
        stores.append(own(seconds))
        if len(stores) == 2:
            ahead.set()
        return stores[-1]

    def joined(servers: Any) -> None:
        assert ahead.wait(30 * SCALE)
        begun(servers)

    if rank == 0:
        _served_job.Servers.joined = joined  # type: ignore[method-assign]
    else:
        _served_job._store = store
    jobs = [psring.torch.Tables(lr=0.1, timeout=10 * SCALE) for _ in range(2)]
    for tables in jobs:
        tables.EmbeddingBag("bag", 2)(torch.tensor([[1]])).sum().backward()
        tables.step()
        tables.close()


def line_of(call: Callable[[], Any]) -> str:
    try:
        call()
    except (psring.Error, IndexError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was refused"


def misuse(_rank: int, _size: int) -> dict[str, str]:
    make = psring.torch.Tables
    by_loss = torch.optim.lr_scheduler.ReduceLROnPlateau
    lines = {
        "rule": line_of(lambda: make(optimizer="lamb")),
        "option of a rule": line_of(lambda: make(optimizer="sgd:eps=1")),
        "number of a rule": line_of(lambda: make(optimizer="adagrad:eps=small")),
        "rate below 0": line_of(lambda: make(lr=-1.0)),
        "two rates": line_of(lambda: make(optimizer=psring.torch.RowWiseAdagrad(0.1), lr=0.1)),
        "rate that is a text": line_of(lambda: make(lr="fast")),
        "servers": line_of(lambda: make(servers=0)),
        "servers that are a text": line_of(lambda: make(servers="two")),
        "option of the job": line_of(lambda: make(options=("--compress", "int8")).EmbeddingBag("a", 1)),
        "consistency": line_of(lambda: make(options=("--consistency", "ssp:2")).EmbeddingBag("a", 1)),
    }
    for options in WITHOUT_EFFECT:
        lines[options] = line_of(lambda options=options: make(options=options.split()).EmbeddingBag("a", 1))  # type: ignore[misc]
    tables = make()
    net = nn.Sequential(nn.Embedding(4, 2, sparse=True), nn.Linear(2, 1))
    psring.torch.convert(net, tables)
    bag = tables.EmbeddingBag("bag", 2, mode="sum", most_keys=4)
    padded = tables.EmbeddingBag("padded", 2, padding_idx=1)
    last = tables.EmbeddingBag("last", 2, include_last_offset=True)
    key = torch.tensor([[1]])
    lines |= {
        "two of a name": line_of(lambda: tables.EmbeddingBag("bag", 2)),
        "empty name": line_of(lambda: tables.Embedding("", 2)),
        "name that is a number": line_of(lambda: tables.Embedding(3, 2)),
        "name with a zero": line_of(lambda: tables.EmbeddingBag("a\0b", 2)),
        "padding that is a text": line_of(lambda: tables.Embedding("text", 2, padding_idx="x")),
        "padding of a bag": line_of(lambda: tables.EmbeddingBag("text", 2, padding_idx=1.5)),
        "width that is a text": line_of(lambda: tables.Embedding("text", "4")),
        "most keys that are a text": line_of(lambda: tables.Embedding("text", 2, most_keys="4")),
        "init that is a number": line_of(lambda: tables.Embedding("text", 2, init=1)),
        "the name of these": line_of(lambda: tables.Embedding("text", 2)),
        "a schedule": line_of(lambda: torch.optim.lr_scheduler.StepLR(tables.optimizer, 2)),
        "a schedule by loss": line_of(lambda: [by_loss(tables.optimizer, patience=0).step(loss) for loss in (1.0, 2.0)]),
        "width": line_of(lambda: tables.EmbeddingBag("wide", 10000)),
        "width below 0": line_of(lambda: tables.Embedding("wide", -1)),
        "init": line_of(lambda: tables.EmbeddingBag("init", 2, init="uniform")),
        "dtype": line_of(lambda: tables.EmbeddingBag("half", 2, dtype=torch.float16)),
        "most keys of 0": line_of(lambda: tables.EmbeddingBag("none", 2, most_keys=0)),
        "most keys of 2^64": line_of(lambda: tables.EmbeddingBag("many", 2, most_keys=2**64)),
        "mode": line_of(lambda: tables.EmbeddingBag("mode", 2, mode="min")),
        "the name of a refused table": line_of(lambda: tables.EmbeddingBag("mode", 2, mode="sum")),
        "no rate": line_of(tables.step),
        "index": line_of(lambda: net(torch.tensor([4]))),
        "floats": line_of(lambda: bag(torch.tensor([[1.0]]))),
        "a list": line_of(lambda: bag([1])),
        "no offsets": line_of(lambda: bag(torch.tensor([1]))),
        "offsets of a matrix": line_of(lambda: bag(key, torch.tensor([0]))),
        "falling offsets": line_of(lambda: bag(torch.tensor([1, 2]), torch.tensor([0, 2, 1]))),
        "first offset": line_of(lambda: bag(torch.tensor([1, 2]), torch.tensor([1]))),
        "offsets beside padding": line_of(lambda: padded(torch.tensor([1, 2]), torch.tensor([0, -1]))),
        "last offset": line_of(lambda: last(torch.tensor([1, 2]), torch.tensor([0, 1]))),
        "weights": line_of(lambda: bag(torch.tensor([1]), torch.tensor([0]), torch.ones(2))),
        "weights on a device": line_of(lambda: bag(key[0], key[0] - key[0], torch.ones(1, device="meta"))),
        "an option twice": line_of(lambda: make(optimizer="adam:beta1=0.9,beta1=0.8")),
        "a rate in the rule": line_of(lambda: make(optimizer="sgd:lr=1")),
        "an option out of range": line_of(lambda: make(optimizer="adam:beta1=1.5")),
        "a trace": line_of(lambda: torch.jit.trace(bag, key)),
        "a script": line_of(lambda: torch.jit.script(nn.Sequential(bag))),
        "keys of a batch": line_of(lambda: bag(torch.arange(5).view(1, 5))),
        "index ahead": line_of(lambda: tables.prefetch({"0": torch.tensor([4])})),
        "index of a state": line_of(
            lambda: tables.load_state_dict({"0.keys": torch.tensor([4]), "0.values": torch.ones(1, 2)}, strict=False)
        ),
        "height of a state": line_of(lambda: tables.load_state_dict({"0.weight": torch.ones(3, 2)}, strict=False)),
        "late table": line_of(lambda: tables.EmbeddingBag("late", 2)),
        "prefetch": line_of(lambda: tables.prefetch(other=key)),
        "attach": line_of(lambda: tables.attach(tables.optimizer)),
        "rows": line_of(lambda: tables.state_dict(most_rows=3)),
        "state": line_of(lambda: tables.load_state_dict({})),
        "shape of a state": line_of(lambda: tables.load_state_dict({"0.weight": torch.ones(2, 3)}, strict=False)),
        "convert twice": line_of(lambda: psring.torch.convert(net, tables)),
        "convert a root": line_of(lambda: psring.torch.convert(nn.Embedding(2, 2, sparse=True), tables)),
        "pickle": line_of(lambda: pickle.dumps(net)),
        "rule of no tables": line_of(psring.torch.RowWiseAdagrad(0.1).step),
        "rule of other tables": line_of(lambda: make(optimizer=tables.optimizer)),
    }
    assert copy.deepcopy(bag).table is bag.table
    for first in (0, 4):
        bag(torch.arange(first, first + 4).view(1, 4)).sum().backward()
    update = torch.optim.SGD(net.parameters(), lr=0.1)
    tables.attach(update)
    lines["keys of a step"] = line_of(update.step)
    update.zero_grad()
    lines["attached twice"] = line_of(lambda: tables.attach(update))
    lines["attached before"] = line_of(lambda: psring.torch.ParameterServer(net, update))
    assert status_of_fork(lambda: bag(key), psring.UsageError) == 7
    update.step()
    dense = net[1].weight.detach().clone()
    net[1].weight.grad = torch.ones_like(dense)
    update.param_groups[0]["momentum"] = 0.9
    lines["rule of a later step"] = line_of(update.step)
    update.param_groups[0]["momentum"] = 0
    out = bag(key)
    tables.close()
    assert out.numel() == 2
    lines["gradient after the end"] = line_of(out.sum().backward)
    del out
    lines["closed"] = line_of(lambda: bag(key))
    lines["step after the end"] = line_of(update.step)
    lines["attach after the end"] = line_of(lambda: make_closed().attach(torch.optim.SGD([dense], lr=0.1)))
    assert torch.equal(net[1].weight, dense)  # a refused step changes nothing
    return lines


# Options of a job without an effect on a program with tables.
WITHOUT_EFFECT = {
    "--momentum 0.9": "--momentum 0.9 is refused: rows have --table-optimizer",
    "--nesterov --momentum 0.9": "is refused: rows have --table-optimizer",
    "--weight-decay 0.5": "--weight-decay 0.5 is refused: rows have --table-optimizer",
    "--optimizer adam": "--optimizer adam is refused: rows have --table-optimizer",
    "--lr 0.5": "--lr 0.5 is refused: rows have --table-optimizer",
    "--clip-norm 0.5": "--clip-norm 0.5 is refused: rows have --table-optimizer",
    "--remedy dc-asgd:lambda=0.5 --consistency asp": "--remedy dc-asgd:lambda=0.5 is refused",
    "--replicas 1": "--replicas: has no effect",
    "--nodes=2": "--nodes: has no effect",
}


EXPECTED = {
    **WITHOUT_EFFECT,
    "index ahead": "IndexError: psring: table '0' stands for a matrix of 4 rows: index 4 is out of range",
    "index of a state": "IndexError: psring: table '0' stands for a matrix of 4 rows: index 4 is out of range",
    "height of a state": "table '0' stands for a matrix of 4 rows: the state has a matrix of 3",
    "rule of a later step": "no SGD with momentum=0.9 for rows",
    "gradient after the end": "close() has left",
    "step after the end": "close() has left",
    "attach after the end": "close() has left",
    "rule": "no rule 'lamb'",
    "option of a rule": "no option 'eps'",
    "number of a rule": "eps=NUMBER",
    "rate below 0": "lr=-1.0",
    "two rates": "given twice",
    "rate that is a text": "lr='fast': expected a number",
    "servers": "servers=0",
    "servers that are a text": "servers='two': expected a whole number",
    "option of the job": "--compress int8 is refused",
    "consistency": "--consistency ssp:2 is refused",
    "two of a name": "two tables are named 'bag'",
    "empty name": "a text that is not empty, got ''",
    "name that is a number": "a text that is not empty, got 3",
    "name with a zero": "got 'a\\x00b'",
    "padding that is a text": "table 'text': padding_idx='x': expected a whole number",
    "padding of a bag": "padding_idx=1.5",
    "width that is a text": "embedding_dim='4': expected a whole number",
    "most keys that are a text": "most_keys='4': expected a whole number",
    "init that is a number": "init=1: expected uniform:A",
    "the name of these": "nothing was refused",
    "a schedule": "UsageError: psring: the rule of rows has no learning rate",
    "a schedule by loss": "UsageError: psring: the rule of rows has no learning rate",
    "width": "10000",
    "width below 0": "embedding_dim=-1: expected 1 to 8,192",
    "init": "init",
    "dtype": "torch.float16",
    "most keys of 0": "most_keys=0",
    "mode": "mode='min'",
    "the name of a refused table": "nothing was refused",
    "no rate": "no learning rate",
    "index": "IndexError: psring: table '0' stands for a matrix of 4 rows: index 4 is out of range",
    "floats": "torch.float32",
    "a list": "got list",
    "no offsets": "expected a matrix of keys",
    "offsets of a matrix": "takes no offsets",
    "falling offsets": "offsets ascend from 0",
    "first offset": "offsets ascend from 0",
    "offsets beside padding": "offsets ascend from 0",
    "last offset": "the last offset is the number of keys",
    "weights on a device": "per_sample_weights: expected a tensor on the CPU",
    "an option twice": "beta1 stands twice",
    "a rate in the rule": "the learning rate is that of Tables(lr=)",
    "an option out of range": "expected a number of at least 0, below 1",
    "most keys of 2^64": "expected 1 to 4294967296",
    "a trace": "table 'bag': a trace",
    "a script": "table 'bag': torch.jit.script has no rows",
    "weights": "per_sample_weights",
    "keys of a batch": "5 different keys of table 'bag', at most most_keys = 4",
    "late table": "before the first pass",
    "prefetch": "no table is named 'other'",
    "attach": "expected the optimizer of the other parameters",
    "rows": "most_rows=3",
    "state": "nothing of table '0'",
    "shape of a state": "rows of 2",
    "convert twice": "no nn.EmbeddingBag",
    "convert a root": "an embedding itself",
    "pickle": "save tables.state_dict()",
    "rule of no tables": "belongs to no Tables",
    "rule of other tables": "belongs to other tables",
    "keys of a step": "8 different keys of table 'bag' in one step, at most most_keys = 4",
    "attached twice": "attached to an optimizer already",
    "attached before": "tables are attached",
    "closed": "close() has left",
}


def make_closed() -> psring.torch.Tables:
    tables = psring.torch.Tables()
    tables.close()
    return tables


def asks_differ(rank: int, _size: int) -> None:
    psring.torch.Tables(optimizer=["sgd", "adagrad"][rank], lr=0.1)


def rates_differ(rank: int, _size: int) -> None:
    tables = psring.torch.Tables(lr=0.1 * (1 + rank))
    bag = tables.EmbeddingBag("bag", 2)
    for _ in range(3):
        bag(torch.tensor([[1]])).sum().backward()
        tables.step()


def loses_a_server(rank: int, _size: int) -> None:
    tables = psring.torch.Tables(servers=2, lr=0.1)
    bag = tables.EmbeddingBag("bag", 2)
    for step in range(1000):
        bag(torch.tensor([[step]])).sum().backward()
        tables.step()
        if rank == 0 and step == 5:
            os.kill(tables._served.servers.processes[1].pid, signal.SIGKILL)


class Calls(unittest.TestCase):
    def test_forms(self) -> None:
        self.assertEqual(alone(forms), [])

    def test_steps(self) -> None:
        alone(steps_of)

    def test_asp(self) -> None:
        run(at_own_pace, size=2)

    def test_learning_rates(self) -> None:
        alone(attached)

    def test_rules(self) -> None:
        alone(rules)

    def test_the_rule_as_an_optimizer(self) -> None:
        alone(own_optimizer)

    def test_changes_after_the_forward_pass(self) -> None:
        alone(changed)

    def test_bytes(self) -> None:
        for transport in ("shm", "tcp"):
            with self.subTest(transport):
                run(bytes_of, 2, backend=None, arguments=(transport,))

    def test_states(self) -> None:
        first, second = run(states, 2, backend=None)
        self.assertTrue(all((first[name] == second[name]).all() for name in first))

    def test_jobs_in_turn(self) -> None:
        run(jobs_in_turn, 2, backend=None, arguments=(multiprocessing.Event(),))

    def test_misuse(self) -> None:
        lines = alone(misuse)
        self.assertEqual(sorted(lines), sorted(EXPECTED))
        for what, text in EXPECTED.items():
            with self.subTest(what):
                self.assertIn(text, lines[what])
                self.assertEqual(len(lines[what].splitlines()), 1, lines[what])


class Faults(unittest.TestCase):
    def test_rules_that_differ(self) -> None:
        for result in Ranks(asks_differ, 2, backend=None).results():
            assert isinstance(result, Failed)
            self.assertRegex(result.text, "rank 1 has optimizer=adagrad, rank 0 has optimizer=sgd")

    def test_rates_that_differ(self) -> None:
        for result in Ranks(rates_differ, 2, backend=None).results():
            assert isinstance(result, Failed)
            self.assertIn("learning rate", result.text)

    def test_a_killed_server(self) -> None:
        heartbeat = {"PSRING_OPTIONS": f"--heartbeat-timeout {3 * SCALE:g}"}
        for result in Ranks(loses_a_server, 2, backend=None, environment=heartbeat).results():
            assert isinstance(result, Failed)
            self.assertEqual(result.kind, "PeerLostError")
            self.assertIn("server 1", result.text)


if __name__ == "__main__":
    unittest.main()
