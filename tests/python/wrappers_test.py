"""What programs do around a model: over ParameterServer and Sharded it is right as in PyTorch, or one clear error."""

import copy
import io
import sys
import unittest

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

torch.set_num_threads(1)
LIMIT = 1e-6


class Scaled(nn.Module):
    """Parameters in a list, one without dimensions, and a frozen one."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(8, 8)
        self.weights = nn.ParameterList([nn.Parameter(torch.randn(8, 8)), nn.Parameter(torch.randn(8))])
        self.scale = nn.Parameter(torch.tensor(0.5))
        self.last = nn.Linear(8, 2)
        self.last.bias.requires_grad_(False)

    def forward(self, x):
        x = torch.relu(self.first(x)) @ self.weights[0] + self.weights[1]
        return self.last(x * self.scale)


class Listed(nn.Sequential):
    """A list of parameters directly in a container."""

    def __init__(self):
        torch.manual_seed(0)
        super().__init__(nn.Linear(4, 4))
        self.extra = nn.ParameterDict({"shift": nn.Parameter(torch.zeros(4))})

    def forward(self, x):
        return self[0](x) + self.extra["shift"]


def served(zero, **how):
    return lambda m, o: psring.torch.ParameterServer(m, o, zero=zero, **how)


def sharded(stage):
    return lambda m, o: psring.torch.Sharded(m, o, stage=stage)


SERVED = {f"ParameterServer, zero={zero}": served(zero) for zero in (1, 2, 3)}
SHARDED = {f"Sharded, stage={stage}": sharded(stage) for stage in (1, 2, 3)}
MEAN = {"ParameterServer, means": served(1, updates="mean")}
WRAPS = {**SERVED, **SHARDED, **MEAN}
DDP = nn.parallel.DistributedDataParallel


def batches(rank, count, width=8):
    generator = torch.Generator().manual_seed(1 + rank)
    return [(torch.randn(4, width, generator=generator), torch.randint(0, 2, (4,), generator=generator)) for _ in range(count)]


def state_of(module):
    """As arrays, which go through a pipe as they are."""
    return {name: value.detach().numpy().copy() for name, value in module.state_dict().items()}


def far(left, right):
    size = np.linalg.norm
    return max(float(size(left[name] - right[name]) / (size(left[name]) + 1e-6)) for name in left)


def refusal(call, *kinds):
    """What it says; an AssertionError, if it says nothing."""
    try:
        call()
    except (psring.UsageError, *kinds) as error:
        return str(error)
    raise AssertionError("accepted")


class Wrappers(unittest.TestCase):
    def each(self, wraps, call, size=2):
        return [(name, run(call, size, arguments=(wrap,))) for name, wrap in wraps.items()]

    def as_under_ddp(self, wraps, train):
        """`train(rank, wrap)` leaves the state that it leaves under DDP."""

        def call(rank, size, wrap):
            return train(rank, wrap)

        expected = run(call, 2, arguments=(lambda m, o: DDP(m),))[0]
        for name, states in self.each(wraps, call):
            for state in states:
                self.assertLess(far(expected, state), LIMIT, name)

    def test_lists_scalars_and_frozen_parameters(self):
        def train(rank, wrap):
            left = {}
            for kind, width in ((Scaled, 8), (Listed, 4)):
                module = kind()
                optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.1)
                model = wrap(module, optimizer)
                for x, y in batches(rank, 4, width):
                    F.cross_entropy(model(x), y).backward()
                    optimizer.step()
                    optimizer.zero_grad()
                left.update({f"{kind.__name__}.{name}": value for name, value in state_of(module).items()})
            return left

        self.as_under_ddp(WRAPS, train)

    def test_accumulation_by_ddps_attribute(self):
        def train(rank, wrap):
            module = Scaled()
            optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.1)
            model = wrap(module, optimizer)
            for number, (x, y) in enumerate(batches(rank, 8)):
                model.require_backward_grad_sync = number % 4 == 3
                F.cross_entropy(model(x), y).backward()
                if number % 4 == 3:
                    optimizer.step()
                    optimizer.zero_grad()
            return state_of(module)

        self.as_under_ddp(WRAPS, train)

    def test_means_are_there_after_backward(self):
        """Clipping, accumulation without no_sync, a step that is left out, a schedule, groups: all as under DDP."""

        def train(rank, wrap):
            module = Scaled()
            groups = [{"params": [module.scale], "lr": 0.01}, {"params": [module.first.weight, module.first.bias]}]
            groups.append({"params": [module.last.weight, *module.weights]})
            optimizer = torch.optim.AdamW(groups, lr=0.05)
            model = wrap(module, optimizer)
            schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
            for number, (x, y) in enumerate(batches(rank, 8)):
                F.cross_entropy(model(x), y).backward()
                if number % 2 == 0:
                    continue  # the next one is added
                nn.utils.clip_grad_norm_([p for p in module.parameters() if p.grad is not None], 0.1)
                if number != 5:  # as a GradScaler leaves a step out
                    optimizer.step()
                    schedule.step()
                optimizer.zero_grad()
            return state_of(module)

        self.as_under_ddp(MEAN, train)

    def test_values_are_there_after_a_step(self):
        def train(rank, wrap):
            module = Scaled()
            optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.1)
            model = wrap(module, optimizer)
            average = {name: torch.zeros_like(p) for name, p in module.named_parameters()}
            for x, y in batches(rank, 4):
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
                optimizer.zero_grad()
                for name, p in module.named_parameters():
                    average[name].mul_(0.5).add_(p.detach(), alpha=0.5)
            return {name: value.numpy() for name, value in average.items()}

        kept = {name: wrap for name, wrap in WRAPS.items() if not name.endswith("3")}
        self.as_under_ddp(kept, train)

    def test_copies_of_the_module_are_plain_modules(self):
        def call(rank, size, wrap):
            module = Scaled()
            optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.1)
            model = wrap(module, optimizer)
            x, y = batches(rank, 1)[0]
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            with model.gathered():
                file = io.BytesIO()
                torch.save(module, file)
                file.seek(0)
                # From 2.6 on, torch.load refuses whole modules unless it is told to trust them.
                trusts = {"weights_only": False} if "weights_only" in torch.load.__kwdefaults__ else {}
                copies = [copy.deepcopy(module), torch.load(file, **trusts), torch.optim.swa_utils.AveragedModel(module).module]
            with torch.no_grad():
                far_off = [float((each(x) - model(x)).abs().max()) for each in copies]
            for each in copies:
                each(x).sum().backward()  # nothing of the wrapper hears of it
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            return far_off

        for name, results in self.each(WRAPS, call):
            self.assertEqual(results, [[0.0] * 3] * 2, name)

    def test_values_that_are_written_inside_gathered(self):
        def call(rank, size, wrap):
            module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
            optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
            model = wrap(module, optimizer)
            said = []
            for write in (True, False):
                try:
                    with model.gathered(write=write), torch.no_grad():
                        for p in module.parameters():
                            p.fill_(rank + 2)
                except psring.UsageError as error:
                    said.append(str(error))
            return [*said, float(model(torch.ones(1, 4)).sum())]

        for name, results in self.each({**SHARDED, **MEAN}, call):
            for *said, total in results:
                self.assertEqual([line.split(":")[1] for line in said], [" '0.weight' was changed inside gathered()"], name)
                if name == "Sharded, stage=3":
                    self.assertEqual(total, 2 * (4 * 2 * 10 + 2))  # rank 0's values, at both ranks
        for name, results in self.each(SERVED, call):
            for first, second, _ in results:
                self.assertIn("gathered(write=True): the servers own the parameters", first, name)
                self.assertIn("was changed inside gathered()", second, name)

    def test_what_is_not_here_refuses_to_be_read(self):
        def call(rank, size, wrap):
            module = Scaled()
            weight = module.first.weight
            optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.1)
            model = wrap(module, optimizer)
            said = [
                refusal(lambda: weight.norm()),
                refusal(lambda: weight.data.norm()),
                refusal(lambda: weight.detach().norm()),
                refusal(lambda: model.apply(lambda part: nn.init.zeros_(part.weight) if isinstance(part, nn.Linear) else None)),
                refusal(lambda: copy.deepcopy(module)),
                refusal(lambda: F.linear(torch.ones(1, 8), weight)),
                refusal(lambda: torch.optim.SGD(model.parameters(), lr=0.1)),
            ]
            assert tuple(weight.shape) == (8, 8) and weight.requires_grad and weight.grad is None
            with model.gathered():
                inside = float(weight.detach().norm())
            whole = float(module.state_dict()["first.weight"].norm())
            return said, inside, whole, sum(p.numel() for p in model.parameters())

        expected = float(Scaled().first.weight.norm())
        wraps = {name: wrap for name, wrap in WRAPS.items() if name.endswith("3")}
        for _, ranks in self.each(wraps, call):
            for said, inside, whole, count in ranks:
                for line in said:
                    self.assertIn("has values during a pass only", line)
                self.assertIn("an optimizer is made before", said[-1])
                self.assertAlmostEqual(inside, expected, places=5)
                self.assertAlmostEqual(whole, expected, places=5)
                self.assertEqual(count, sum(p.numel() for p in Scaled().parameters()))

    def test_what_is_asked_of_parameters_without_values(self):
        """Their type, shape and device: a recurrent net makes its first state so."""

        def call(rank, size, wrap):
            module = nn.Linear(3, 2)
            wrap(module, torch.optim.SGD(module.parameters(), lr=0.1))
            weight = module.weight
            other = torch.ones(2).double()
            made = [weight.new_zeros(4), torch.zeros_like(weight), other.to(weight), other.type_as(weight)]
            return [(type(each).__name__, str(each.dtype), each.requires_grad) for each in made], weight.is_cpu

        for name, results in self.each({**SHARDED, **SERVED}, call):
            self.assertEqual(results, [([("Tensor", "torch.float32", False)] * 4, True)] * 2, name)

    def test_ranks_that_call_different_passes_are_told_what_to_do(self):
        def call(rank, size):
            module = nn.Linear(3, 2)
            model = psring.torch.Sharded(module, torch.optim.SGD(module.parameters(), lr=0.1), stage=3)
            loss = model(torch.ones(1, 3)).sum()
            if rank == 0:  # evaluates alone
                return refusal(lambda: model(torch.ones(1, 3)), psring.PeerLostError)
            return refusal(loss.backward, psring.PeerLostError)

        for text in run(call, 2):
            self.assertRegex(text, r"rank \d called \w+ .*; all ranks have to make the forward and backward passes of a Shard")

    def test_gradients_that_are_sharded(self):
        """Cleared by the optimizer, the Sharded and the module alike; clipped by the Sharded alone."""

        def call(rank, size, wrap):
            module = Scaled()
            parameters = [p for p in module.parameters() if p.requires_grad]
            optimizer = torch.optim.SGD(parameters, lr=0.1)
            model = wrap(module, optimizer)
            said = []
            for number, (x, y) in enumerate(batches(rank, 6)):
                F.cross_entropy(model(x), y).backward()
                if number == 0 and model.stage:
                    said.append(refusal(lambda: nn.utils.clip_grad_norm_(parameters, 0.1)))
                    said.append(refusal(lambda: module.first.weight.grad.norm()))
                if number < 5:
                    optimizer.step()
                if number % 3 == 0:
                    optimizer.zero_grad()
                elif number % 3 == 1:
                    model.zero_grad()
                else:
                    for p in parameters:
                        p.grad = None
                assert all(p.grad is None or not p.grad.any() for p in parameters)
            optimizer.step()  # without gradients: nothing changes
            return said, state_of(module)

        def alone(rank, size):
            module = Scaled()
            model = DDP(module)
            optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.1)
            for x, y in batches(rank, 5):
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            return state_of(module)

        expected = run(alone, 2)[0]
        for _, ranks in self.each(SHARDED, call):
            for said, state in ranks:
                for line in said:
                    self.assertIn("is sharded: clip_grad_norm_() of the Sharded", line)
                self.assertLess(far(expected, state), LIMIT)

    def test_what_the_servers_own_is_refused(self):
        def call(rank, size, wrap):
            module = Scaled()
            optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.1)
            model = wrap(module, optimizer)
            said = {"state": refusal(optimizer.state_dict), "load": refusal(lambda: optimizer.load_state_dict({}))}
            (x, y), (more, _) = batches(rank, 2)
            F.cross_entropy(model(x), y).backward()
            said["forward"] = refusal(lambda: model(more))
            module.first.weight.grad = None
            said["cleared"] = refusal(optimizer.step)
            module.last.bias.requires_grad_(True)
            said["frozen"] = refusal(lambda: model(x))
            model._served.job.abort("the test is over")
            model._served._ended = True
            return said

        for _, ranks in self.each(SERVED, call, size=1):
            for said in ranks:
                self.assertIn("the servers own the optimizer's state", said["state"])
                self.assertIn("the servers own the optimizer's state", said["load"])
                self.assertIn("a forward pass between backward and optimizer.step()", said["forward"])
                self.assertIn("zero_grad() belongs after optimizer.step()", said["cleared"])
                self.assertIn("'last.bias' needs a gradient now", said["frozen"])

    def test_values_that_a_backward_pass_needs_are_not_replaced_in_silence(self):
        """The first layer's weight is also used without a gradient, and needed after its own gradient was pushed."""

        class Again(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(0)
                self.early = nn.Parameter(torch.randn(8, 8))
                self.layer = nn.Linear(8, 8, bias=False)

            def forward(self, x):
                x = x @ self.early @ self.layer.weight.detach()  # needs the weight for the gradient of `early`
                return self.layer(x)

        def call(rank, size, wrap):
            module = Again()
            optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
            model = wrap(module, optimizer)
            (x, y), _ = batches(rank, 2)
            line = refusal(lambda: F.cross_entropy(model(x), y).backward(), RuntimeError)
            model._served.job.abort("the test is over")
            model._served._ended = True
            return line

        policy = {"auto_wrap_policy": lambda module, recurse, **_: recurse or isinstance(module, nn.Linear)}
        for _, ranks in self.each({"zero=1": served(1, **policy), "zero=2": served(2, **policy)}, call, size=1):
            for line in ranks:
                self.assertIn("modified by an inplace operation", line)


if __name__ == "__main__":
    unittest.main()
