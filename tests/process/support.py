"""What the tests of whole programs share: running them, finding their processes, and seeing that none is left."""

import contextlib
import dataclasses
import os
import pathlib
import random
import signal
import socket
import subprocess
import tempfile
import time
import unittest
import uuid

BIN = pathlib.Path(os.environ["PSRING_BIN"])
MARK = "PSRING_TEST_RUN"  # in the environment of all that a test starts, so that it is found wherever it went
# Seconds after which a program that should have ended has hung, on a busy machine, too; longer on slower ones.
LIMIT = 300 * float(os.environ.get("PSRING_TEST_TIME_SCALE", "1"))

# Variables of launchers, which a test may have inherited.
OTHERS = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
LAUNCHERS = ("SLURM_", "OMPI_", "PMI_", "PMIX_", "PALS_", "ALPS_", "FLUX_", "MV2_", "MVP_", "MPI_LOCAL", "JSM_", "HOROVOD_", "DMLC_", "TORCHELASTIC_")

RANKS = r"ranks? [\d, and]+"  # those whom a collective waits for
TINY = ["--data", "synthetic", "--model", "mlp:16-16-4", "--global-batch", "12"]
ENDLESS = [*TINY, "--steps", "100000000"]


@dataclasses.dataclass
class Result:
    status: int
    out: str
    err: str
    seconds: float


def arguments_of(pid):
    """The command line of a process that runs; none where it has ended."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
        if stat.rsplit(")", 1)[1].split()[0] in "ZX":
            return None
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
    except (FileNotFoundError, ProcessLookupError):
        return None


def free_port():
    """A free port below those that the kernel hands out: a connection could get one of these before a process listens there."""
    while True:
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("", random.SystemRandom().randrange(20000, 32000)))
            return probe.getsockname()[1]


def until(condition, what, limit=LIMIT):
    """What the condition gives, once that is true."""
    deadline = time.monotonic() + limit
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"still not after {limit} s: {what}")
        time.sleep(0.01)
    return value


class ProgramTest(unittest.TestCase):
    """A test in a folder of its own, which is its working directory, and at whose end nothing of it may run."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="psring-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.mark = uuid.uuid4().hex
        self.environment = {**os.environ, MARK: self.mark}
        for name in list(self.environment):  # of a launcher that runs the tests
            if name in OTHERS or name.startswith(LAUNCHERS):
                del self.environment[name]
        self.started = []
        self.addCleanup(self.end_all)

    def tearDown(self):
        self.assert_nothing_left()

    def start(self, program, *arguments, prefix=(), env=None, cwd=None):
        process = subprocess.Popen(
            [*prefix, BIN / program, *map(str, arguments)],
            cwd=cwd or self.folder,
            env={**self.environment, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def finish(self, process, limit=LIMIT):
        begin = time.monotonic()
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            self.fail(f"hangs after {limit} s: {process.args}")
        return Result(process.returncode, out, err, time.monotonic() - begin)

    def run_program(self, program, *arguments, limit=LIMIT, **options):
        return self.finish(self.start(program, *arguments, **options), limit)

    def until_trains(self, job, run):
        """Waits for the first step's metrics of a job that was started."""
        metrics = self.folder / run / "metrics.jsonl"
        until(lambda: (metrics.exists() and metrics.stat().st_size > 0) or job.poll() is not None, "no step was made")
        if job.poll() is not None:
            self.fail(f"ended before its first step: {self.finish(job)}")

    def train(self, *arguments, **options):
        return self.run_program("psring", "train", *arguments, **options)

    def assert_done(self, result):
        self.assertEqual((result.status, result.err), (0, ""), result)

    def assert_refused(self, result, status, *words):
        """One line on stderr, which says all of `words`, and the status of the design."""
        self.assertEqual(result.status, status, result)
        lines = result.err.splitlines()
        self.assertEqual(len(lines), 1, result.err)
        self.assertRegex(lines[0], r"^psring: \S")
        self.assertEqual(lines[0].count("psring: "), 1, lines[0])
        for word in words:
            self.assertIn(word, lines[0])

    def processes(self):
        """The processes of this test that run, by number: their command lines."""
        found = {}
        wanted = f"{MARK}={self.mark}".encode()
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if wanted not in (entry / "environ").read_bytes().split(b"\0"):
                    continue
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            if arguments := arguments_of(entry.name):
                found[int(entry.name)] = arguments
        return found

    def process_of(self, role, rank=None):
        """The number of the process of a job that plays the role; none where it does not run."""
        for pid, arguments in self.processes().items():
            if role not in arguments[:3]:
                continue
            if rank is None or arguments[arguments.index("--rank") + 1] == str(rank):
                return pid
        return None

    def assert_nothing_left(self):
        until(lambda: not self.processes(), f"left running: {self.processes()}", limit=LIMIT / 10)
        self.assertEqual([str(key) for key in self.folder.rglob("*.key") if key.parent != self.folder], [])
        own = [name for name in os.listdir("/dev/shm") if "psring" in name]
        self.assertEqual(own, [], "in /dev/shm")

    def end_all(self):
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for process in self.started:
            process.wait()
            process.stdout.close()
            process.stderr.close()
        self.started.clear()

    def file(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def key(self, name="job.key"):
        self.assert_done(self.run_program("psring", "keygen", name))
        return name

    def model(self, run):
        return (self.folder / run / "model.safetensors").read_bytes()
