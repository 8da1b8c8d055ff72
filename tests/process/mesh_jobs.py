"""What the tests of meshes share: small models, runs of them, and what has to hold after each run."""

import array
import json
import struct

from support import ProgramTest

STEPS = 50
SHAPE = "layers=2,dim=32,heads=4,context=16,vocab=255"
GPT = ["--model", f"gpt:{SHAPE}", "--data", "text:text.txt"]
MLP = ["--model", "mlp:30-21-16-9-4", "--data", "synthetic"]
TRAINING = ["--global-batch", 8, "--clip-norm", "0.5"]
ADAMW = ["--optimizer", "adamw", "--lr", "0.002"]
STILL = ["--lr", "1e-45"]  # too small to change a value, but for the sign of a zero


def words(length):
    """A text of printable bytes that repeats itself, but not exactly."""
    state, text = 1, bytearray()
    while len(text) < length:
        state = state * 1103515245 + 12345 & 0x7FFFFFFF
        text += [b"the ", b"ring ", b"sums ", b"parts ", b"of ", b"all. "][state >> 16 & 7 if state >> 16 & 7 < 6 else 0]
    return bytes(text[:length])


def values(path):
    """The tensors of a saved model as unsigned words, in which both zeros are the same."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    found = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            kind, negative_zero = ("I", 1 << 31) if entry["dtype"] == "F32" else ("H", 1 << 15)
            found[name] = [0 if word == negative_zero else word for word in array.array(kind, data[8 + size + begin:8 + size + end])]
    return found


class MeshJobTest(ProgramTest):
    def setUp(self):
        super().setUp()
        (self.folder / "text.txt").write_bytes(words(12000))

    def run_job(self, *arguments, out, optimizer=ADAMW, seed=5):
        """Trains; a job whose bytes or memory are not as predicted ends with status 6."""
        self.assert_done(self.train(*TRAINING, *optimizer, "--seed", seed, *arguments, "--out", out))
        return self.folder / out

    def losses(self, run):
        """The losses by step: means over the workers that report one."""
        found = {}
        for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()):
            if line.get("loss") is not None and line.get("samples", 0) > 0:
                found.setdefault(line["step"], []).append((line["loss"], line["samples"]))
        return [sum(loss * n for loss, n in found[step]) / sum(n for _, n in found[step]) for step in sorted(found)]

    def assert_near(self, losses, expected):
        self.assertEqual(len(losses), len(expected))
        for step, (loss, other) in enumerate(zip(losses, expected)):
            self.assertLess(abs(loss - other), 1e-5 * abs(other), f"step {step}: {loss}, expected {other}")

    def assert_predicted(self, run):
        summary = json.loads((run / "summary.json").read_text())
        for check in summary["bytes"]:
            self.assertEqual(check["measured"], check.get("predicted"), check)
        checked = [check for check in summary["memory"] if check["peak"] > 0]
        for check in checked:
            self.assertEqual(check["peak"], check.get("predicted"), check)
        return summary
