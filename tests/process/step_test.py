"""psring step: the real strategies in the simulator move the bytes that they predict, end with the model of `train`, and
come to the same scene each time."""

import hashlib
import json
import unittest

from support import ProgramTest

JOB = ["--data", "synthetic", "--model", "mlp:16-16-4", "--global-batch", 12, "--steps", 3, "--seed", 5]
LINK = ["--link", "1gbit,0.2ms"]  # the default of psring step
STRATEGIES = {
    "single": [],
    "ps": ["--servers", 2],
    "ps-zero2": [],
    "ps-colocated": [],
    "dp": [],
    "ps-zero3": ["--servers", 3],
    "ddp-naive": [],
    "ddp": [],
    "zero1": ["--optimizer", "adamw"],
    "zero2": ["--accumulate", 2],
    "zero3": ["--clip-norm", 1],
}


def job_of(strategy):
    return JOB if strategy == "single" else [*JOB, "--workers", 3]


class Step(ProgramTest):
    def scene(self, strategy, *more, out="scene.json"):
        result = self.run_program("psring", "step", "--strategies", strategy, *job_of(strategy), *more, "--out", out)
        self.assert_done(result)
        document = json.loads((self.folder / out).read_text())
        self.assertEqual((document["format"], document["version"]), ("psring-scene", 1))
        (scene,) = document["scenes"]
        return scene

    def model_of_train(self, strategy, *more):
        out = f"run-{strategy}"
        self.assert_done(self.run_program("psring", "train", "--strategy", strategy, *job_of(strategy), *LINK, *more, "--out", out))
        return hashlib.sha256((self.folder / out / "model.safetensors").read_bytes()).hexdigest()

    def assert_bytes_hold(self, scene):
        """Frames that left, by worker and step, add up to the prediction; every frame arrives."""
        arrived = [e["frame"] for e in scene["events"] if e["e"] == "arrive"]
        sent = [e for e in scene["events"] if e["e"] == "send"]
        self.assertEqual(sorted(arrived), [e["frame"] for e in sent])
        for place, process in enumerate(scene["processes"]):
            moved = sum(e["bytes"] for e in sent if e["p"] == place and e["exchange"])
            self.assertEqual(moved, sum(process["sent"]))
            if process["role"] == "worker" and "worker_sends" in process["predicted"]:
                self.assertEqual(process["sent"], [process["predicted"]["worker_sends"]] * scene["steps"] if moved else [])
            if process["role"] == "worker" and scene["ownership"]["servers"] > 0:
                received = sum(e["bytes"] for e in sent if e["to"] == place and e["exchange"])
                self.assertEqual(received, process["predicted"]["worker_receives"] * scene["steps"])

    def assert_activities_nest(self, scene):
        """Time never goes back, and what begins ends."""
        times = [e["t"] for e in scene["events"]]
        self.assertEqual(times, sorted(times))
        open_by_place = {}
        for e in scene["events"]:
            stack = open_by_place.setdefault(e["p"], [])
            if e["e"] == "begin":
                stack.append(e["name"])
            elif e["e"] == "end":
                self.assertEqual(stack.pop(), e["name"])
        self.assertEqual([stack for stack in open_by_place.values() if stack], [])

    def test_every_strategy(self):
        for strategy, more in STRATEGIES.items():
            with self.subTest(strategy):
                scene = self.scene(strategy, *more)
                self.assertNotIn("error", scene)
                self.assert_bytes_hold(scene)
                self.assert_activities_nest(scene)
                self.assertEqual(scene["model_sha256"], self.model_of_train(strategy, *more))

    def test_the_same_scene_again(self):
        for strategy in ("ps-async", "zero3"):
            first = self.scene(strategy)
            self.assertEqual(first, self.scene(strategy, out="again.json"))

    def test_more_ways(self):
        for more in (["--shard-group", 3], ["--precision", "bf16"], ["--compress", "int8"], ["--eval-every", 1]):
            with self.subTest(more):
                scene = self.scene("zero2", *more)
                self.assertNotIn("error", scene)
                self.assert_activities_nest(scene)

    def test_kill(self):
        """A restarted worker or server ends in the bits of the undisturbed run; without restarts the scene has the error."""
        for strategy, victim, more in (("ps", "worker:1", []), ("ddp", "worker:1", []), ("ps", "server:0", ["--replicas", 1])):
            with self.subTest(f"{strategy} {victim}"):
                undisturbed = self.scene(strategy)["model_sha256"]
                fault = ["--fault", f"kill:{victim}@step=1", *more]
                killed = self.scene(strategy, *fault, "--max-restarts", 1)
                self.assertEqual([e["e"] for e in killed["events"] if e["e"] in ("die", "return")], ["die", "return"])
                self.assertEqual(killed["model_sha256"], undisturbed)
                if not more:
                    lost = self.scene(strategy, *fault)
                    self.assertIn("was ended by signal 9", lost["error"])
                    self.assertEqual(lost["model_sha256"], "")

    def test_text(self):
        """The terminal's lines tell the same: each frame's sending and arrival, the sums, the loss."""
        result = self.run_program("psring", "step", "--strategies", "zero3", *job_of("zero3"), "--text")
        self.assert_done(result)
        for word in ("sends all-gather", "is complete", "drops the whole parameters of",
                     "step 2 is over, loss", "worker 2: sent"):
            self.assertIn(word, result.out)
        sent, predicted, steps = 0.0, 0.0, 0
        for line in result.out.splitlines():
            if line.startswith("worker 1: sent"):
                words = line.split()
                sent, steps, predicted = float(words[3]), int(words[5]), float(words[8])
        self.assertAlmostEqual(sent, steps * predicted, delta=0.2)

    def test_refused(self):
        for more, word in ((["--strategies", "ps", "--local-reduce"], "--local-reduce"), (["--strategies", "ddp", "--transport", "shm"], "shm"),
                           (["--strategies", "ps", "--fault", "drop:worker:1=1%"], "--fault"),
                           (["--strategies", "ddp", "--gflops", 0], "--gflops"),
                           (["--strategies", "ddp", "--out", "/nowhere/scene.json"], "/nowhere")):
            with self.subTest(more):
                result = self.run_program("psring", "step", *JOB, *more)
                self.assertIn(result.status, (2, 3))
                self.assertEqual(len(result.err.splitlines()), 1, result.err)
                self.assertIn(word, result.err)


if __name__ == "__main__":
    unittest.main()
