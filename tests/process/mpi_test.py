"""Jobs under mpirun, Open MPI's and MPICH's: the bits of a job without it.

Skipped, with the reason, where both are missing.
"""

import os
import shutil
import sys
import unittest

from support import BIN, TINY, ProgramTest

JOB = [*TINY, "--optimizer", "adam", "--lr", "0.01", "--steps", 20]
MPIRUNS = {"Open MPI": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"], "MPICH": ["mpirun.mpich"]}
PRESENT = {name: words for name, words in MPIRUNS.items() if shutil.which(words[0])}


class Mpirun(ProgramTest):
    def mpirun(self, name, ranks, *words):
        return self.run_program("psring", *words, prefix=[*PRESENT[name], "-n", str(ranks)])

    def test_same_bits(self):
        for strategy in (["ddp"], ["ps", "--servers", 2]):
            for ranks in (2, 4):
                one = f"{strategy[0]}-{ranks}"
                self.assert_done(self.train(*JOB, "--strategy", *strategy, "--workers", ranks, "--out", one))
                for name in PRESENT:
                    with self.subTest(name, strategy=strategy[0], ranks=ranks):
                        run = f"{one}-{name.split()[0]}"
                        self.assert_done(self.mpirun(name, ranks, "train", *JOB, "--strategy", *strategy, "--out", run))
                        self.assertEqual(self.model(run), self.model(one))
        self.assertEqual(list((self.folder / ".psring").iterdir()), [])

    def test_meeting_at_an_address(self):
        self.key()
        self.assert_done(self.train(*JOB, "--strategy", "ddp", "--workers", 2, "--out", "one"))
        for i, name in enumerate(PRESENT):
            with self.subTest(name):
                self.environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20000 + os.getpid() % 10000 + i)}
                run = f"two-{i}"
                self.assert_done(self.mpirun(name, 2, "train", *JOB, "--strategy", "ddp", "--key", "job.key", "--out", run))
                self.assertEqual(self.model(run), self.model("one"))

    def test_refusals(self):
        for name in PRESENT:
            for words, said in ((["--workers", "3"], "--workers 3: mpirun started 2 tasks"), (["--launcher", "slurm"], "srun psring")):
                with self.subTest(name, said=said):
                    result = self.mpirun(name, 2, "train", *JOB, *words, "--out", "run")
                    self.assertEqual(result.status, 2, result)
                    lines = {line for line in result.err.splitlines() if line.startswith("psring: ")}
                    self.assertEqual(len(lines), 1, result.err)
                    self.assertIn(said, lines.pop())


if __name__ == "__main__":
    if not PRESENT:
        print("SKIPPED: mpirun is missing (packages openmpi-bin, mpich)")
        sys.exit(0)
    unittest.main()
