"""Output that cannot be written, of jobs: a terminal that closes, a reader that leaves, a full disk. The job ends as without
it, with its own status, and its run folder can be read and continued."""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import termios
import threading
import time
import tty
import unittest

from support import BIN, ENDLESS, LIMIT, TINY, ProgramTest, until

SAVING = ["--checkpoint-every", 50]
HANG_UP = 129


class Terminal(ProgramTest):
    """Programs that run in a terminal of their own: the leader of a session, whose terminal the test may close."""

    def in_terminal(self, *arguments, err=None):
        ours, theirs = os.openpty()
        process = subprocess.Popen(
            [BIN / "psring", *map(str, arguments)], cwd=self.folder, env=self.environment, stdin=theirs, stdout=theirs,
            stderr=err or theirs, start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(theirs)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process, ours

    def read_until(self, terminal, what):
        """The text of the terminal up to the line that begins so."""
        text = b""
        while not any(line.startswith(what) and line.endswith(b"\n") for line in text.splitlines(keepends=True)):
            text += os.read(terminal, 4096)  # fails where the program has ended
        return text.decode()

    def reading(self, terminal):
        """Reads the terminal as people do, until it is closed."""
        def read():
            with contextlib.suppress(OSError):
                while os.read(terminal, 4096):
                    pass

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        return thread

    def until_saved(self, process, run):
        folder = self.folder / run / "checkpoints"
        complete = lambda: folder.exists() and any((entry / "manifest.json").exists() for entry in folder.glob("step-????????"))
        until(lambda: complete() or process.poll() is not None, "no checkpoint")
        self.assertIsNone(process.poll())

    def assert_usable(self, run, resumes=True):
        """The run can be reported, and goes on from its newest checkpoint."""
        self.assert_done(self.run_program("psring", "report", run))
        for line in (self.folder / run / "metrics.jsonl").read_text().splitlines():
            json.loads(line)
        if not resumes:
            return
        job = self.start("psring", "resume", run)
        line = job.stdout.readline() or self.finish(job).err
        self.assertRegex(line, r"part 1 continues at step \d+ of 100000000, from .*/checkpoints/step-")
        job.send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(job).status, 143)

    def close(self, process, terminal):
        """What a terminal that closes does: SIGHUP, and every write fails."""
        os.close(terminal)
        self.assertEqual(process.wait(LIMIT), HANG_UP)
        self.assert_nothing_left()

    def test_train(self):
        job, terminal = self.in_terminal("train", *ENDLESS, *SAVING, "--out", "run")
        self.until_saved(job, "run")
        self.close(job, terminal)
        self.assert_usable("run")

    def test_train_between_its_prints(self):
        """The terminal takes no signal with it: the job goes on without it, and ends by another signal."""
        ours, theirs = os.openpty()
        job = subprocess.Popen([BIN / "psring", "train", *map(str, ENDLESS + SAVING), "--out", "run"], cwd=self.folder,
                               env=self.environment, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, start_new_session=True)
        self.addCleanup(job.wait)
        self.addCleanup(job.kill)
        os.close(theirs)
        self.until_saved(job, "run")
        os.close(ours)
        job.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(LIMIT), 143)
        self.assert_nothing_left()
        self.assert_usable("run")

    def test_compare(self):
        job, terminal = self.in_terminal("compare", *ENDLESS, *SAVING, "--strategies", "single,ps", "--out", "run")
        self.until_saved(job, "run/single")
        self.close(job, terminal)
        self.assert_usable("run/single", resumes=False)

    def test_coordinator(self):
        key = self.key()
        coordinator, terminal = self.in_terminal("coordinator", *ENDLESS, *SAVING, "--workers", 2, "--key", key, "--out", "run")
        line = self.read_until(terminal, b"coordinator at ")
        common = ["--rdzv-endpoint", line.split()[2].rstrip(":"), "--key", key]
        roles = [self.start(program, *common) for program in ("psring-server", "psring-worker", "psring-worker")]
        self.until_saved(coordinator, "run")
        os.close(terminal)
        self.assertEqual(coordinator.wait(LIMIT), HANG_UP)
        for role in roles:
            self.assert_refused(self.finish(role), HANG_UP, "interrupted at step ")
        self.assert_nothing_left()
        self.assert_usable("run", resumes=False)

    def test_while_it_is_read(self):
        """The terminal closes while text is on its way."""
        job, terminal = self.in_terminal("train", *ENDLESS, *SAVING, "--out", "run")
        reader = self.reading(terminal)
        self.until_saved(job, "run")
        with contextlib.suppress(OSError):
            tty.setraw(terminal)
        job.send_signal(signal.SIGHUP)
        self.assertEqual(job.wait(LIMIT), HANG_UP)
        reader.join(LIMIT)
        os.close(terminal)
        self.assert_usable("run")

    def test_a_terminal_that_takes_nothing(self):
        """Ctrl-S keeps nobody from ending a job."""
        job, terminal = self.in_terminal("train", *ENDLESS, *SAVING, "--out", "run")
        self.until_saved(job, "run")
        os.write(terminal, b"\x13")
        job.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(LIMIT), 143)
        os.close(terminal)
        self.assert_nothing_left()
        self.assert_usable("run")


class LostErrors(ProgramTest):
    """The line that says why a program fails cannot be written: it keeps its status."""

    COMMANDS = [(2, ["train", *TINY, "--strategy", "none"]), (2, ["compare", *TINY, "--strategies", "none"]), (2, ["coordinator"]),
                (3, ["report", "nowhere"]), (3, ["train", "--data", "csv:nowhere", "--model", "mlp:16-4"]), (2, ["plan"])]

    def statuses(self, **files):
        return [subprocess.run([BIN / "psring", *map(str, command)], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                               timeout=LIMIT, **files).returncode for _, command in self.COMMANDS]

    def test_a_full_disk(self):
        expected = [status for status, _ in self.COMMANDS]
        with open("/dev/full", "w") as full:
            self.assertEqual(self.statuses(stdout=subprocess.DEVNULL, stderr=full), expected)
            self.assertEqual(self.statuses(stdout=full, stderr=full), expected)

    def test_a_reader_that_has_gone(self):
        read, write = os.pipe()
        os.close(read)
        self.addCleanup(os.close, write)
        self.assertEqual(self.statuses(stdout=subprocess.DEVNULL, stderr=write), [status for status, _ in self.COMMANDS])

    def test_a_job_on_a_full_disk(self):
        with open("/dev/full", "w") as full:
            job = subprocess.Popen([BIN / "psring", "train", *map(str, ENDLESS + SAVING), "--out", "run"], cwd=self.folder,
                                   env=self.environment, stdin=subprocess.DEVNULL, stdout=full, stderr=full)
        self.addCleanup(job.wait)
        self.addCleanup(job.kill)
        self.until_trains_without_pipes(job, "run")
        job.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(LIMIT), 143)

    def until_trains_without_pipes(self, job, run):
        metrics = self.folder / run / "metrics.jsonl"
        until(lambda: (metrics.exists() and metrics.stat().st_size > 0) or job.poll() is not None, "no step was made")
        self.assertIsNone(job.poll())


class TemporaryFolders(ProgramTest):
    """Commands that a signal ends leave no temporary folder, which may hold a key."""

    COMMANDS = [["psring-bench", "push_pull", "-e", "1G"], ["psring-bench", "all_reduce", "-e", "1G", "--rounds", 100],
                ["psring", "step", "--steps", 20000]]

    def begin(self, command, **files):
        process = subprocess.Popen([BIN / command[0], *map(str, command[1:])], cwd=self.folder, stdin=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, env={**self.environment, "TMPDIR": str(self.folder / "tmp")}, **files)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        until(lambda: os.listdir(self.folder / "tmp") or process.poll() is not None, "no temporary folder")
        self.assertIsNone(process.poll())
        return process

    def test_signals(self):
        (self.folder / "tmp").mkdir()
        for command in self.COMMANDS:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
                with self.subTest(command, number=number):
                    process = self.begin(command, stdout=subprocess.DEVNULL)
                    process.send_signal(number)
                    self.assertEqual(process.wait(LIMIT), -number)
                    self.assertEqual(os.listdir(self.folder / "tmp"), [])

    def test_a_reader_that_leaves(self):
        (self.folder / "tmp").mkdir()
        for command in self.COMMANDS[:2]:
            with self.subTest(command):
                read, write = os.pipe()
                process = self.begin(command, stdout=write)
                os.close(write)
                os.close(read)
                self.assertEqual(process.wait(LIMIT), -signal.SIGPIPE)
                self.assertEqual(os.listdir(self.folder / "tmp"), [])


class LeavingReader(ProgramTest):
    """psring train 2>&1 | head -1: the reader has left, and the job ends after the step, as by any signal."""

    def test_head(self):
        for command, run in ((["train", *ENDLESS, *SAVING, "--out", "run"], "run"),
                             (["compare", *ENDLESS, *SAVING, "--strategies", "single,ps", "--out", "runs"], "runs/single")):
            with self.subTest(command[0]):
                read, write = os.pipe()
                job = subprocess.Popen([BIN / "psring", *map(str, command)], cwd=self.folder, env=self.environment,
                                       stdin=subprocess.DEVNULL, stdout=write, stderr=write)
                self.addCleanup(job.wait)
                self.addCleanup(job.kill)
                os.close(write)
                metrics = self.folder / run / "metrics.jsonl"
                until(lambda: metrics.exists() and metrics.stat().st_size > 0, "no step")
                os.close(read)
                os.kill(until(lambda: self.process_of("role-worker", 0), "no worker"), signal.SIGSTOP)
                os.kill(self.process_of("role-worker", 0), signal.SIGCONT)
                job.send_signal(signal.SIGTERM)
                self.assertIn(job.wait(LIMIT), (143, 128 + signal.SIGPIPE))
                self.assert_nothing_left()
                self.assertTrue(list((self.folder / run / "checkpoints").glob("step-????????")))
                self.assert_done(self.run_program("psring", "report", run))


if __name__ == "__main__":
    unittest.main()
