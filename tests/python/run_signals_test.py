"""psring.run and signals: whenever they come, it ends in time with the documented status, and so do its processes."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

SCALE = float(os.environ.get("PSRING_TEST_TIME_SCALE", "1"))
BOUND = 60 * SCALE  # for a start on a busy machine; a signal itself is followed within 5 s
STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGQUIT: 131}
SEED = 5

# psring.run with a signal that arrives inside Popen.poll, between taking its lock and the part that releases it.
INSIDE_POLL = """
import os, signal, subprocess, sys, threading
from psring.run import main

class Lock:
    armed = True

    def __init__(self):
        self.lock = threading.Lock()

    def acquire(self, *arguments, **more):
        got = self.lock.acquire(*arguments, **more)
        if got and Lock.armed:
            Lock.armed = False
            os.kill(os.getpid(), signal.SIGTERM)
        return got

    def release(self):
        self.lock.release()

    def __enter__(self):
        self.acquire()

    def __exit__(self, *_):
        self.release()

begin = subprocess.Popen.__init__

def init(self, *arguments, **more):
    begin(self, *arguments, **more)
    self._waitpid_lock = Lock()

subprocess.Popen.__init__ = init
sys.exit(main(["--nproc", "2", "--no-python", "sleep", "1000"]))
"""


def children(pid):
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


class Signals(unittest.TestCase):
    def start(self, *command, **options):
        job = subprocess.Popen([sys.executable, "-B", *command], start_new_session=True, **options)
        self.addCleanup(self.end, job)
        return job

    def end(self, job):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()

    def until(self, condition, what):
        deadline = time.monotonic() + BOUND
        while not (value := condition()):
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.005)
        return value

    def assert_gone(self, pids):
        self.until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), f"still there: {pids}")

    def test_inside_poll(self):
        job = self.start("-c", INSIDE_POLL)
        self.assertEqual(job.wait(BOUND), 143)

    def test_at_any_moment(self):
        rng = random.Random(SEED)
        for attempt in range(12):
            how = rng.choice(list(STATUS))
            with self.subTest(attempt=attempt, signal=how.name):
                job = self.start("-m", "psring.run", "--nproc", "4", "--no-python", "sleep", "1000")
                begun = self.until(lambda: children(job.pid), "no process")
                time.sleep(rng.uniform(0, 0.1))  # the moment that is drawn
                begun += children(job.pid)
                job.send_signal(how)
                self.assertEqual(job.wait(BOUND), STATUS[how])
                self.assert_gone(begun)

    def test_a_process_that_does_not_end(self):
        """It is killed after 4 s, or at once by a second signal or SIGQUIT."""
        for signals in ([signal.SIGTERM], [signal.SIGTERM, signal.SIGINT], [signal.SIGQUIT]):
            with self.subTest([how.name for how in signals]):
                job = self.start("-m", "psring.run", "--no-python", "sh", "-c", "trap '' TERM INT QUIT; echo begun; sleep 1000",
                                 stdout=subprocess.PIPE)
                self.assertEqual(job.stdout.readline(), b"begun\n")
                begun = children(job.pid)
                for number, how in enumerate(signals):
                    time.sleep(1.1 * number)  # signals within a second are one request
                    job.send_signal(how)
                self.assertEqual(job.wait(BOUND), STATUS[signals[0]])
                job.stdout.close()
                self.assert_gone(begun)

    def test_a_closed_terminal(self):
        """Its last lines cannot be written: it keeps its status."""
        read, write = os.pipe()
        os.close(read)
        for program, status in (("false", 1), ("no-such-program", 2)):
            job = self.start("-m", "psring.run", "--no-python", program, stdout=write, stderr=write)
            self.assertEqual(job.wait(BOUND), status)
        os.close(write)

    def test_temporary_files(self):
        """Ranks that a signal ends leave those of their jobs to psring.run."""
        program = "import os, psring, time\njob = psring.init()\nos.write(1, b'%d\\n' % job.rank)\ntime.sleep(1000)\n"
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "joined.py").write_text(program)
            environment = {**os.environ, "TMPDIR": folder}
            job = self.start(
                "-m", "psring.run", "--nproc", "2", "joined.py", cwd=folder, stdout=subprocess.PIPE, env=environment
            )
            self.assertEqual(sorted(job.stdout.readline() for _ in range(2)), [b"0\n", b"1\n"])
            job.terminate()
            self.assertEqual(job.wait(BOUND), 143)
            job.stdout.close()
            self.assertEqual([name for name in os.listdir(folder) if name.startswith("psring")], [])

    def test_ignored(self):
        job = self.start("-m", "psring.run", "--no-python", "sleep", "1000",
                         preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.until(lambda: children(job.pid), "no process")
        job.send_signal(signal.SIGHUP)
        job.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(BOUND), 143)


if __name__ == "__main__":
    unittest.main()
