"""The types of the Python package (mypy) and the style of package and tests (ruff), as pyproject.toml says."""

import importlib.metadata
import importlib.util
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "build" / "pypi" / "bin"

for name in ("mypy", "ruff"):
    if not (PROGRAMS / name).exists():
        print(f"SKIPPED: no {PROGRAMS / name}: scripts/setup test installs it")
        sys.exit(0)
if importlib.util.find_spec("torch") is None:
    print("SKIPPED: no PyTorch (Debian: python3-torch)")
    sys.exit(0)


class PythonChecks(unittest.TestCase):
    def check(self, name, *arguments):
        done = subprocess.run([PROGRAMS / name, *arguments], cwd=ROOT, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_types(self):
        if importlib.metadata.version("torch").split(".")[0] != "1":
            self.skipTest("the types are checked with those of PyTorch 1.13; PyTorch 2 has others")
        self.check("mypy")

    def test_style(self):
        self.check("ruff", "check", "--quiet", "--output-format", "concise")

    def test_format(self):
        self.check("ruff", "format", "--check", "--quiet", "python")


if __name__ == "__main__":
    unittest.main()
