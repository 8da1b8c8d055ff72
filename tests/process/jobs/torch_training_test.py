"""Meshes train as PyTorch does: from the same weights and samples, every loss of 50 steps of AdamW agrees to 1e-5."""

import pathlib
import random
import subprocess
import sys
import unittest

from mesh_jobs import GPT, SHAPE, STEPS, STILL, MeshJobTest

REFERENCE = pathlib.Path(__file__).parents[2] / "reference" / "torch_training.py"
WIDTHS = "30-21-16-9-4"
# Strategy, workers, and what divides the model.
MESHES = [
    ("single", 1, []),
    ("ddp", 2, ["--tensor", 2]),
    ("ddp", 4, ["--tensor", 4]),
    ("ddp", 4, ["--tensor", 2]),
    ("ddp", 2, ["--pipeline", 2, "--accumulate", 4]),
    ("ddp", 2, ["--pipeline", 2, "--accumulate", 2, "--pipeline-schedule", "1f1b"]),
    ("ddp", 8, ["--tensor", 2, "--pipeline", 2, "--accumulate", 2]),
    ("ddp", 8, ["--tensor", 2, "--pipeline", 2, "--accumulate", 2, "--pipeline-schedule", "1f1b", "--activation-checkpointing", "unit"]),
    ("zero3", 8, ["--tensor", 2, "--pipeline", 2, "--accumulate", 2]),
]


def samples(count, inputs, classes):
    """Lines of numbers and a class that depends on them, so that there is something to learn."""
    rng = random.Random(3)
    lines = []
    for _ in range(count):
        values = [rng.gauss(0, 1) for _ in range(inputs)]
        lines.append(",".join(f"{value:.6f}" for value in values) + f",{sum(value > 0 for value in values) % classes}\n")
    return "".join(lines)


class TorchTraining(MeshJobTest):
    def torch_losses(self, weights, data, model):
        arguments = [REFERENCE, weights, self.folder / data, model, "8", STEPS, "0.002", "0.5"]
        for python in (sys.executable, "/usr/bin/python3"):
            reference = subprocess.run([python, *map(str, arguments)], capture_output=True, text=True)
            if reference.returncode != 77:
                break
        if reference.returncode == 77:
            self.skipTest("PyTorch is not installed")
        self.assertEqual(reference.returncode, 0, reference.stderr)
        return [float(line) for line in reference.stdout.splitlines()]

    def assert_meshes_agree(self, options, data, model):
        start = self.run_job(*options, "--strategy", "single", "--steps", 1, out="start", optimizer=STILL) / "model.safetensors"
        expected = self.torch_losses(start, data, model)
        self.assertLess(sum(expected[-5:]), 0.99 * sum(expected[:5]))  # they train
        for strategy, workers, mesh in MESHES:
            with self.subTest(strategy, workers=workers, mesh=mesh):
                layout = ["--strategy", strategy, *(["--workers", workers, *mesh] if workers > 1 else [])]
                run = self.run_job(*options, "--shuffle", "none", "--init", start, *layout, "--steps", STEPS,
                                   out="-".join(map(str, [strategy, workers, *mesh])).replace("--", ""))
                self.assert_near(self.losses(run), expected)
                self.assert_predicted(run)

    def test_gpt(self):
        self.assert_meshes_agree(GPT, "text.txt", f"gpt:{SHAPE}")

    def test_mlp(self):
        (self.folder / "samples.csv").write_text(samples(8 * STEPS, 30, 4))
        self.assert_meshes_agree(["--model", f"mlp:{WIDTHS}", "--data", "csv:samples.csv"], "samples.csv", f"mlp:{WIDTHS}")


if __name__ == "__main__":
    unittest.main()
