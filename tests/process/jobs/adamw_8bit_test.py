"""--optimizer adamw-8bit: in every strategy the same bits, its memory as predicted, saved and resumed, its loss near AdamW's."""

import json
import unittest

from support import ProgramTest

USAGE = 2
MODEL = ["--model", "mlp:64-100-4", "--data", "synthetic", "--global-batch", 12, "--seed", 3, "--lr", "0.002"]
EIGHT = [*MODEL, "--optimizer", "adamw-8bit"]


class EightBits(ProgramTest):
    def model(self, *arguments, out):
        self.assert_done(self.train(*arguments, "--out", out))
        return (self.folder / out / "model.safetensors").read_bytes()

    def test_every_strategy_has_the_same_bits(self):
        expected = self.model(*EIGHT, "--strategy", "single", "--virtual-workers", 3, "--steps", 12, out="single")
        for strategy, more in (("ddp", []), ("zero1", []), ("zero2", []), ("zero3", []), ("ps", ["--servers", 2]), ("dp", []),
                               ("ps-zero2", []), ("ps-zero3", ["--servers", 2]), ("ps-colocated", []),
                               ("ps", ["--optimizer-on", "worker"]), ("ps", ["--replicas", 1, "--servers", 2]),
                               ("ps", ["--server-threads", 2])):
            with self.subTest(strategy, more=more):
                out = "-".join(["run", strategy, *(str(word).strip("-") for word in more)])
                self.assertEqual(self.model(*EIGHT, "--strategy", strategy, "--workers", 3, "--steps", 12, *more, out=out), expected)

    def test_memory_is_260_bytes_a_block_and_moment(self):
        for strategy, owners in (("ddp", 1), ("zero1", 2), ("zero3", 2)):
            self.model(*EIGHT, "--strategy", strategy, "--workers", 2, "--steps", 3, out=strategy)
            (entry, *_) = [entry for entry in json.loads((self.folder / strategy / "summary.json").read_text())["memory"]
                           if entry["category"] == "optimizer" and entry["role"].startswith("worker")]
            layers = [64 * 100, 100, 100 * 4, 4]  # tensors begin at multiples of 256; two units
            blocks = [sum(-(-tensor // 256) for tensor in unit) for unit in (layers[:2], layers[2:])]
            padded = sum(-(-unit // 2) * 2 for unit in blocks)
            self.assertEqual(entry["peak"], 2 * 260 * padded // owners)
            self.assertEqual(entry["predicted"], entry["peak"])

    def test_resumed_runs_have_the_bits_of_whole_ones(self):
        for strategy, more in (("zero1", []), ("ps", ["--servers", 2]), ("zero3", ["--precision", "bf16"])):
            with self.subTest(strategy):
                options = [*EIGHT, *more, "--strategy", strategy, "--workers", 2]
                whole = self.model(*options, "--steps", 12, out=f"whole-{strategy}")
                self.model(*options, "--steps", 6, "--checkpoint-every", 6, out=f"half-{strategy}")
                again = self.model(*options, "--steps", 12, "--resume", f"half-{strategy}", out=f"again-{strategy}")
                self.assertEqual(again, whole)

    def test_a_killed_server_and_worker_leave_the_bits(self):
        whole = self.model(*EIGHT, "--strategy", "ps", "--workers", 2, "--servers", 2, "--steps", 12, out="whole")
        faulted = self.train(*EIGHT, "--strategy", "ps", "--workers", 2, "--servers", 2, "--steps", 12, "--replicas", 1, "--fault",
                             "kill:server:0@step=4", "--max-restarts", 3, "--out", "faulted")
        self.assertEqual(faulted.status, 0, faulted)
        self.assertEqual((self.folder / "faulted" / "model.safetensors").read_bytes(), whole)

    def test_loss_is_near_adamw(self):
        losses = {}
        for optimizer in ("adamw", "adamw-8bit"):
            self.model(*MODEL, "--optimizer", optimizer, "--strategy", "single", "--steps", 300, out=optimizer)
            lines = (self.folder / optimizer / "metrics.jsonl").read_text().splitlines()
            steps = [line["loss"] for line in map(json.loads, lines) if "loss" in line]
            losses[optimizer] = sum(steps[-50:]) / 50
        self.assertAlmostEqual(losses["adamw-8bit"] / losses["adamw"], 1, delta=0.02)

    def test_calculator(self):
        result = self.run_program("psring", "memory", "--json", "--parameters", "1M", "--strategies", "single", "--precision", "f32",
                                  "--optimizer", "adamw-8bit")
        self.assert_done(result)
        self.assertEqual(json.loads(result.out)[0]["worker"]["optimizer"]["bytes"], 1_000_000 * 2 * 260 // 256)

    def test_refused_on_a_gpu(self):
        self.assert_refused(self.train(*EIGHT, "--strategy", "single", "--device", "cuda", "--steps", 1), USAGE, "adamw-8bit")


if __name__ == "__main__":
    unittest.main()
