"""psring.run: servers, restarts after a loss, and refusals."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import torch
except ImportError:
    print("SKIPPED: no PyTorch (Debian: python3-torch)")
    sys.exit(0)

from ranks import SCALE

PROGRAM = """
import os, signal, sys
import torch, torch.nn.functional as F
import psring.torch
import server_test

torch.set_num_threads(1)
culprit, folder = sys.argv[1:]
rank, first = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
module = server_test.net()
update = server_test.optimizer_of("adamw", module)
heartbeat = ("--heartbeat-timeout", str(server_test.HEARTBEAT))
model = psring.torch.ParameterServer(
    module, update, checkpoint_dir=folder + "/saved", resume="auto", options=heartbeat, out=f"{folder}/run-{first:d}")
begun = model.steps
while model.steps < server_test.STEPS:
    if first and model.steps == 7:
        if culprit == "worker" and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if culprit == "server" and rank == 0:
            os.kill(model._served.servers.processes[1].pid, signal.SIGKILL)
    x, y = server_test.batch(rank, model.steps)
    update.zero_grad()
    F.cross_entropy(model(x), y).backward()
    update.step()
    if model.steps % 3 == 0:
        model.save_checkpoint()
model.close()
torch.save((begun, dict(module.state_dict())), f"{folder}/{rank}")
"""


def start(*arguments, folder=None, environment=None):
    command = [sys.executable, "-B", "-m", "psring.run", *arguments]
    paths = [os.environ["PYTHONPATH"], str(Path(__file__).resolve().parent)]
    return subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200 * SCALE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **(environment or {})},
    )


class Restarts(unittest.TestCase):
    def trained(self, culprit, folder, *arguments):
        """The step that the processes began with at last, and the parameters of both ranks."""
        folder.mkdir()
        (folder / "train.py").write_text(PROGRAM)
        done = start("--nproc", "2", "--servers", "2", *arguments, "train.py", culprit, str(folder), folder=folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        (begun, left), (_, right) = (torch.load(folder / str(rank)) for rank in (0, 1))
        for name in left:
            self.assertTrue(torch.equal(left[name], right[name]), name)
        return begun, left, done.stderr

    def test_ends_with_the_same_parameters(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            begun, whole, said = self.trained("nobody", folder / "nobody")
            self.assertEqual((begun, said), (0, ""))
            for culprit in ("worker", "server"):
                begun, again, said = self.trained(culprit, folder / culprit, "--max-restarts", "1")
                self.assertEqual(begun, 6)
                self.assertIn("psring.run: restart 1 of 1", said)
                self.assertIn("worker 1" if culprit == "worker" else "server 1", said)
                for tensor, value in whole.items():
                    self.assertTrue(torch.equal(value, again[tensor]), tensor)

    def test_no_restart_left(self):
        done = start("--nproc", "1", "--max-restarts", "2", "--no-python", "false")
        self.assertEqual(done.returncode, 1)
        self.assertIn("restart 2 of 2", done.stderr)
        self.assertEqual(done.stderr.count("rank 0 ended with exit status 1"), 3)


class Refusals(unittest.TestCase):
    def test_options(self):
        for arguments, text in (
            (["--servers", "0"], "--servers is at least 1"),
            (["--max-restarts", "-1"], "--max-restarts is at least 0"),
            (["--nnodes", "2", "--max-restarts", "1"], "--max-restarts starts the processes of one host again"),
        ):
            done = start(*arguments, "train.py")
            self.assertEqual(done.returncode, 2)
            self.assertIn(text, done.stderr)

    def test_numbers_of_servers_that_differ(self):
        program = (
            "import torch, psring.torch\n"
            "m = torch.nn.Linear(2, 2)\n"
            "psring.torch.ParameterServer(m, torch.optim.SGD(m.parameters(), lr=1.0), servers=3)\n"
        )
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "train.py").write_text(program)
            done = start("--servers", "2", "train.py", folder=folder)
            self.assertEqual(done.returncode, 1)
            self.assertIn("the program asks for servers=3, psring.run --servers for 2: leave out one", done.stderr)

    def test_automatic_resume_without_a_folder(self):
        program = (
            "import torch, psring.torch\n"
            "m = torch.nn.Linear(2, 2)\n"
            "psring.torch.ParameterServer(m, torch.optim.SGD(m.parameters(), lr=1.0), resume='auto')\n"
        )
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "train.py").write_text(program)
            done = start("train.py", folder=folder)
            self.assertEqual(done.returncode, 1)
            self.assertIn("resume='auto' needs checkpoint_dir=", done.stderr)


if __name__ == "__main__":
    unittest.main()
