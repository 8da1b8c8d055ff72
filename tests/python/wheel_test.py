"""The wheel in fresh virtual environments outside of the source tree, where no compiler is found: the programs that the
guide prints, with Debian's PyTorch, and under another version of Python."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

import guide

ROOT = Path(__file__).resolve().parents[2]
SCALE = float(os.environ.get("PSRING_TEST_TIME_SCALE", "1"))
SECONDS = 180 * SCALE


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        build = Path(os.environ["PSRING_BIN"]).parent
        command = [sys.executable, ROOT / "scripts" / "wheel", "--build", build, "--out", cls.folder]
        subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
        (cls.wheel,) = cls.folder.glob("*.whl")

    def environment(self, python, name, *options):
        """A virtual environment with the wheel: its folder of programs, the only one in the path."""
        bin = self.folder / name / "bin"
        plain = {"HOME": str(self.folder), "PATH": "/usr/bin:/bin"}
        for command in (
            [python, "-m", "venv", *options, bin.parent],
            [bin / "python", "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", self.wheel],
        ):
            done = subprocess.run(command, env=plain, capture_output=True, text=True, timeout=SECONDS)
            self.assertEqual(done.returncode, 0, done.stderr)
        return bin, {"HOME": str(self.folder), "PATH": str(bin)}

    def check_sum(self, bin, environment):
        """The guide's job without PyTorch: two processes add their vectors."""
        work = bin.parent / "work"
        work.mkdir()
        key = work / "job.key"
        subprocess.run([bin / "psring", "keygen", key], check=True, env=environment, timeout=SECONDS, capture_output=True)
        job = ["--strategy", "ddp", "--workers", "2", "--global-batch", "2", "--steps", "1", "--out", work / "run"]
        coordinator = subprocess.Popen(
            [bin / "psring", "coordinator", *job, "--key", key, "--listen", "127.0.0.1:0"],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(coordinator.kill)
        endpoint = re.match(r"coordinator at (\S+):", coordinator.stdout.readline())[1]
        program = guide.programs()[-1].replace("127.0.0.1:7000", endpoint).replace("job.key", str(key))
        (work / "sum.py").write_text(program)
        workers = [
            subprocess.Popen([bin / "python", "sum.py"], cwd=work, env=environment, stdout=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        said = sorted(worker.communicate(timeout=SECONDS)[0] for worker in workers)
        self.assertEqual(said, [f"{rank} [3.0, 3.0, 3.0, 3.0]\n" for rank in (0, 1)])
        self.assertEqual(coordinator.wait(SECONDS), 0)
        coordinator.stdout.close()

    def test_auditwheel_and_twine(self):
        tools = ROOT / "build" / "pypi" / "bin"
        if not (tools / "auditwheel").exists() or not (tools / "twine").exists():
            self.skipTest("no auditwheel or twine in build/pypi: scripts/setup test")
        for command in (["auditwheel", "show"], ["twine", "check", "--strict"]):
            command = [tools / command[0], *command[1:], self.wheel]
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            if command[1] == "show":
                said = " ".join(done.stdout.split())
                fits = re.search(r'platform tag: "manylinux_2_(\d+)_x86_64"', said)
                self.assertIsNotNone(fits, said)
                self.assertLessEqual(int(fits[1]), int(re.search(r"manylinux_2_(\d+)_", self.wheel.name)[1]))

    def test_has_the_licence_of_each_library(self):
        with zipfile.ZipFile(self.wheel) as archive:
            names = archive.namelist()
            licences = [name for name in names if "/licenses/" in name]
            metadata = archive.read(next(name for name in names if name.endswith("/METADATA"))).decode()
            texts = {name.split("/licenses/")[1]: archive.read(name).decode() for name in licences}
        self.assertTrue(all(texts.values()))
        for name in ("LICENSE", "libzmq5.txt", "libsodium23.txt", "libgomp1.txt", "libeigen3-dev.txt"):
            self.assertIn(name, texts)
        for name, text in texts.items():  # a text that only Debian has is here, too
            for common in re.findall(r"/usr/share/common-licenses/([\w.-]*\w)", text):
                self.assertIn(f"{common}.txt", texts, name)
        listed = re.findall(r"^License-File: (.*)$", metadata, re.M)
        self.assertEqual(sorted(listed), sorted(name.split("/licenses/")[1] for name in licences))

    def test_has_types(self):
        self.assertTrue(zipfile.Path(self.wheel, "psring/py.typed").exists())

    def test_torch(self):
        try:
            import torch  # noqa: F401
        except ImportError:
            self.skipTest("no PyTorch (Debian: python3-torch)")
        if sys.prefix != sys.base_prefix:
            self.skipTest("this PyTorch is a virtual environment's, which the one that is made here does not see")
        bin, environment = self.environment(sys.executable, "torch", "--system-site-packages")
        self.check_sum(bin, environment)
        work = bin.parent / "work"
        (work / "train.py").write_text(guide.programs()[0])
        command = [bin / "python", "-m", "psring.run", "--nproc", "2", "train.py"]
        environment["USE_LIBUV"] = "0"  # Debian 13's PyTorch has none
        done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, timeout=SECONDS)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"^-?[\d.e-]+\n$")
        where = "import psring; print(psring.__file__)"
        done = subprocess.run([bin / "python", "-c", where], cwd=work, env=environment, capture_output=True, text=True)
        self.assertTrue(done.stdout.startswith(str(bin.parent)), done.stdout)

    def test_other_pythons(self):
        """PyPy, and each other CPython since 3.9 in the path or among those of pyenv."""
        minors = [minor for minor in range(9, 20) if minor != sys.version_info.minor]
        found = {"PyPy": shutil.which("pypy3")}
        pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
        for minor in minors:
            built = next(iter(sorted(pyenv.glob(f"3.{minor}.*/bin/python3.{minor}"))), None)
            found[f"CPython 3.{minor}"] = built or shutil.which(f"python3.{minor}")
        found = {name: python for name, python in found.items() if python is not None}
        if not found:
            self.skipTest("no other Python (Debian: pypy3-venv)")
        for name, python in found.items():
            with self.subTest(name):
                self.check_sum(*self.environment(python, name.replace(" ", "-")))
        print("the wheel runs in", ", ".join(found))


if __name__ == "__main__":
    unittest.main()
