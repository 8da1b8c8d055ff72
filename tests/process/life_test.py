"""Lost processes and signals: the job ends in bounded time, one line names who was lost, and nothing is left over."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
import tty
import unittest

from support import BIN, ENDLESS, RANKS, TINY, ProgramTest, until

LOST = 4
SILENCE = 2.0  # seconds of --heartbeat-timeout
# Twice the silence until everybody knows, and the graces in which roles and coordinator may end by themselves.
BOUND = 2 * SILENCE + 10


class Life(ProgramTest):
    @contextlib.contextmanager
    def case(self, name):
        """A part of a test whose job may use the folder `run`: whether it fails or not, nothing of it is left to the next."""
        with self.subTest(name):
            try:
                yield
                self.assert_nothing_left()
            finally:
                self.end_all()
                shutil.rmtree(self.folder / "run", ignore_errors=True)

    def assert_survivors_name_worker_1(self, collective, survivors):
        """Each survivor was in a collective or was to start one, or was between two steps, when it heard of the loss."""
        call = rf"in {collective} #\d+.*, waiting for {RANKS}|before {collective}"
        where = rf"(\[ring\] rank \d: ({call})|before step \d+): .*worker 1"
        for survivor in survivors:
            self.assertRegex((self.folder / "run" / "logs" / f"worker-{survivor}.log").read_text(), where)

    def launch(self, *arguments):
        """A job that would not end, once its workers are at work."""
        job = self.start("psring", "train", *ENDLESS, "--workers", 2, "--servers", 2, "--out", "run",
                         "--heartbeat-timeout", SILENCE, *arguments)
        self.until_trains(job, "run")
        return job

    def hit(self, signal_number, role, rank=None, *arguments):
        job = self.launch(*arguments)
        os.kill(until(lambda: self.process_of(role, rank), f"no {role}"), signal_number)
        return self.finish(job, BOUND)

    def test_killed(self):
        for way in ("shm", "tcp"):
            for role, name in (("role-worker", "worker 1"), ("role-server", "server 1")):
                with self.case(f"{name} over {way}"):
                    result = self.hit(signal.SIGKILL, role, 1, "--transport", way)
                    self.assert_refused(result, LOST, name, "was ended by signal 9 (Killed)")
                    log = (self.folder / "run" / "logs" / "worker-1.log").read_text()
                    self.assertIn("worker 1: server 1", log, "what it printed is lost")

    def test_colocated(self):
        """A process has two roles, and both are lost with it."""
        for way in ("shm", "tcp"):
            for strategy in ("ps-colocated", "ps-zero3", "dp"):
                with self.case(f"{strategy} over {way}"):
                    job = self.start("psring", "train", *ENDLESS, "--strategy", strategy, "--placement", "colocated",
                                     "--workers", 3, "--out", "run", "--heartbeat-timeout", SILENCE, "--transport", way)
                    self.until_trains(job, "run")
                    os.kill(until(lambda: self.process_of("role-worker", 1), "no worker 1"), signal.SIGKILL)
                    result = self.finish(job, BOUND)
                    self.assert_refused(result, LOST)
                    # A busy agent may tell how the process ended only after a survivor's word for it counts as the cause.
                    self.assertRegex(result.err, r"worker 1 \(.* was ended by signal 9 \(Killed\)|(server|worker) 1 (\(|at ).* closed")
                    for survivor in (0, 2):
                        log = (self.folder / "run" / "logs" / f"worker-{survivor}.log").read_text()
                        self.assertIn(f"worker {survivor}: server {survivor if strategy != 'dp' else 0}", log)
                        self.assertRegex(log.splitlines()[-1], "(worker|server) 1 ")

    def test_local_reduce(self):
        """Those who add up with the lost one name it, as those who wait for servers do."""
        for signal_number in (signal.SIGKILL, signal.SIGSTOP):
            with self.case(signal_number.name):
                result = self.hit(signal_number, "role-worker", 1, "--local-reduce")
                self.assert_refused(result, LOST, "worker 1")

    def test_ring(self):
        """Every survivor names who was lost, in what, and its number."""
        for way in ("shm", "tcp"):
            for signal_number in (signal.SIGKILL, signal.SIGSTOP):
                with self.case(f"{signal_number.name} over {way}"):
                    job = self.start("psring", "train", *ENDLESS, "--strategy", "ddp", "--workers", 3, "--out", "run",
                                     "--heartbeat-timeout", SILENCE, "--transport", way)
                    self.until_trains(job, "run")
                    os.kill(until(lambda: self.process_of("role-worker", 1), "no worker 1"), signal_number)
                    self.assert_refused(self.finish(job, BOUND), LOST, "worker 1")
                    # The first cause is everybody's: it is one survivor's, and names the lost one.
                    self.assert_survivors_name_worker_1("all_reduce", (0, 2))

    def test_shards(self):
        """In a shard group or between them: who waits for the lost one names it."""
        for way in (["--transport", "shm"], ["--transport", "tcp"], ["--share-host-parameters"]):
            for group in ("2", "4"):
                for signal_number in (signal.SIGKILL, signal.SIGSTOP):
                    with self.case(f"{signal_number.name}, --shard-group {group} {way}"):
                        job = self.start("psring", "train", *ENDLESS, "--strategy", "zero3", "--workers", 4, "--out", "run",
                                         "--shard-group", group, "--heartbeat-timeout", SILENCE, *way)
                        self.until_trains(job, "run")
                        os.kill(until(lambda: self.process_of("role-worker", 1), "no worker 1"), signal_number)
                        self.assert_refused(self.finish(job, BOUND), LOST, "worker 1")
                        self.assert_survivors_name_worker_1(r"\w+", (0, 2, 3))

    def test_killed_by_hand(self):
        """Nobody is the parent of both: the coordinator sees the server's end, and a worker tells what it was doing with it."""
        self.key()
        for way, where in (("shm", "process {} of this host"), ("tcp", "tcp://127.0.0.1:")):
            with self.case(way):
                coordinator = self.start("psring", "coordinator", *ENDLESS, "--workers", 1, "--key", "job.key", "--out",
                                         "run", "--transport", way)
                common = ["--rdzv-endpoint", coordinator.stdout.readline().split()[2].rstrip(":"), "--key", "job.key"]
                server = self.start("psring-server", *common)
                worker = self.start("psring-worker", *common)
                self.until_trains(coordinator, "run")
                server.kill()
                words = ("server 0", where.format(server.pid), " while ", "step ")
                self.assert_refused(self.finish(worker, BOUND), LOST, *words)
                self.assert_refused(self.finish(coordinator, BOUND), LOST, "psring: server 0 (", "exited before", "worker 0 (", *words)
                self.finish(server)

    def test_metrics_of_a_run_that_fails(self):
        """The lines of the last half second, which had not left yet, are in the run folder as well."""
        for number, (fault, status) in enumerate(((["--lr", "1e30"], 3), (["--fault", "kill:worker:1@step=40"], 4))):
            for strategy in ("ps", "ddp"):
                with self.subTest(fault=fault, strategy=strategy):
                    out = f"{strategy}{number}"
                    result = self.train(*TINY, "--steps", 50, "--strategy", strategy, "--workers", 2, *fault, "--out", out)
                    self.assert_refused(result, status)
                    lines = [json.loads(line) for line in (self.folder / out / "metrics.jsonl").read_text().splitlines()]
                    # A worker that tells of a NaN has made all steps before; a survivor may be stopped before its last line.
                    told = re.search(r"worker (\d) .*step (\d+):", result.err)
                    worker, made = (int(told[1]), int(told[2])) if status == 3 else (0, 38)
                    steps = [line["step"] for line in lines if line["worker"] == worker]
                    self.assertEqual(steps[:made], list(range(made)))

    def test_faults_on_purpose(self):
        for fault, words in (("kill:worker:1@step=20", ["worker 1", "was ended by signal 9 (Killed)"]),
                             ("kill:server:0@step=20", ["server 0", "was ended by signal 9 (Killed)"]),
                             ("stop:worker:0@step=20", ["worker 0"]), ("stop:server:1@time=1s", ["server 1"])):
            with self.case(fault):
                job = self.start("psring", "train", *ENDLESS, "--workers", 2, "--servers", 2, "--out", "run",
                                 "--heartbeat-timeout", SILENCE, "--fault", fault)
                self.assert_refused(self.finish(job, BOUND + 10), LOST, *words)

    def test_stopped(self):
        for role, name in (("role-worker", "worker 0"), ("role-server", "server 0")):
            with self.case(name):
                self.assert_refused(self.hit(signal.SIGSTOP, role, 0), LOST, name)

    def test_coordinator(self):
        for signal_number in (signal.SIGKILL, signal.SIGSTOP):
            with self.case(signal_number.name):
                words = ["was ended by signal 9 (Killed)"] if signal_number == signal.SIGKILL else []
                self.assert_refused(self.hit(signal_number, "coordinator"), LOST, "the coordinator", *words)

    def test_launcher_stands_still(self):
        """For longer than its silence is borne, and goes on: its roles have, and so does the job."""
        job = self.launch()
        job.send_signal(signal.SIGSTOP)
        self.stand_still()
        job.send_signal(signal.SIGCONT)
        self.assertIsNone(job.poll())
        job.send_signal(signal.SIGTERM)
        self.assert_refused(self.finish(job, BOUND), 143, "interrupted at step")

    def test_all_stand_still(self):
        for way in ("shm", "tcp"):
            for strategy in ("ps", "ddp"):
                with self.case(f"{strategy} over {way}"):
                    servers = ["--servers", 2] if strategy == "ps" else []
                    job = self.start("psring", "train", *ENDLESS, "--strategy", strategy, "--workers", 2, *servers, "--out",
                                     "run", "--heartbeat-timeout", SILENCE, "--transport", way)
                    self.until_trains(job, "run")
                    everybody = [job.pid, *(pid for pid in self.processes() if pid != job.pid)]
                    for number in (signal.SIGSTOP, signal.SIGCONT):
                        for pid in everybody:
                            os.kill(pid, number)
                        if number == signal.SIGSTOP:
                            self.stand_still()
                    size = (self.folder / "run" / "metrics.jsonl").stat().st_size
                    until(lambda: (self.folder / "run" / "metrics.jsonl").stat().st_size > size + 100000, "it does not go on")
                    job.send_signal(signal.SIGTERM)
                    self.assert_refused(self.finish(job, BOUND), 143, "interrupted at step")

    def test_job_ends_while_launcher_stands_still(self):
        job = self.start("psring", "train", *TINY, "--compute", "sleep:5ms", "--steps", 300, "--out", "run",
                         "--heartbeat-timeout", SILENCE)
        self.until_trains(job, "run")
        job.send_signal(signal.SIGSTOP)
        until(lambda: (self.folder / "run" / "model.safetensors").exists(), "it did not end")
        self.stand_still()
        job.send_signal(signal.SIGCONT)
        self.assertEqual(self.finish(job, BOUND).status, 0)

    def stand_still(self):
        """The time that is measured, not a wait for something."""
        time.sleep(2 * SILENCE)

    def test_nobody_reads(self):
        """A terminal that takes nothing more (Ctrl-S) keeps nobody waiting."""
        master, slave = os.openpty()
        tty.setraw(slave)
        self.addCleanup(os.close, master)
        job = subprocess.Popen([BIN / "psring", "train", *ENDLESS, "--max-restarts", "3", "--out", "run", "--heartbeat-timeout",
                                str(SILENCE)], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=slave,
                               stderr=subprocess.PIPE)
        os.set_blocking(slave, False)
        self.addCleanup(os.close, slave)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(slave, b"x" * 64)
        until(lambda: self.process_of("role-worker", 1) and (self.folder / "run" / "metrics.jsonl").exists(), "no step")
        os.kill(self.process_of("role-worker", 1), signal.SIGKILL)  # an event that is told of
        self.stand_still()
        self.stand_still()
        self.assertIsNone(job.poll())
        recoveries = (self.folder / "run" / "recoveries.jsonl").read_text()
        self.assertIn('"step"', recoveries)
        job.send_signal(signal.SIGTERM)
        until(lambda: not self.process_of("role-worker"), "the job did not end")
        job.kill()
        job.communicate()

    def test_launcher_is_killed(self):
        job = self.launch()
        job.kill()
        self.assertEqual(self.finish(job, BOUND).status, -signal.SIGKILL)
        until(lambda: not self.processes(), "its processes run on", BOUND)

    def test_killed_while_starting(self):
        """Whenever it happens, the whole job goes."""
        for milliseconds in (0, 5, 20, 80):
            with self.case(milliseconds):
                job = self.start("psring", "train", *ENDLESS, "--out", f"run-{milliseconds}")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    job.wait(milliseconds / 1000)
                job.kill()
                self.finish(job)
                self.assert_nothing_left()


if __name__ == "__main__":
    unittest.main()
