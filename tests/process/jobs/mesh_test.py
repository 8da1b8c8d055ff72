"""Pipelines of stages along the data axis of a strategy: bits, bytes, memory, the bubble, checkpoints, faults, refusals."""

import json
import os
import signal
import struct
import unittest

from support import ProgramTest

USAGE, DATA, LOST = 2, 3, 4
RUN = ["--data", "synthetic", "--global-batch", 24, "--steps", 8, "--seed", 5, "--accumulate", 3]
MLP = ["--model", "mlp:32-24-d0.2-20-16-12-4", *RUN]
ADAMW = ["--optimizer", "adamw", "--clip-norm", "0.5"]
GPT = ["--model", "gpt:layers=2,dim=32,heads=4,context=16,vocab=64", *RUN, *ADAMW]


def changed(arguments, values):
    """The arguments with other values of some flags."""
    arguments = list(arguments)
    for flag, value in values.items():
        arguments[arguments.index(flag) + 1] = value
    return arguments


def pipeline(stages, copies=1, schedule="gpipe", strategy="ddp"):
    return ["--strategy", strategy, "--workers", stages * copies, "--pipeline", stages, "--pipeline-schedule", schedule]


class MeshTest(ProgramTest):
    def bits(self, *arguments, out):
        """The model that a run ends with. A run whose bytes or memory are not as predicted does not end with status 0."""
        self.assert_done(self.train(*arguments, "--out", out))
        return (self.folder / out / "model.safetensors").read_bytes()

    def summary(self, out):
        return json.loads((self.folder / out / "summary.json").read_text())

    def losses(self, out):
        lines = map(json.loads, (self.folder / out / "metrics.jsonl").read_text().splitlines())
        return {line["step"]: line["loss"] for line in lines if line.get("loss") is not None}

    @staticmethod
    def tensors(file):
        """The shapes of a saved model, by name."""
        (size,) = struct.unpack("<Q", file[:8])
        header = json.loads(file[8:8 + size])
        return {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}


class Bits(MeshTest):
    def test_a_pipeline_has_the_bits_of_one_process(self):
        for name, more in (("sgd", []), ("adamw", ADAMW), ("bf16", ["--precision", "bf16"]), ("f16", ["--precision", "f16"]),
                           ("again", ["--activation-checkpointing", "unit"]), ("frozen", ["--freeze", "layers.0,layers.3"]),
                           ("lamb", ["--optimizer", "lamb"])):
            arguments = [*MLP, *more]
            expected = self.bits("--strategy", "single", *arguments, out=f"single-{name}")
            for stages, schedule in ((2, "gpipe"), (2, "1f1b"), (4, "gpipe"), (4, "1f1b")):
                with self.subTest(name, stages=stages, schedule=schedule):
                    self.assertEqual(self.bits(*pipeline(stages, schedule=schedule), *arguments,
                                               out=f"{name}-{stages}-{schedule}"), expected)

    def test_batches_that_are_short(self):
        """4096 samples in batches of 1365: the last batch of an epoch has one sample, and two micro-batches have none."""
        arguments = changed(MLP, {"--global-batch": 1365, "--steps": 7})
        expected = self.bits("--strategy", "single", *arguments, out="single")
        for schedule in ("gpipe", "1f1b"):
            self.assertEqual(self.bits(*pipeline(3, schedule=schedule), *arguments, out=schedule), expected)

    def test_a_pipeline_over_tcp(self):
        expected = self.bits("--strategy", "single", *MLP, out="single")
        for name, more in (("tcp", ["--transport", "tcp"]), ("encrypted", ["--transport", "tcp", "--encrypt", "on"]),
                           ("link", ["--link", "1gbit,0.1ms"]), ("late", ["--transport", "tcp", "--overlap", "off"])):
            with self.subTest(name):
                self.assertEqual(self.bits(*pipeline(3, schedule="1f1b"), *MLP, *more, out=name), expected)

    def test_every_strategy_along_the_data_axis(self):
        for strategy in ("ddp-naive", "ddp", "zero1", "zero2", "zero3"):
            for copies in (2, 4):
                data = [*MLP, *ADAMW]
                expected = self.bits("--strategy", strategy, "--workers", copies, *data, out=f"{strategy}-{copies}")
                for stages in (2,) if copies == 4 else (2, 4):
                    for schedule in ("gpipe", "1f1b"):
                        with self.subTest(strategy, copies=copies, stages=stages, schedule=schedule):
                            out = f"{strategy}-{copies}-{stages}-{schedule}"
                            self.assertEqual(self.bits(*pipeline(stages, copies, schedule, strategy), *data, out=out), expected)

    def test_zero3_keeps_or_fetches_ahead(self):
        expected = self.bits("--strategy", "zero3", "--workers", 2, *MLP, out="alone")
        for more in (["--reshard-after-forward", "off"], ["--prefetch", 0], ["--prefetch", 2], ["--units", "root"], ["--units", 2]):
            with self.subTest(more):
                self.assertEqual(self.bits(*pipeline(2, 2, "gpipe", "zero3"), *MLP, *more, out="-".join(map(str, more))), expected)

    def test_a_model_with_buffers(self):
        data = ["--model", "bn-mlp:32-16-16-4", *RUN, "--eval-every", 3]
        self.assertEqual(self.bits(*pipeline(3), *data, out="stages"), self.bits("--strategy", "single", *data, out="single"))
        self.assertEqual(self.summary("stages")["test_accuracy"], self.summary("single")["test_accuracy"])

    def test_the_order_of_passes_is_shown(self):
        result = self.train(*pipeline(2, schedule="1f1b"), *MLP)
        self.assert_done(result)
        for line in ("1 copy of the model, in 2 stages each: layers", "stage 0: F0 F1 B0 F2 B1 B2", "stage 1: F0 B0 F1 B1 F2 B2"):
            self.assertIn(line, result.out)

    def test_losses_and_evaluations_are_those_of_one_process(self):
        data = [*MLP, "--eval-every", 3]
        self.bits("--strategy", "single", *data, out="single")
        self.bits(*pipeline(4, schedule="1f1b"), *data, out="stages")
        self.assertEqual(self.losses("stages"), self.losses("single"))
        for key in ("final_loss", "test_loss", "test_accuracy"):
            self.assertEqual(self.summary("stages")[key], self.summary("single")[key])


class Tied(MeshTest):
    """GPT's token embedding is at the first stage and at the last: its gradient is summed in another order."""

    STEPS = 50

    def test_losses_are_near_those_of_one_process(self):
        data = changed(GPT, {"--steps": self.STEPS})
        self.bits("--strategy", "single", *data, out="single")
        expected = self.losses("single")
        for name, mesh in (("2", pipeline(2)), ("3", pipeline(3, schedule="1f1b")), ("4", pipeline(4, schedule="1f1b")),
                           ("again", [*pipeline(3), "--activation-checkpointing", "unit"]), ("blocks", [*pipeline(2), "--units", "block"])):
            with self.subTest(name):
                self.bits(*mesh, *data, out=name)
                losses = self.losses(name)
                self.assertEqual(len(losses), self.STEPS)
                for step, loss in losses.items():
                    self.assertAlmostEqual(loss, expected[step], delta=1e-5)

    def test_every_strategy_reruns_to_the_same_bits(self):
        self.bits("--strategy", "ddp", "--workers", 2, *GPT, out="ddp")
        expected = self.losses_of_first_worker("ddp")
        for strategy in ("ddp", "zero1", "zero2", "zero3"):
            for stages, schedule in ((2, "gpipe"), (3, "1f1b")):
                with self.subTest(strategy, stages=stages):
                    mesh = pipeline(stages, 2, schedule, strategy)
                    out = f"{strategy}-{stages}"
                    self.assertEqual(self.bits(*mesh, *GPT, out=out), self.bits(*mesh, *GPT, out=out + "-again"))
                    losses = self.losses_of_first_worker(out)
                    for step, loss in expected.items():
                        self.assertAlmostEqual(losses[step], loss, delta=1e-5)

    def losses_of_first_worker(self, out):
        """The losses of the first copy of the model."""
        lines = [json.loads(line) for line in (self.folder / out / "metrics.jsonl").read_text().splitlines()]
        lines = [line for line in lines if line.get("loss") is not None]
        first = min(line["worker"] for line in lines)
        return {line["step"]: line["loss"] for line in lines if line["worker"] == first}

    def test_the_whole_model_is_saved_under_its_names(self):
        one = self.tensors(self.bits("--strategy", "single", *GPT, out="single"))
        stages = self.tensors(self.bits(*pipeline(3, 2, strategy="zero3"), *GPT, out="stages"))
        self.assertEqual(one, stages)
        self.assertIn("h.1.mlp.c_fc.weight", stages)


class Meshes(MeshTest):
    """Tensor ranks, stages and copies together: losses near those of one process, bytes and memory as predicted."""

    DATA = [*changed(GPT, {"--steps": 50, "--model": "gpt:layers=4,dim=32,heads=4,context=16,vocab=64"})]

    def mean_losses(self, out):
        """The losses of the steps, as means over the samples of all copies of the model."""
        sums = {}
        for line in map(json.loads, (self.folder / out / "metrics.jsonl").read_text().splitlines()):
            if line.get("loss") is not None:
                loss, samples = sums.get(line["step"], (0, 0))
                sums[line["step"]] = loss + line["loss"] * line["samples"], samples + line["samples"]
        return {step: loss / samples for step, (loss, samples) in sums.items()}

    def test_meshes_of_up_to_eight_workers(self):
        expected = {}
        for copies in (1, 2):
            self.bits("--strategy", "single", "--virtual-workers", copies, *self.DATA, out=f"single-{copies}")
            expected[copies] = self.mean_losses(f"single-{copies}")
        for strategy, tensor, stages, copies, schedule in (
                ("ddp", 1, 2, 1, "gpipe"), ("ddp", 2, 2, 1, "1f1b"), ("ddp", 4, 2, 1, "gpipe"), ("ddp", 2, 4, 1, "1f1b"),
                ("ddp", 2, 2, 2, "gpipe"), ("ddp", 1, 4, 2, "1f1b"), ("zero1", 2, 2, 1, "gpipe"), ("zero1", 2, 2, 2, "1f1b"),
                ("zero1", 1, 3, 2, "gpipe"), ("zero2", 2, 2, 2, "gpipe"), ("zero3", 2, 2, 2, "1f1b"), ("zero3", 1, 4, 2, "gpipe"),
                ("zero3", 4, 2, 1, "1f1b"), ("zero3", 2, 3, 1, "gpipe")):
            with self.subTest(strategy, tensor=tensor, stages=stages, copies=copies):
                mesh = changed(pipeline(stages, copies, schedule, strategy), {"--workers": tensor * stages * copies})
                out = f"{strategy}-{tensor}-{stages}-{copies}"
                self.bits(*mesh, "--tensor", tensor, *self.DATA, out=out)
                losses = self.mean_losses(out)
                self.assertEqual(len(losses), 50)
                for step, loss in losses.items():
                    self.assertAlmostEqual(loss, expected[copies][step], delta=1e-5)

    def test_a_run_continues_under_another_mesh(self):
        first = [*changed(pipeline(2, 1, strategy="zero3"), {"--workers": 4}), "--tensor", 2]
        data = changed(self.DATA, {"--steps": 6})
        self.bits(*first, *changed(data, {"--steps": 3}), "--checkpoint-every", 3, out="first")
        whole = self.bits(*first, *data, out="whole")
        self.assertEqual(self.bits(*first, *data, "--resume", "first", out="same"), whole)
        self.bits("--strategy", "single", *data, "--resume", "first", out="other")
        other, losses = self.mean_losses("other"), self.mean_losses("whole")
        for step, loss in other.items():
            self.assertAlmostEqual(loss, losses[step], delta=1e-5)


class Predictions(MeshTest):
    def test_bytes_are_one_activation_and_one_gradient_for_each_sample_and_cut(self):
        widths = (24, 20, 16, 12)  # a sample's activation at each of the cuts
        steps, batch, f32 = 8, 24, 4
        self.bits(*pipeline(5), "--stages", "0,1,2,3,4", *MLP, out="run")
        moved = {(entry["role"], entry["direction"]): entry for entry in self.summary("run")["bytes"]}
        for worker in range(5):
            before = widths[worker - 1] if worker > 0 else 0
            after = widths[worker] if worker < 4 else 0
            for direction in ("sent", "received"):
                entry = moved[f"worker {worker}", direction]
                self.assertEqual(entry["measured"], steps * batch * f32 * (before + after))
                self.assertEqual(entry["predicted"], entry["measured"])

    def test_a_frozen_beginning_sends_no_gradients_back(self):
        self.bits(*pipeline(2), "--stages", "0-1,2-4", *MLP, "--freeze", "layers.0,layers.1", out="run")
        moved = {(entry["role"], entry["direction"]): entry["measured"] for entry in self.summary("run")["bytes"]}
        self.assertEqual(moved.get(("worker 1", "sent"), 0), 0)
        self.assertEqual(moved["worker 0", "sent"], 8 * 24 * 4 * 20)

    def test_1f1b_keeps_fewer_activations(self):
        peaks = {}
        for schedule in ("gpipe", "1f1b"):
            data = changed(MLP, {"--accumulate": 8})
            self.bits(*pipeline(2, schedule=schedule), *data, out=schedule)
            for entry in self.summary(schedule)["memory"]:
                if entry["category"] == "activations":
                    peaks[schedule, entry["role"]] = entry["peak"]
                    self.assertEqual(entry["predicted"], entry["peak"])
            self.assertEqual(self.summary(schedule)["pipeline"]["most_in_flight"], 8 if schedule == "gpipe" else 2)
        for role in ("worker 0", "worker 1"):
            self.assertLess(peaks["1f1b", role], peaks["gpipe", role] / 2)

    def test_plain_meshes_report_no_bubble(self):
        self.bits("--strategy", "ddp", "--workers", 2, *MLP, out="run")
        self.assertNotIn("pipeline", self.summary("run"))


class Saved(MeshTest):
    def continued(self, first, then, data, name):
        """The bits of a run that is saved under one mesh, and continues under another."""
        self.bits(*first, *changed(data, {"--steps": 5}), "--checkpoint-every", 5, out=f"{name}-first")
        return self.bits(*then, *data, "--resume", f"{name}-first", out=f"{name}-then")

    def test_a_run_continues_under_another_mesh(self):
        data = [*MLP, *ADAMW]
        single = ["--strategy", "single"]
        whole = self.bits(*single, *data, out="whole")
        for name, first, then in (("stages", pipeline(2), pipeline(2)), ("more", pipeline(2), pipeline(4, schedule="1f1b")),
                                  ("to-one", pipeline(3), single), ("from-one", single, pipeline(5)),
                                  ("cut", pipeline(2), [*pipeline(2), "--stages", "0,1-4"])):
            with self.subTest(name):
                self.assertEqual(self.continued(first, then, data, name), whole)

    def test_a_run_continues_under_another_strategy_and_mesh(self):
        data = [*MLP, *ADAMW]
        plain = ["--strategy", "zero3", "--workers", 2]
        whole = self.bits(*plain, *data, out="whole")
        for name, first, then in (("zero3-stages", plain, pipeline(2, 2, "gpipe", "zero3")),
                                  ("stages-zero3", pipeline(4, 2, "1f1b", "zero3"), plain),
                                  ("zero2-zero3", pipeline(2, 2, "1f1b", "zero2"), pipeline(3, 2, "gpipe", "zero3"))):
            with self.subTest(name):
                self.assertEqual(self.continued(first, then, data, name), whole)

    def test_a_tied_model_continues(self):
        mesh = pipeline(2)
        self.assertEqual(self.continued(mesh, mesh, GPT, "tied"), self.bits(*mesh, *GPT, out="whole"))
        self.continued(pipeline(3, 2, "1f1b", "zero3"), ["--strategy", "single"], GPT, "other")

    def test_init_reads_each_stage_its_part(self):
        self.bits("--strategy", "single", *MLP, out="first")
        begin = ["--init", "first/model.safetensors"]
        self.assertEqual(self.bits(*pipeline(4), *MLP, *begin, out="stages"),
                         self.bits("--strategy", "single", *MLP, *begin, out="single"))


class Faults(MeshTest):
    def test_a_killed_worker_is_named_by_all(self):
        for worker in range(4):
            with self.subTest(worker=worker):
                result = self.train(*pipeline(2, 2), *MLP, "--heartbeat-timeout", 2, "--fault", f"kill:worker:{worker}@step=3",
                                    "--out", f"run-{worker}")
                self.assertEqual(result.status, LOST, result)
                self.assertIn(f"worker {worker}", result.err)
                self.assertEqual(len(result.err.splitlines()), 1)

    def test_a_stopped_worker_is_named_by_all(self):
        for worker in (0, 1):
            with self.subTest(worker=worker):
                job = self.start("psring", "train", *pipeline(2), *changed(MLP, {"--steps": 10_000_000}), "--heartbeat-timeout", 2,
                                 "--out", f"run-{worker}")
                self.until_trains(job, f"run-{worker}")
                os.kill(self.process_of("role-worker", worker), signal.SIGSTOP)
                result = self.finish(job)
                self.assertEqual(result.status, LOST, result)
                self.assertIn(f"worker {worker}", result.err)
                self.assertEqual(len(result.err.splitlines()), 1)

    def test_a_restarted_worker_leaves_the_bits(self):
        data = [*MLP, *ADAMW]
        whole = self.bits(*pipeline(2, 2), *data, out="whole")
        for worker in (0, 1, 3):
            with self.subTest(worker=worker):
                self.assertEqual(self.bits(*pipeline(2, 2), *data, "--checkpoint-every", 2, "--max-restarts", 3,
                                           "--fault", f"kill:worker:{worker}@step=5", out=f"run-{worker}"), whole)

    def test_a_loss_that_is_not_finite_is_named(self):
        result = self.train(*pipeline(2), *MLP, "--lr", "1e30")
        self.assertEqual(result.status, DATA, result)
        self.assertEqual(len(result.err.splitlines()), 1)
        self.assertIn("not finite", result.err)


class Compared(MeshTest):
    def compare(self, *arguments):
        result = self.run_program("psring", "compare", *arguments, "--out", "compared")
        self.assert_done(result)
        return result.out

    def test_meshes_stand_in_one_table_with_strategies(self):
        out = self.compare("--strategies", "single,ddp,pp:2,pp:2:1f1b+zero3,pp:4:1f1b", "--workers", 4, *MLP)
        rows = json.loads((self.folder / "compared" / "compare.json").read_text())["rows"]
        self.assertEqual(len(rows), 5)
        for label in ("pp:2 ", "pp:2:1f1b+zero3 ", "pp:4:1f1b "):
            (line,) = [line for line in out.splitlines() if line.startswith(label) and "✓" in line]
            self.assertIn(" = ", line)
        self.assertIn("stages are idle", out)

    def test_a_tied_model_differs_by_rounding(self):
        out = self.compare("--strategies", "pp:2,pp:3+ddp", "--workers", 6, *GPT)
        for label in ("pp:2 ", "pp:3+ddp "):
            (line,) = [line for line in out.splitlines() if line.startswith(label) and "✓" in line]
            self.assertIn(" ≈ ", line)

    def test_words_that_name_no_mesh(self):
        for word, line in (("pp:x", "expected tp:N"), ("pp:", "expected tp:N"), ("pp:2:late", "pp:N:1f1b"), ("pp:4:", "'pp:4:'"), ("pp:2+", "'pp:2+'"), ("pp:1", "N from 2"),
                           ("pp:2,pp:2", "listed twice"), ("pp:2,pp:2:gpipe", "are the same"), ("tp:2:1f1b", "expected tp:N"),
                           ("pp:2+pp:2", "expected tp:N"), ("pp:2+ddp+zero1", "names two strategies"), ("pp:9", "at most 5 stages"),
                           ("pp:2+dp", "strategy dp")):
            with self.subTest(word):
                self.assert_refused(self.run_program("psring", "compare", "--strategies", word, "--workers", 2, *MLP), USAGE, line)
        self.assert_refused(self.run_program("psring", "compare", "--strategies", "pp:2", "--pipeline", 2, *MLP), USAGE, "in one of them")

    def test_commands_without_a_model_of_such_a_mesh_say_so(self):
        self.assert_refused(self.run_program("psring", "step", "--strategies", "ps", "--servers", 2, "--workers", 2, "--pipeline", 2, *MLP),
                            USAGE, "--servers in a mesh")
        self.assert_refused(self.run_program("psring", "plan", "--strategies", "ps", "--tflops", 1, "--model", "mlp:8-8-8", "--pipeline", 2,
                                             "--hosts", 2), USAGE, "psring plan predicts no servers in a mesh")


class Refused(MeshTest):
    def test_impossible_meshes(self):
        for arguments, line in (
                (["--strategy", "ddp", "--workers", 3, "--pipeline", 2], "--workers 3: cannot be divided"),
                (pipeline(6), "can be cut into at most 5 stages"),
                ([*pipeline(2), "--stages", "0-1,3-4"], "stages leave no gaps"),
                ([*pipeline(2), "--stages", "0-1,2-3"], "the stages end with layer 3"),
                ([*pipeline(2), "--stages", "0,1,2-4"], "lists 3 stages"),
                ([*pipeline(2), "--stages", "nonsense"], "expected the layers of each stage"),
                (["--strategy", "ddp", "--workers", 2, "--stages", "0-1,2-4"], "give --pipeline, too"),
                (["--strategy", "ddp", "--workers", 2, "--pipeline-schedule", "1f1b"], "give --pipeline, too"),
                (["--strategy", "ddp", "--workers", 2, "--pipeline", 0], "--pipeline"),
                (["--strategy", "single", "--pipeline", 2], "strategy single"),
                (["--strategy", "dp", "--workers", 2, "--pipeline", 2], "strategy dp"),
                ([*pipeline(2), "--device", "cuda"], "--device cuda"),
                ([*pipeline(2, 2), "--elastic", "2:4", "--max-restarts", 1], "--elastic"),
                ([*pipeline(2, 2, strategy="zero1"), "--shard-group", 2], "--shard-group"),
                ([*pipeline(2, 2, strategy="zero3"), "--share-host-parameters"], "--share-host-parameters"),
                ([*pipeline(2, 2), "--compress", "int8"], "--compress"),
        ):
            with self.subTest(arguments):
                self.assert_refused(self.train(*arguments, *MLP), USAGE, line)


if __name__ == "__main__":
    unittest.main()
