"""What a program is told when a rank of its job ends, raises, or does not come: who, how, where, and how soon."""

import datetime
import os
import signal
import sys
import tempfile
import time
import unittest

import torch
import torch.distributed as dist
from torch import nn

import psring
import psring.torch
from ranks import SCALE, Ranks, run

# So long that no silence is noticed in time.
LONG = {"PSRING_OPTIONS": "--heartbeat-timeout 300"}
WAYS = ("ddp", "server", "server zero=3", "sharded")


def made(way):
    """A step of a small model that trains in this way; "plain": an all-reduce."""
    if way == "plain":
        return lambda: dist.all_reduce(torch.ones(5000))
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 10))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    if way == "ddp":
        model = nn.parallel.DistributedDataParallel(module)
    elif way == "sharded":
        model = psring.torch.Sharded(module, optimizer)
    else:
        model = psring.torch.ParameterServer(module, optimizer, servers=2, zero=3 if "zero" in way else 1)

    def step():
        optimizer.zero_grad()
        model(torch.ones(2, 10)).sum().backward()
        optimizer.step()

    return step


def end(rank, size, way, how):
    """Rank 1 ends as `how` says. The others tell what they see, and after how long."""
    step = made(way)
    begin = time.monotonic()
    try:
        for _ in range(3):
            step()
        if rank == 1:
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "exit":
                sys.exit(3)
            raise ValueError("sample 17 is broken")
        while True:
            step()
    except RuntimeError as error:
        cause = error if isinstance(error, psring.Error) else error.__cause__
        return type(cause).__name__, str(cause), time.monotonic() - begin


class Ends(unittest.TestCase):
    # From Python 3.13 on, multiprocessing does not tell which exception it was.
    def ends(self, how, expected):
        for way in ("plain", *WAYS):
            with self.subTest(way=way, how=how):
                ranks = Ranks(end, 3, environment=LONG, arguments=(way, how))
                try:
                    for rank in (0, 2):
                        kind, text, seconds = ranks.result(rank)
                        self.assertEqual(kind, "PeerLostError", text)
                        self.assertRegex(text, expected)
                        self.assertLess(seconds, 10 * SCALE, text)
                finally:
                    statuses = ranks.end()
                self.assertNotIn("hung", statuses)

    def test_a_killed_rank_is_noticed_at_once(self):
        self.ends("kill", r"worker 1 \(.*\) exited before the workers were done")

    def test_a_rank_that_raises_is_named(self):
        self.ends("raise", r"worker 1( \(.*\))?: (ValueError: sample 17 is broken|its program ended with status 1)")

    def test_a_rank_that_exits_is_named(self):
        self.ends("exit", r"worker 1( \(.*\))?: (SystemExit: 3|its program ended with status 3)")


def before(rank, size):
    """Rank 1 raises before it makes its model. Returns what the other is told, and after how long."""
    if rank == 1:
        raise ValueError("sample 17 is broken")
    module = nn.Linear(4, 4)
    begin = time.monotonic()
    try:
        psring.torch.ParameterServer(module, torch.optim.SGD(module.parameters(), lr=0.1))
    except psring.Error as error:
        return type(error).__name__, str(error), time.monotonic() - begin


def late(rank, size):
    """Rank 1 comes late. What the others are told by then does not come back."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=1))
    said = []
    dist.barrier()
    if rank == 1:
        time.sleep(2 + SCALE)
    try:
        dist.all_reduce(torch.ones(6), group=group)
    except psring.TimeoutError as error:
        said.append(str(error))
    dist.barrier()
    total = torch.ones(3)
    dist.all_reduce(total, group=group)
    return [*said, *total.tolist()]


def alone(rank, size, folder):
    """Rank 0 alone makes an evaluation, until the others come. Returns what it has written meanwhile."""
    module = nn.Linear(4, 4)
    model = psring.torch.Sharded(module, torch.optim.SGD(module.parameters(), lr=0.1))
    path = os.path.join(folder, str(rank))
    with open(path, "w") as file:
        os.dup2(file.fileno(), 2)
    dist.barrier()
    if rank > 0:
        time.sleep(1 + SCALE)
    model(torch.ones(1, 4))
    with open(path) as file:
        return file.read()


class Starts(unittest.TestCase):
    def test_a_rank_that_raises_before_its_model_is_named(self):
        ranks = Ranks(before, 2)
        kind, text, seconds = ranks.result(0)
        ranks.end()
        self.assertEqual(kind, "PeerLostError", text)
        self.assertRegex(text, r"the job did not begin: .* worker 1.*(ValueError: sample 17 is broken|ended with status 1)")
        self.assertLess(seconds, 25 * SCALE)


def short(rank, size, way):
    """Rank 1 ends its program after two steps, the others go on. Returns what they are told, and after how long."""
    torch.manual_seed(0)
    module = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    tables = None
    if "Tables" in way:
        tables = psring.torch.Tables()
        rows = tables.Embedding("rows", 4)
        tables.attach(optimizer)
        wrapped = nn.parallel.DistributedDataParallel(module) if "DDP" in way else module
        model = lambda x: wrapped(x + rows(torch.tensor([1])))  # noqa: E731
    elif way == "group":
        model = nn.parallel.DistributedDataParallel(module, process_group=dist.new_group(range(size)))
    elif way == "DDP":
        model = nn.parallel.DistributedDataParallel(module)
    elif way.startswith("Sharded"):
        model = psring.torch.Sharded(module, optimizer, stage=int(way[-1]))
    else:
        model = psring.torch.ParameterServer(
            module, optimizer, **({"zero": 3} if way == "zero" else {"updates": way.split()[0]})
        )
    begin = time.monotonic()
    for _ in range(2 if rank == 1 else 4):
        if "all_reduce" in way:
            dist.all_reduce(torch.ones(1))
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        begin = time.monotonic()
    if way.endswith("closed"):
        tables.close()
    return time.monotonic() - begin


def told(rank, size, way):
    if rank == 1:
        return short(rank, size, way)
    begin = time.monotonic()
    try:
        return short(rank, size, way)
    except RuntimeError as error:  # DDP's has ours as its cause
        cause = error if isinstance(error, psring.Error) else error.__cause__
        return type(cause).__name__, str(cause), time.monotonic() - begin


def one_step_less(rank, size, closes):
    tables = psring.torch.Tables(lr=0.1)
    rows = tables.Embedding("rows", 4)
    for step in range(3 - rank):
        rows(torch.tensor([step])).sum().backward()
        tables.step()
    if not closes:
        return None
    try:
        tables.close()
    except psring.Error as error:
        return type(error).__name__, str(error)
    return None


class Waits(unittest.TestCase):
    def test_a_rank_that_ends_early_is_named(self):
        # Two jobs: rank 1 waits in the end of one, rank 0 in a step of the other.
        two = ("DDP and Tables", "DDP and Tables closed", "server and all_reduce")
        for way in ("server", "mean", "zero", "Sharded 1", "Sharded 3", "Tables", "group", "DDP", *two):
            ranks = Ranks(told, 2, arguments=(way,))
            try:
                kind, text, seconds = ranks.result(0)
            finally:
                statuses = ranks.end()
            self.assertEqual(kind, "PeerLostError", text)
            self.assertRegex(text, r"(rank|worker) 1 has ended its program (without this call|after 2 steps)", way)
            self.assertLess(seconds, 20 * SCALE)
            self.assertNotIn("hung", statuses, way)

    def test_a_last_step_that_is_lost_fails(self):
        """Rank 1 makes a step less, and nobody waits for the update of the last one but the end of the job."""
        for closes in (True, False):
            ranks = Ranks(one_step_less, 2, arguments=(closes,))
            try:
                if closes:
                    kind, text = ranks.result(0)
                    self.assertEqual(kind, "PeerLostError", text)
                    self.assertIn("waiting for the update of step 2: worker 1 has ended its program after 2 steps", text)
            finally:
                statuses = ranks.end()
            self.assertEqual(statuses[0], 0 if closes else 1, closes)

    def test_a_timeout_names_operation_and_ranks_and_does_not_come_back(self):
        results = Ranks(late, 3).results()
        self.assertEqual(results[1], [3, 3, 3])
        for rank in (0, 2):
            line = f"rank {rank}: all_reduce of 6 f32, waiting for rank 1: the timeout of 1 s has passed"
            self.assertEqual(results[rank], [line, 3, 3, 3])

    def test_a_long_wait_names_the_ranks_and_says_what_to_do(self):
        with tempfile.TemporaryDirectory() as folder:
            said = run(alone, 3, environment={"PSRING_WAIT_WARNING": "0.5"}, arguments=(folder,))
        self.assertEqual(said[1:], ["", ""])
        self.assertRegex(
            said[0], r"^psring: has waited for \d+ s: rank 0: all_gather of \d+ f32, waiting for ranks 1 and 2; all ranks have "
            r"to make the forward and backward passes of a Sharded .*\n$"
        )

    def test_a_wrong_time_is_refused(self):
        (failed,) = Ranks(late, 1, environment={"PSRING_WAIT_WARNING": "soon"}).results()
        self.assertIn("PSRING_WAIT_WARNING=soon: expected a number of seconds", failed.text)


if __name__ == "__main__":
    unittest.main()
