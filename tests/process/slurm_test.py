"""Jobs under a real Slurm with two nodes: the bits of one host, uneven placement, signals, requeueing, a lost node.

Skipped, with the reason, where Slurm is missing or namespaces may not be made.
"""

import json
import shutil
import sys
import tempfile
import time
import unittest

from slurm_cluster import Slurm, ip, reason_to_skip
from support import BIN, ENDLESS, TINY, ProgramTest, until

PSRING = BIN / "psring"
JOB = [*TINY, "--optimizer", "adam", "--lr", "0.01", "--steps", 20]
LONG = [*TINY, "--optimizer", "adam", "--lr", "0.01", "--steps", 50000, "--checkpoint-every", 5000]


class SlurmJobs(ProgramTest):
    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory(prefix="psring-slurm-")
        cls.addClassCleanup(cls.place.cleanup)
        cls.slurm = Slurm(cls.place.name + "/slurm").__enter__()
        cls.addClassCleanup(cls.slurm.__exit__)

    def setUp(self):
        super().setUp()
        until(self.slurm.idle, "a node is not idle")

    def srun(self, *words, **options):
        return self.slurm.run("srun", *words, folder=self.folder, env=self.environment, **options)

    def batch(self, *srun, before="", options=()):
        """Submits a script that runs psring under srun, and returns the number of the job."""
        words = " ".join(map(str, srun))
        script = self.file("job.sh", f"#!/bin/bash\n{before}\nexec srun {words}\n".encode())
        return self.slurm.run("sbatch", "--parsable", "-N2", "-o", "job.out", "-e", "job.err", "--open-mode=append", *options,
                              script, folder=self.folder, env=self.environment).stdout.strip()

    def until_ended(self, job, states=("COMPLETED",)):
        ended = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        until(lambda: self.slurm.state(job) in ended, f"job {job} does not end")
        self.assertIn(self.slurm.state(job), states, self.output() + self.slurm.logs())

    def output(self):
        return "".join(path.read_text() for path in sorted(self.folder.glob("job.[oe]*")))

    def errors(self):
        return [line for line in self.output().splitlines() if line.startswith("psring: ")]

    def until_step(self, run, step):
        metrics = self.folder / run / "metrics.jsonl"
        until(lambda: metrics.exists() and f'"step":{step},' in metrics.read_text().replace(" ", ""), f"step {step} of {run}")

    def test_same_bits_as_on_one_host(self):
        for strategy in (["ps", "--servers", 2], ["ddp"]):
            with self.subTest(strategy[0]):
                name = strategy[0]
                self.assert_done(self.train(*JOB, "--strategy", *strategy, "--workers", 2, "--out", f"{name}-one"))
                job = self.batch("-n2", PSRING, "train", *JOB, "--strategy", *strategy, "--out", f"{name}-two")
                self.until_ended(job)
                self.assertEqual(self.model(f"{name}-two"), self.model(f"{name}-one"))
                run = json.loads((self.folder / f"{name}-two" / "run.json").read_text())
                self.assertEqual(set(run["hosts"].values()), {"psa", "psb"})
                self.assertEqual(run["launch"]["slurm_job"], job)
        self.assertEqual(list((self.folder / ".psring").iterdir()), [])

    def test_three_tasks_and_one(self):
        self.assert_done(self.train(*JOB, "--strategy", "ddp", "--workers", 4, "--out", "one"))
        done = self.srun("-N2", "-n4", "-m", "plane=3", PSRING, "train", *JOB, "--strategy", "ddp", "--out", "two")
        self.assertEqual(done.stderr, "")
        self.assertEqual(self.model("two"), self.model("one"))
        hosts = json.loads((self.folder / "two" / "run.json").read_text())["hosts"]
        self.assertEqual([hosts[f"worker {i}"] for i in range(4)], ["psa", "psa", "psa", "psb"])

    def test_mpirun_on_two_nodes(self):
        """mpirun starts its helpers by srun, so that these are jobs of MPI on several hosts. Servers add up in the order
        of ranks wherever workers are; a ring of several hosts does not."""
        self.assert_done(self.train(*JOB, "--strategy", "ps", "--servers", 2, "--workers", 4, "--out", "one"))
        for name, words in {"open-mpi": ["mpirun.openmpi", "--allow-run-as-root"], "mpich": ["mpirun.mpich"]}.items():
            if not shutil.which(words[0]):
                continue
            with self.subTest(name):
                command = [*words, "-n", 4, PSRING, "train", *JOB, "--strategy", "ps", "--servers", 2, "--meeting", '"$(mktemp -d -p .)"', "--out", name]
                job = self.slurm.run("sbatch", "--parsable", "-N2", "-n4", "--ntasks-per-node=2", "-o", "job.out", "-e", "job.err",
                                     "--wrap", " ".join(map(str, command)), folder=self.folder, env=self.environment).stdout.strip()
                self.until_ended(job)
                self.assertEqual(self.model(name), self.model("one"))
                hosts = json.loads((self.folder / name / "run.json").read_text())["hosts"]
                self.assertEqual([hosts[f"worker {i}"] for i in range(4)], ["psa", "psa", "psb", "psb"])

    def test_refusals(self):
        for words, said in ((["train", *JOB, "--workers", 3], "--workers 3: srun started 2 tasks"),
                            (["train", *JOB, "--nodes", 2], "--nodes 2: srun started 2 tasks"),
                            (["train", *JOB, "--strategy", "single"], "--strategy single: has one worker"),
                            (["train", *JOB, "--listen", "127.0.0.1:0"], "--listen 127.0.0.1:0: tasks on other hosts"),
                            (["train", *JOB, "--requeue"], "--requeue: the run continues from a checkpoint"),
                            (["train", *JOB, "--launcher", "mpi"], "--launcher mpi: this process is no task"),
                            (["compare", *JOB, "--strategies", "ps,ddp"], "compare: starts all of its processes itself")):
            with self.subTest(said):
                result = self.srun("-N2", "-n2", PSRING, *words, "--out", "run", check=False)
                self.assertEqual(result.returncode, 2, result)
                lines = [line for line in result.stderr.splitlines() if line.startswith("psring: ")]
                self.assertEqual(len(set(lines)), 1, result.stderr)
                self.assertIn(said, lines[0])
                self.assertFalse((self.folder / "run").exists())

    def test_outside_srun(self):
        job = self.slurm.run("sbatch", "--parsable", "-N2", "-o", "job.out", "-e", "job.err", "--wrap",
                             " ".join(map(str, [PSRING, "train", *JOB, "--out", "run"])), folder=self.folder,
                             env=self.environment).stdout.strip()
        self.until_ended(job)
        self.assertIn(f"warning: Slurm job {job} has 2 nodes, and this job uses only this host", self.output())

    def test_cancelled(self):
        job = self.batch("-n2", PSRING, "train", *ENDLESS, "--strategy", "ddp", "--out", "run")
        self.until_step("run", 10)
        self.slurm.run("scancel", job)
        self.until_ended(job, ["CANCELLED"])
        self.assert_nothing_left()

    def test_requeued(self):
        """At its signal the job saves a checkpoint and ends; Slurm starts it again, and it ends in the same bits."""
        self.assert_done(self.train(*LONG, "--strategy", "ddp", "--workers", 2, "--out", "one"))
        job = self.batch("-n2", PSRING, "train", *LONG, "--strategy", "ddp", "--out", "run", "--requeue", options=["--requeue"])
        self.until_step("run", 10)
        self.slurm.run("scancel", "--signal=USR1", job)
        until(lambda: "is requeued" in self.output(), "not requeued")
        until(lambda: self.slurm.state(job) == "PENDING" or "part 1" in self.output(), "not pending")
        # Nodes refuse a start in the second in which they ended the job ("Job credential revoked"). Slurm itself waits longer.
        time.sleep(2)
        self.slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now", check=False)
        self.until_ended(job)
        self.assertRegex(self.output(), r"interrupted at step \d+; checkpoint ")
        self.assertRegex(self.output(), r"part 1 continues at step \d+ of 50000")
        self.assertEqual(self.model("run"), self.model("one"))

    def test_never_another_jobs_run(self):
        self.assert_done(self.train(*JOB, "--checkpoint-every", 10, "--strategy", "ddp", "--workers", 2, "--out", "run"))
        result = self.run_program("psring", "train", *LONG, "--strategy", "ddp", "--out", "run", "--requeue",
                                  env={"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "1"})
        self.assert_refused(result, 2, "--out", "holds a run of no job of Slurm, not of this Slurm job 7")

    def test_lost_node(self):
        job = self.batch("-n2", PSRING, "train", *ENDLESS, "--strategy", "ddp", "--out", "run", "--heartbeat-timeout", 2)
        self.until_step("run", 10)
        cable = self.slurm.names()[2]
        ip("-n", cable, "link", "set", "eth0", "down")
        self.addCleanup(ip, "-n", cable, "link", "set", "eth0", "up")
        until(self.errors, "no error", limit=30)
        self.assertEqual(len(self.errors()), 1, self.output())
        self.assertIn("psb", self.errors()[0])
        self.slurm.run("scancel", job)


if __name__ == "__main__":
    if reason := reason_to_skip():
        print(f"SKIPPED: {reason}")
        sys.exit(0)
    unittest.main()
