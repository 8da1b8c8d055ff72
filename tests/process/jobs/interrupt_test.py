"""Signals: the first ends a job between two steps, the same for all workers, with all that it has saved; the second at
once; whichever of its processes gets them."""

import json
import os
import re
import signal
import unittest

from support import ENDLESS, ProgramTest, until

BOUND = 20
STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
BSP = ["ps", "ddp", "zero1", "zero3", "dp", "ps-zero3", "ps-colocated", "ps --backup-workers 1", "ps --local-reduce"]
SAVING = ["--checkpoint-every", 1000]


class Interrupt(ProgramTest):
    def launch(self, strategy, run, *arguments, **options):
        job = self.start("psring", "train", *ENDLESS, "--strategy", *strategy.split(), "--out", run, *arguments, **options)
        self.until_trains(job, run)
        return job

    def steps(self, run):
        """The numbers of the steps that are in the metrics, by worker."""
        made = {}
        for line in (self.folder / run / "metrics.jsonl").read_text().splitlines():
            entry = json.loads(line)
            if "loss" in entry:
                made.setdefault(entry["worker"], []).append(entry["step"])
        return made

    def assert_stopped(self, result, run, signal_number=signal.SIGINT):
        """At one step of all workers, whose metrics and checkpoint are there."""
        folder = self.folder / run
        self.assert_refused(result, STATUS[signal_number], "interrupted at step ", f"; checkpoint {folder}/checkpoints/step-",
                            f"; continue with: psring resume {folder}")
        step = int(re.search(r"at step (\d+);", result.err)[1])
        self.assertIn(f"step-{step:08}", os.listdir(folder / "checkpoints"))
        self.assertFalse((folder / "model.safetensors").exists())
        return step

    def test_all_workers_end_before_the_same_step(self):
        for number, strategy in enumerate(BSP):
            with self.subTest(strategy):
                run = f"run{number}"
                job = self.launch(strategy, run, *SAVING, "--workers", 3)
                job.send_signal(signal.SIGINT)
                step = self.assert_stopped(self.finish(job, BOUND), run)
                made = self.steps(run)
                self.assertEqual(sorted(made), [0, 1, 2])
                if "--backup-workers" not in strategy:  # there late workers leave steps out
                    for of_worker in made.values():
                        self.assertEqual(of_worker, list(range(step)))
                self.assert_nothing_left()

    def test_each_signal(self):
        for signal_number, status in STATUS.items():
            with self.subTest(signal_number.name):
                run = f"run{status}"
                job = self.launch("ps", run, *SAVING)
                job.send_signal(signal_number)
                self.assert_stopped(self.finish(job, BOUND), run, signal_number)

    def test_own_steps(self):
        """Without a step that is the same for all: each worker ends with its own, without waiting for the slow one."""
        for strategy in ("ps-async", "ps-ssp"):
            with self.subTest(strategy):
                job = self.launch(strategy, strategy, "--workers", 3)
                job.send_signal(signal.SIGINT)
                result = self.finish(job, BOUND)
                self.assert_refused(result, 130, "interrupted at step", "no checkpoint, as --checkpoint-every was not given")
                for of_worker in self.steps(strategy).values():
                    self.assertEqual(of_worker, list(range(len(of_worker))))

    def test_whoever_gets_it(self):
        for number, (role, rank) in enumerate([("role-worker", 1), ("role-server", 0), ("coordinator", None)]):
            with self.subTest(role):
                run = f"run{number}"
                job = self.launch("ps", run, *SAVING)
                os.kill(until(lambda: self.process_of(role, rank), f"no {role}"), signal.SIGTERM)
                self.assert_stopped(self.finish(job, BOUND), run, signal.SIGTERM)

    def test_terminal_interrupts_all(self):
        """Ctrl-C in a terminal reaches the whole foreground process group, and compare's first run ends it all."""
        job = self.start("psring", "compare", *ENDLESS, "--strategies", "ps,single", "--out", "run", prefix=["setsid"])
        self.until_trains(job, "run/ps")
        os.killpg(os.getpgid(self.process_of("compare")), signal.SIGINT)
        self.assert_refused(self.finish(job, BOUND), 130, "ps: interrupted at step")

    def test_nohup(self):
        job = self.launch("ps", "run", prefix=["nohup"])
        job.send_signal(signal.SIGHUP)
        job.send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(job, BOUND).status, 143)

    def test_second_signal(self):
        """Of a step that takes long: nobody waits for its end."""
        for attempt in range(20):
            run = f"run{attempt}"
            job = self.start("psring", "train", *ENDLESS, "--compute", "sleep:60s", "--out", run)
            until(lambda: "worker 0: server 0" in self.log(run, "worker-0"), "no worker began")
            job.send_signal(signal.SIGINT)
            until(lambda: job.stdout.readline().startswith("SIGINT: the job ends after the step under way"), "not said")
            result = self.insist(job, signal.SIGTERM)
            if "interrupted at step 0;" not in result.err:  # else the first signal came before the first step
                break
        self.assert_refused(result, 143, "interrupted; run folder ")

    def test_signals_that_come_together(self):
        """A terminal that closes sends SIGHUP twice, systemd SIGTERM and SIGHUP: that is one request, of whoever."""
        for number, role in enumerate([None, "role-worker", "role-server", "coordinator"]):
            with self.subTest(role):
                run = f"run{number}"
                job = self.launch("ps", run, *SAVING)
                pid = until(lambda: self.process_of(role), f"no {role}") if role else job.pid
                os.kill(pid, signal.SIGTERM)
                os.kill(pid, signal.SIGHUP)
                # A process that gets both at once takes SIGHUP first, whose number is lower.
                result = self.finish(job, BOUND)
                self.assertIn(result.status, (129, 143))
                self.assert_stopped(result, run, signal.Signals(result.status - 128))

    def insist(self, job, signal_number):
        """Sends signals until the job ends: those within a second of the first are no second request.

        A signal that comes while the program writes its last lines ends it at once. Shells give both ends one status.
        """
        def has_ended():
            if job.poll() is None:
                job.send_signal(signal_number)
            return job.poll() is not None

        until(has_ended, "goes on after many signals", BOUND)
        result = self.finish(job, BOUND)
        if result.status == -signal_number:
            result.status = 128 + signal_number
        return result

    def test_before_the_first_step(self):
        job = self.start("psring", "train", *ENDLESS, "--nodes", 2, "--listen", "127.0.0.1:0", "--key", self.key(), "--out",
                         "run")
        until(lambda: "waiting for the agents" in job.stdout.readline(), "no coordinator")
        job.send_signal(signal.SIGINT)
        self.assert_refused(self.finish(job, BOUND), 130, "interrupted before the first step; run folder ")

    def test_agents_of_other_hosts(self):
        """All agents end with the job, by the signal that ended it."""
        key = self.key()
        for number, of_launcher in enumerate((True, False)):
            run = f"run{number}"
            job = self.start("psring", "train", *ENDLESS, *SAVING, "--nodes", 2, "--key", key, "--out", run)
            line = until(lambda: (lambda l: l if "coordinator at" in l else "")(job.stdout.readline()), "no coordinator")
            agent = self.start("psring", "agent", "--rdzv-endpoint", line.split()[2].rstrip(":"), "--key", key, "--logs",
                               f"logs{number}")
            self.until_trains(job, run)
            (job if of_launcher else agent).send_signal(signal.SIGTERM)
            self.assert_stopped(self.finish(job, BOUND), run, signal.SIGTERM)
            self.assert_refused(self.finish(agent, BOUND), 143, "interrupted at step ")

    def test_by_hand(self):
        """A coordinator that got the signal says so."""
        key = self.key()
        for index, name in ((0, "coordinator"), (2, "worker")):
            with self.subTest(name):
                coordinator = self.start("psring", "coordinator", *ENDLESS, *SAVING, "--workers", 2, "--key", key, "--out",
                                         name)
                common = ["--rdzv-endpoint", coordinator.stdout.readline().split()[2].rstrip(":"), "--key", key]
                roles = [self.start(program, *common) for program in ("psring-server", "psring-worker", "psring-worker")]
                self.until_trains(coordinator, name)
                (coordinator, *roles)[index].send_signal(signal.SIGINT)
                results = [self.finish(process, BOUND) for process in (coordinator, *roles)]
                for result in results:
                    self.assert_refused(result, 130, "interrupted at step ")
                self.assertEqual("SIGINT: the job ends after the step under way" in results[0].out, index == 0)

    def test_after_a_loss(self):
        """A job that goes on after a loss ends as any."""
        job = self.launch("ps", "run", *SAVING, "--max-restarts", 1, "--fault", "kill:worker:1@step=200")
        until(lambda: "epoch 1: going on" in job.stdout.readline(), "it did not go on")
        job.send_signal(signal.SIGINT)
        self.assert_stopped(self.finish(job, BOUND), "run")

    def test_a_step_that_cannot_end(self):
        """All wait for frames that do not come: one signal is enough."""
        job = self.start("psring", "train", *ENDLESS, "--strategy", "ps", "--workers", 2, "--heartbeat-timeout", 2, "--out", "run",
                         "--fault", "drop:worker:1=99.9999%")
        until(lambda: "worker 0: server 0" in self.log("run", "worker-0"), "no worker began")
        job.send_signal(signal.SIGTERM)
        self.assert_refused(self.finish(job, BOUND), 143, "interrupted in a step that cannot end")

    def log(self, run, process):
        file = self.folder / run / "logs" / f"{process}.log"
        return file.read_text() if file.exists() else ""


if __name__ == "__main__":
    unittest.main()
