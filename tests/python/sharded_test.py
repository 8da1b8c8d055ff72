"""psring.torch.Sharded: equality with DDP, bytes and memory by formula, states, misuse, faults."""

import copy
import io
import os
import signal
import sys
import time
import unittest
from pathlib import Path

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
from ranks import SCALE, Failed, Ranks, run, status_of_fork

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


def by_ddp(rank, size, name, kind):
    model, optimizer, module = made(name, kind, wrapped_by_ddp)
    losses = train(rank, model, optimizer, module)
    return parts(module), losses


def by_sharded(rank, size, name, kind, stage):
    """What a stage has learned; in processes of its own, as memory is booked by process."""
    model, optimizer, module = made(
        name, kind, lambda m, o: psring.torch.Sharded(m, o, stage=stage, auto_wrap_policy=blocks)
    )
    losses = train(rank, model, optimizer, module)
    done, predicted = model.traffic()
    with model.gathered():
        state = parts(module), losses
    sizes = [(unit.name, unit.count, unit.read) for unit in model._units]
    return state, (done, predicted, model.step_bytes()), model.memory(), sizes


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
            ddp, losses = run(by_ddp, size, arguments=(name, kind), seconds=240)[0]
            for stage in (1, 2, 3):
                with self.subTest(model=name, optimizer=kind, workers=size, stage=stage):
                    results = run(by_sharded, size, arguments=(name, kind, stage), seconds=240)
                    (state, other_losses), moved, memory, units = results[0]
                    self.assertGreater(len(units), 2)
                    far = {each: np.linalg.norm(ddp[each] - state[each]) / np.linalg.norm(ddp[each]) for each in ddp}
                    kept = {each for each in far if kind == "sgd" or not has_no_gradient(each)}
                    worst = max(kept, key=far.__getitem__)
                    print(f"{name}, {kind}, {size} workers, stage {stage}: {far[worst]:.1e} ({worst})", flush=True)
                    self.assertLess(far[worst], LIMIT)
                    np.testing.assert_allclose(other_losses, losses, rtol=1e-5)
                    self.check_bytes(moved, size, stage, units)
                    self.check_memory(memory, kind, size, stage, units)
                    for (other, _), *_ in results[1:]:
                        self.assertTrue(all(np.array_equal(other[each], state[each]) for each in state))

    def test_conv_net(self):
        self.check("conv", "sgd")
        self.check("conv", "adamw")

    def test_gpt(self):
        self.check("gpt", "sgd")
        self.check("gpt", "adamw")



# Four layers of 1 MiB each, and a small one.
class Wide(nn.Sequential):
    def __init__(self):
        super().__init__(*(nn.Sequential(nn.Linear(512, 512), nn.Tanh()) for _ in range(4)), nn.Linear(512, 10))

    @staticmethod
    def batch(generator):
        return torch.randn(4, 512, generator=generator), torch.randint(0, 10, (4,), generator=generator)


def linears(module, recurse, unwrapped_params):
    return recurse or isinstance(module, nn.Linear)


def memory_of_stage(rank, size, stage, prefetch):
    """The booked memory, and in the middle of training the memory that has values of parameters."""
    module = Wide()
    optimizer = torch.optim.AdamW(module.parameters())
    model = psring.torch.Sharded(module, optimizer, stage=stage, auto_wrap_policy=linears, prefetch=prefetch)
    between = []
    module[2].register_forward_hook(lambda *_: between.append(model.memory()["communication"].now))
    train(rank, model, optimizer, module, range(3))
    values = [type(p) is nn.Parameter for p in module.parameters()]  # else it refuses to be read
    return model.memory(), between, values, [unit.count for unit in model._units]


class Memory(unittest.TestCase):
    """Of the formulas in docs/guide/pytorch.md: booked to the byte."""

    def test_stages(self):
        for stage in (1, 2, 3):
            memory, between, values, counts = run(memory_of_stage, 2, arguments=(stage, 0))[0]
            whole, one = 4 * sum(counts), 4 * max(counts)
            peaks = {purpose: each.peak for purpose, each in memory.items()}
            self.assertEqual(peaks["parameters"], whole if stage < 3 else whole // 2)
            self.assertEqual(peaks["gradients"], whole if stage == 1 else whole // 2)
            self.assertEqual(peaks["optimizer"], whole)  # two moments of half of the elements
            # Two neighbouring units' gradients; in stage 3 values of one unit come on top.
            self.assertEqual(peaks["communication"] if stage > 1 else 2 * one, (stage if stage > 1 else 2) * one)
            self.assertEqual(values, [stage < 3] * 10)
            self.assertEqual(set(between), {0})  # a unit's values go when its module has run

    def test_units_that_are_gathered_ahead(self):
        for prefetch in (1, 2):
            memory, between, _, counts = run(memory_of_stage, 2, arguments=(3, prefetch))[0]
            one = 4 * max(counts)
            # After the third layer the next ones are on their way, from the second pass on.
            self.assertEqual(between[0], 0)
            self.assertEqual(between[1], 4 * sum(counts[3 : 3 + prefetch]))
            self.assertLessEqual(memory["communication"].peak, (3 + prefetch) * one)


def plain(kind, steps, workers, module=None):
    """One process with the mean gradient of all workers."""
    torch.manual_seed(0)
    module = module or MODELS["gpt"]()
    optimizer = optimizer_of(kind, module)
    for step in steps:
        optimizer.zero_grad()
        for rank in range(workers):
            x, y = module.batch(torch.Generator().manual_seed(1 + rank + 1000 * step))
            (F.cross_entropy(module(x), y) / workers).backward()
        optimizer.step()
    return module, optimizer


def saved(module, optimizer):
    """Both states, as bytes: a state's tensors are views of memory that goes with the process."""
    file = io.BytesIO()
    torch.save((module.state_dict(), optimizer.state_dict()), file)
    return file.getvalue()


def loaded(states):
    return torch.load(io.BytesIO(states))


def alone(kind, steps, workers=1):
    """The states, as bytes, that `plain` leaves in a process of its own: one that has run backward cannot be forked."""
    return run(lambda rank, size: saved(*plain(kind, steps, workers)), 1, None)[0]


def continued(rank, size, kind, stage, states):
    """Steps 3 to 5 from a state, which all workers' gradients of equal batches make the same for any number of them."""
    torch.manual_seed(7)
    module = MODELS["gpt"]()
    optimizer = optimizer_of(kind, module)
    model = psring.torch.Sharded(module, optimizer, stage=stage, auto_wrap_policy=blocks)
    if states is not None:
        module_state, optimizer_state = loaded(states)
        module.load_state_dict(module_state)
        optimizer.load_state_dict(optimizer_state)
    train(0, model, optimizer, module, range(3, 6))
    assert set(model.state_dict()) == {f"module.{name}" for name in module.state_dict()}  # as DDP's
    return saved(module, optimizer)


def halves(rank, size):
    """Six steps at once, and in two halves with a state in between: both ends."""

    def prepare():
        torch.manual_seed(0)
        module = MODELS["gpt"]()
        optimizer = optimizer_of("adamw", module)
        return psring.torch.Sharded(module, optimizer, auto_wrap_policy=blocks), optimizer, module

    model, optimizer, module = prepare()
    train(rank, model, optimizer, module, range(6))
    straight = saved(module, optimizer)
    model, optimizer, module = prepare()
    train(rank, model, optimizer, module, range(3))
    module_state, optimizer_state = loaded(saved(module, optimizer))
    model, optimizer, module = prepare()
    module.load_state_dict(module_state)
    optimizer.load_state_dict(optimizer_state)
    train(rank, model, optimizer, module, range(3, 6))
    return straight, saved(module, optimizer)


def taken_over(rank, size):
    """An optimizer that has made steps before."""
    module, optimizer = plain("adamw", range(3), 1)
    model = psring.torch.Sharded(module, optimizer, auto_wrap_policy=blocks)
    train(0, model, optimizer, module, range(3, 6))
    return saved(module, optimizer)


def far(left, right):
    return max(
        float((left[n] - right[n]).norm() / left[n].norm().clamp(min=1e-30))
        for n in left
        if not (isinstance(n, str) and n.endswith("qkv.bias"))
    )


class States(unittest.TestCase):
    def check_states(self, states, whole):
        module, expected = loaded(whole)
        self.assertLess(far(module, states[0]), LIMIT)
        given = states[1]
        self.assertEqual(given["param_groups"], expected["param_groups"])
        self.assertEqual(given["state"].keys(), expected["state"].keys())
        for number, entries in expected["state"].items():
            self.assertEqual(given["state"][number].keys(), entries.keys())
            for key, value in entries.items():
                mine = given["state"][number][key]
                if isinstance(value, torch.Tensor) and value.dim() > 0:
                    # the gradients of keys' biases are 0 but for roundings
                    self.assertLess(float((mine - value).norm() / value.norm()), 1e-4, (number, key))
                else:
                    self.assertEqual(mine, value)

    def test_go_on_with_another_number_of_workers_and_in_plain_pytorch(self):
        for kind in ("sgd", "adamw"):
            states, whole = alone(kind, range(3)), alone(kind, range(6))
            for size, stage in ((1, 3), (2, 1), (2, 3), (3, 2), (3, 3)):
                with self.subTest(optimizer=kind, workers=size, stage=stage):
                    results = run(continued, size, arguments=(kind, stage, states))
                    module_state, optimizer_state = loaded(results[0])
                    self.check_states((module_state, optimizer_state), whole)
                    again = MODELS["gpt"]()
                    again.load_state_dict(module_state)
                    optimizer_of(kind, again).load_state_dict(optimizer_state)

    def test_a_run_that_was_resumed_ends_with_the_same_bits(self):
        for straight, resumed in run(halves, 2):
            (module, optimizer), (other_module, other_optimizer) = loaded(straight), loaded(resumed)
            self.assertTrue(all(torch.equal(module[name], other_module[name]) for name in module))
            for number, entries in optimizer["state"].items():
                for key, value in entries.items():
                    self.assertTrue(torch.equal(value, other_optimizer["state"][number][key]), (number, key))

    def test_an_optimizer_that_has_made_steps(self):
        for states in run(taken_over, 2):
            self.check_states(loaded(states), alone("adamw", range(6)))


def variants(rank, size, stage):
    """Ways to use it, each with the parameters of plain PyTorch to compare with."""
    outcomes = {}

    def pair(name, kind, sharded, single, module=lambda: MODELS["gpt"](), **how):
        torch.manual_seed(0)
        mine = module()
        torch.manual_seed(0)
        theirs = module()
        optimizer, reference = kind(mine), kind(theirs)
        how.setdefault("auto_wrap_policy", blocks)
        model = psring.torch.Sharded(mine, optimizer, stage=stage, **how)
        sharded(model, optimizer, mine)
        single(theirs, reference, theirs)
        with model.gathered():
            outcomes[name] = {n: (p.detach().clone(), q.detach()) for (n, p), q in zip(
                mine.named_parameters(), theirs.parameters())}

    def of(module, step, which):
        return module.batch(torch.Generator().manual_seed(1 + which + 1000 * step))

    def loss_of(model, module, step, which):
        x, y = of(module, step, which)
        return F.cross_entropy(model(x), y)

    def clipped(model, optimizer, module):
        for step in range(4):
            optimizer.zero_grad()
            loss_of(model, module, step, rank).backward()
            model.clip_grad_norm_(0.1)
            optimizer.step()

    def clipped_single(model, optimizer, module):
        for step in range(4):
            optimizer.zero_grad()
            for r in range(size):
                (loss_of(model, module, step, r) / size).backward()
            nn.utils.clip_grad_norm_(module.parameters(), 0.1)
            optimizer.step()

    pair("clipped", lambda m: torch.optim.SGD(m.parameters(), lr=0.5), clipped, clipped_single)

    def accumulated(skips):
        def body(model, optimizer, module):
            for step in range(4):
                optimizer.zero_grad()
                if skips:
                    with model.no_sync():
                        (loss_of(model, module, step, rank) / 2).backward()
                else:
                    (loss_of(model, module, step, rank) / 2).backward()
                (loss_of(model, module, step, 10 + rank) / 2).backward()
                optimizer.step()

        return body

    def accumulated_single(model, optimizer, module):
        for step in range(4):
            optimizer.zero_grad()
            for r in range(size):
                for which in (r, 10 + r):
                    (loss_of(model, module, step, which) / 2 / size).backward()
            optimizer.step()

    momentum = lambda m: torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9)  # noqa: E731
    pair("no_sync", momentum, accumulated(True), accumulated_single)
    pair("accumulated", momentum, accumulated(False), accumulated_single)

    def steps(model, optimizer, module):
        for step in range(4):
            optimizer.zero_grad()
            loss_of(model, module, step, rank).backward()
            optimizer.step()
            scheduler = getattr(optimizer, "scheduler", None)
            if scheduler:
                scheduler.step()

    def steps_single(model, optimizer, module):
        for step in range(4):
            optimizer.zero_grad()
            for r in range(size):
                (loss_of(model, module, step, r) / size).backward()
            optimizer.step()
            scheduler = getattr(optimizer, "scheduler", None)
            if scheduler:
                scheduler.step()

    def groups(module):
        vectors = [p for p in module.parameters() if p.dim() < 2]
        matrices = [p for p in module.parameters() if p.dim() >= 2]
        optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.5}, {"params": vectors, "lr": 0.01}])
        optimizer.scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.1)
        return optimizer

    pair("groups and a schedule", groups, steps, steps_single)
    for kind in ("Adam", "Adamax", "NAdam", "RAdam", "Adagrad", "Adadelta", "RMSprop", "ASGD"):
        rule = getattr(torch.optim, kind)
        pair(kind, lambda m, rule=rule: rule(m.parameters(), lr=0.01), steps, steps_single)
    pair("foreach", lambda m: torch.optim.Adam(m.parameters(), lr=0.01, foreach=True), steps, steps_single)

    class Checkpointed(MODELS["gpt"]):
        def forward(self, x):
            x = self.tokens(x) + self.places(torch.arange(x.size(1)))
            for index, block in enumerate(self.blocks):
                x = checkpoint(block, x, use_reentrant=index == 0)
            return self.head(self.norm(x)).transpose(1, 2)

    pair("checkpoints", momentum, steps, steps_single, Checkpointed)
    pair("one unit", momentum, steps, steps_single, auto_wrap_policy=None)
    pair("a unit for each", momentum, steps, steps_single, auto_wrap_policy=leaves)

    class Odd(nn.Module):
        """Frozen, unused and normalised weights, a recurrent net, outputs in a dictionary, and a module that runs twice."""

        def __init__(self):
            super().__init__()
            self.into = nn.utils.weight_norm(nn.Linear(6, 8))
            self.net = nn.LSTM(8, 8, batch_first=True)
            self.twice = nn.Linear(8, 8)
            self.head = nn.ModuleDict({"used": nn.Linear(8, 3), "unused": nn.Linear(8, 3)})
            self.into.bias.requires_grad_(False)

        @staticmethod
        def batch(generator):
            return torch.randn(4, 5, 6, generator=generator), torch.randint(0, 3, (4,), generator=generator)

        def forward(self, x):
            hidden = self.net(self.into(x))[0]
            return self.head["used"](self.twice(self.twice(hidden).tanh())[:, -1])

    pair("odd", momentum, steps, steps_single, Odd, auto_wrap_policy=leaves, find_unused_parameters=True)

    def retained(model, optimizer, module):
        """Two losses of one graph."""
        for step in range(4):
            optimizer.zero_grad()
            x, y = of(module, step, rank)
            out = model(x)
            F.cross_entropy(out, y).backward(retain_graph=True)
            F.cross_entropy(2 * out, y).backward()
            optimizer.step()

    def retained_single(model, optimizer, module):
        for step in range(4):
            optimizer.zero_grad()
            for r in range(size):
                x, y = of(module, step, r)
                out = module(x)
                ((F.cross_entropy(out, y) + F.cross_entropy(2 * out, y)) / size).backward()
            optimizer.step()

    pair("retained", momentum, retained, retained_single)

    def evaluated(model, optimizer, module):
        steps(model, optimizer, module)
        model.eval()
        with torch.no_grad():
            x, _ = of(module, 9, 0)
            outcomes["eval"] = {"out": (model(x), module(x))}
        model.train()
        with torch.inference_mode():
            model(x)

    pair("evaluated", momentum, evaluated, steps_single)
    return {
        name: {n: (float((p - q).norm()), float(q.norm())) for n, (p, q) in each.items()}
        for name, each in outcomes.items()
    }


class Breaks(torch.autograd.Function):
    """Raises in backward if asked to."""

    raises = False

    @staticmethod
    def forward(_context, x):
        return x.clone()

    @staticmethod
    def backward(_context, gradient):
        if Breaks.raises:
            raise ValueError("in backward")
        return gradient


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between, self.after = nn.Linear(4, 600), nn.Linear(600, 600), nn.Linear(600, 1)

    def forward(self, x):
        return self.after(torch.tanh(self.between(Breaks.apply(torch.tanh(self.before(x))))))


def skips_failed_passes(rank, size, stage, set_to_none):
    """The distances to plain PyTorch, by parameter, if every second backward pass fails at all ranks and is skipped."""
    torch.manual_seed(0)
    module = Broken()
    reference = copy.deepcopy(module)
    optimizer, plain_sgd = (torch.optim.SGD(m.parameters(), lr=0.01) for m in (module, reference))
    model = psring.torch.Sharded(module, optimizer, stage=stage)
    for step in range(12):
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))  # equal at all ranks
        optimizer.zero_grad(set_to_none=set_to_none)
        if step % 2:
            Breaks.raises = True
            try:
                (1e3 * model(x).sum()).backward()
            except ValueError:
                optimizer.zero_grad(set_to_none=set_to_none)
            Breaks.raises = False
        for each, its in ((model, optimizer), (reference, plain_sgd)):
            its.zero_grad(set_to_none=set_to_none)
            each(x).pow(2).mean().backward()
            its.step()
    with model.gathered():
        return [float((p - q).abs().max()) for p, q in zip(module.parameters(), reference.parameters())]


class FailedPasses(unittest.TestCase):
    def test_a_pass_that_is_skipped_leaves_nothing(self):
        for stage in (1, 2, 3):
            for set_to_none in (True, False):
                with self.subTest((stage, set_to_none)):
                    for distances in run(skips_failed_passes, 2, arguments=(stage, set_to_none)):
                        self.assertLess(max(distances), 1e-5)


class Variants(unittest.TestCase):
    def test_all_stages(self):
        for stage in (1, 2, 3):
            for result in run(variants, 2, arguments=(stage,)):
                for name, tensors in result.items():
                    for tensor, (apart, norm) in tensors.items():
                        limit = 1e-4 if "qkv.bias" in tensor else 2e-6
                        self.assertLess(apart, limit * max(norm, 1e-3), (stage, name, tensor))


class Twice(nn.Linear):
    """Returns its own parameter."""

    def forward(self, x):
        return super().forward(x), self.bias


def misuse(rank, size):
    said = {}

    def refused(name, body):
        try:
            body()
            said[name] = "accepted"
        except (psring.UsageError, RuntimeError) as error:
            said[name] = str(error)

    def make(module, optimizer=None, **how):
        return psring.torch.Sharded(module, optimizer or torch.optim.SGD(module.parameters(), lr=0.1), **how)

    def net():
        return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))

    refused("stage", lambda: make(net(), stage=4))
    refused("prefetch", lambda: make(net(), prefetch=3))
    refused("f64", lambda: make(net().double()))
    refused("sparse", lambda: make(nn.Embedding(4, 4, sparse=True)))
    refused("frozen", lambda: make(m := net().requires_grad_(False), torch.optim.SGD(m.parameters(), lr=1.0)))
    refused("foreign optimizer", lambda: make(net(), torch.optim.SGD(net().parameters(), lr=1.0)))
    refused("LBFGS", lambda: make(m := net(), torch.optim.LBFGS(m.parameters())))

    class Own(torch.optim.SGD):
        pass

    refused("unknown optimizer", lambda: make(m := net(), Own(m.parameters(), lr=1.0)))
    make(m := net(), Own(m.parameters(), lr=1.0), elementwise=True)
    gloo = dist.new_group(backend="gloo")
    refused("gloo", lambda: make(net(), process_group=gloo))

    x = torch.ones(2, 4)
    for stage in (1, 2, 3):
        module = net()
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        model = make(module, optimizer, stage=stage, auto_wrap_policy=linears)
        refused("second wrapping", lambda: make(module, optimizer))
        refused("double", model.double)
        model.float()  # changes nothing
        refused("group", lambda: optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]}))
        refused("deepcopy", lambda: copy.deepcopy(model))
        with model.no_sync():
            model(x).sum().backward()
            refused("step in no_sync", optimizer.step)
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        late = model(x).sum()
        optimizer.step()
        refused(f"update before backward, stage {stage}", late.backward)
        state = optimizer.state_dict()
        state["param_groups"][0]["params"].pop()
        refused("state", lambda: optimizer.load_state_dict(state))

    bare = net()
    model = make(bare, auto_wrap_policy=linears)
    refused("no call", lambda: F.linear(x, bare[0].weight).sum().backward())
    model = make(m := nn.ModuleDict({"used": nn.Linear(4, 4), "forgotten": nn.Linear(4, 4)}), auto_wrap_policy=linears)
    m.forward = lambda x: m["used"](x)
    refused("unused", lambda: model(x).sum().backward())
    model = make(nn.Sequential(Twice(4, 4)), auto_wrap_policy=linears)
    refused("returns a parameter", lambda: model(x))
    # an exception in the middle of a pass leaves nothing behind
    before = model.memory()["communication"].now
    model = make(net(), auto_wrap_policy=linears)
    refused("wrong shape", lambda: model(torch.ones(2, 5)))
    model(x).sum().backward()
    said["after"] = str(model.memory()["communication"].now - before)
    said["fork"] = str(status_of_fork(lambda: model(x), psring.UsageError))
    return said


def lost(rank, size, stage, how):
    """Rank 1 ends or stops in its third step. The others tell what they see, and after how long."""
    model, optimizer, module = made(
        "gpt", "adamw", lambda m, o: psring.torch.Sharded(m, o, stage=stage, auto_wrap_policy=blocks)
    )
    train(rank, model, optimizer, module, range(2))
    begin = time.monotonic()
    if rank == 1:
        os.kill(os.getpid(), how)
    try:
        train(rank, model, optimizer, module, range(2, 100000))
    except psring.PeerLostError as error:
        raise psring.PeerLostError(f"{time.monotonic() - begin:.1f} s: {error}") from None


def over_tcp(rank, size):
    model, optimizer, module = made(
        "gpt", "adamw", lambda m, o: psring.torch.Sharded(m, o, auto_wrap_policy=blocks)
    )
    train(rank, model, optimizer, module, range(5))
    return model.traffic(), model.step_bytes(), len(module.state_dict())


class Misuse(unittest.TestCase):
    def test_is_refused(self):
        (said,) = run(misuse, 1)
        self.assertEqual((said.pop("fork"), said.pop("after")), ("7", "0"))
        self.assertNotIn("accepted", said.values(), said)
        self.assertIn("'forgotten.weight'", said["unused"])
        self.assertIn("'0.weight' has values during a pass only", said["no call"])
        self.assertIn("updated between its forward and its backward", said["update before backward, stage 3"])
        self.assertIn("elementwise=True", said["unknown optimizer"])
        self.assertIn("returns a parameter", said["returns a parameter"])

    def test_without_a_process_group(self):
        module = nn.Linear(2, 2)
        with self.assertRaisesRegex(psring.UsageError, "init_process_group"):
            psring.torch.Sharded(module, torch.optim.SGD(module.parameters(), lr=1.0))


class Faults(unittest.TestCase):
    def test_a_lost_worker_is_named(self):
        options = {"PSRING_OPTIONS": f"--heartbeat-timeout {HEARTBEAT}"}
        for stage in (1, 2, 3):
            for how in (signal.SIGKILL, signal.SIGSTOP):
                with self.subTest(stage=stage, how=how.name):
                    ranks = Ranks(lost, 3, environment=options, arguments=(stage, how))
                    try:
                        for rank in (0, 2):
                            failed = ranks.result(rank)
                            self.assertIsInstance(failed, Failed)
                            self.assertEqual(failed.kind, "PeerLostError")
                            self.assertIn("worker 1", failed.text)
                            self.assertLess(float(failed.text.split()[0]), 2 * HEARTBEAT, failed.text)
                    finally:
                        ranks.signal(1, signal.SIGKILL)
                        statuses = ranks.end()
                    self.assertNotIn("hung", statuses)


def in_groups(rank, size):
    """Two groups of two ranks, each with a model of its own; and the model of all."""
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    outcome = []
    for group in (groups[rank // 2], None):
        torch.manual_seed(0)
        module = MODELS["gpt"]()
        optimizer = optimizer_of("sgd", module)
        model = psring.torch.Sharded(module, optimizer, auto_wrap_policy=blocks, process_group=group)
        train(rank, model, optimizer, module, range(3))
        outcome.append(module.state_dict()["head.weight"].numpy())
    return outcome


def large(rank, size):
    """More than a GiB, of which a part is written; the rest has no pages."""
    tensor = psring.torch.empty(3 << 27)
    tensor[-1000:] = rank + 1
    dist.all_reduce(tensor[-1000:])
    return float(tensor[-1])


class Large(unittest.TestCase):
    def test_memory_is_as_large_as_the_host(self):
        if Path("/proc/sys/vm/overcommit_memory").read_text().strip() == "2":
            self.skipTest("addresses count as memory on this host")
        self.assertEqual(run(large, 2), [3.0, 3.0])


class Groups(unittest.TestCase):
    def test_a_group_shards_by_itself(self):
        first, second, third, fourth = run(in_groups, 4)
        self.assertTrue(np.array_equal(first[0], second[0]) and np.array_equal(third[0], fourth[0]))
        self.assertFalse(np.array_equal(first[0], third[0]))
        self.assertTrue(all(np.array_equal(first[1], other[1]) for other in (second, third, fourth)))
        both = loaded(alone("sgd", range(3), 2))[0]["head.weight"].numpy()
        self.assertLess(np.linalg.norm(first[0] - both), LIMIT * np.linalg.norm(both))


class Tcp(unittest.TestCase):
    def test_bytes_are_those_of_the_plans(self):
        options = {"PSRING_OPTIONS": "--transport tcp"}
        for size in (2, 3):
            for (done, predicted), step, _ in run(over_tcp, size, environment=options):
                self.assertEqual(done, predicted)
                self.assertEqual(done.sent, 5 * step.sent)


if __name__ == "__main__":
    unittest.main()
