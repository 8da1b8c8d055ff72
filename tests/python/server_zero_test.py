"""psring.torch.ParameterServer with zero=2 and 3: the bits of zero=1, DDP's values, bytes and memory by formula, faults,
checkpoints, misuse."""

import contextlib
import dataclasses
import signal
import sys
import tempfile
import unittest

try:
    import torch
except ImportError:
    print("SKIPPED: no PyTorch (Debian: python3-torch)")
    sys.exit(0)

import numpy as np
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import psring
import psring.torch
import server_test
from equality_test import LIMIT, MODELS, has_no_gradient, parts
from psring.torch._served_job import ServedJob
from ranks import run, status_of_fork
from server_test import HEARTBEAT, Tied, leaves, workers
from sharded_test import STEPS, Twice, Wide, blocks, linears, made, train, wrapped_by_ddp

torch.set_num_threads(1)


def sizes_of(model):
    return [(unit.count, unit.read) for unit in model._units]


def served(rank, name, kind, zero, servers):
    """Parameters, losses, bytes and memory of a run."""
    model, optimizer, module = made(
        name,
        kind,
        lambda m, o: psring.torch.ParameterServer(m, o, zero=zero, servers=servers, auto_wrap_policy=blocks),
    )
    losses = train(rank, model, optimizer, module)
    with model.gathered():
        values = parts(module)
    outcome = values, losses, (*model.traffic(), model.step_bytes()), model.memory(), sizes_of(model)
    model.close()
    return outcome


def against_ddp(rank, size, name, kind, servers, stages):
    model, optimizer, module = made(name, kind, wrapped_by_ddp)
    losses = train(rank, model, optimizer, module)
    return (parts(module), losses), [served(rank, name, kind, zero, servers) for zero in stages]


class AgainstDdp(unittest.TestCase):
    """Each run pulls the last values, which `gathered` waits for; with zero=3 it fetches them once more."""

    def check_bytes(self, moved, zero, units):
        done, predicted, step = moved
        whole = 4 * sum(count for count, _ in units)
        read = 4 * sum(count for count, is_read in units if is_read)
        self.assertEqual(step, (whole, whole + (read if zero == 3 else 0)))
        self.assertEqual(done, predicted)
        self.assertEqual(done, (STEPS * step.sent, STEPS * step.received + (whole if zero == 3 else 0)))

    def check_memory(self, memory, zero, units):
        whole = 4 * sum(count for count, _ in units)
        self.assertEqual(memory["parameters"].peak, whole if zero < 3 else 0)
        self.assertEqual(memory["gradients"].peak, whole if zero == 1 else 0)
        self.assertEqual(memory["communication"].now, 0)
        self.assertEqual(memory["optimizer"].peak, 0)

    def check(self, name, kind, turn):
        for size in (1, 2, 3, 4):
            servers = 1 + (size + turn) % 2
            stages = [1, 2, 3, 2, 3] if size in (2, 3) else [1, 2, 3]  # the last two: run to run
            with self.subTest(model=name, optimizer=kind, workers=size, servers=servers):
                results = run(against_ddp, size, arguments=(name, kind, servers, stages), seconds=240)
                (ddp, losses), _ = results[0]
                whole, *_ = results[0][1][0]
                far = {each: np.linalg.norm(ddp[each] - whole[each]) / np.linalg.norm(ddp[each]) for each in ddp}
                kept = {each for each in far if kind == "sgd" or not has_no_gradient(each)}
                worst = max(kept, key=far.__getitem__)
                print(f"{name}, {kind}, {size} workers, {servers} servers: {far[worst]:.1e} ({worst})", flush=True)
                self.assertLess(far[worst], LIMIT)
                for rank, (_, outcomes) in enumerate(results):
                    for zero, (values, mine, moved, memory, units) in zip(stages, outcomes):
                        self.assertGreater(len(units), 2)
                        self.assertTrue(all(np.array_equal(values[each], whole[each]) for each in whole), (zero, rank))
                        self.assertEqual(mine, outcomes[0][1])  # the losses of zero=1
                        self.check_bytes(moved, zero, units)
                        self.check_memory(memory, zero, units)
                np.testing.assert_allclose(results[0][1][0][1], losses, rtol=1e-5)

    def test_conv_net(self):
        self.check("conv", "sgd", 0)
        self.check("conv", "adamw", 1)

    def test_gpt(self):
        self.check("gpt", "sgd", 1)
        self.check("gpt", "adamw", 0)


def memory_of(rank, zero, prefetch):
    """The booked memory, the memory that has values in the middle of each forward pass, and whether parameters have values
    between two steps."""
    torch.manual_seed(0)
    module = Wide()
    optimizer = torch.optim.AdamW(module.parameters())
    how = {} if prefetch is None else {"prefetch": prefetch}
    model = psring.torch.ParameterServer(module, optimizer, zero=zero, auto_wrap_policy=linears, servers=2, **how)
    start = model.memory()
    between = []
    module[2].register_forward_hook(lambda *_: between.append(model.memory()["communication"].now))
    train(rank, model, optimizer, module, range(3))
    model.synchronize()
    values = [type(p) is nn.Parameter for p in module.parameters()]  # else it refuses to be read
    outcome = start, model.memory(), between, values, [unit.count for unit in model._units]
    model.close()
    return outcome


class Memory(unittest.TestCase):
    """The formulas of docs/guide/pytorch.md: booked to the byte."""

    def test_stages(self):
        totals = []
        for zero in (1, 2, 3):
            for start, memory, between, values, counts in workers(memory_of, zero, 0 if zero == 3 else None):
                whole, one = 4 * sum(counts), 4 * max(counts)
                peaks = {purpose: each.peak for purpose, each in memory.items()}
                self.assertEqual(peaks["parameters"], whole if zero < 3 else 0)
                self.assertEqual(peaks["gradients"], whole if zero == 1 else 0)
                # Two neighbouring units' gradients; with zero=3 values of one unit come on top.
                self.assertEqual(peaks["communication"], (zero if zero > 1 else 0) * one)
                self.assertEqual(values, [zero < 3] * 10)
                self.assertEqual(set(between), {0})  # a unit's values go when its module has run
                self.assertLessEqual(start["communication"].peak, one)
            totals.append(sum(peaks.values()))
        self.assertGreater(totals[0], totals[1])
        self.assertGreater(totals[1], totals[2])

    def test_units_that_are_fetched_ahead(self):
        for prefetch in (1, 2):
            _, memory, between, _, counts = workers(memory_of, 3, prefetch)[0]
            one = 4 * max(counts)
            # After the third layer the next ones are on their way, from the second pass on.
            self.assertEqual(between[0], 0)
            self.assertEqual(between[1], 4 * sum(counts[3 : 3 + prefetch]))
            self.assertLessEqual(memory["communication"].peak, (3 + prefetch) * one)


class Checkpointed(MODELS["gpt"]):
    """Activations are computed again in backward, in both forms."""

    def forward(self, x):
        x = self.tokens(x) + self.places(torch.arange(x.size(1)))
        for index, block in enumerate(self.blocks):
            x = checkpoint(block, x, use_reentrant=index == 0)
        return self.head(self.norm(x)).transpose(1, 2)


def layers(module, recurse, unwrapped_params):
    return recurse or isinstance(module, (nn.TransformerEncoderLayer, nn.Embedding)) or type(module) is nn.Linear


class Language(Tied):
    """Shared, frozen and unused parameters."""

    @staticmethod
    def batch(generator):
        x = torch.randint(0, 20, (4, 8), generator=generator)
        return x, x

    def forward(self, x):
        return super().forward(x).transpose(1, 2)


def plainly(rank, model, optimizer, module):
    train(rank, model, optimizer, module, range(6))


def accumulating(rank, model, optimizer, module):
    for step in range(6):
        optimizer.zero_grad()
        for part in range(3):
            x, y = module.batch(torch.Generator().manual_seed(1 + rank + 1000 * step + 100 * part))
            if part < 2:
                with model.no_sync():
                    F.cross_entropy(model(x), y).backward()
            else:
                F.cross_entropy(model(x), y).backward()
        optimizer.step()


def evaluating(rank, model, optimizer, module):
    """Evaluations and states between steps change nothing."""
    for step in range(4):
        train(rank, model, optimizer, module, [step])
        model.eval()
        x, _ = module.batch(torch.Generator().manual_seed(5))
        with torch.no_grad():
            first = model(x)
        with torch.inference_mode():
            second = model(x)
        assert torch.equal(first, second)
        model.train()
        assert all(bool(torch.isfinite(value).all()) for value in module.state_dict().values())


class Branches(nn.Module):
    """Two models side by side."""

    def __init__(self):
        super().__init__()
        self.left = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
        self.right = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))

    @staticmethod
    def batch(generator):
        return torch.randn(4, 6, generator=generator), torch.randint(0, 3, (4,), generator=generator)

    def forward(self, x):
        return self.left(x), self.right(x)


def in_parts(rank, model, optimizer, module):
    """Two backward passes of one step, each through a part of the model."""
    for step in range(4):
        x, y = module.batch(torch.Generator().manual_seed(1 + rank + 1000 * step))
        for output in model(x):
            F.cross_entropy(output, y).backward()
        optimizer.step()


class Crossing(nn.Module):
    """Layers whose order the caller chooses."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(40, 40) for _ in range(6))
        self.order = range(6)

    def batch(self, draw):
        return torch.randn(4, 40, generator=draw), torch.randint(0, 40, (4,), generator=draw)

    def forward(self, x):
        for layer in self.order:
            x = torch.tanh(self.layers[layer](x))
        return x


def in_own_order(rank, model, optimizer, module):
    """The workers' gradients become complete in opposite orders."""
    module.order = range(6)[:: 1 if rank == 0 else -1]
    train(rank, model, optimizer, module, range(4))


def through_own_layers(rank, model, optimizer, module):
    """Each worker leaves out other layers."""
    module.order = range(rank, 6, 2)
    train(rank, model, optimizer, module, range(4))


def called_directly(rank, model, optimizer, module):
    train(rank, module, optimizer, module, range(4))


# The model, the training, and the arguments of ParameterServer.
VARIANTS = {
    "accumulated": ("gpt", accumulating, {}),
    "clipped": ("gpt", plainly, {"clip_norm": 0.1, "servers": 2}),
    "scheduled": ("gpt", plainly, {"schedule": "cosine:warmup=2", "steps": 6}),
    "bf16": ("gpt", plainly, {"compress": "bf16"}),
    "tcp": ("gpt", plainly, {"options": ("--transport", "tcp"), "servers": 2}),
    "int8": ("conv", plainly, {"compress": "int8", "servers": 2}),
    "sign": ("gpt", plainly, {"compress": "sign"}),
    "top-k": ("conv", plainly, {"compress": "top-k:ratio=0.1"}),
    "random-k": ("conv", plainly, {"compress": "random-k:ratio=0.1"}),
    "checkpoints": (Checkpointed, plainly, {}),
    "evaluated": ("gpt", evaluating, {"servers": 2}),
    "in parts": (Branches, in_parts, {"auto_wrap_policy": linears}),
    "in own order": (Crossing, in_own_order, {"auto_wrap_policy": linears}),
    "through own layers": (Crossing, through_own_layers, {"auto_wrap_policy": linears, "find_unused_parameters": True}),
    "called directly": ("gpt", called_directly, {}),
    "one unit": ("gpt", plainly, {"auto_wrap_policy": None}),
    "a unit for each": ("gpt", plainly, {"auto_wrap_policy": leaves}),
    "shared, frozen and unused": (Language, plainly, {"find_unused_parameters": True, "auto_wrap_policy": layers}),
}


def varied(rank, name, zero):
    """The parameters with zero=1, and with another stage."""
    model_name, body, how = VARIANTS[name]
    states = []
    for stage in (1, zero):
        torch.manual_seed(0)
        module = model_name() if isinstance(model_name, type) else MODELS[model_name]()
        optimizer = torch.optim.AdamW(p for p in module.parameters() if p.requires_grad)
        model = psring.torch.ParameterServer(module, optimizer, zero=stage, **{"auto_wrap_policy": blocks, **how})
        body(rank, model, optimizer, module)
        states.append({each: value.clone() for each, value in module.state_dict().items()})
        done, predicted = model.traffic()
        assert done == predicted, (name, stage, done, predicted)
        model.close()
    return states


class Variants(unittest.TestCase):
    """All are bitwise identical to zero=1."""

    def check(self, zero):
        for name in VARIANTS:
            with self.subTest(variant=name, zero=zero):
                for states in workers(varied, name, zero):
                    self.assertIsInstance(states, list, states)
                    whole, other = states
                    self.assertEqual(whole.keys(), other.keys())
                    self.assertTrue(all(torch.equal(whole[each], other[each]) for each in whole), name)

    def test_without_gradients(self):
        self.check(2)

    def test_without_gradients_and_parameters(self):
        self.check(3)


class Asynchronous(unittest.TestCase):
    def test_workers_end_with_the_same_parameters(self):
        for consistency in ("asp", "ssp:2"):
            how = {"consistency": consistency, "servers": 2}
            states = workers(server_test.trained, "sgd", {**how, "zero": 2})
            self.assertTrue(all(torch.equal(states[0][each], states[1][each]) for each in states[0]), consistency)
            # A worker that is alone is bitwise identical to bsp.
            (alone,) = workers(server_test.trained, "sgd", {**how, "zero": 2}, size=1)
            (whole,) = workers(server_test.trained, "sgd", {"servers": 2}, size=1)
            self.assertTrue(all(torch.equal(alone[each], whole[each]) for each in whole), consistency)


def bare(rank):
    """A vector whose memory is its caller's: values of rank 0, one push each, and the update. SGD with lr=0.5."""
    said = []
    served = ServedJob(
        2, ["--optimizer", "sgd", "--lr", "0.5"], strategy="ps-zero3", steps=1, out=None, memory_bytes=1 << 20, timeout=60
    )
    job = served.job
    vector = psring.Vector(job, {"a": {"w": (300,), "b": (2, 3)}, "b": {"w2": (5000,)}}, holds=False)
    sizes = [vector.size(unit) for unit in range(2)]
    memory = [job.allocate(4 * size.count) for size in sizes]
    arrays = [np.frombuffer(each.array(), np.float32) for each in memory]
    gradient = job.allocate(4 * sizes[1].count)
    np.frombuffer(gradient.array(), np.float32)[:] = rank + 1.0

    def refused(body):
        try:
            body()
        except psring.UsageError as error:
            said.append(str(error))

    refused(lambda: vector.push_from(0, 0, gradient.address))  # before the start
    refused(lambda: vector.pull_into(0, 0, memory[0].address))
    version = vector.agree()
    refused(lambda: vector.begin(2, memory[0].address))
    refused(lambda: vector.pull_into(0, 0, 0))
    for unit in range(2):
        arrays[unit][:] = 3.0 + unit if rank == 0 else np.nan
        vector.begin(unit, memory[unit].address)
        vector.wait(unit, version)
    first = [float(array[0]) for array in arrays]
    start = vector.moved()
    vector.push_from(0, 0, gradient.address)
    vector.push_from(1, 0, gradient.address)
    for unit in range(2):
        vector.wait_pushed(unit)
        vector.pull_into(unit, 1, memory[unit].address)
        vector.wait(unit, 1)
    sizes = [dataclasses.astuple(size) for size in sizes]
    outcome = sizes, first, [float(array[0]) for array in arrays], start, vector.moved(), said
    served.close()
    return outcome


class CallersMemory(unittest.TestCase):
    def test_pushes_and_pulls(self):
        for sizes, first, then, start, moved, said in workers(bare):
            self.assertEqual(sizes, [(1024, 4096, 4096), (5120, 20480, 20480)])
            self.assertEqual(first, [3.0, 4.0])
            self.assertEqual(then, [3.0 - 0.5 * 1.5, 4.0 - 0.5 * 1.5])
            self.assertEqual((start, moved), ((0, 0), (24576, 24576)))
            self.assertEqual(len(said), 4, said)
            self.assertIn("psring_vector_agree", said[0])
            self.assertIn("unit 2 of a vector of 2 units", said[2])
            self.assertIn("psring_pull_into: values", said[3])


def resumed(rank, folder, first, second):
    """Twelve steps, with a checkpoint after the fifth, from which another job goes on."""
    model = server_test.train(rank, "adamw", 5, checkpoint_dir=folder, zero=first, servers=2)
    model.save_checkpoint()
    model.close()
    again = server_test.train(rank, "adamw", server_test.STEPS, 5, resume=folder, zero=second, servers=2)
    assert again.steps == server_test.STEPS
    state = {name: value.clone() for name, value in again.module.state_dict().items()}
    again.close()
    return state


class Checkpoints(unittest.TestCase):
    def test_a_resumed_run_has_the_bits_of_an_undisturbed_one(self):
        whole = workers(server_test.trained, "adamw", {"servers": 2})[0]
        for first, second in ((2, 2), (3, 3), (1, 3), (3, 1)):
            with self.subTest(first=first, second=second), tempfile.TemporaryDirectory() as folder:
                for state in workers(resumed, folder, first, second):
                    self.assertIsInstance(state, dict, state)
                    self.assertTrue(all(torch.equal(whole[each], state[each]) for each in whole))


class Faults(unittest.TestCase):
    def test_a_lost_process_is_named_in_time(self):
        for zero in (2, 3):
            for culprit, name in (("worker", "worker 1"), ("server", "server 0")):
                for how in (signal.SIGKILL, signal.SIGSTOP):
                    killed = (1,) if culprit == "worker" and how == signal.SIGKILL else ()
                    with self.subTest(zero=zero, culprit=culprit, how=how.name), tempfile.TemporaryDirectory() as folder:
                        text, seconds = workers(server_test.lost, culprit, int(how), folder, zero, killed=killed)[0]
                        self.assertIn(name, text)
                        self.assertLess(seconds, 2 * HEARTBEAT)


def misuse(rank, zero):
    said = {}

    def refused(name, body):
        try:
            body()
            said[name] = "accepted"
        except (psring.UsageError, RuntimeError) as error:
            said[name] = str(error)

    def make(module, optimizer=None, **how):
        how.setdefault("auto_wrap_policy", linears)
        return psring.torch.ParameterServer(module, optimizer or torch.optim.SGD(module.parameters(), lr=0.1), zero=zero, **how)

    def end(model):
        model._served.job.abort("the test is over")
        model._served._ended = True

    def net():
        return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))

    refused("mean", lambda: make(net(), updates="mean"))
    refused("prefetch", lambda: make(net(), prefetch=3))
    if zero == 2:
        refused("prefetch of stage 3", lambda: make(net(), prefetch=1))
    else:
        refused("asp", lambda: make(net(), consistency="asp"))
        refused("ssp", lambda: make(net(), consistency="ssp:2"))

    x = torch.ones(2, 4)
    module = net()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    model = make(module, optimizer)
    refused("no backward", optimizer.step)
    with model.no_sync():
        model(x).sum().backward()
        refused("step in no_sync", optimizer.step)
    refused("double", model.double)
    out = model(x)
    if zero == 3:  # a program that looks at a saved value
        assert torch.isfinite(out.grad_fn._saved_mat2).all()
    loss = out.sum()
    loss.backward(retain_graph=True)
    refused("clipped", lambda: nn.utils.clip_grad_norm_(module.parameters(), 1e-6))
    refused("read", lambda: module[0].weight.grad + 1)
    refused("another optimizer", lambda: torch.optim.SGD(module.parameters(), lr=1.0).step())
    refused("second backward", loss.backward)
    optimizer.step()
    refused("load", lambda: module.load_state_dict(net().state_dict()))
    model(x).sum().backward()
    optimizer.step()
    late = model(x).sum()
    refused("no gradient", optimizer.step)
    late.backward()
    optimizer.step()
    state = {name: value.clone() for name, value in module.state_dict().items()}
    model.close()
    if zero == 3:
        refused("state after close", module.state_dict)
        refused("pass after close", lambda: model(x))
    else:
        assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())

    if zero == 3:
        model = make(bare := nn.Sequential(nn.Linear(4, 4)))
        refused("no call", lambda: F.linear(x, bare[0].weight).sum().backward())
        end(model)
    model = make(m := nn.ModuleDict({"used": nn.Linear(4, 4), "forgotten": nn.Linear(4, 4)}))
    m.forward = lambda x: m["used"](x)
    model(x).sum().backward()
    refused("unused", model._optimizer.step)
    end(model)
    if zero == 3:
        model = make(nn.Sequential(Twice(4, 4)))
        refused("returns a parameter", lambda: model(x))
        end(model)
    # an exception in the middle of a pass leaves nothing behind
    model = make(net())
    before = model.memory()["communication"].now
    with contextlib.suppress(RuntimeError):
        model(torch.ones(2, 5))
    model(x).sum().backward()
    model._optimizer.step()
    said["after"] = str(model.memory()["communication"].now - before)
    said["fork"] = str(status_of_fork(lambda: model(x), psring.UsageError))
    end(model)
    return said


class Misuse(unittest.TestCase):
    def test_is_refused(self):
        for zero in (2, 3):
            (said,) = workers(misuse, zero, size=1)
            self.assertIsInstance(said, dict, said)
            self.assertEqual((said.pop("fork"), said.pop("after")), ("7", "0"))
            self.assertNotIn("accepted", said.values(), said)
            for name in ("clipped", "read"):
                self.assertIn("gradient of '0.weight' was pushed", said[name])
            another = "an optimizer is made before" if zero == 3 else "gradient of '0.weight' was pushed"
            self.assertIn(another, said["another optimizer"])
            second = "a second gradient" if zero == 3 else "modified by an inplace operation"  # the values are new by then
            self.assertIn(second, said["second backward"])
            self.assertIn("whole gradients", said["mean"])
            self.assertIn("'forgotten.weight'", said["unused"])
            if zero == 3:
                self.assertIn("has values during a pass only", said["no call"])
                self.assertIn("zero=2 keeps them", said["asp"])
                self.assertIn("before", said["state after close"])
                self.assertIn("returns a parameter", said["returns a parameter"])


if __name__ == "__main__":
    unittest.main()
