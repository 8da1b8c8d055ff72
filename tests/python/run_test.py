"""psring.run: servers, restarts after a loss, Ctrl-C, and refusals."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

try:
    import torch
except ImportError:
    print("SKIPPED: no PyTorch (Debian: python3-torch)")
    sys.exit(0)

from ranks import SCALE, runs

PROGRAM = """
import os, signal, sys
import torch, torch.nn.functional as F
import psring.torch
import server_test

torch.set_num_threads(1)
culprit, folder, zero = sys.argv[1:]
rank, first = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
module = server_test.net()
update = server_test.optimizer_of("adamw", module)
heartbeat = ("--heartbeat-timeout", str(server_test.HEARTBEAT))
model = psring.torch.ParameterServer(
    module, update, checkpoint_dir=folder + "/saved", resume="auto", options=heartbeat, out=f"{folder}/run-{first:d}",
    zero=int(zero))
begun = model.steps
while model.steps < server_test.STEPS:
    if first and model.steps == 7:
        if culprit in ("worker", "stopped") and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL if culprit == "worker" else signal.SIGSTOP)
        if culprit == "server" and rank == 0:
            os.kill(model._served.servers.processes[1].pid, signal.SIGKILL)
    x, y = server_test.batch(rank, model.steps)
    update.zero_grad()
    F.cross_entropy(model(x), y).backward()
    update.step()
    if model.steps % 3 == 0:
        model.save_checkpoint()
torch.save((begun, dict(module.state_dict())), f"{folder}/{rank}")
model.close()
"""

# Plain DDP over the backend, with a checkpoint of the program's own.
DDP_PROGRAM = """
import os, signal, sys
import torch, torch.distributed as dist, torch.nn.functional as F
import psring.torch
import server_test

torch.set_num_threads(1)
culprit, folder = sys.argv[1:]
rank, first = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
os.environ["PSRING_OPTIONS"] = f"--heartbeat-timeout {server_test.HEARTBEAT}"
dist.init_process_group("psring")
model = torch.nn.parallel.DistributedDataParallel(server_test.net())
update = server_test.optimizer_of("adamw", model)
begun, saved = 0, folder + "/saved"
if os.path.exists(saved):
    begun, state, moments = torch.load(saved)
    model.load_state_dict(state)
    update.load_state_dict(moments)
for step in range(begun, server_test.STEPS):
    if first and step == 7 and rank == 1 and culprit != "nobody":
        os.kill(os.getpid(), signal.SIGKILL if culprit == "worker" else signal.SIGSTOP)
    x, y = server_test.batch(rank, step)
    update.zero_grad()
    F.cross_entropy(model(x), y).backward()
    update.step()
    if (step + 1) % 3 == 0 and rank == 0:
        torch.save((step + 1, model.state_dict(), update.state_dict()), saved + ".part")
        os.rename(saved + ".part", saved)
torch.save((begun, model.module.state_dict()), f"{folder}/{rank}")
"""

# Tells that it runs, and trains until a signal comes.
ENDLESS = """
import os, sys
import torch, torch.nn.functional as F
import psring.torch
import server_test

torch.set_num_threads(1)
module = server_test.net()
model = psring.torch.ParameterServer(module, server_test.optimizer_of("sgd", module))
while True:
    x, y = server_test.batch(int(os.environ["RANK"]), 0)
    F.cross_entropy(model(x), y).backward()
    model._optimizer.step()
    if model.steps == 3:
        os.write(1, b"begun\\n")  # at once: two processes write to this pipe
"""


def command_of(*arguments):
    """psring.run's command, and the environment in which its programs find the tests' models."""
    paths = [os.environ["PYTHONPATH"], str(Path(__file__).resolve().parent)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return [sys.executable, "-B", "-m", "psring.run", *arguments], environment


def start(*arguments, folder=None):
    command, environment = command_of(*arguments)
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=200 * SCALE, env=environment
    )


def descendants(pid):
    """All processes that this one has started, and theirs."""
    found = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return found + [each for child in found for each in descendants(child)]


def end_group(job):
    """Ends a job of which a test has left something."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(job.pid, signal.SIGKILL)
    job.wait()


class Restarts(unittest.TestCase):
    def trained(self, program, culprit, folder, *arguments, more=()):
        """The step that the processes began with at last, and the parameters of both ranks. `more`: of the program."""
        folder.mkdir()
        (folder / "train.py").write_text(program)
        done = start("--nproc", "2", *arguments, "train.py", culprit, str(folder), *more, folder=folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        (begun, left), (_, right) = (torch.load(folder / str(rank)) for rank in (0, 1))
        for name in left:
            self.assertTrue(torch.equal(left[name], right[name]), name)
        return begun, left, done.stderr

    def check(self, program, culprits, *arguments, more=()):
        """With each of the culprits, which fail in step 7, the job ends as an undisturbed one does."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            begun, whole, said = self.trained(program, "nobody", folder / "nobody", *arguments, more=more)
            self.assertEqual((begun, said), (0, ""))
            for culprit, peer in culprits.items():
                restarts = (*arguments, "--max-restarts", "1")
                begun, again, said = self.trained(program, culprit, folder / culprit, *restarts, more=more)
                self.assertEqual(begun, 6)
                self.assertIn("psring.run: restart 1 of 1", said)
                self.assertIn(peer, said)
                for tensor, value in whole.items():
                    self.assertTrue(torch.equal(value, again[tensor]), tensor)

    def test_ends_with_the_same_parameters(self):
        culprits = {"worker": "worker 1", "server": "server 1", "stopped": "worker 1"}
        self.check(PROGRAM, culprits, "--servers", "2", more=("1",))

    def test_ends_with_the_same_parameters_that_no_worker_keeps(self):
        culprits = {"worker": "worker 1", "server": "server 1"}
        for zero in ("2", "3"):
            with self.subTest(zero=zero):
                self.check(PROGRAM, culprits, "--servers", "2", more=(zero,))

    def test_ddp_ends_with_the_same_parameters(self):
        self.check(DDP_PROGRAM, {"worker": "worker 1", "stopped": "worker 1"})

    def test_no_restart_left(self):
        done = start("--nproc", "1", "--max-restarts", "2", "--no-python", "false")
        self.assertEqual(done.returncode, 1)
        self.assertIn("restart 2 of 2", done.stderr)
        self.assertEqual(done.stderr.count("rank 0 ended with exit status 1"), 3)


class Signals(unittest.TestCase):
    def test_nothing_runs_after_ctrl_c(self):
        command, environment = command_of("--nproc", "2", "--servers", "2", "train.py")
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "train.py").write_text(ENDLESS)
            job = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=subprocess.PIPE, start_new_session=True, text=True
            )
            self.addCleanup(end_group, job)
            self.assertEqual([job.stdout.readline() for _ in range(2)], ["begun\n"] * 2)
            running = descendants(job.pid)
            names = sorted(Path(f"/proc/{pid}/comm").read_text().strip() for pid in running)
            os.killpg(job.pid, signal.SIGINT)
            self.assertEqual(job.wait(60 * SCALE), 130)
            job.stdout.close()
        self.assertEqual(names.count("psring-server"), 2, names)
        until = time.monotonic() + 20 * SCALE
        while (left := [pid for pid in running if runs(pid)]) and time.monotonic() < until:
            time.sleep(0.05)
        self.assertEqual(left, [], names)


class AsTorchrun(unittest.TestCase):
    def test_flags_and_variables(self):
        names = "RANK WORLD_SIZE LOCAL_RANK ROLE_RANK ROLE_NAME GROUP_WORLD_SIZE TORCHELASTIC_RUN_ID MASTER_ADDR".split()
        program = f"import os; print(*(os.environ[name] for name in {names}), os.environ['MASTER_PORT'].isdecimal())"
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "train.py").write_text(program)
            flags = ["--standalone", "--nnodes=1", "--nproc_per_node", "2", "--rdzv_backend=c10d",
                     "--rdzv_endpoint=localhost:0", "--rdzv_id", "job7", "--role", "trainer", "--monitor_interval", "0.1",
                     "--log_dir", "logs"]
            done = start(*flags, "train.py", folder=folder)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
            for rank in (0, 1):
                logs = Path(folder) / "logs" / "job7" / "attempt_0" / str(rank)
                self.assertEqual((logs / "stderr.log").read_text(), "")
                expected = f"{rank} 2 {rank} {rank} trainer 1 job7 localhost True\n"
                self.assertEqual((logs / "stdout.log").read_text(), expected)
            done = start("--nproc-per-node", "cpu", "train.py", folder=folder)
            self.assertEqual((done.returncode, len(done.stdout.splitlines())), (0, len(os.sched_getaffinity(0))))

    def test_init_with_nothing_given(self):
        program = (
            "import array, os, sys, psring\n"
            "job = psring.init()\n"
            "vector = array.array('f', [job.rank + 1.0])\n"
            "job.all_reduce(vector)\n"
            "os.write(1, f'{job.rank} {job.size} {vector[0]:g}\\n'.encode())\n"
            "if sys.argv[1:] == ['raise'] and job.rank == 1: raise ValueError('broken')\n"
            "job.barrier()\n"
        )
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "init.py").write_text(program)
            command, environment = command_of("--nproc", "3", "init.py")
            environment["TMPDIR"] = folder
            for launcher in (command, [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "3", "init.py"]):
                # Debian's torchrun runs in neither: 1.13's not under Python 3.11, 2.6's not without libuv.
                if launcher is not command and (torch.__version__.startswith("1.") or "debian" in torch.__version__):
                    continue
                done = subprocess.run(launcher, cwd=folder, capture_output=True, text=True, timeout=90 * SCALE, env=environment)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(sorted(done.stdout.splitlines()), ["0 3 6", "1 3 6", "2 3 6"])
            done = start("--nproc", "3", "init.py", "raise", folder=folder)
            self.assertEqual(done.returncode, 1)
            self.assertIn("ValueError: broken", done.stderr)
            self.assertRegex(done.stderr, r"PeerLostError: .*worker 1( \(.*\))?: ValueError: broken")
            alone = subprocess.run(
                [sys.executable, "init.py"], cwd=folder, capture_output=True, text=True, timeout=60 * SCALE, env=environment
            )
            self.assertEqual((alone.stdout, alone.returncode), ("0 1 1\n", 0), alone.stderr)
            self.assertEqual([name for name in os.listdir(folder) if name.startswith("psring")], [])


class Refusals(unittest.TestCase):
    def test_options(self):
        for arguments, text in (
            (["--servers", "0"], "--servers is at least 1"),
            (["--max-restarts", "-1"], "--max-restarts is at least 0"),
            (["--nnodes", "2", "--max-restarts", "1"], "--max-restarts starts the processes of one host again"),
            (["--nnodes", "1:2"], "the number of hosts is fixed"),
            (["--nnodes", "2", "--rdzv-endpoint", "host:29500"], "--node-rank is the number of this host"),
            (["--rdzv-endpoint", "host"], "expected HOST:PORT"),
            (["--rdzv-endpoint", "host:1", "--master-port", "2"], "give one of both"),
            (["--nproc-per-node", "many"], "nor auto, cpu or gpu"),
            (["--rdzv-conf", "timeout=3"], "--rdzv-conf"),
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
