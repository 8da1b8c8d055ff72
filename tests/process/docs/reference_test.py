"""The reference pages of the options are up to date: docs/guide/reference.md and docs/guide/reference.zh-CN.md."""

import os
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]


class Reference(unittest.TestCase):
    def test_pages_are_up_to_date(self):
        command = [sys.executable, "-B", ROOT / "scripts" / "reference", "--check", "--bin", os.environ["PSRING_BIN"]]
        result = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
