"""psring.torch.convert beside the module that it changes: shared, frozen and refused embeddings, states, learning rates."""

from __future__ import annotations

import io
import sys
import unittest
from typing import Any, Callable

try:
    import torch
except ImportError:
    print("SKIPPED: no PyTorch (Debian: python3-torch)")
    sys.exit(0)

from torch import nn
from torch.nn.utils import parametrize

import psring
import psring.torch
from ranks import run

ROWS = 10
KEYS = torch.tensor([3, 1, 3, 7, 0, 1, 9, 3])


def embedding(**how: Any) -> nn.Embedding:
    return nn.Embedding(ROWS, 3, sparse=True, **how)


class Net(nn.Module):
    """Two embeddings and a linear layer. `change` is called with the net before it is used."""

    def __init__(self, change: Callable[[Any], Any] = lambda net: None) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.a = embedding()
        self.b: nn.Module = embedding()
        self.head = nn.Linear(3, 1)
        change(self)

    def forward(self, keys: torch.Tensor) -> torch.Tensor:
        return (self.head(self.a(keys)) * self.head(self.b(keys)).tanh()).sum()


class Lists(nn.Module):
    """One embedding at three places."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        one = embedding()
        self.list = nn.ModuleList([one, one, nn.Sequential(one)])
        self.head = nn.Linear(3, 1)

    def forward(self, keys: torch.Tensor) -> torch.Tensor:
        return sum(self.head(each(keys)).tanh().sum() for each in self.list)


class Doubling(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        return super().step()


class Same(torch.optim.SGD):
    """Adds nothing to an update."""


class Scaled(nn.Embedding):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input) * 10


def share_module(net: Any) -> None:
    net.b = net.a


def share_weight(net: Any) -> None:
    net.b.weight = net.a.weight


def freeze(net: Any) -> None:
    net.a.weight.requires_grad_(False)


def train(net: nn.Module, tables: Any = None, steps: int = 3) -> list[float]:
    update = torch.optim.SGD(net.parameters(), lr=0.1)
    if tables is not None:
        tables.attach(update)
    losses = []
    for _ in range(steps):
        update.zero_grad()
        loss = net(KEYS)
        loss.backward()
        update.step()
        losses.append(loss.item())
    return losses


def same_state(a: Any, b: Any) -> bool:
    return list(a) == list(b) and all(torch.allclose(a[name], b[name], atol=1e-5) for name in a)


def equal(_rank: int, _size: int) -> list[str]:
    """Modules before and after convert: losses and states of three steps."""
    cases: dict[str, tuple[Callable[[], nn.Module], list[str]]] = {
        "two": (Net, ["a", "b"]),
        "a shared module": (lambda: Net(share_module), ["a"]),
        "a shared weight": (lambda: Net(share_weight), ["a"]),
        "a module in lists": (Lists, ["list.0"]),
        "a frozen embedding": (lambda: Net(freeze), ["a", "b"]),
    }
    failures = []
    for name, (make, names) in cases.items():
        plain = make()
        losses = train(plain)
        tables = psring.torch.Tables()
        net = psring.torch.convert(make(), tables, most_keys=4 * ROWS)
        got = train(net, tables)
        if max(abs(x - y) for x, y in zip(losses, got)) > 1e-5:
            failures.append(f"{name}: losses {losses} and {got}")
        if list(tables._tables.all) != names:
            failures.append(f"{name}: tables {list(tables._tables.all)}")
        # A state lists a module's parameters before its modules: the order of names is PyTorch's.
        if not same_state(plain.state_dict(), net.state_dict()):
            failures.append(f"{name}: state {plain.state_dict()} and {net.state_dict()}")
        tables.close()
    return failures


def frozen(_rank: int, _size: int) -> None:
    """Rows that are frozen, and thawed, at their module; gradients of weights beside frozen rows."""
    tables = psring.torch.Tables(lr=1.0)
    net: Any = nn.ModuleList([nn.EmbeddingBag(ROWS, 2, mode="sum", sparse=True), nn.EmbeddingBag(ROWS, 2, mode="max")])
    net[1].sparse = True
    psring.torch.convert(net, tables)
    before = net.state_dict()
    weights = torch.ones(2, 4, requires_grad=True)
    for bag in net:
        assert bag.requires_grad_(False) is bag
    out = net[0](KEYS.view(2, 4), None, weights)
    assert out.requires_grad and not net[0](KEYS.view(2, 4)).requires_grad and not net[1](KEYS.view(2, 4)).requires_grad
    out.sum().backward()
    expected = before["0.weight"][KEYS].sum(1).view(2, 4)
    assert weights.grad is not None and torch.allclose(weights.grad, expected)
    tables.step()
    assert same_state(before, net.state_dict())
    net[0].requires_grad_(True)
    net[0](KEYS.view(2, 4)).sum().backward()
    tables.step()
    assert not same_state(before, net.state_dict())
    tables.close()


def states(rank: int, _size: int) -> None:
    """state_dict() and load_state_dict() of a module, before the first pass and after it, with a table of no shape beside."""
    tables = psring.torch.Tables(servers=2, lr=0.1)
    net: Any = psring.torch.convert(Net(), tables, most_keys=4)  # less than a matrix
    net.more = tables.Embedding("more", 2)
    plain = Net()
    assert same_state(net.state_dict(), plain.state_dict())
    given = {name: value + rank for name, value in plain.state_dict().items()}
    assert not any(net.load_state_dict(given))  # nothing missing, nothing unexpected
    for value in given.values():
        value.zero_()
    with torch.no_grad():
        net.a(KEYS[:4])
        expected = plain.state_dict()["a.weight"].clone()  # rank 0's
        assert torch.equal(net.a(KEYS[:4]), expected[KEYS[:4]])
    net.more(KEYS[:2]).sum().backward()
    (net.a(KEYS[:4]).sum() + net.b(KEYS[:4]).sum()).backward()
    tables.step()
    state = net.state_dict()
    assert list(state) == list(plain.state_dict()), list(state)
    assert not torch.equal(state["a.weight"], expected)
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    saved = torch.load(file)
    plain.load_state_dict(saved)  # a plain module takes it
    tables.job.barrier()
    net.load_state_dict(Net().state_dict())
    assert torch.equal(net.state_dict()["a.weight"], expected)
    tables.job.barrier()
    saved["b.weight"] = saved["b.weight"][1:]
    del saved["a.weight"]
    saved["b.other"] = torch.zeros(1)
    try:
        net.load_state_dict(saved)
        raise AssertionError("a state of another shape")
    except RuntimeError as error:
        for text in ("Missing key(s) in state_dict: \"a.weight\"", "\"b.other\"", "size mismatch for b.weight: shape (9, 3)"):
            assert text in str(error), error
    tables.job.barrier()
    tables.close()


def parts_of_states(_rank: int, _size: int) -> None:
    """Rows that are not in a state keep their values, before the first pass as after it."""
    for begun in (False, True):
        tables = psring.torch.Tables(lr=0.1)
        net: Any = nn.Sequential(nn.Embedding(6, 2, sparse=True))
        expected = net[0].weight.detach().clone()
        psring.torch.convert(net, tables)
        if begun:
            net(torch.tensor([0]))
        expected[4] = 7
        tables.load_state_dict({"0.keys": torch.tensor([4]), "0.values": torch.full((1, 2), 7.0)})
        assert torch.equal(net(torch.arange(6)).detach(), expected)
        assert torch.equal(net.state_dict()["0.weight"], expected)
        tables.close()


def line_of(call: Callable[[], Any]) -> str:
    try:
        call()
    except psring.Error as error:
        return str(error)
    return "nothing was refused"


def refused(_rank: int, _size: int) -> dict[str, str]:
    tables = psring.torch.Tables()

    def convert(change: Callable[[Any], Any]) -> str:
        net = Net(change)
        before = list(net.modules())
        line = line_of(lambda: psring.torch.convert(net, tables))
        assert list(net.modules()) == before, line  # a refusal changes nothing
        return line

    def dense(net: Any) -> None:
        net.b = nn.Embedding(ROWS, 3)
        net.b.weight = net.a.weight

    def tied(net: Any) -> None:
        net.out = nn.Linear(3, ROWS, bias=False)
        net.out.weight = net.b.weight

    lines = {
        "a tied layer": convert(tied),
        "a dense one of the same weight": convert(dense),
        "a parameter of the same weight": convert(lambda net: net.register_parameter("own", net.a.weight)),
        "a forward of its own": convert(lambda net: setattr(net, "b", Scaled(ROWS, 3, sparse=True))),
        "hooks": convert(lambda net: net.a.register_forward_hook(lambda *_: None)),
        "float64": convert(lambda net: net.b.double()),
        "meta": convert(lambda net: setattr(net, "a", embedding(device="meta"))),
        "max_norm": convert(lambda net: setattr(net, "a", embedding(max_norm=1.0))),
        "a computed weight": convert(lambda net: parametrize.register_parametrization(net.a, "weight", nn.Identity())),
    }
    wrapped = nn.Module()
    wrapped.inner = nn.parallel.DistributedDataParallel(Net(lambda net: net.b.requires_grad_(False)))
    lines["a wrapper"] = line_of(lambda: psring.torch.convert(wrapped, tables))
    psring.torch.convert(Net(), tables)
    head = nn.Linear(2, 1)
    one = [head.weight]
    for name, update in {
        "Adam": torch.optim.Adam(one),
        "a step of its own": Doubling(one, lr=0.1),
        "momentum": torch.optim.SGD(one, lr=0.1, momentum=0.9),
        "weight decay of a group": torch.optim.SGD([{"params": [head.bias]}, {"params": one, "weight_decay": 0.1}], lr=0.1),
        "rates": torch.optim.SGD([{"params": [head.bias]}, {"params": one, "lr": 0.2}], lr=0.1),
    }.items():
        lines[name] = line_of(lambda update=update: tables.attach(update))  # type: ignore[misc]
    update = Same([{"params": [head.bias]}, {"params": one}], lr=0.1)
    tables.attach(update)
    update.step()
    update.param_groups[1]["lr"] = 0.3
    lines["rates of a later step"] = line_of(update.step)
    tables.close()
    for how in ({"optimizer": "sgd"}, {"lr": 0.1}):
        tables = psring.torch.Tables(**how)  # type: ignore[arg-type]
        tables.attach(torch.optim.Adam(one))  # the rule or the rate was chosen
        tables.close()
    return lines


EXPECTED = {
    "a tied layer": "'b' shares its weight with 'out.weight'",
    "a dense one of the same weight": "'a' shares its weight with 'b.weight'",
    "a parameter of the same weight": "'a' shares its weight with 'own'",
    "a forward of its own": "'b' is a Scaled, whose forward differs from nn.Embedding's",
    "hooks": "'a' has hooks",
    "float64": "'b' is torch.float64 on cpu",
    "meta": "'a' is torch.float32 on meta",
    "max_norm": "'a' has max_norm",
    "a computed weight": "'a' has a weight that is computed",
    "a wrapper": "convert: inner is a DistributedDataParallel",
    "Adam": "no Adam for rows",
    "a step of its own": "no Doubling for rows",
    "momentum": "no SGD with momentum=0.9 for rows",
    "weight decay of a group": "no SGD with weight_decay=0.1 for rows",
    "rates": "learning rates [0.1, 0.2]",
    "rates of a later step": "learning rates [0.1, 0.3]",
}


class Convert(unittest.TestCase):
    def test_equal(self) -> None:
        self.assertEqual(run(equal, 1, backend=None)[0], [])

    def test_frozen(self) -> None:
        run(frozen, 1, backend=None)

    def test_states(self) -> None:
        run(states, 2, backend=None)

    def test_parts_of_states(self) -> None:
        run(parts_of_states, size=1, backend=None)

    def test_refused(self) -> None:
        lines = run(refused, 1, backend="psring")[0]
        self.assertEqual(list(lines), list(EXPECTED))
        for what, text in EXPECTED.items():
            with self.subTest(what):
                self.assertIn(text, lines[what])
                self.assertEqual(len(lines[what].splitlines()), 1, lines[what])


if __name__ == "__main__":
    unittest.main()
