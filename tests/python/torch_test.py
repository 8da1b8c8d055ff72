"""torch.distributed's backend "psring": every collective and DDP against gloo, faults and misuse."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from datetime import timedelta
from pathlib import Path

try:
    import torch
except ImportError:
    print("SKIPPED: no PyTorch (Debian: python3-torch)")
    sys.exit(0)

import numpy as np
import torch.distributed as dist
import torch.nn as nn

import collectives
import guide
import models
import psring
import psring.torch
from ranks import SCALE, Failed, Ranks, run

TCP = {"PSRING_OPTIONS": "--transport tcp"}
HEARTBEAT = 2.0 * SCALE
FAULTY = {"PSRING_OPTIONS": f"--heartbeat-timeout {HEARTBEAT}"}
torch.set_num_threads(1)


def gloo(function, size):
    """The results over gloo. Its threads may take one operation's message for another's, and end the process
    (pair.cc, "op.preamble.length <= op.nbytes"): then the reference runs again."""
    for _ in range(4):
        try:
            return run(function, size, "gloo")
        except Failed as failure:
            print(f"gloo failed: {failure}", flush=True)
    return run(function, size, "gloo")


class Collectives(unittest.TestCase):
    def check(self, size, environment):
        expected = gloo(collectives.run, size)
        left = run(collectives.run, size, "psring", environment)
        for rank in range(size):
            self.assertEqual(expected[rank].keys(), left[rank].keys())
            for name, tensors in expected[rank].items():
                for ours, theirs in zip(left[rank][name], tensors, strict=True):
                    where = f"rank {rank}: {name}"
                    self.assertEqual((ours.dtype, ours.shape), (theirs.dtype, theirs.shape), where)
                    # The order of a sum is another one: with 3 ranks it differs by two roundings.
                    room = 4 * np.finfo(ours.dtype).eps if ours.dtype.kind == "f" else 0
                    np.testing.assert_allclose(ours, theirs, rtol=room, atol=room, err_msg=where)

    def test_shared_memory(self):
        self.check(3, {})

    def test_tcp(self):
        self.check(2, TCP)

    def test_more_types_than_gloo_has(self):
        def call(rank, size):
            mean = torch.full((4,), float(rank))
            dist.all_reduce(mean, dist.ReduceOp.AVG)
            half = torch.full((4,), 0.5 + rank, dtype=torch.bfloat16)
            dist.all_reduce(half)
            truth = torch.tensor([rank == 0, True, False])
            dist.all_reduce(truth)
            number = torch.tensor([1 + 2j * rank, 3.0])
            dist.all_reduce(number)
            short = torch.full((3,), rank, dtype=torch.int16)
            dist.broadcast(short, 1)
            across = torch.arange(6.0).reshape(2, 3).t() + rank  # not contiguous
            dist.all_reduce(across)
            parts = torch.zeros(2)
            dist.reduce_scatter(parts, [torch.full((2,), float(rank + r)) for r in range(size)])
            whole = torch.zeros(2 * size)
            dist._all_gather_base(whole, torch.full((2,), float(rank)))
            part = torch.zeros(3)
            source = torch.arange(3.0 * size)
            dist._reduce_scatter_base(part, source)
            swapped = [torch.zeros(r + 1) for r in range(size)]
            dist.all_to_all(swapped, [torch.full((rank + 1,), float(10 * rank + r)) for r in range(size)])
            row = torch.zeros(size)
            dist.all_to_all_single(row, torch.arange(float(size)) + 10 * rank)
            return [t.tolist() for t in (mean, half, truth, number, short, across, parts, whole, part, source, row)] + [
                [t.tolist() for t in swapped]
            ]

        for rank, got in enumerate(run(call, 2)):
            mean, half, truth, number, short, across, parts, whole, part, source, row, swapped = got
            self.assertEqual(mean, [0.5] * 4)
            self.assertEqual(half, [2.0] * 4)
            self.assertEqual(truth, [True, True, False])
            self.assertEqual(number, [2 + 2j, 6])
            self.assertEqual(short, [1] * 3)
            self.assertEqual(across, (2 * np.arange(6.0).reshape(2, 3).T + 1).tolist())
            self.assertEqual(parts, [1.0 + 2 * rank] * 2)
            self.assertEqual(whole, [0, 0, 1, 1])
            self.assertEqual(part, (2 * np.arange(3.0) + 6 * rank).tolist())
            self.assertEqual(source, np.arange(6.0).tolist())
            self.assertEqual(row, [float(rank), 10.0 + rank])
            self.assertEqual(swapped, [[float(rank)], [10.0 + rank] * 2])

    def test_complex_numbers_move_as_they_are(self):
        """A conjugate or negative view has other values than its memory."""

        def call(rank, size):
            plain = torch.tensor([1 + 2j, 3 - 1j])
            conjugate = plain.conj() if rank == 0 else torch.zeros(2, dtype=torch.complex64)
            dist.broadcast(conjugate, 0)
            into = plain.clone() if rank == 0 else torch.zeros(2, dtype=torch.complex64).conj()
            dist.broadcast(into, 0)
            negative = torch._neg_view(torch.ones(2)) if rank == 0 else torch.zeros(2)
            dist.broadcast(negative, 0)
            half = torch.view_as_complex(torch.full((3, 2), 1.0 + rank, dtype=torch.float16))
            dist.broadcast(half, 0)
            return [t.resolve_conj().tolist() for t in (conjugate, into)], negative.tolist(), torch.view_as_real(half).tolist()

        expected = ([[1 - 2j, 3 + 1j], [1 + 2j, 3 - 1j]], [-1.0, -1.0], [[1.0, 1.0]] * 3)
        self.assertEqual(run(call, 2), [expected] * 2)

    def test_memory_of_the_job(self):
        def call(rank, size):
            t = psring.torch.empty(1000, 3)
            assert t.shape == (1000, 3) and t.sum() == 0
            t += rank + 1
            dist.all_reduce(t)
            return t.sum().item()

        self.assertEqual(run(call, 2), [9000.0, 9000.0])


FUTURE = """
import time
import torch
import torch.distributed as dist
import psring.torch

dist.init_process_group("psring")
dist.barrier()


def long(_):
    until = time.monotonic() + 1
    while time.monotonic() < until:
        torch.futures.Future().set_result(None)
    print("complete")


if dist.get_rank() == 1:
    time.sleep(0.2)  # so that the other's thread waits for it
work = dist.all_reduce(torch.zeros(1), async_op=True)
if dist.get_rank() == 0:
    work.get_future().then(long)
"""

PENDING = """
import torch
import torch.distributed as dist
import psring.torch


def tell(future):
    try:
        future.value()
    except RuntimeError as error:
        print(str(error).splitlines()[0].replace(" ", "_"))


dist.init_process_group("psring")
dist.barrier()
if dist.get_rank() == 0:
    dist.irecv(torch.zeros(4), 1).get_future().then(tell)
"""

FAREWELL = """
import time
import torch.distributed as dist
import psring.torch
from psring.torch.backend import _members

dist.init_process_group("psring")
farewells = _members.world.job.farewells
value = farewells._value
until = time.monotonic() + 0.8


def slow(name):
    while time.monotonic() < until:
        value(name)
    return value(name)


farewells._value = slow
farewells.heard()
print("ended\\n", end="")  # one write: both ranks have the same pipe
"""


class Programs(unittest.TestCase):
    def run_ranks(self, program):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "program.py").write_text(program)
            command = [sys.executable, "-B", "-m", "psring.run", "--nproc", "2", "program.py"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120 * SCALE)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return sorted(done.stdout.split())

    def test_guide(self):
        (line,) = self.run_ranks(guide.programs()[0])
        self.assertLess(abs(float(line)), 1)

    def test_futures_are_complete(self):
        """The thread that completes them is in torch's C++, which aborts a process that leaves it after the interpreter."""
        self.assertEqual(self.run_ranks(FUTURE), ["complete"])

    def test_a_future_of_what_never_comes(self):
        (line,) = self.run_ranks(PENDING)
        self.assertRegex(line, "recv_of_4_f32.*:_this_worker_has_left_the_job")

    def test_an_answer_of_the_store_has_come(self):
        self.assertEqual(self.run_ranks(FAREWELL), ["ended"] * 2)


class Training(unittest.TestCase):
    def check(self, size, model, optimizer, environment=None, **options):
        def call(rank, n):
            return models.train(rank, n, model, optimizer, **options)

        expected = gloo(call, size)[0]
        left = run(call, size, "psring", environment)
        for each in left:
            self.assertEqual(each.tobytes(), left[0].tobytes())
        again = run(call, size, "psring", environment)[0]
        self.assertEqual(again.tobytes(), left[0].tobytes())
        apart = np.linalg.norm(left[0] - expected) / np.linalg.norm(expected)
        print(f"{model}, {optimizer}, {size} workers: {apart:.1e} from gloo", flush=True)
        self.assertLess(apart, 1e-6)

    def test_one_worker(self):
        self.check(1, "conv", "sgd")

    def test_conv_net(self):
        self.check(2, "conv", "adamw")

    def test_gpt(self):
        self.check(2, "gpt", "sgd")

    def test_buckets(self):
        self.check(2, "gpt", "adamw", bucket_cap_mb=0.02, gradient_as_bucket_view=True)

    def test_three_workers(self):
        self.check(3, "gpt", "sgd")

    def test_four_workers(self):
        self.check(4, "conv", "sgd")

    def test_tcp(self):
        self.check(2, "conv", "sgd", TCP)

    def test_unused_parameters_and_no_sync(self):
        def call(rank, size):
            torch.manual_seed(0)
            parts = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.parts = parts

                def forward(self, x, which):
                    return self.parts[which](self.parts[0](x)).sum()

            net = nn.parallel.DistributedDataParallel(Net(), find_unused_parameters=True)
            update = torch.optim.SGD(net.parameters(), lr=0.1)
            for step in range(6):
                x = torch.full((2, 4), float(rank + step))
                with net.no_sync():
                    net(x, 1 + (step + rank) % 2).backward()
                net(x, 1 + (step + rank) % 2).backward()
                update.step()
                update.zero_grad()
            return torch.cat([p.detach().flatten() for p in net.parameters()]).numpy()

        expected = run(call, 2, "gloo")
        left = run(call, 2)
        np.testing.assert_allclose(left[0], expected[0], rtol=1e-6)
        self.assertEqual(left[0].tobytes(), left[1].tobytes())

    def test_model_in_two_groups(self):
        def call(rank, size):
            pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
            torch.manual_seed(0)
            net = nn.parallel.DistributedDataParallel(nn.Linear(3, 1), process_group=pairs[rank // 2])
            net(torch.full((1, 3), float(rank))).backward()
            return net.module.weight.grad[0, 0].item()

        self.assertEqual(run(call, 4), [0.5, 0.5, 2.5, 2.5])


class Faults(unittest.TestCase):
    def lose(self, how, culprit, options):
        """The errors of ranks 0 to 2 after `how` has hit one of them, and the seconds until the first."""
        ranks = Ranks(self.reduce, 3, environment={**FAULTY, **options})
        for _ in range(3):
            os.read(Faults.pipe[0], 1)
        begin = time.monotonic()
        ranks.signal(culprit, how)
        results = {rank: ranks.result(rank) for rank in range(3) if rank != culprit}
        waited = time.monotonic() - begin
        if how == signal.SIGSTOP:
            ranks.signal(culprit, signal.SIGKILL)
        statuses = ranks.end()
        self.assertNotIn("hung", statuses)
        for rank, result in results.items():
            self.assertIsInstance(result, Failed)
            self.assertEqual(result.kind, "PeerLostError", result)
            self.assertRegex(result.text, rf"(worker|rank) {culprit}\b", result)
            self.assertEqual(statuses[rank], 1)
        self.assertLess(waited, 2 * HEARTBEAT + SCALE)
        return waited

    @staticmethod
    def reduce(rank, size):
        dist.all_reduce(torch.zeros(1))
        os.write(Faults.pipe[1], b"x")
        while True:
            dist.all_reduce(torch.zeros(1000))

    def setUp(self):
        Faults.pipe = os.pipe()

    def tearDown(self):
        os.close(Faults.pipe[0])
        os.close(Faults.pipe[1])

    def test_killed(self):
        print(f"killed: {self.lose(signal.SIGKILL, 1, {}):.2f} s", flush=True)

    def test_rank_0_killed(self):
        self.lose(signal.SIGKILL, 0, {})

    def test_stopped(self):
        print(f"stopped: {self.lose(signal.SIGSTOP, 2, {}):.2f} s", flush=True)

    def test_killed_over_tcp(self):
        self.lose(signal.SIGKILL, 1, {"PSRING_OPTIONS": FAULTY["PSRING_OPTIONS"] + " --transport tcp"})

    def test_exception_of_one_rank_reaches_all(self):
        def call(rank, size):
            dist.all_reduce(torch.zeros(3))
            if rank == 1:
                raise ValueError("the data of rank 1 are broken")
            dist.all_reduce(torch.zeros(3))

        ranks = Ranks(call, 2)
        results = ranks.results()
        self.assertEqual(results[1].kind, "ValueError")
        self.assertEqual(results[0].kind, "PeerLostError", results[0])

    def test_timeout(self):
        def call(rank, size):
            if rank == 0:
                work = dist.irecv(torch.zeros(3), 1)
                begin = time.monotonic()
                try:
                    work.wait(timeout=timedelta(seconds=0.5))
                except psring.TimeoutError:
                    waited = time.monotonic() - begin
                    dist.barrier()
                    return waited
            dist.barrier()
            if rank == 1:
                dist.send(torch.zeros(3), 0)

        waited = run(call, 2)[0]
        self.assertGreater(waited, 0.4)


    def test_a_group_is_dropped_with_an_operation_in_flight(self):
        def call(rank, size):
            group = dist.new_group(timeout=timedelta(seconds=0.3))
            if rank == 0:
                try:
                    dist.barrier(group)
                except psring.TimeoutError:
                    dist.destroy_process_group(group)
            del group
            t = torch.ones(1)
            dist.all_reduce(t)
            return t.item()

        self.assertEqual(run(call, 2), [2.0, 2.0])

    def test_a_rank_whose_barrier_timed_out_ends(self):
        def call(rank, size):
            dist.init_process_group("psring", timeout=timedelta(seconds=3))
            if rank == 1:
                os.read(Faults.pipe[0], 1)  # this rank comes when rank 0 no longer waits
                return "came"
            try:
                dist.barrier()
            except psring.TimeoutError:
                os.write(Faults.pipe[1], b"x")
                return "timed out"

        ranks = Ranks(call, 2, backend=None)
        self.assertEqual([ranks.result(0), ranks.result(1)], ["timed out", "came"])
        self.assertNotIn("hung", ranks.end())


class Misuse(unittest.TestCase):
    def refused(self, call, text, size=2):
        results = Ranks(call, size).results()
        for result in results:
            self.assertIsInstance(result, Failed, result)
            self.assertRegex(result.text, text)

    def test_shapes_that_differ(self):
        def call(rank, size):
            dist.all_reduce(torch.zeros(3 + rank))

        self.refused(call, "all_reduce of 3 f32.*all_reduce of 4 f32|all_reduce of 4 f32.*all_reduce of 3 f32")

    def test_types_that_differ(self):
        def call(rank, size):
            dist.all_reduce(torch.zeros(3, dtype=torch.float64 if rank else torch.float32))

        self.refused(call, "f64.*f32|f32.*f64")

    def test_sparse(self):
        def call(rank, size):
            dist.broadcast(torch.eye(3).to_sparse(), 0)

        self.refused(call, "sparse")

    def test_shape_of_a_message(self):
        def call(rank, size):
            if rank == 0:
                dist.send(torch.zeros(3), 1)
                dist.barrier()
            else:
                dist.recv(torch.zeros(4), 0)

        self.refused(call, "sent 3 f32 with tag 0; rank 1 receives 4 f32")

    def test_a_tensor_that_cannot_be_written(self):
        """Is refused before the call; a fault that shows after it is told once."""

        def call(rank, size):
            said = []
            try:
                dist.all_reduce(torch.ones(1).expand(4))
            except psring.UsageError as error:
                said.append(str(error))
            with torch.inference_mode():
                late = dist.all_reduce(torch.ones(3, 4).t(), async_op=True)
            try:
                late.wait()  # PyTorch refuses to write to it outside inference_mode
            except RuntimeError as error:
                said.append(str(error))
            source = torch.full((1,), rank + 1.0).expand(4) if rank == 0 else torch.zeros(4)
            dist.broadcast(source, 0)  # is only read at rank 0
            total = torch.ones(2)
            dist.all_reduce(total)
            return said, source.tolist(), total.tolist()

        for said, source, total in run(call, 2):
            self.assertIn("share memory, as expand() makes them", said[0])
            self.assertIn("inference", said[1])
            self.assertEqual((source, total), ([1.0] * 4, [2.0, 2.0]))

    def test_wrong_calls_leave_the_job_whole(self):
        def call(rank, size):
            for wrong in (
                lambda: dist.all_reduce(torch.zeros(3, dtype=torch.int16)),
                lambda: dist.all_gather([torch.zeros(2)] * 3, torch.zeros(2)),
                lambda: dist.all_gather([torch.zeros(3)] * 2, torch.zeros(2)),
                lambda: dist.all_to_all_single(torch.zeros(3), torch.zeros(3)),
            ):
                try:
                    wrong()
                except (ValueError, NotImplementedError, RuntimeError):
                    continue
                raise AssertionError("a wrong call returned")
            t = torch.ones(2)
            dist.all_reduce(t)
            return t.tolist()

        self.assertEqual(run(call, 2), [[2, 2], [2, 2]])

    def test_fork_after_join(self):
        def call(rank, size):
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    dist.all_reduce(torch.zeros(1))
                    os.write(writer, b"no error")
                except psring.UsageError as error:
                    os.write(writer, str(error).encode())
                finally:
                    os._exit(0)
            os.waitpid(child, 0)
            t = torch.ones(1)
            dist.all_reduce(t)
            return os.read(reader, 1000).decode(), t.item()

        for text, total in run(call, 2):
            self.assertIn("was forked from process", text)
            self.assertEqual(total, 2)

    def test_workers_of_a_data_loader(self):
        def call(rank, size):
            data = torch.utils.data.TensorDataset(torch.arange(32.0))
            sampler = torch.utils.data.distributed.DistributedSampler(data, shuffle=False)
            seen = 0.0
            for (x,) in torch.utils.data.DataLoader(data, batch_size=4, sampler=sampler, num_workers=2):
                dist.all_reduce(x)
                seen += x.sum().item()
            return seen

        self.assertEqual(run(call, 2), [496.0, 496.0])

    def test_parameter_without_gradient(self):
        def call(rank, size):
            net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
            net[0].requires_grad_(False)
            net = nn.parallel.DistributedDataParallel(net)
            net(torch.ones(1, 2) * rank).sum().backward()
            return net.module[1].weight.grad is not None and net.module[0].weight.grad is None

        self.assertEqual(run(call, 2), [True, True])


if __name__ == "__main__":
    unittest.main()
