"""scripts/fingerprints: two records of one build are the same, and a table that was changed is found."""

import csv
import pathlib
import subprocess
import sys
import unittest

from support import BIN, ProgramTest

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "scripts" / "fingerprints"
CHECK_FAILED = 6


class Fingerprints(ProgramTest):
    def script(self, *arguments):
        return subprocess.run([sys.executable, "-B", SCRIPT, *map(str, arguments)], cwd=self.folder, env=self.environment,
                              text=True, capture_output=True)

    def record(self, table, only="lamb clip"):
        return self.script("record", table, "--bin", BIN, "--only", only)

    def test_two_records_of_one_build(self):
        for table in ("a.tsv", "b.tsv"):
            result = self.record(table)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
        result = self.script("compare", "a.tsv", "b.tsv")
        self.assertEqual((result.returncode, result.stdout), (0, "no difference in 4 configurations\n"))

    def test_differences(self):
        self.assertEqual(self.record("a.tsv", "ddp lamb clip").returncode, 0)
        with open(self.folder / "a.tsv", newline="") as file:
            (head, row) = csv.reader(file, delimiter="\t")
        self.assertRegex(row[head.index("sha256")], "^[0-9a-f]{64}$")
        self.assertEqual(row[head.index("exit")], "0")
        self.assertRegex(row[head.index("says")], "^mlp:20-33-17-5: [0-9]+ parameters in ")
        changes = {"exit": ("0", "3"), "says": ("parameters", "weights"), "sha256": ("0", "1"), "bytes": ("worker 1 sent ", "worker 1 sent 7"),
                   "memory": ("worker 0 gradients ", "worker 0 gradients 7"), "loss": ("final_loss ", "final_loss 7")}
        for column, (before, after) in changes.items():
            with self.subTest(column):
                changed = list(row)
                changed[head.index(column)] = row[head.index(column)].replace(before, after)
                self.write("b.tsv", head, changed)
                result = self.script("compare", "a.tsv", "b.tsv")
                self.assertEqual(result.returncode, CHECK_FAILED)
                first, last = result.stdout.splitlines()
                self.assertRegex(first, f"^ddp lamb clip: {column}[: ]")
                self.assertEqual(last, "1 difference in 1 configuration")
        self.write("b.tsv", head)
        result = self.script("compare", "a.tsv", "b.tsv")
        self.assertEqual(result.returncode, CHECK_FAILED)
        self.assertIn("ddp lamb clip: only in the first table", result.stdout)

    def test_jobs_that_are_refused(self):
        self.assertEqual(self.record("a.tsv", "drawn 1").returncode, 0)
        with open(self.folder / "a.tsv", newline="") as file:
            (head, *rows) = csv.reader(file, delimiter="\t")
        exits = [row[head.index("exit")] for row in rows]
        self.assertEqual(len(exits), 11)
        self.assertIn("2", exits)
        for row in rows:
            self.assertRegex(row[head.index("says")], "^psring: " if row[head.index("exit")] != "0" else ": [0-9]+ parameters in ")

    def write(self, name, *rows):
        with open(self.folder / name, "w", newline="") as file:
            csv.writer(file, delimiter="\t", lineterminator="\n").writerows(rows)

    def test_what_cannot_be_done(self):
        self.assertEqual(self.record("a.tsv", "no such name").returncode, 2)
        self.assertEqual(self.script("record", "a.tsv", "--bin", "nowhere").returncode, 2)
        self.file("broken.tsv", b"name\tflags\n")
        result = self.script("compare", "broken.tsv", "broken.tsv")
        self.assertEqual((result.returncode, result.stderr.count("\n")), (2, 1))
        self.file("failing/psring", b"#!/bin/sh\necho psring: broken >&2\nexit 1\n").chmod(0o755)
        result = self.script("record", "a.tsv", "--bin", "failing", "--only", "ddp lamb clip")
        self.assertEqual(result.returncode, 1)
        self.assertIn("ddp lamb clip: exit status 1: ", result.stderr)
        self.assertIn("psring: broken", result.stderr)
        self.assertFalse((self.folder / "a.tsv").exists())


if __name__ == "__main__":
    unittest.main()
