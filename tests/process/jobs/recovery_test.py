"""Lost processes of jobs that go on: the model is bitwise identical to the undisturbed job's, and nothing is left over."""

import json
import os
import re
import shutil
import signal
import unittest

from support import BIN, ENDLESS, TINY, ProgramTest, until

STEPS = 400
SILENCE = 2.0  # seconds of --heartbeat-timeout
JOB = [*TINY, "--steps", STEPS, "--workers", 2, "--seed", 5, "--momentum", 0.9, "--heartbeat-timeout", SILENCE]
PS = ["--strategy", "ps", "--servers", 2]
SAVING = ["--checkpoint-every", 50]


class Recovery(ProgramTest):
    def model(self, name):
        return (self.folder / name / "model.safetensors").read_bytes()

    def undisturbed(self, *arguments):
        self.assert_done(self.train(*JOB, *arguments, "--out", "plain"))
        return self.model("plain")

    def goes_on(self, wanted, fault, *arguments):
        """The job ends well, with those bits; what it said, and its summary."""
        result = self.train(*JOB, *arguments, "--max-restarts", 3, "--fault", fault, "--out", "run")
        self.assert_done(result)
        self.assertEqual(self.model("run"), wanted, f"{fault} {arguments}: other bits")
        summary = json.loads((self.folder / "run" / "summary.json").read_text())
        lines = [json.loads(line) for line in (self.folder / "run" / "metrics.jsonl").read_text().splitlines()]
        steps = [(line["worker"], line["step"]) for line in lines if "loss" in line]
        self.assertEqual(len(steps), len(set(steps)), "a step that was repeated counts twice")
        for path in (self.folder / "run").glob("**/*"):
            if path.is_file():
                path.unlink()
        return result.out, summary

    def test_servers_keep_the_state(self):
        wanted = self.undisturbed(*PS)
        for way in ("shm", "tcp"):
            for rank in (0, 1):
                out, summary = self.goes_on(wanted, f"kill:worker:{rank}@step=200", *PS, "--transport", way)
                self.assertIn(f"worker {rank} (", out)
                self.assertRegex(out, "epoch 1: going on with step (199|200)")
                self.assertEqual((summary["losses"], len(summary["recovery_s"])), (1, 1))
        self.goes_on(wanted, "kill:worker:0@step=100 kill:worker:1@step=300", *PS)
        self.goes_on(wanted, "kill:worker:0@step=100 kill:worker:1@step=100", *PS)

    def test_replicas(self):
        wanted = self.undisturbed(*PS, "--clip-norm", 0.5)
        for way in ("shm", "tcp"):
            for rank in (0, 1):
                out, _ = self.goes_on(wanted, f"kill:server:{rank}@step=200", *PS, "--clip-norm", 0.5, "--replicas", 1,
                                      "--transport", way)
                self.assertIn(f"the replica of server {rank} takes its place", out)
        for fault in ("kill:server:2@step=200", "kill:server:0@step=100 kill:server:2@step=200", "kill:worker:1@step=200"):
            out, _ = self.goes_on(wanted, fault, *PS, "--clip-norm", 0.5, "--replicas", 1)
            self.assertNotIn("begins again", out)

    def test_workers_keep_the_state(self):
        wanted = self.undisturbed("--strategy", "ddp")
        for way in ("shm", "tcp"):
            for rank in (0, 1):
                out, _ = self.goes_on(wanted, f"kill:worker:{rank}@step=200", "--strategy", "ddp", "--transport", way)
                self.assertIn("epoch 1: going on with step", out)
                self.assertNotIn("begins again", out)

    def test_checkpoints_keep_the_state(self):
        """Where nobody has all that is needed, everybody goes back, and it is said how far."""
        for strategy, fault in ((PS, "kill:server:1@step=220"), (["--strategy", "zero3"], "kill:worker:1@step=220"),
                                (["--strategy", "ps-colocated"], "kill:worker:0@step=220"),
                                (["--strategy", "ps", "--optimizer-on", "worker"], "kill:worker:1@step=220"),
                                (["--strategy", "ps", "--recovery", "checkpoint"], "kill:worker:0@step=220")):
            wanted = self.undisturbed(*strategy)
            out, _ = self.goes_on(wanted, fault, *strategy, *SAVING)
            self.assertRegex(out, r"the job begins again with step 200, \d+ steps are repeated")
            (self.folder / "plain" / "job.json").unlink()
        wanted = self.undisturbed(*PS)
        out, _ = self.goes_on(wanted, "kill:server:1@step=220", *PS)
        self.assertIn("the job begins again with step 0, ", out)

    def test_stopped(self):
        """Whoever is silent is killed, and started again."""
        for strategy, fault in ((PS, "stop:worker:1@step=200"), (["--strategy", "ddp"], "stop:worker:0@step=200"),
                                ([*PS, "--replicas", 1], "stop:server:0@step=200")):
            wanted = self.undisturbed(*strategy)
            out, _ = self.goes_on(wanted, fault, *strategy)
            silence = re.search(r"nothing from (?:worker|server) \d \(.* for ([\d.]+) s", out)
            self.assertTrue(silence, out)
            self.assertGreaterEqual(float(silence[1]), 2)
            (self.folder / "plain" / "job.json").unlink()

    def test_coordinator(self):
        job = [*TINY, "--steps", 30000, "--workers", 2, *PS, "--seed", 5, "--heartbeat-timeout", SILENCE]
        self.assert_done(self.train(*job, "--out", "plain"))
        for signal_number in (signal.SIGKILL, signal.SIGSTOP):
            with self.subTest(signal_number.name):
                out = f"run-{signal_number.name}"
                run = self.start("psring", "train", *job, "--max-restarts", 2, "--out", out)
                self.until_trains(run, out)
                os.kill(until(lambda: self.process_of("coordinator"), "no coordinator"), signal_number)
                result = self.finish(run)
                self.assert_done(result)
                self.assertIn("the coordinator was ended by signal 9 (Killed): started again", result.out)
                self.assertEqual(self.model(out), self.model("plain"))
                summary = json.loads((self.folder / out / "summary.json").read_text())
                for check in summary["bytes"]:
                    self.assertEqual(check["measured"], check["predicted"], "what it was told of is lost")
                steps = [json.loads(line) for line in (self.folder / out / "metrics.jsonl").read_text().splitlines()]
                made = [(line["worker"], line["step"]) for line in steps if "loss" in line]
                self.assertEqual(sorted(made), [(worker, step) for worker in (0, 1) for step in range(30000)],
                                 "lines of metrics are lost, or there twice")

    def test_coordinator_that_is_lost_while_the_job_recovers(self):
        """The next coordinator records that the job continues."""
        job = self.start("psring", "train", *ENDLESS, "--workers", 2, *PS, "--max-restarts", 9, "--heartbeat-timeout", 5, "--out", "run")
        self.until_trains(job, "run")
        records = self.folder / "run" / "recoveries.jsonl"
        survivor, victim = (until(lambda: self.process_of("role-worker", rank), "no worker") for rank in (0, 1))
        coordinator = until(lambda: self.process_of("coordinator"), "no coordinator")
        os.kill(survivor, signal.SIGSTOP)  # nothing continues without it
        os.kill(victim, signal.SIGKILL)
        until(lambda: records.exists() and "lost" in records.read_text(), "no loss is recorded")
        os.kill(coordinator, signal.SIGKILL)
        until(lambda: self.process_of("coordinator") not in (None, coordinator), "no second coordinator")
        os.kill(survivor, signal.SIGCONT)
        until(lambda: "seconds" in records.read_text(), "the end of the recovery is not recorded")
        os.kill(job.pid, signal.SIGINT)
        self.finish(job)

    def test_program_that_is_built_anew(self):
        """Who is started again is the program that the job began with, whatever has its path by then."""
        programs = self.folder / "programs"
        programs.mkdir()
        shutil.copy2(BIN / "psring", programs)
        run = self.start(programs / "psring", "train", *TINY, "--steps", 20000, "--workers", 2, *PS, "--max-restarts", 2,
                         "--out", "run")
        self.until_trains(run, "run")
        other = self.file("other", b"#!/bin/sh\nexit 9\n")
        other.chmod(0o755)
        os.replace(other, programs / "psring")
        for role in ("role-worker", "coordinator"):
            first = until(lambda: self.process_of(role), f"no {role}")
            os.kill(first, signal.SIGKILL)
            until(lambda: self.process_of(role) not in (None, first) or run.poll() is not None, f"no {role} again")
        result = self.finish(run)
        self.assert_done(result)
        self.assertIn("the coordinator was ended by signal 9 (Killed): started again", result.out)

    def test_enough_is_enough(self):
        result = self.train(*JOB, *PS, "--max-restarts", 1, "--fault", "kill:worker:0@step=100 kill:worker:1@step=200",
                            "--out", "run")
        self.assert_refused(result, 4, "worker 1 (", "was ended by signal 9 (Killed)", "--max-restarts 1: no more")

    def test_followers_alone(self):
        result = self.train(*JOB, *PS, "--replicas", 1, "--fault", "kill:server:0@step=100", "--out", "run")
        self.assert_refused(result, 4, "server 0 (", "no follower or server may take its place without --max-restarts")

    def test_refused(self):
        for arguments, words in ((["--replicas", 2], ["--replicas: expected 0 or 1, got 2"]),
                                 (["--strategy", "ddp", "--replicas", 1], ["--replicas", "ddp"]),
                                 (["--replicas", 1, "--consistency", "asp"], ["--replicas 1: --consistency asp"]),
                                 (["--recovery", "luck"], ["--recovery", "'luck'"])):
            with self.subTest(arguments=arguments):
                self.assert_refused(self.train(*JOB, *arguments, "--out", "run"), 2, *words)


if __name__ == "__main__":
    unittest.main()
