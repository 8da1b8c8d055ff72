"""--tensor: a GPT and an MLP whose layers several workers divide compute what one process does, in every mesh; their bytes and
memory are as predicted; initial values, files and checkpoints are those of the whole model; a lost rank ends all."""

import json
import unittest

from mesh_jobs import ADAMW, GPT, MLP, STEPS, STILL, TRAINING, MeshJobTest, values

USAGE = 2
PEER_LOST = 4


class Tensor(MeshJobTest):
    def test_losses_are_those_of_one_process(self):
        for name, model in (("gpt", GPT), ("mlp", MLP)):
            single = self.run_job(*model, "--strategy", "single", "--steps", STEPS, out=f"{name}-single")
            for tensor in (2, 4):
                with self.subTest(name, tensor=tensor):
                    options = [*model, "--strategy", "ddp", "--workers", tensor, "--tensor", tensor, "--steps", STEPS]
                    run = self.run_job(*options, "--eval-every", 20, out=f"{name}-{tensor}")
                    self.assert_near(self.losses(run), self.losses(single))
                    summary = self.assert_predicted(run)
                    self.assertAlmostEqual(summary["test_loss"], json.loads((single / "summary.json").read_text())["test_loss"], 4)
                    again = self.run_job(*options, "--eval-every", 20, out=f"{name}-{tensor}-again")
                    model_file = "model.safetensors"
                    self.assertEqual((run / model_file).read_bytes(), (again / model_file).read_bytes())

    def test_meshes(self):
        single = self.run_job(*GPT, "--strategy", "single", "--steps", STEPS, out="single")
        expected = self.losses(single)
        for strategy, workers, tensor, more in (
            ("ddp", 4, 2, []),
            ("zero1", 4, 2, []),
            ("zero2", 4, 2, ["--accumulate", 2]),
            ("zero3", 4, 2, ["--units", "block"]),
            ("zero3", 8, 4, ["--eval-every", 20]),
            ("ddp", 8, 2, ["--accumulate", 2]),
            ("ddp", 2, 2, ["--activation-checkpointing", "unit", "--units", "block", "--accumulate", 2]),
            ("ddp", 4, 2, ["--pipeline", 2, "--accumulate", 4]),
            ("zero1", 8, 2, ["--pipeline", 2, "--accumulate", 2, "--pipeline-schedule", "1f1b"]),
            ("zero3", 8, 2, ["--pipeline", 2, "--accumulate", 2, "--activation-checkpointing", "unit", "--units", "block"]),
            ("ddp", 8, 4, ["--pipeline", 2, "--accumulate", 4, "--pipeline-schedule", "1f1b", "--activation-checkpointing", "unit"]),
        ):
            name = "-".join(map(str, [strategy, workers, tensor, *more])).replace("--", "")
            with self.subTest(name):
                run = self.run_job(*GPT, "--strategy", strategy, "--workers", workers, "--tensor", tensor, "--steps", STEPS, *more,
                                   out=name)
                self.assert_near(self.losses(run), expected)
                self.assert_predicted(run)

    def test_evaluations_are_no_part_of_a_steps_bytes(self):
        for transport in ("shm", "tcp"):
            with self.subTest(transport):
                bytes_of = {}
                for every in (0, 2):
                    run = self.run_job(*GPT, "--strategy", "ddp", "--workers", 4, "--tensor", 2, "--steps", 6, "--transport", transport,
                                       "--eval-every", every, out=f"evaluated-{transport}-{every}")
                    summary = self.assert_predicted(run)
                    bytes_of[every] = [(check["role"], check["direction"], check["measured"]) for check in summary["bytes"]]
                    sent = json.loads((run / "reports" / "worker-0.json").read_text())["bytes"]["sent"]
                    self.assertGreater(sum(peer["payload"] for peer in sent["start-up"].values()), 0)
                self.assertEqual(bytes_of[0], bytes_of[2])

    def test_compare_takes_meshes(self):
        result = self.run_program("psring", "compare", *TRAINING, *ADAMW, *GPT, "--steps", 10, "--workers", 4, "--strategies",
                                  "ddp,tp:2,tp:2+ddp,tp:4+zero3,tp:2+pp:2:1f1b", "--out", "comparison")
        self.assertEqual(result.status, 0, result)
        rows = {row["strategy"]: row for row in json.loads((self.folder / "comparison" / "compare.json").read_text())["rows"]}
        self.assertEqual(set(rows), {"ddp", "tp:2", "tp:2+ddp", "tp:4+zero3", "tp:2+pp:2:1f1b"})
        self.assertEqual({name: row["equality"] for name, row in rows.items()},
                         {"ddp": "=", **{name: "≈" for name in rows if name != "ddp"}})

    def test_a_part_takes_a_part_of_the_memory(self):
        peaks = {}
        for tensor in (1, 2, 4):
            run = self.run_job(*GPT, "--strategy", "ddp", "--workers", tensor, "--tensor", tensor, "--steps", 2, out=f"run-{tensor}")
            memory = [check for check in self.assert_predicted(run)["memory"] if check["role"] == "worker 0"]
            peaks[tensor] = {check["category"]: check["peak"] for check in memory}
        for category in ("parameters", "gradients", "optimizer"):
            self.assertLess(peaks[2][category], 0.62 * peaks[1][category])
            self.assertLess(peaks[4][category], 0.62 * peaks[2][category])
        self.assertLess(peaks[2]["activations"], 0.7 * peaks[1]["activations"])

    def test_parts_begin_with_the_numbers_of_one_process(self):
        for name, model in (("gpt", GPT), ("mlp", MLP)):
            still = [*model, "--steps", 1]
            whole = self.run_job(*still, "--strategy", "single", out=f"{name}-whole", optimizer=STILL)
            expected = values(whole / "model.safetensors")
            for tensor, more in ((2, []), (4, []), (2, ["--pipeline", 2]), (2, ["--precision", "bf16", "--master-copy", "on"])):
                with self.subTest(name, tensor=tensor, more=more):
                    options = ["--strategy", "zero1", "--workers", 4, "--tensor", tensor, *more]
                    run = self.run_job(*still, *options, out=f"{name}-{tensor}-{len(more)}", optimizer=STILL)
                    if "bf16" not in more:
                        self.assertEqual(values(run / "model.safetensors"), expected)
                    again = self.run_job(*still, "--init", run / "model.safetensors", *options, optimizer=STILL, seed=9,
                                         out=f"{name}-{tensor}-{len(more)}-init")
                    self.assertEqual(values(again / "model.safetensors"), values(run / "model.safetensors"))

    def test_checkpoints_pass_from_mesh_to_mesh(self):
        expected = self.losses(self.run_job(*GPT, "--strategy", "single", "--steps", STEPS, out="single"))
        meshes = {
            "single": ["--strategy", "single"],
            "tp2": ["--strategy", "ddp", "--workers", 2, "--tensor", 2],
            "tp2-zero1": ["--strategy", "zero1", "--workers", 4, "--tensor", 2],
            "tp2-pp2": ["--strategy", "ddp", "--workers", 4, "--tensor", 2, "--pipeline", 2],
            "tp4": ["--strategy", "zero3", "--workers", 4, "--tensor", 4],
        }
        for name, mesh in meshes.items():
            self.run_job(*GPT, *mesh, "--steps", 25, "--checkpoint-every", 25, out=f"half-{name}")
        for begin, end in (("single", "tp2"), ("tp2", "single"), ("tp2", "tp4"), ("tp4", "tp2-pp2"), ("tp2-pp2", "tp2-zero1"),
                           ("tp2-zero1", "single"), ("tp2", "tp2")):
            with self.subTest(begin, end=end):
                run = self.run_job(*GPT, *meshes[end], "--steps", STEPS, "--resume", f"half-{begin}", out=f"{begin}-{end}")
                self.assert_near(self.losses(run), expected[25:])
                self.assert_predicted(run)
        whole = self.run_job(*GPT, *meshes["tp2"], "--steps", STEPS, out="whole-tp2")
        self.assertEqual((self.folder / "tp2-tp2" / "model.safetensors").read_bytes(), (whole / "model.safetensors").read_bytes())

    def test_a_lost_rank_ends_all(self):
        for strategy, workers, rank in (("ddp", 2, 1), ("zero3", 4, 2), ("ddp", 4, 0)):
            with self.subTest(strategy, rank=rank):
                result = self.train(*TRAINING, *ADAMW, *GPT, "--strategy", strategy, "--workers", workers, "--tensor", 2, "--steps", 1000000,
                                    "--fault", f"kill:worker:{rank}@step=3", "--out", f"lost-{strategy}-{rank}", limit=60)
                self.assert_refused(result, PEER_LOST, f"worker {rank}")

    def test_a_restart_has_the_same_bits(self):
        options = [*GPT, "--strategy", "zero1", "--workers", 4, "--tensor", 2, "--steps", 20]
        whole = self.run_job(*options, out="whole")
        result = self.train(*TRAINING, *ADAMW, "--seed", 5, *options, "--checkpoint-every", 5, "--max-restarts", 2, "--fault", "kill:worker:3@step=12",
                            "--out", "again")
        self.assertEqual(result.status, 0, result)
        self.assertEqual((self.folder / "again" / "model.safetensors").read_bytes(), (whole / "model.safetensors").read_bytes())

    def test_what_cannot_be_divided_is_refused(self):
        for arguments, *said in (
            ([*GPT, "--workers", 3, "--tensor", 3], "--tensor 3", "4 heads of attention are not divisible by 3"),
            ([*MLP, "--workers", 32, "--tensor", 32], "--tensor 32", "a width of 21 has no column for each part"),
            ([*GPT, "--workers", 3, "--tensor", 2], "--workers 3", "--tensor 2"),
            (["--model", "conv:1x28x28-16c3-p2-10", "--data", "synthetic", "--workers", 2, "--tensor", 2], "--tensor 2", "conv",
             "cannot be divided"),
            (["--model", "bn-mlp:30-21-4", "--data", "synthetic", "--workers", 2, "--tensor", 2], "--tensor 2", "bn-mlp",
             "cannot be divided"),
            ([*GPT, "--workers", 2, "--tensor", 2, "--compress", "int8"], "--tensor 2", "--compress int8"),
            ([*GPT, "--workers", 2, "--tensor", 2, "--optimizer", "lamb"], "--tensor 2", "--optimizer lamb"),
            ([*GPT, "--workers", 2, "--tensor", 2, "--device", "cuda"], "--tensor 2", "--device cuda"),
            ([*GPT, "--workers", 2, "--tensor", 2, "--compute", "sleep:1ms"], "--tensor 2", "--compute sleep:1ms"),
        ):
            with self.subTest(arguments=arguments):
                self.assert_refused(self.train(*TRAINING, "--strategy", "ddp", "--steps", 2, *arguments), USAGE, *said)
        for strategy in ("single", "dp"):
            with self.subTest(strategy):
                result = self.train(*TRAINING, *GPT, "--strategy", strategy, "--tensor", 2, "--steps", 2)
                self.assert_refused(result, USAGE, "--tensor", strategy)


if __name__ == "__main__":
    unittest.main()
