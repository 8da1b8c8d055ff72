"""psring.torch.ParameterServer: equality with one process and plain DDP's arithmetic, faults, misuse, checkpoints."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any, Callable

try:
    import torch
except ImportError:
    print("SKIPPED: no PyTorch (Debian: python3-torch)")
    sys.exit(0)

import torch.nn.functional as F
from torch import multiprocessing, nn

import psring
import psring.torch
from ranks import free_port

WORKERS = 2
STEPS = 12
SCALE = float(os.environ.get("PSRING_TEST_TIME_SCALE", "1"))
HEARTBEAT = 3.0 * SCALE


def net() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(4),
        nn.Flatten(),
        nn.Linear(4 * 49, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )


class Tied(nn.Module):
    """A small language model with a shared parameter, a frozen one, and a branch that is not used."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.wte = nn.Embedding(20, 16)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, 20, bias=False)
        self.head.weight = self.wte.weight
        self.scale = nn.Linear(1, 1)
        self.scale.weight.requires_grad_(False)
        self.unused = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.block(self.wte(x))) * self.scale.weight.sum()


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(8, 1, 28, 28, generator=draw), torch.randint(0, 10, (8,), generator=draw)


# A value of 0 is not the same as none.
ZEROS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "rmsprop, alpha=0": lambda trained: torch.optim.RMSprop(trained, lr=1e-3, alpha=0.0),
    "adamw, weight_decay=0": lambda trained: torch.optim.AdamW(trained, lr=1e-3, weight_decay=0.0),
    "adam, first beta 0": lambda trained: torch.optim.Adam(trained, lr=1e-3, betas=(0.0, 0.9)),
}


def optimizer_of(kind: str, module: nn.Module) -> torch.optim.Optimizer:
    trained = [p for p in module.parameters() if p.requires_grad]
    if kind == "adamw":
        return torch.optim.AdamW(trained, lr=1e-3, weight_decay=0.1)
    if kind in ZEROS:
        return ZEROS[kind](trained)
    return torch.optim.SGD(trained, lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3)


def alone(kind: str, steps: int = STEPS) -> dict[str, torch.Tensor]:
    """One process with the mean gradient of all workers."""
    module = net()
    optimizer = optimizer_of(kind, module)
    for step in range(steps):
        optimizer.zero_grad()
        for rank in range(WORKERS):
            x, y = batch(rank, step)
            (F.cross_entropy(module(x), y) / WORKERS).backward()
        optimizer.step()
    return module.state_dict()


def train(rank: int, kind: str, steps: int = STEPS, first: int = 0, looks: bool = False, **how: Any) -> Any:
    """`looks`: reads the state between backward and step, twice."""
    module = net()
    optimizer = optimizer_of(kind, module)
    model = psring.torch.ParameterServer(module, optimizer, **how)
    for step in range(first, steps):
        x, y = batch(rank, step)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        for _ in range(2 if looks else 0):
            assert set(model.state_dict()) == {f"module.{name}" for name in module.state_dict()}  # as DDP's
        optimizer.step()
    return model


def _work(rank: int, size: int, port: int, body: Callable[..., Any], folder: str, arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    try:
        result: Any = body(rank, *arguments)
    except Exception as error:
        result = f"{type(error).__name__}: {error}"
    torch.save(result, f"{folder}/{rank}")


def fresh() -> Any:
    """Processes that have imported this module, and nothing else has happened in: PyTorch is imported once for all."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["psring.torch", "torch"])
    return context


def workers(body: Callable[..., Any], *arguments: Any, size: int = WORKERS, killed: tuple[int, ...] = ()) -> list[Any]:
    """What `body(rank, *arguments)` returned at each worker, or the text of its exception."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        context = fresh()
        processes = [context.Process(target=_work, args=(rank, size, port, body, folder, arguments)) for rank in range(size)]
        for process in processes:
            process.start()
        deadline = time.monotonic() + 120 * SCALE
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
        alive = [rank for rank, process in enumerate(processes) if process.is_alive()]
        for process in processes:
            process.kill()
        assert not alive, f"workers {alive} have not ended"
        return [None if rank in killed else torch.load(f"{folder}/{rank}", weights_only=False) for rank in range(size)]


def linears(module: nn.Module, recurse: bool, unwrapped_params: int) -> bool:
    return recurse or isinstance(module, nn.Linear)


def trained(rank: int, kind: str, how: dict[str, Any]) -> dict[str, torch.Tensor]:
    model = train(rank, kind, **how)
    model.finish()
    state = {name: value.clone() for name, value in model.module.state_dict().items()}
    model.close()
    return state


def accumulated(rank: int) -> dict[str, torch.Tensor]:
    """Each step's batch in two halves; the first one is not pushed."""
    module = net()
    optimizer = optimizer_of("sgd", module)
    model = psring.torch.ParameterServer(module, optimizer)
    for step in range(STEPS):
        x, y = batch(rank, step)
        optimizer.zero_grad()
        with model.no_sync():
            (F.cross_entropy(model(x[:4]), y[:4]) / 2).backward()
        (F.cross_entropy(model(x[4:]), y[4:]) / 2).backward()
        optimizer.step()
    state = {name: value.clone() for name, value in model.module.state_dict().items()}
    model.close()
    return state


def resumed(rank: int, folder: str) -> dict[str, torch.Tensor]:
    model = train(rank, "adamw", 5, checkpoint_dir=folder)
    model.save_checkpoint()
    model.close()
    again = train(rank, "adamw", STEPS, 5, resume=folder)
    assert again.steps == STEPS
    state = {name: value.clone() for name, value in again.module.state_dict().items()}
    again.close()
    return state


def tied(rank: int) -> list[Any]:
    module = Tied()
    optimizer = optimizer_of("sgd", module)
    model = psring.torch.ParameterServer(module, optimizer, find_unused_parameters=True, servers=2)
    draw = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(30):
        x = torch.randint(0, 20, (4, 8), generator=draw)
        loss = F.cross_entropy(model(x).transpose(1, 2), x)
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    model.synchronize()
    shared = model.module.head.weight is model.module.wte.weight
    value = model.module.wte.weight.detach().clone()
    model.close()
    return [losses[0], losses[-1], shared, value]


def lost(rank: int, culprit: str, how: int, folder: str, zero: int = 1) -> Any:
    """Worker 0 kills or stops worker 1 or the server. Returns what worker 0's next steps say, and after how long."""
    note = f"{folder}/pid"
    if rank == 1:
        with open(note + ".part", "w") as file:
            file.write(str(os.getpid()))
        os.rename(note + ".part", note)
    model = train(rank, "sgd", 2, options=("--heartbeat-timeout", str(HEARTBEAT)), servers=1, zero=zero)
    if rank == 0:
        with open(note) as file:
            victim = int(file.read()) if culprit == "worker" else model._served.servers.processes[0].pid
        os.kill(victim, how)
    begin = time.monotonic()
    try:
        for step in range(2, 100000):
            x, y = batch(rank, step % 10)
            F.cross_entropy(model(x), y).backward()
            model._optimizer.step()
    except psring.Error as error:
        return str(error), time.monotonic() - begin
    finally:
        if rank == 0 and how == signal.SIGSTOP:
            os.kill(victim, signal.SIGCONT)
    return None


def misuse(rank: int) -> dict[str, str]:
    said: dict[str, str] = {}

    def refused(name: str, body: Callable[[], Any]) -> None:
        try:
            body()
            said[name] = "accepted"
        except psring.UsageError as error:
            said[name] = str(error)

    def make(module: nn.Module, optimizer: Any = None, **how: Any) -> Any:
        return psring.torch.ParameterServer(module, optimizer or optimizer_of("sgd", module), **how)

    refused("no optimizer", lambda: psring.torch.ParameterServer(net(), None))  # type: ignore[arg-type]
    refused("foreign optimizer", lambda: make(net(), optimizer_of("sgd", net())))
    refused("rule", lambda: make(m := net(), torch.optim.Adamax(m.parameters())))
    refused("amsgrad", lambda: make(m := net(), torch.optim.Adam(m.parameters(), amsgrad=True)))
    refused("sparse", lambda: make(nn.Embedding(4, 4, sparse=True)))
    refused("f64", lambda: make(net().double()))
    refused("updates", lambda: make(net(), updates="both"))
    refused("zero", lambda: make(net(), zero=4))

    module = net()
    optimizer = optimizer_of("sgd", module)
    model = make(module, optimizer)
    x, y = batch(rank, 0)
    refused("no backward", optimizer.step)
    F.cross_entropy(model(x), y).backward()
    refused("pass before the step", lambda: module(x))
    nn.utils.clip_grad_norm_(module.parameters(), 1e-6)
    refused("clipped", optimizer.step)
    refused("load", lambda: module.load_state_dict(net().state_dict()))
    model._served.job.abort("the test is over")
    model._served._ended = True

    other = net()
    first, second = optimizer_of("sgd", other), torch.optim.SGD(other.parameters(), lr=1.0)
    model = make(other, first)
    F.cross_entropy(model(x), y).backward()
    second.step()
    refused("two optimizers", lambda: (first.step(), F.cross_entropy(model(x), y).backward()))
    model._served.job.abort("the test is over")
    model._served._ended = True

    forgotten = nn.ModuleDict({"used": nn.Linear(4, 4), "forgotten": nn.Linear(4, 4)})
    optimizer = optimizer_of("sgd", forgotten)
    model = make(forgotten, optimizer, auto_wrap_policy=linears)
    forgotten["used"](torch.ones(1, 4)).sum().backward()
    refused("module that is not in the graph", optimizer.step)
    model._served.job.abort("the test is over")
    model._served._ended = True

    unused = Tied()
    own = optimizer_of("sgd", unused)
    model = make(unused, own)
    model(torch.ones(1, 2, dtype=torch.int64)).sum().backward()
    refused("unused", own.step)
    pid = os.fork()
    if pid == 0:
        try:
            model(torch.ones(1, 2, dtype=torch.int64))
        except psring.UsageError:
            os._exit(7)
        os._exit(0)
    said["fork"] = str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    model._served.job.abort("the test is over")
    model._served._ended = True
    return said


def leaves(module: nn.Module, recurse: bool, unwrapped_params: int) -> bool:
    return recurse or not list(module.children())


def failed_within_backward(rank: int) -> str:
    """A change of values that the servers own is refused by a hook of backward."""
    module = Tied()
    model = psring.torch.ParameterServer(module, optimizer_of("sgd", module), auto_wrap_policy=leaves)
    for parameter in module.parameters():
        parameter.data.clamp_(-0.01, 0.01)
    model(torch.ones(1, 2, dtype=torch.int64)).sum().backward()
    return "accepted"


def closed_while_handling(rank: int) -> int | None:
    """The status of the coordinator, where this worker has started it."""
    model = train(rank, "sgd", 2)
    try:
        raise ValueError("the end of the data")
    except ValueError:
        model.close()
    coordinator = model._served.coordinator
    return None if coordinator is None else coordinator._process.returncode


def without_library(rank: int, programs: str, folder: str, late: int | None) -> tuple[str, bool, list[str]]:
    """What is said where psring-server cannot be loaded, whether it came at once, and what is left. `late`: a rank that joins
    when the job has failed."""
    os.environ["PSRING_BIN"] = programs
    if late == rank:
        join = psring.torch._served_job.Job

        def later(*arguments: Any, **how: Any) -> psring.Job:
            time.sleep(3 * SCALE)
            return join(*arguments, **how)

        psring.torch._served_job.Job = later
    tempfile.tempdir = folder
    begin = time.monotonic()
    said = ""
    try:
        model = nn.Linear(4, 4)
        psring.torch.ParameterServer(model, torch.optim.SGD(model.parameters(), lr=0.1), servers=2)
    except psring.Error as error:
        said = f"{type(error).__name__}: {error}"
    left = [name for name in os.listdir(folder) if name.startswith("psring")]  # PyTorch 2 leaves folders, too
    return said, time.monotonic() - begin < 20 * SCALE, left


class Pixels(torch.utils.data.Dataset):
    """Sample s of step k is row s of the batch of step k."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __len__(self) -> int:
        return 8 * STEPS

    def __getitem__(self, sample: int) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = batch(self.rank, sample // 8)
        return x[sample % 8], y[sample % 8]


def loaded(rank: int) -> dict[str, torch.Tensor]:
    """Samples come from processes that are forked from a worker after it has joined."""
    module = net()
    optimizer = optimizer_of("sgd", module)
    model = psring.torch.ParameterServer(module, optimizer)
    for x, y in torch.utils.data.DataLoader(Pixels(rank), batch_size=8, num_workers=2):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    state = {name: value.clone() for name, value in model.module.state_dict().items()}
    model.close()
    return state


def beside(rank: int) -> dict[str, Any]:
    """A module in the graph that the ParameterServer does not hold."""
    said: dict[str, Any] = {}
    body, head = net()[:6], net()[6]
    try:
        psring.torch.ParameterServer(body, optimizer_of("sgd", nn.ModuleList([body, head])))
    except psring.UsageError as error:
        said["optimizer"] = str(error)
    optimizer, own = optimizer_of("sgd", body), optimizer_of("sgd", head)
    model = psring.torch.ParameterServer(body, optimizer)
    for step in range(3):
        x, y = batch(rank, step)
        optimizer.zero_grad()
        own.zero_grad()
        F.cross_entropy(head(model(x)), y).backward()
        optimizer.step()
        own.step()
    said["body"] = {name: value.clone() for name, value in body.state_dict().items()}
    said["head"] = head.weight.detach().clone()
    model.close()
    return said


def far(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> float:
    return max(float((left[name] - right[name]).norm() / left[name].norm()) for name in left)


class ParameterServerTest(unittest.TestCase):
    def test_a_server_that_cannot_start_is_named_at_once(self):
        with tempfile.TemporaryDirectory() as programs, tempfile.TemporaryDirectory() as folder:
            # psring-server looks for its libraries beside itself; psring, by its link, beside the real one.
            real, own = (Path(each) for each in (os.environ["PSRING_BIN"], os.path.join(programs, "bin")))
            own.mkdir()
            (own / "psring").symlink_to(real / "psring")
            shutil.copy(real / "psring-server", own)
            libraries = own.parent / "lib"
            libraries.mkdir()
            for library in (real.parent / "lib").iterdir():
                (libraries / library.name).symlink_to(library)
            damaged = libraries / "libzmq.so.5"
            damaged.unlink(missing_ok=True)
            damaged.touch()
            for late in (None, 0, 1):
                self.check_without_library(*workers(without_library, str(own), folder, late), late)

    def check_without_library(
        self, first: tuple[str, bool, list[str]], second: tuple[str, bool, list[str]], late: int | None
    ) -> None:
        self.assertRegex(
            first[0],
            "^DataError: .*: server [01] ended with status 127: .*: error while loading shared libraries: "
            ".*/libzmq.so.5: file too short$",
        )
        self.assertRegex(second[0], "^PeerLostError: " + ("psring: the job did not begin: rank 0" if late == 1 else ""))
        self.assertEqual((first[1:], second[1]), ((True, []), True))

    def test_closed_while_an_exception_is_handled(self):
        self.assertEqual(workers(closed_while_handling), [0, None])

    def check_equal(self, kind: str, **how: Any) -> None:
        states = workers(trained, kind, how)
        for state in states:
            self.assertIsInstance(state, dict, (how, state))
            self.assertLess(far(alone(kind), state), 1e-6, how)
        self.assertTrue(all(torch.equal(states[0][name], states[1][name]) for name in states[0]))

    def test_servers_update_as_torch_does(self) -> None:
        self.check_equal("sgd")
        self.check_equal("adamw", servers=2)
        for kind in ZEROS:
            self.check_equal(kind)

    def test_servers_average_and_torch_updates(self) -> None:
        self.check_equal("adamw", updates="mean", servers=2)

    def test_the_state_may_be_read_between_backward_and_step(self) -> None:
        for how in ({"updates": "mean"}, {}, {"zero": 2}, {"zero": 3}):
            self.check_equal("sgd", looks=True, **how)

    def test_a_policy_cuts_units(self) -> None:
        self.check_equal("sgd", auto_wrap_policy=linears)

    def test_gradients_accumulate_in_no_sync(self) -> None:
        for state in workers(accumulated):
            self.assertLess(far(alone("sgd"), state), 1e-6)

    def test_a_resumed_run_ends_with_the_same_parameters(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for state in workers(resumed, folder):
                self.assertLess(far(alone("adamw"), state), 1e-6)

    def test_asynchronous_workers_end_with_the_same_parameters(self) -> None:
        for consistency in ("asp", "ssp:2"):
            states = workers(trained, "sgd", {"consistency": consistency, "servers": 2})
            self.assertTrue(all(torch.equal(states[0][name], states[1][name]) for name in states[0]), consistency)

    def test_compressed_gradients_train(self) -> None:
        states = workers(trained, "sgd", {"compress": "int8"})
        self.assertTrue(1e-7 < far(alone("sgd"), states[0]) < 0.05)

    def test_shared_frozen_and_unused_parameters(self) -> None:
        results = workers(tied)
        for first, last, shared, value in results:
            self.assertLess(last, 0.5 * first)
            self.assertTrue(shared)
            self.assertTrue(torch.equal(value, results[0][3]))

    def test_a_lost_process_is_named_in_time(self) -> None:
        for culprit, name in (("worker", "worker 1"), ("server", "server 0")):
            for how in (signal.SIGKILL, signal.SIGSTOP):
                killed = (1,) if culprit == "worker" and how == signal.SIGKILL else ()
                with self.subTest(culprit=culprit, how=how.name), tempfile.TemporaryDirectory() as folder:
                    text, seconds = workers(lost, culprit, int(how), folder, killed=killed)[0]
                    self.assertIn(name, text)
                    self.assertLess(seconds, 2 * HEARTBEAT)

    def test_a_process_ends_after_an_error_within_a_backward_pass(self) -> None:
        for said in workers(failed_within_backward):
            self.assertIn("was changed through its `data`", said)

    def test_samples_come_from_workers_of_a_data_loader(self) -> None:
        for state in workers(loaded):
            self.assertLess(far(alone("sgd"), state), 1e-6)

    def test_modules_beside_the_held_one(self) -> None:
        first, second = workers(beside)
        self.assertIsInstance(first, dict, first)
        self.assertTrue(all(torch.equal(first["body"][name], second["body"][name]) for name in first["body"]))
        self.assertFalse(torch.equal(first["head"], second["head"]))  # nobody averages its gradients
        for said in (first, second):
            self.assertIn("2 parameters that are not in the module", said["optimizer"])

    def test_misuse_is_refused(self) -> None:
        (said,) = workers(misuse, size=1)
        self.assertIsInstance(said, dict, said)
        self.assertEqual(said.pop("fork"), "7")
        self.assertNotIn("accepted", said.values(), said)
        self.assertIn("expected 1, 2 or 3", said["zero"])
        self.assertIn("'forgotten.weight'", said["module that is not in the graph"])


if __name__ == "__main__":
    unittest.main()
