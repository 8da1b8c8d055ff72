"""Checkpoints and run folders of a ParameterServer's jobs: as those of psring train."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import torch
from torch import nn

import psring
import psring.torch

RULES = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.001, momentum=0.9),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.1),
}


def saved_at(folder):
    return [int(name[len("step-") :]) for name in sorted(os.listdir(folder)) if name.startswith("step-")]


def train(folder, rule="momentum", hidden=16, steps=2, layers=2, resume=None, options=(), out=None, before_end=None):
    """Trains a model of this process alone, and saves it after each step. Returns the step that it began with."""
    sizes = [8, *[hidden] * (layers - 1), 4]
    module = nn.Sequential(*[nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])])
    optimizer = RULES[rule](module.parameters())
    model = psring.torch.ParameterServer(
        module, optimizer, servers=2, checkpoint_dir=folder, resume=resume, options=options, out=out
    )
    begun = model.steps
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(3, 8)).square().sum().backward()
        optimizer.step()
        model.save_checkpoint()
    if before_end is not None:
        before_end()
    model.close()
    return begun


class Checkpoints(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def refused(self, text, **how):
        with self.assertRaisesRegex(psring.DataError, text):
            train(self.folder, **how)

    def test_another_job_is_refused(self):
        train(self.folder)
        self.assertEqual(train(self.folder, resume="auto"), 2)
        here = self.folder
        self.refused(
            f"^--resume {here}/step-00000004: saved with optimizer momentum momentum=0.9 weight_decay=0, this run's is adamw ",
            rule="adamw",
            resume="auto",
        )
        self.refused("saved with optimizer momentum .*, this run's is sgd", rule="sgd", resume="auto")
        self.refused(r"has no tensor '0.weight' of shape \[8, 8\]", hidden=8, resume="auto")
        self.refused(r"has no tensor '0.weight' of shape \[32, 8\]", hidden=32, resume="auto")
        self.refused(r"has no tensor '1.weight' of shape \[16, 16\]", layers=3, resume="auto")
        self.refused("has no tensor", layers=1, resume="auto")
        self.assertEqual(saved_at(here), [1, 2, 3, 4])

    def test_fewer_tensors_are_refused(self):
        train(self.folder, hidden=4, layers=3)
        self.refused("has 6 tensors, this run's model 4", hidden=4, layers=2, resume="auto")

    def test_only_the_newest_are_kept(self):
        train(self.folder, steps=5, options=("--checkpoint-keep", "2"))
        self.assertEqual(saved_at(self.folder), [4, 5])

    def test_a_folder_belongs_to_one_job_at_a_time(self):
        program = Path(self.folder) / "train.py"
        program.write_text(
            f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
            "import checkpoints_test\n"
            f"checkpoints_test.train({self.folder + '/ck'!r}, before_end=lambda: (print('saved', flush=True), input()))\n"
        )
        with subprocess.Popen([sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
            self.assertEqual(first.stdout.readline(), b"saved\n")
            with self.assertRaisesRegex(psring.UsageError, "/ck: another run saves there; choose another folder"):
                train(self.folder + "/ck", resume="auto")
            first.communicate(b"\n")
        self.assertEqual(first.returncode, 0)
        self.assertEqual(train(self.folder + "/ck", resume="auto"), 2)

    def test_a_run_folder_of_a_job_that_is_started_again(self):
        out = self.folder + "/run"
        train(self.folder + "/ck", out=out)
        with self.assertRaisesRegex(psring.UsageError, "holds a run already"):
            code = f"import checkpoints_test; checkpoints_test.train({self.folder!r} + '/other', out={out!r})"
            done = subprocess.run(
                [sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
            )
            raise psring.UsageError(done.stderr)
        train(self.folder + "/ck", out=out, resume="auto")
        os.environ["TORCHELASTIC_RESTART_COUNT"] = "1"
        self.addCleanup(os.environ.pop, "TORCHELASTIC_RESTART_COUNT")
        train(self.folder + "/ck", out=out, resume="auto")
        self.assertEqual(sorted(os.listdir(self.folder)), ["ck", "run", "run-2", "run-3"])


if __name__ == "__main__":
    unittest.main()
