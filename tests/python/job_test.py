"""The Python package without PyTorch: jobs, collectives, messages, memory and errors, over buffers."""

import array
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

import guide
import psring
from psring._coordinator import Coordinator

SCALE = float(os.environ.get("PSRING_TEST_TIME_SCALE", "1"))
_fork = multiprocessing.get_context("fork")


def _rank(pipe, function, endpoint, key, rank):
    try:
        with psring.join(endpoint, key, rank) as job:
            pipe.send(function(job))
    except BaseException as error:
        pipe.send(error)


def run(function, size, *options, seconds=60):
    """The results of all ranks, or their exceptions."""
    coordinator = Coordinator(size, options=["--heartbeat-timeout", str(2 * SCALE), *options])
    processes, pipes = [], []
    for rank in range(size):
        mine, theirs = _fork.Pipe()
        process = _fork.Process(target=_rank, args=(theirs, function, coordinator.endpoint, coordinator.key_file, rank))
        process.start()
        theirs.close()
        processes.append(process)
        pipes.append(mine)
    results = []
    for rank, pipe in enumerate(pipes):
        assert pipe.poll(seconds * SCALE), f"rank {rank} hangs"
        try:
            results.append(pipe.recv())
        except EOFError:
            results.append(None)
    for process in processes:
        process.join(seconds * SCALE)
        assert not process.is_alive()
    coordinator.close(seconds * SCALE)
    return results


def collectives(job):
    n, rank = job.size, job.rank
    left = []
    vector = array.array("f", [rank + 1.0] * 5)
    job.all_reduce(vector)
    left.append(vector.tolist())
    vector = array.array("d", [rank + 1.0] * 3)
    job.all_reduce(vector, psring.Op.MEAN)
    left.append(vector.tolist())
    vector = array.array("q", [rank] * 2)
    job.broadcast(vector, n - 1)
    left.append(vector.tolist())
    vector = array.array("i", [rank] * n)
    job.all_gather(vector)
    left.append(vector.tolist())
    vector = array.array("i", list(range(2 * n)))
    job.reduce_scatter(vector)
    left.append(vector.tolist()[2 * rank : 2 * rank + 2])
    job.barrier()
    vector = array.array("B", [0] * 4)
    if rank == 0:
        for tag in (5, 6):
            job.world.send(array.array("B", [tag] * 4), 1, tag)
    if rank == 1:
        source = job.world.recv(vector, None, 6)
        left.append((source, vector.tolist()))
        job.world.recv(vector, 0, 5)
        left.append(vector.tolist())
    pair = job.world.split([1, 0], 1) if rank < 2 else None
    if pair is not None:
        vector = array.array("f", [float(rank)])
        pair.broadcast(vector, 0)
        left.append((pair.rank, vector.tolist()))
    memory = job.allocate(4000)
    shared = memoryview(memory.array()).cast("B").cast("f")
    shared[7] = 1.0
    job.all_reduce(shared)
    left.append(shared[7])
    return left


class Jobs(unittest.TestCase):
    def check(self, size, *options):
        for rank, left in enumerate(run(collectives, size, *options)):
            if isinstance(left, BaseException):
                raise left
            total = size * (size + 1) / 2
            expected = [[total] * 5, [total / size] * 3, [size - 1] * 2, list(range(size))]
            expected.append([size * (2 * rank), size * (2 * rank + 1)])
            if rank == 1:
                expected += [(0, [6] * 4), [5] * 4]
            if rank < 2:
                expected.append((1 - rank, [1.0]))
            expected.append(float(size))
            self.assertEqual(left, expected)

    def test_another_library(self):
        """It is told apart from a fault of the program, which may do without psring."""
        done = subprocess.run(
            [sys.executable, "-B", "-c", "import psring"],
            env={**os.environ, "PSRING_LIBRARY": "libm.so.6"},
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, 1)
        self.assertRegex(
            done.stderr.splitlines()[-1], "^ImportError: psring: libm.so.6 is not the libpsring_c of this package: "
        )

    def test_shared_memory(self):
        self.check(2)

    def test_tcp(self):
        self.check(3, "--transport", "tcp")

    def test_many_threads(self):
        """Each thread has a group of its own; all of them reduce at once."""

        def call(job):
            groups = [job.world.split(range(job.size), number) for number in range(1, 5)]
            errors = []

            def reduce(group, seed):
                try:
                    for step in range(200):
                        vector = array.array("f", [float(step + seed + group.rank)] * (1 + step * seed))
                        group.all_reduce(vector)
                        assert vector[0] == 2 * (step + seed) + 1, vector[0]
                except BaseException as error:
                    errors.append(error)

            threads = [threading.Thread(target=reduce, args=(group, i + 1)) for i, group in enumerate(groups)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return [str(error) for error in errors]

        for options in ([], ["--transport", "tcp"]):
            self.assertEqual(run(call, 2, *options), [[], []])

    def test_operations_go_on_without_the_caller(self):
        """Rank 0 starts an operation and does not call the library again until rank 1 says that it is complete."""
        reader, writer = os.pipe()

        def call(job):
            vector = array.array("f", [1.0] * 100_000)
            at, count = vector.buffer_info()
            work = job.world.all_reduce_at(at, count, psring.Type.F32, psring.Op.SUM, vector)
            if job.rank == 0:
                os.read(reader, 1)
            work.wait()
            if job.rank == 1:
                os.write(writer, b"x")
            return vector[99_999]

        for options in ([], ["--transport", "tcp"]):
            self.assertEqual(run(call, 2, *options), [2.0, 2.0])

    def test_deadlines(self):
        def call(job):
            vector = array.array("f", [1.0])
            begin = time.monotonic()
            try:
                if job.rank == 0:
                    job.all_reduce(vector, timeout=0.3)
            except psring.TimeoutError:
                waited = time.monotonic() - begin
                job.world.barrier_start()  # the reduction goes on
                return waited
            time.sleep(1.0)  # the time that rank 0 must not wait
            job.all_reduce(vector)
            job.barrier()
            return vector[0]

        for waited, total in [run(call, 2), run(call, 2, "--transport", "tcp")]:
            self.assertGreater(waited, 0.25)
            self.assertLess(waited, 0.9 * SCALE)
            self.assertEqual(total, 2.0)

    def test_what_is_in_flight_after_the_job(self):
        def call(job):
            vector = array.array("f", [1.0])
            work = job.world.recv_at(*vector.buffer_info(), psring.Type.F32, 1 - job.rank, keeps=vector)
            job.leave()
            try:
                work.wait()
            except psring.UsageError as error:
                return str(error)

        for line in run(call, 2):
            self.assertRegex(line, "recv of 1 f32 .*: this worker has left the job")

    def test_abort_reaches_all(self):
        def call(job):
            if job.rank == 1:
                raise RuntimeError("enough")
            job.barrier()

        first, second = run(call, 2)
        self.assertIsInstance(first, psring.PeerLostError)
        self.assertIn("RuntimeError: enough", str(first))
        self.assertIsInstance(second, RuntimeError)

    def test_lost_worker(self):
        def call(job):
            if job.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            job.barrier()

        first, _ = run(call, 2)
        self.assertIsInstance(first, psring.PeerLostError)
        self.assertRegex(str(first), "worker.* 1")

    def test_misuse(self):
        def call(job):
            refused = []

            def expect(function):
                try:
                    function()
                except psring.UsageError as error:
                    refused.append(str(error))

            expect(lambda: job.all_reduce(b"abcd"))
            expect(lambda: job.all_reduce(memoryview(array.array("f", [0] * 8))[::2]))
            expect(lambda: job.all_reduce(array.array("i", [1]), psring.Op.MEAN))
            expect(lambda: job.broadcast(array.array("f", [1]), 7))
            expect(lambda: job.world.all_reduce_at(0, 3, 0, 0))
            expect(lambda: job.world.all_reduce_at(0, 0, 99, 0))
            expect(lambda: job.world.all_reduce_at(0, 0, 0, 99))
            expect(lambda: job.world.all_gather_at(0, 3, None, 0))
            expect(lambda: job.world.all_gather_at(0, 0, [1, 2], 0))
            expect(lambda: job.world.split([0, 0], 1))
            expect(lambda: job.world.split([1 - job.rank], 1))
            expect(lambda: job.world.split([0, 1], 0))
            expect(lambda: job.world.split([0, 9], 1))
            expect(lambda: job.world.recv(array.array("f", [1]), job.rank))
            vector = array.array("f", [1.0])
            job.all_reduce(vector)
            return len(refused), vector[0]

        self.assertEqual(run(call, 2), [(14, 2.0), (14, 2.0)])

    def test_key_and_endpoint(self):
        with self.assertRaisesRegex(psring.DataError, "nowhere.key"):
            psring.join("127.0.0.1:1", "nowhere.key")
        with self.assertRaisesRegex(psring.UsageError, "rdzv-endpoint"):
            coordinator = Coordinator(1, options=["--join-timeout", "1"])
            try:
                psring.join("here", coordinator.key_file)
            finally:
                coordinator.close(60)


class Guide(unittest.TestCase):
    def test_program(self):
        coordinator = Coordinator(2)
        text = guide.programs()[-1].replace("127.0.0.1:7000", coordinator.endpoint).replace("job.key", coordinator.key_file)
        command = [sys.executable, "-B", "-c", text]
        processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        lines = sorted(process.communicate(timeout=60 * SCALE)[0] for process in processes)
        coordinator.close(60 * SCALE)
        self.assertEqual(lines, [f"{rank} [3.0, 3.0, 3.0, 3.0]\n" for rank in range(2)])


class Launcher(unittest.TestCase):
    def run_program(self, text, folder, **more):
        script = Path(folder) / "program.py"
        script.write_text(text)
        return subprocess.Popen(
            [sys.executable, "-B", "-m", "psring.run", "--nproc", "2", str(script), "argument"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **more,
        )

    def test_environment_and_status(self):
        with tempfile.TemporaryDirectory() as folder:
            program = self.run_program(
                "import os, sys\n"
                "words = [os.environ[name] for name in ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'MASTER_ADDR')]\n"
                "os.write(1, (' '.join([*words, sys.argv[1]]) + '\\n').encode())\n"
                "sys.exit(3 * int(os.environ['RANK']))",
                folder,
            )
            out, errors = program.communicate(timeout=60 * SCALE)
        self.assertEqual(sorted(out.splitlines()), ["0 0 2 127.0.0.1 argument", "1 1 2 127.0.0.1 argument"])
        self.assertEqual(errors.strip(), "psring.run: rank 1 ended with exit status 3")
        self.assertEqual(program.returncode, 3)

    def test_interrupt_leaves_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            program = self.run_program(
                "import signal\nprint('begun', flush=True)\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nsignal.pause()",
                folder,
            )
            self.assertIn("begun", program.stdout.readline())
            os.killpg(program.pid, signal.SIGINT)
            program.communicate(timeout=60 * SCALE)
        self.assertEqual(program.returncode, 130)
        with self.assertRaises(ProcessLookupError):
            os.killpg(program.pid, 0)


if __name__ == "__main__":
    unittest.main()
