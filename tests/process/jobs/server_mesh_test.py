"""Servers along the data axis of a mesh: bits, losses, bytes, memory, checkpoints, faults, refusals."""

import json
import os
import signal
import unittest

from mesh_test import ADAMW, GPT, LOST, MLP, USAGE, MeshTest, changed

STRATEGIES = ("ps", "ps-zero2", "ps-zero3", "ps-colocated")


def mesh(strategy="ps", tensor=1, stages=1, copies=1, schedule="gpipe", servers=None):
    arguments = ["--strategy", strategy, "--workers", tensor * stages * copies]
    if servers is not None:
        arguments += ["--servers", servers]
    for flag, value in (("--tensor", tensor), ("--pipeline", stages)):
        if value > 1:
            arguments += [flag, value]
    return [*arguments, "--pipeline-schedule", schedule] if stages > 1 else arguments


class ServerMeshTest(MeshTest):
    def mean_losses(self, out):
        """The losses of the steps, as means over the samples of all copies of the model."""
        sums = {}
        for line in map(json.loads, (self.folder / out / "metrics.jsonl").read_text().splitlines()):
            if line.get("loss") is not None:
                loss, samples = sums.get(line["step"], (0, 0))
                sums[line["step"]] = loss + line["loss"] * line["samples"], samples + line["samples"]
        return {step: loss / samples for step, (loss, samples) in sums.items()}

    def assert_predicted(self, out):
        """Every role has its rows, and each is as predicted, but for the pushes that wait at a server."""
        summary = self.summary(out)
        for check in summary["bytes"]:
            self.assertEqual(check["measured"], check.get("predicted"), check)
        for check in summary["memory"]:
            if check["peak"] > 0 and (check["role"].startswith("worker") or check["category"] != "communication"):
                self.assertEqual(check["peak"], check.get("predicted"), check)
        return summary


class Bits(ServerMeshTest):
    def test_stages_leave_the_bits(self):
        for strategy in STRATEGIES:
            for copies in (1, 2):
                data = [*MLP, *ADAMW]
                expected = self.bits(*mesh(strategy, copies=copies), *data, out=f"{strategy}-{copies}")
                for stages, schedule in ((2, "gpipe"), (3, "1f1b")):
                    with self.subTest(strategy, copies=copies, stages=stages):
                        out = f"{strategy}-{copies}-{stages}"
                        self.assertEqual(self.bits(*mesh(strategy, 1, stages, copies, schedule), *data, out=out), expected)
                        self.assert_predicted(out)

    def test_options_leave_the_bits(self):
        for name, more in (("sgd", []), ("f16", ["--precision", "f16"]), ("bf16", ["--precision", "bf16", "--clip-norm", 1]),
                           ("frozen", ["--freeze", "layers.0,layers.3"]), ("8-bit", ["--optimizer", "adamw-8bit"]),
                           ("again", ["--activation-checkpointing", "unit"]), ("root", ["--units", "root"])):
            expected = self.bits(*mesh(copies=2), *MLP, *more, out=name)
            for servers in (2, 6, "mixed:2"):
                with self.subTest(name, servers=servers):
                    self.assertEqual(self.bits(*mesh(stages=2, copies=2, servers=servers), *MLP, *more, out=f"{name}-{servers}"), expected)

    def test_links_leave_the_bits(self):
        data = [*MLP, *ADAMW]
        expected = self.bits(*mesh(copies=2), *data, out="alone")
        for name, more in (("tcp", ["--transport", "tcp"]), ("encrypted", ["--transport", "tcp", "--encrypt", "on"]),
                           ("link", ["--link", "1gbit,0.1ms"])):
            for placement in ("standalone", "colocated"):
                with self.subTest(name, placement=placement):
                    self.assertEqual(self.bits(*mesh(stages=2, copies=2, schedule="1f1b"), "--placement", placement, *data, *more,
                                               out=f"{name}-{placement}"), expected)

    def test_gradients_that_do_not_fit_into_a_window(self):
        """Some MiB of gradients wait for their turn while a stage waits for the other, whose servers wait for their sum."""
        data = changed([*MLP, *ADAMW], {"--model": "mlp:32-2048-2048-1024-4", "--steps": 3})
        expected = self.bits(*mesh(copies=2), *data, out="alone")
        for transport in ("shm", "tcp"):
            self.assertEqual(self.bits(*mesh(stages=2, copies=2), *data, "--transport", transport, out=transport), expected)


class Meshes(ServerMeshTest):
    DATA = changed(GPT, {"--steps": 50, "--model": "gpt:layers=4,dim=32,heads=4,context=16,vocab=64"})

    def test_meshes_of_up_to_eight_workers(self):
        expected = {}
        for copies in (1, 2):
            self.bits("--strategy", "single", "--virtual-workers", copies, *self.DATA, out=f"single-{copies}")
            expected[copies] = self.mean_losses(f"single-{copies}")
        for strategy, tensor, stages, copies, schedule in (
                ("ps", 2, 2, 1, "gpipe"), ("ps", 2, 2, 2, "1f1b"), ("ps", 1, 4, 2, "gpipe"), ("ps", 4, 1, 2, "gpipe"),
                ("ps", 2, 4, 1, "1f1b"), ("ps-colocated", 2, 2, 2, "gpipe"), ("ps-zero2", 2, 2, 2, "1f1b"), ("ps-zero3", 2, 2, 2, "gpipe")):
            with self.subTest(strategy, tensor=tensor, stages=stages, copies=copies):
                out = f"{strategy}-{tensor}-{stages}-{copies}"
                arguments = [*mesh(strategy, tensor, stages, copies, schedule), *self.DATA]
                bits = self.bits(*arguments, out=out)
                self.assert_predicted(out)
                losses = self.mean_losses(out)
                self.assertEqual(len(losses), 50)
                for step, loss in losses.items():
                    self.assertAlmostEqual(loss, expected[copies][step], delta=1e-5)
                self.assertEqual(self.bits(*arguments, out=f"{out}-again"), bits)
                self.assertEqual(self.tensors(bits), self.tensors((self.folder / "single-1" / "model.safetensors").read_bytes()))

    def test_servers_of_all_parts_get_the_bytes_of_the_whole_model(self):
        """Every unit lies in one stage, so that the servers of all stages get what those of the whole model get."""
        moved = {}
        for name, arguments in (("whole", mesh(copies=2, servers=2)), ("stages", mesh(stages=2, copies=2, servers=4))):
            self.bits(*arguments, *MLP, out=name)
            moved[name] = {check["direction"]: check["measured"] for check in self.assert_predicted(name)["bytes"]
                           if check["role"] == "servers"}
        self.assertGreater(moved["whole"]["received"], 0)
        self.assertEqual(moved["stages"], moved["whole"])

    def test_a_run_continues_under_another_mesh(self):
        data = [*MLP, *ADAMW]
        whole = self.bits(*mesh(copies=2), *data, out="whole")
        stages = mesh(stages=2, copies=2, servers=4)
        for name, first, then in (("stages", stages, mesh("ps-colocated", 1, 3, 2, "1f1b")), ("to-zero1", stages, ["--strategy", "zero1", "--workers", 2]),
                                  ("from-ps", mesh(copies=2), stages), ("to-ps", stages, mesh(copies=2))):
            with self.subTest(name):
                self.bits(*first, *changed(data, {"--steps": 5}), "--checkpoint-every", 5, out=f"{name}-first")
                self.assertEqual(self.bits(*then, *data, "--resume", f"{name}-first", out=f"{name}-then"), whole)

    def test_a_divided_run_continues(self):
        data = changed(self.DATA, {"--steps": 6})
        first = mesh("ps", 2, 2, 1)
        whole = self.bits(*first, *data, out="whole")
        self.bits(*first, *changed(data, {"--steps": 3}), "--checkpoint-every", 3, out="first")
        self.assertEqual(self.bits(*first, *data, "--resume", "first", out="same"), whole)
        losses = self.mean_losses("whole")
        for name, then in (("single", ["--strategy", "single"]), ("ps", mesh("ps-zero3", 4, 2, 1)), ("ddp", ["--strategy", "ddp", "--workers", 2, "--pipeline", 2])):
            with self.subTest(name):
                self.bits(*then, *data, "--resume", "first", out=name)
                for step, loss in self.mean_losses(name).items():
                    self.assertAlmostEqual(loss, losses[step], delta=1e-5)

    def test_init_reads_each_part_its_values(self):
        self.bits("--strategy", "single", *GPT, out="first")
        begin = ["--init", "first/model.safetensors"]
        self.bits("--strategy", "single", *GPT, *begin, out="single")
        self.bits(*mesh("ps", 2, 2, 1), *GPT, *begin, out="parts")
        expected = self.mean_losses("single")
        for step, loss in self.mean_losses("parts").items():
            self.assertAlmostEqual(loss, expected[step], delta=1e-5)


class Faults(ServerMeshTest):
    def test_a_killed_process_is_named_by_all(self):
        for role, rank in (("worker", 0), ("worker", 3), ("server", 0), ("server", 1)):
            with self.subTest(role, rank=rank):
                result = self.train(*mesh(stages=2, copies=2), *MLP, "--heartbeat-timeout", 2, "--fault", f"kill:{role}:{rank}@step=3",
                                    "--out", f"run-{role}-{rank}")
                self.assertEqual(result.status, LOST, result)
                self.assertIn(f"{role} {rank}", result.err)
                self.assertEqual(len(result.err.splitlines()), 1)

    def test_a_stopped_server_is_named_by_all(self):
        job = self.start("psring", "train", *mesh(stages=2, copies=2), *changed(MLP, {"--steps": 10_000_000}), "--heartbeat-timeout", 2,
                         "--out", "run")
        self.until_trains(job, "run")
        os.kill(self.process_of("role-server", 1), signal.SIGSTOP)
        result = self.finish(job)
        self.assertEqual(result.status, LOST, result)
        self.assertIn("server 1", result.err)
        self.assertEqual(len(result.err.splitlines()), 1)

    def test_a_restarted_process_leaves_the_bits(self):
        data = [*MLP, *ADAMW]
        for placement, lost in (("standalone", ("worker:1", "server:0", "server:1")), ("colocated", ("worker:2",))):
            job = [*mesh(stages=2, copies=2), "--placement", placement, *data]
            whole = self.bits(*job, out=f"whole-{placement}")
            for victim in lost:
                with self.subTest(placement, victim=victim):
                    self.assertEqual(self.bits(*job, "--checkpoint-every", 2, "--max-restarts", 3, "--fault", f"kill:{victim}@step=5",
                                               out=f"run-{placement}-{victim.replace(':', '-')}"), whole)


class Compared(ServerMeshTest):
    def test_meshes_of_servers_stand_in_the_table(self):
        result = self.run_program("psring", "compare", "--strategies", "single,ps,pp:2+ps,pp:2:1f1b+ps-zero3,pp:2+ps-colocated",
                                  "--workers", 4, *MLP, "--out", "compared")
        self.assert_done(result)
        for label in ("pp:2+ps ", "pp:2:1f1b+ps-zero3 ", "pp:2+ps-colocated "):
            (line,) = [line for line in result.out.splitlines() if line.startswith(label) and "✓" in line]
            self.assertIn(" = ", line)


class Refused(ServerMeshTest):
    def test_what_servers_of_a_mesh_cannot(self):
        two = mesh(stages=2, copies=2)
        for arguments, line in (
                (mesh(stages=2, copies=2, servers=3), "--servers 3: each of the 2 parts"),
                (mesh(stages=2, copies=2, servers="mixed:1"), "--servers mixed:1: each of the 2 parts"),
                ([*two, "--consistency", "asp"], "--consistency asp"),
                ([*mesh("ps-ssp", stages=2, copies=2)], "--consistency ssp:3"),
                ([*two, "--backup-workers", 1], "--backup-workers"),
                ([*two, "--local-reduce"], "--local-reduce"),
                ([*two, "--replicas", 1], "--replicas"),
                ([*two, "--optimizer", "lamb"], "--optimizer lamb"),
                ([*two, "--optimizer-on", "worker"], "--optimizer-on worker"),
                ([*two, "--compress", "int8"], "--compress int8"),
                ([*two, "--elastic", "2:4", "--max-restarts", 1], "--elastic"),
                ([*two, "--stages", "0-1,2-4", "--freeze", "layers.0,layers.1"], "stage 0 of --pipeline 2 trains nothing"),
                (["--strategy", "dp", "--workers", 2, "--tensor", 2], "strategy dp"),
        ):
            with self.subTest(arguments):
                self.assert_refused(self.train(*arguments, *MLP), USAGE, line)


if __name__ == "__main__":
    unittest.main()
