"""The bound of a step: the planted rows of scripts/bounds that no other program can disturb."""

import pathlib
import subprocess
import sys
import unittest

from support import BIN

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "scripts/bounds"


class Bounds(unittest.TestCase):
    def test_planted_rows(self):
        result = subprocess.run([sys.executable, "-B", SCRIPT, "--sure", "--bin", BIN], capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("3 of 3 planted rows", result.stdout)


if __name__ == "__main__":
    unittest.main()
