"""Models with tables train as PyTorch does: from the same rows and samples, losses and tensors agree to 1e-6 after 40 steps."""

import json
import pathlib
import random
import subprocess
import unittest

from support import ProgramTest

REFERENCE = pathlib.Path(__file__).parents[2] / "reference" / "torch_tables.py"
STEPS, BATCH = 40, 32
STILL = ["--lr", "1e-45", "--table-optimizer", "sgd", "--table-lr", "1e-45"]  # too small to change a value


def clicks(count, dense, features):
    """Lines in the format of Criteo's data; the class depends on the keys, so that there is something to learn."""
    rng = random.Random(3)
    lines = []
    for _ in range(count):
        keys = [int(rng.paretovariate(0.7)) % 1000 + 1 for _ in range(features)]
        inputs = ["" if rng.random() < 0.1 else str(rng.randrange(-2, 50)) for _ in range(dense)]
        words = ["" if rng.random() < 0.1 else f"{key:x}" for key in keys]
        lines.append("\t".join([str(int(sum(key % 3 for key in keys) + rng.random() > features)), *inputs, *words]) + "\n")
    return "".join(lines)


def ratings(count):
    rng = random.Random(4)
    lines = []
    for _ in range(count):
        user, item = rng.randrange(60), rng.randrange(90)
        lines.append(f"{user}\t{item}\t{1 + (user % 3 + item % 4 + rng.randrange(2)) % 5}\n")
    return "".join(lines)


class TorchTables(ProgramTest):
    def losses(self, run):
        lines = map(json.loads, (self.folder / run / "metrics.jsonl").read_text().splitlines())
        return [line["loss"] for line in lines if line.get("loss") is not None]

    def assert_agrees(self, model, data, rule, lr=0.1, table_lr=0.05):
        start, single, ps = (f"{model.split(':')[0]}-{rule}-{run}" for run in ("start", "single", "ps"))
        job = ["--model", model, "--data", data, "--global-batch", BATCH, "--steps", STEPS, "--shuffle", "none", "--seed", 5]
        trained = ["--optimizer", "sgd", "--lr", lr, "--table-optimizer", rule, "--table-lr", table_lr]
        self.assert_done(self.train("--strategy", "single", *job, *STILL, "--out", start))
        self.assert_done(self.train("--strategy", "single", *job, *trained, "--out", single))
        self.assert_done(self.train("--strategy", "ps", "--workers", 1, "--servers", 2, *job, *trained, "--out", ps))
        self.assertEqual(self.model(ps), self.model(single))
        arguments = [REFERENCE, *(self.folder / run / "model.safetensors" for run in (start, single)),
                     self.folder / data.split(":")[1], model, BATCH, STEPS, lr, rule, table_lr]
        reference = subprocess.run(["/usr/bin/python3", *map(str, arguments)], capture_output=True, text=True)
        if reference.returncode == 77:
            self.skipTest("PyTorch is not installed")
        self.assertEqual(reference.returncode, 0, reference.stderr)
        *losses, relative, largest = map(float, reference.stdout.splitlines())
        self.assertEqual(len(losses), STEPS)
        self.assertLess(sum(losses[-5:]), 0.97 * sum(losses[:5]))  # they train
        for step, (loss, expected) in enumerate(zip(self.losses(single), losses, strict=True)):
            self.assertLess(abs(loss - expected), 1e-6 * max(1, abs(expected)), f"step {step}")
        self.assertLess(relative, 1e-6)
        self.assertLess(largest, 5e-6)  # adagrad's first step of an element is as large for the smallest gradient

    def test_clicks(self):
        (self.folder / "clicks").write_text(clicks(STEPS * BATCH * 10 // 9 + 10, 3, 5))
        for rule in ("sgd", "adagrad", "adam"):
            for model in ("fm:dense=3,features=5,dim=8", "dlrm:dense=3,features=5,dim=8,bottom=16-8,top=16-1"):
                with self.subTest(model, rule=rule):
                    self.assert_agrees(model, "criteo:clicks", rule, table_lr=0.01 if rule == "adam" else 0.05)

    def test_ratings(self):
        (self.folder / "ratings").write_text(ratings(STEPS * BATCH * 10 // 9 + 10))
        self.assert_agrees("mf:dim=8", "pairs:ratings", "adagrad")


if __name__ == "__main__":
    unittest.main()
