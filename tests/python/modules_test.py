"""What a program does to a module and its optimizer before, while and after ParameterServer or Sharded wraps it: right as under
DDP, or refused in one clear sentence."""

import copy
import io
import pickle
import sys
import unittest
import warnings

try:
    import torch
except ImportError:
    print("SKIPPED: no PyTorch (Debian: python3-torch)")
    sys.exit(0)

import numpy as np
import torch.nn.functional as F
from torch import nn

import psring
import psring.torch
from ranks import run
from wrappers_test import DDP, LIMIT, MEAN, SERVED, SHARDED, WRAPS, batches, far, refusal, state_of

torch.set_num_threads(1)
KEPT = {name: wrap for name, wrap in WRAPS.items() if not name.endswith("3")}
FREED = {name: wrap for name, wrap in WRAPS.items() if name.endswith("3")}
AT_SERVERS = {name: wrap for name, wrap in SERVED.items() if name in KEPT}
HERE = {name: wrap for name, wrap in SHARDED.items() if name in KEPT}


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))


def sgd(module):
    return torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)


sgd(net())  # PyTorch 2 imports its compiler with the first optimizer, which takes seconds: before processes are forked

def steps(model, optimizer, rank, count=3, after=lambda: None):
    for x, y in batches(rank, count):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        after()


class Moving(nn.Module):
    """Has a buffer that each forward pass replaces."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(8, 2)
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return self.layer(x - self.mean)


class Empty(nn.Module):
    """Has parameters without elements."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.none = nn.Linear(8, 2), nn.Linear(0, 3)
        self.nothing = nn.Parameter(torch.empty(0))

    def forward(self, x):
        return self.layer(x) + self.nothing.sum() + self.none(x[:, :0]).sum()


class Tied(nn.Module):
    """Has two parameters in one memory."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.second.weight.data = self.first.weight.data


class Written(nn.Linear):
    """Changes its weight in a forward pass."""

    def forward(self, x):
        with torch.no_grad():
            self.weight.clamp_(-0.1, 0.1)
        return super().forward(x)


class Clipping(nn.Linear):
    """Clips its weight in a forward pass, without autograd's knowledge."""

    def forward(self, x):
        self.weight.data.clamp_(-0.1, 0.1)
        return super().forward(x)


class Replacing(nn.Linear):
    """Gives its weight other memory in a forward pass."""

    def forward(self, x):
        self.weight.data = self.weight.data.clamp(-0.1, 0.1)
        return super().forward(x)


class Borrowing(nn.Module):
    """Uses parameters of a layer that it does not call, as attention does with those of its output layer."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x):
        return F.linear(self.first(x), self.last.weight, self.last.bias)


class Scaling(torch.optim.SGD):
    """Has an argument of its own."""

    def step(self, closure=None, scale=1.0):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad.mul_(scale)
        return super().step(closure)


class Modules(unittest.TestCase):
    def as_under_ddp(self, wraps, train):
        """`train(rank, wrap)` leaves at each rank what it leaves there under DDP."""

        def call(rank, size, wrap):
            return train(rank, wrap)

        expected = run(call, 2, arguments=(lambda m, o: DDP(m),))
        for name, wrap in wraps.items():
            for theirs, ours in zip(expected, run(call, 2, arguments=(wrap,))):
                self.assertLess(far(theirs, ours), LIMIT, name)

    def refused(self, wraps, call, pattern, size=1):
        """`call(rank, wrap)` returns what it was told, which has the pattern."""
        for name, wrap in wraps.items():
            for said in run(lambda rank, size, wrap: call(rank, wrap), size, arguments=(wrap,)):
                self.assertRegex(said, pattern, name)

    def test_buffers_that_a_pass_replaces(self):
        def train(rank, wrap):
            module = Moving()
            optimizer = sgd(module)
            steps(wrap(module, optimizer), optimizer, rank)
            return state_of(module)

        self.as_under_ddp(WRAPS, train)

    def test_parameters_without_elements(self):
        def train(rank, wrap):
            module = Empty()
            optimizer = sgd(module)
            steps(wrap(module, optimizer), optimizer, rank)
            return state_of(module)

        self.as_under_ddp(WRAPS, train)

    def test_parameters_of_a_layer_that_is_not_called(self):
        def train(rank, wrap):
            module = Borrowing()
            optimizer = sgd(module)
            steps(wrap(module, optimizer), optimizer, rank)
            return state_of(module)

        def leaves(module, recurse, **_sizes):
            return recurse or isinstance(module, nn.Linear)

        self.as_under_ddp(WRAPS, train)  # children are units
        by_leaves = {
            "zero=1": lambda m, o: psring.torch.ParameterServer(m, o, auto_wrap_policy=leaves),
            "zero=2": lambda m, o: psring.torch.ParameterServer(m, o, zero=2, auto_wrap_policy=leaves),
        }
        self.as_under_ddp(by_leaves, train)

        def refused(rank, wrap):
            return refusal(lambda: train(rank, wrap))

        for stage, told in ((1, "no module of its unit"), (2, "no module of its unit"), (3, "has values during a pass only")):
            apart = {f"stage={stage}": lambda m, o: psring.torch.Sharded(m, o, stage=stage, auto_wrap_policy=leaves)}
            self.refused(apart, refused, f"'last.(weight|bias)'.* {told}", size=2)

    def test_a_double_as_the_default_type(self):
        def train(rank, wrap):
            module = net()
            torch.set_default_dtype(torch.float64)
            optimizer = sgd(module)
            model = wrap(module, optimizer)
            for x, y in batches(rank, 3):
                optimizer.zero_grad()
                F.cross_entropy(model(x.float()), y).backward()
                optimizer.step()
            assert all(p.dtype == torch.float32 for p in module.parameters())
            return state_of(module)

        self.as_under_ddp(WRAPS, train)

    def test_gradients_that_the_module_clears(self):
        def train(rank, wrap):
            module = net()
            optimizer = sgd(module)
            model = wrap(module, optimizer)
            for number, (x, y) in enumerate(batches(rank, 4)):
                module.zero_grad(set_to_none=number % 2 == 1)
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            return state_of(module)

        self.as_under_ddp(WRAPS, train)

    def test_gradients_that_a_program_keeps(self):
        def train(rank, wrap):
            module = net()
            optimizer = sgd(module)
            model = wrap(module, optimizer)
            kept = []
            for x, y in batches(rank, 3):
                optimizer.zero_grad(set_to_none=True)
                F.cross_entropy(model(x), y).backward()
                kept.append([p.grad for p in module.parameters()])
            return {f"{n}.{i}": g.numpy().copy() for n, each in enumerate(kept) for i, g in enumerate(each)}

        self.as_under_ddp(MEAN, train)

    def test_values_in_other_memory(self):
        """`data = ` gives a parameter memory that no job knows: taken over, or refused."""

        def train(rank, wrap):
            module = net()
            optimizer = sgd(module)
            model = wrap(module, optimizer)
            steps(model, optimizer, rank, 1)
            for p in module.parameters():
                p.data = p.data * 0.5
            steps(model, optimizer, rank, 2)
            return state_of(module)

        self.as_under_ddp({**HERE, **MEAN}, train)

        def refused(rank, wrap):
            return refusal(lambda: train(rank, wrap))

        self.refused(AT_SERVERS, refused, "'0.weight' has other memory than")
        self.refused(FREED, refused, "'0.weight' has values during a pass only")

    def test_values_changed_in_place_through_data(self):
        def train(rank, wrap):
            module = net()
            optimizer = sgd(module)

            def clip():
                for p in module.parameters():
                    p.data.clamp_(-0.2, 0.2)

            steps(wrap(module, optimizer), optimizer, rank, 4, clip)
            return state_of(module)

        self.as_under_ddp({**HERE, **MEAN}, train)

        def refused(rank, wrap):
            return refusal(lambda: train(rank, wrap))

        self.refused(AT_SERVERS, refused, "'0.weight' was changed through its `data`")
        self.refused(FREED, refused, "'0.weight' has values during a pass only")

    def test_values_changed_through_data_in_a_pass(self):
        for layer in (Clipping, Replacing):

            def train(rank, wrap):
                torch.manual_seed(0)
                module = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), layer(16, 2))
                optimizer = sgd(module)
                steps(wrap(module, optimizer), optimizer, rank, 4)
                return state_of(module)

            def refused(rank, wrap):
                return refusal(lambda: train(rank, wrap))

            with self.subTest(layer=layer.__name__):
                self.as_under_ddp({**HERE, **MEAN}, train)
                self.refused(AT_SERVERS, refused, "'2.weight' (was changed through its `data`|has other memory than)")
                self.refused(FREED, refused, "'2.weight' was changed during a pass")

    def test_values_in_other_memory_inside_gathered(self):
        def train(rank, wrap):
            module = net()
            optimizer = sgd(module)
            model = wrap(module, optimizer)
            if isinstance(model, DDP):
                for p in module.parameters():
                    p.data = torch.full_like(p, 0.25)
            else:
                with model.gathered(write=True):
                    for p in module.parameters():
                        p.data = torch.full_like(p, 0.25 + rank)  # rank 0's counts
            steps(model, optimizer, rank)
            return state_of(module)

        self.as_under_ddp({**SHARDED, **MEAN}, train)

        def read_only(rank, wrap):
            module = net()
            model = wrap(module, sgd(module))

            def write():
                with model.gathered():
                    module[0].weight.data = torch.zeros(16, 8)

            def scale():
                with model.gathered():
                    module[2].bias.data.mul_(2)

            return f"{refusal(write)}; {refusal(scale)}"

        self.refused(SHARDED, read_only, "'0.weight' was changed inside gathered.*'2.bias' was changed inside gathered")

    def test_what_changes_a_wrapped_module_is_refused(self):
        def converted(rank, wrap):
            module = net()
            optimizer = sgd(module)
            model = wrap(module, optimizer)

            def step():
                module.double()
                F.cross_entropy(model(batches(rank, 1)[0][0].double()), batches(rank, 1)[0][1]).backward()
                optimizer.step()

            return refusal(step)

        def frozen(rank, wrap):
            module = net()
            optimizer = sgd(module)
            model = wrap(module, optimizer)
            module[0].weight.requires_grad_(False)
            return refusal(lambda: steps(model, optimizer, rank, 1))

        self.refused(KEPT, converted, r"'0.weight' was \(16, 8\) torch.float32 when the module was wrapped, .*float64 now")
        self.refused(FREED, converted, "'0.weight' has values during a pass only")
        self.refused(WRAPS, frozen, "'0.weight' was frozen after the module was wrapped")

        def written(rank, wrap):
            module = nn.Sequential(Written(8, 2))
            model = wrap(module, sgd(module))
            return refusal(lambda: model(torch.ones(1, 8)))

        self.refused(FREED, written, "'0.weight' was changed during a pass")

    def test_modules_that_cannot_be_wrapped(self):
        def tied(rank, wrap):
            module = Tied()
            return refusal(lambda: wrap(module, sgd(module)))

        def renormed(rank, wrap):
            module = nn.Sequential(nn.Embedding(4, 8, max_norm=1.0))
            return refusal(lambda: wrap(module, sgd(module)))

        def twice(rank, wrap):
            module = net()
            wrap(module, sgd(module))
            return refusal(lambda: wrap(nn.Sequential(module[2]), torch.optim.SGD([module[2].bias, module[2].weight], lr=0.1)))

        def ddp(rank, wrap):
            module = DDP(net())
            return refusal(lambda: wrap(module, sgd(module)))

        self.refused(WRAPS, tied, "'second.weight' has memory of 'first.weight'")
        self.refused({**SERVED, **SHARDED}, renormed, "'0.weight' has max_norm")
        self.refused(KEPT, twice, "0 belongs to another ParameterServer or Sharded")
        self.refused(WRAPS, ddp, "the module is a DistributedDataParallel")

    def test_a_wrapper_is_not_saved(self):
        def saved(rank, wrap):
            module = net()
            model = wrap(module, sgd(module))
            calls = (pickle.dumps, copy.copy, copy.deepcopy, lambda model: torch.save(model, io.BytesIO()))
            lines = {refusal(lambda call=call: call(model)) for call in calls}
            return f"{lines} {refusal(model.share_memory)}"

        self.refused(WRAPS, saved, r"^{.psring: a \w+ cannot be copied or saved: [^:]*} psring: a \w+ keeps its parameters")

    def test_optimizers_that_call_a_closure(self):
        def train(rank, wrap):
            left = {}
            for number in range(3):
                module = net()
                optimizer = (
                    torch.optim.LBFGS(module.parameters(), lr=0.1, max_iter=3, tolerance_grad=0, tolerance_change=0)
                    if number == 0
                    else Scaling(module.parameters(), lr=0.1)
                )
                model = wrap(module, optimizer)
                for x, y in batches(rank, 2):

                    def closure(x=x, y=y):
                        optimizer.zero_grad()
                        loss = F.cross_entropy(model(x), y)
                        loss.backward()
                        return loss

                    if number < 2:
                        optimizer.step(closure) if number == 0 else (closure(), optimizer.step(scale=0.5))
                    else:
                        closure()
                        optimizer.step(closure=closure)
                left.update({f"{number}.{name}": value for name, value in state_of(module).items()})
            return left

        self.as_under_ddp(MEAN, train)

    def test_a_schedule_that_was_made_before(self):
        """Does not warn of steps that it has not seen."""

        def call(rank, size, wrap):
            module = net()
            optimizer = sgd(module)
            schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                model = wrap(module, optimizer)
                steps(model, optimizer, rank, 2, schedule.step)
            return [str(each.message) for each in caught if "lr_scheduler" in str(each.message)]

        for name, wrap in {**MEAN, **SHARDED}.items():
            self.assertEqual(run(call, 1, arguments=(wrap,)), [[]], name)

    def test_a_rate_that_is_a_tensor(self):
        """A schedule may change it in place."""

        def call(rank, wrap):
            module = net()
            optimizer = torch.optim.Adam(module.parameters(), lr=torch.tensor(0.1))
            model = wrap(module, optimizer)
            optimizer.param_groups[0]["lr"].fill_(0.05)
            return refusal(lambda: steps(model, optimizer, rank, 1))

        self.refused({"zero=1": SERVED["ParameterServer, zero=1"]}, call, "the optimizer's lr is .* now, the servers have")

    def test_a_refused_wrapping_leaves_the_optimizer(self):
        def call(rank, size):
            module = net()
            optimizer = torch.optim.Adamax(module.parameters())
            refusal(lambda: psring.torch.ParameterServer(module, optimizer))
            model = psring.torch.ParameterServer(module, optimizer, updates="mean")
            steps(model, optimizer, rank, 1)
            return "trained"

        self.assertEqual(run(call, 1), ["trained"])

    def test_after_close(self):
        """The module is a plain one, and may be wrapped again."""

        def train(rank, wrap):
            module = net()
            for _ in range(2):
                optimizer = sgd(module)
                model = wrap(module, optimizer)
                steps(model, optimizer, rank)
                if not isinstance(model, DDP):
                    model.close()
                    model.close()
                    assert "close() has left the servers" in refusal(lambda model=model: model(torch.ones(1, 8)))
            optimizer = sgd(module)
            for x, y in batches(0, 2):
                optimizer.zero_grad()
                F.cross_entropy(module(x), y).backward()
                optimizer.step()
            return state_of(module)

        self.as_under_ddp({name: wrap for name, wrap in {**SERVED, **MEAN}.items() if name in KEPT}, train)

        def late(rank, wrap):
            module = net()
            optimizer = sgd(module)
            model = wrap(module, optimizer)
            model.close()
            return refusal(lambda: model(torch.ones(1, 8))) + refusal(optimizer.step)

        self.refused(SERVED, late, "^(psring: close.. has left the servers[^:]*: call [^:]*){2}$")

    @unittest.skipUnless(hasattr(torch.amp, "GradScaler"), "PyTorch 1 scales gradients on GPUs only")
    def test_a_step_that_a_scaler_leaves_out(self):
        """One worker finds an infinity in its part."""

        def train(rank, wrap):
            module = net()
            optimizer = sgd(module)
            model = wrap(module, optimizer)
            scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)
            scales = []
            faulty = (0,) if isinstance(model, psring.torch.Sharded) else (0, 1)  # others have the same gradients everywhere
            for number, (x, y) in enumerate(batches(rank, 4)):
                optimizer.zero_grad()
                scaler.scale(F.cross_entropy(model(x), y)).backward()
                for part in optimizer.param_groups[0]["params"][:1] if number == 1 and rank in faulty else ():
                    part.grad.view(-1)[:1] = float("inf")
                scaler.step(optimizer)
                scaler.update()
                scales.append(scaler.get_scale())
            return {**state_of(module), "scales": np.array(scales)}

        self.as_under_ddp({**SHARDED, **MEAN}, train)

    def test_a_norm_that_is_no_number(self):
        def call(rank, size, wrap):
            module = net()
            model = wrap(module, sgd(module))
            x, y = batches(rank, 1)[0]
            F.cross_entropy(model(x), y).backward()
            parts = [s.parameter for each in model._shards for s in each.segments if s.parameter.grad.numel() > 0]
            if rank == 0:
                parts[-1].grad[0] = float("nan")
            return [str(float(model.clip_grad_norm_(0.1, kind))) for kind in ("inf", 2.0)]

        policy = {"auto_wrap_policy": lambda module, recurse, **_: recurse or isinstance(module, nn.Linear)}
        for stage in (1, 2, 3):
            wrap = lambda m, o, stage=stage: psring.torch.Sharded(m, o, stage=stage, **policy)  # noqa: E731
            self.assertEqual(run(call, 2, arguments=(wrap,)), [["nan", "nan"]] * 2)


if __name__ == "__main__":
    unittest.main()
