"""psring step: the real strategies in the simulator move the bytes that they predict, end with the model of `train`, and
come to the same scene each time."""

import hashlib
import json
import pathlib
import unittest

from support import ProgramTest

ROOT = pathlib.Path(__file__).resolve().parents[3]
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


def job_of(strategy, workers=3):
    return JOB if strategy == "single" else [*JOB, "--workers", workers]


class Step(ProgramTest):
    def scene(self, strategy, *more, out="scene.json", workers=3):
        result = self.run_program("psring", "step", "--strategies", strategy, *job_of(strategy, workers), *more, "--out", out)
        self.assert_done(result)
        document = json.loads((self.folder / out).read_text())
        self.assertEqual((document["format"], document["version"]), ("psring-scene", 1))
        (scene,) = document["scenes"]
        return scene

    def model_of_train(self, strategy, *more):
        out = f"run-{strategy}"
        link = [] if strategy == "single" else LINK
        self.assert_done(self.run_program("psring", "train", "--strategy", strategy, *job_of(strategy), *link, *more, "--out", out))
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
                of_run = process["predicted"].get("worker_sends_of_run")
                if of_run is None:
                    self.assertEqual(process["sent"], [process["predicted"]["worker_sends"]] * scene["steps"] if moved else [])
                else:
                    self.assertEqual(moved, process["predicted"]["worker_sends"] * scene["steps"] + of_run)
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

    def assert_sources_known(self, scene):
        """Sources are lines of the repository, and the events of the exchange have one."""
        for source in scene["sources"]:
            path = ROOT / source["file"]
            self.assertFalse(source["file"].startswith("/"), source)
            self.assertEqual(source["text"], path.read_text().splitlines()[source["line"] - 1].strip(), source)
            self.assertRegex(source["function"], r"^[A-Za-z_]+(::[A-Za-z_]+)*$")
        for e in scene["events"]:
            from_worker = scene["processes"][e["p"]]["role"] == "worker" if e["p"] < len(scene["processes"]) else False
            if e["e"] in ("begin", "start", "hold", "drop", "gradient") or e["e"] == "send" and e["exchange"] and from_worker:
                self.assertIn("source", e)
                self.assertLess(e["source"], len(scene["sources"]))

    def collectives(self, scene):
        """Returns the start and finish events of each collective with a plan, by rank, for each group and call."""
        found = {}
        for e in scene["events"]:
            if e["e"] in ("start", "finish") and "group" in e and e["name"] not in ("send", "recv"):
                start_by_place = found.setdefault((e["group"], e["call"]), {})
                if e["e"] == "start":
                    start_by_place[e["p"]] = [e]
                else:
                    start_by_place[e["p"]].append(e)
        return [calls for calls in found.values() if all("plan" in one[0] for one in calls.values())]

    def assert_plans_hold(self, scene):
        """The plan's rounds lead from the values before a collective to those after it."""
        for calls in self.collectives(scene):
            first = next(iter(calls.values()))[0]
            plan = scene["plans"][first["plan"]]
            groups = {tuple(start["members"]) for start, *_ in calls.values()}  # groups that share no process
            self.assertEqual(plan["operation"], first["name"])
            self.assertEqual(plan["ranks"], len(first["members"]))
            for members in groups:
                if any("values" not in calls[place][0] or len(calls[place]) < 2 for place in members):
                    continue
                values = [calls[place][0]["values"] for place in members]
                results = [calls[place][1]["values"] for place in members]
                self.assert_values_follow(plan, values, results)

    def assert_values_follow(self, plan, values, results):
        chunks = [tuple(chunk) for chunk in plan["chunks"]]
        for messages in plan["rounds"]:
            before = [list(of_rank) for of_rank in values]
            for sender, receiver, begin, end, action in messages:
                for k, (first, last) in enumerate(chunks):
                    if begin <= first and last <= end:
                        sent = before[sender][k]
                        values[receiver][k] = sent if action == "copy" else values[receiver][k] + sent
        divisor = plan["ranks"] if plan.get("reduction") == "mean" else 1
        for rank, of_rank in enumerate(results):
            for k, result in enumerate(of_rank):
                if result is not None:
                    self.assertAlmostEqual(result, values[rank][k] / divisor, delta=2e-5 * max(1, abs(result)))

    MESHES = {
        "pp:2": ["--pipeline", 2, "--workers", 2],
        "pp:2:1f1b": ["--pipeline", 2, "--pipeline-schedule", "1f1b", "--workers", 2],
        "tp:2+ddp": ["--tensor", 2, "--workers", 4],
        "pp:2:1f1b+zero1": ["--pipeline", 2, "--pipeline-schedule", "1f1b", "--workers", 4],
        "tp:2+pp:2": ["--tensor", 2, "--pipeline", 2, "--workers", 4],
    }

    def test_a_mesh_with_a_smaller_last_batch(self):
        """No step of the scene has the data's last batch, which is smaller: each sends more than the least that a step sends."""
        job = ["--data", "synthetic", "--model", "mlp:64-64-64-32-10", "--global-batch", 24, "--steps", 2]
        for word, workers in (("tp:3+ddp", 3), ("tp:2", 2), ("pp:2", 2), ("tp:2+pp:2", 4)):
            with self.subTest(word):
                words = ["psring", "step", "--strategies", word, "--workers", workers, *job]
                self.assert_done(self.run_program(*words, "--out", "scene.json"))
                (scene,) = json.loads((self.folder / "scene.json").read_text())["scenes"]
                self.assert_bytes_hold(scene)
                self.assertTrue(any("worker_sends_of_run" in process["predicted"] for process in scene["processes"]))
                told = self.run_program(*words, "--text").out
                if word == "tp:3+ddp":
                    self.assertIn("worker 0: sent 51.8 KiB, 51.8 KiB predicted for 2 steps", told)

    def test_meshes(self):
        """Scenes of a mesh end with the model that train writes; frames add up to the formulas; events have units of the process's stage."""
        models = (["--model", "mlp:16-16-16-4"], ["--model", "gpt:layers=2,dim=16,heads=2,context=8,vocab=32"])
        for word, mesh in self.MESHES.items():
            for number, model in enumerate(models):
                with self.subTest(word, model=model):
                    job = ["--data", "synthetic", *model, "--global-batch", 8, "--accumulate", 4, "--steps", 2, "--seed", 5]
                    self.assert_done(self.run_program("psring", "step", "--strategies", word, *job, "--workers", 4, "--out", "scene.json"))
                    (scene,) = json.loads((self.folder / "scene.json").read_text())["scenes"]
                    self.assertNotIn("error", scene)
                    run = f"{number}-" + word.replace(":", "-").replace("+", "-")
                    strategy = word.split("+")[-1] if word.split("+")[-1] in ("ddp", "zero1") else "ddp"
                    self.assert_done(self.run_program("psring", "train", "--strategy", strategy, *mesh, *job, *LINK, "--out", run))
                    model_hash = hashlib.sha256((self.folder / run / "model.safetensors").read_bytes()).hexdigest()
                    self.assertEqual(scene["model_sha256"], model_hash)
                    self.assert_bytes_hold(scene)
                    self.assert_activities_nest(scene)
                    own = [set(process["units"]) for process in scene["processes"]]
                    self.assertEqual(set().union(*own), set(range(len(scene["units"]))))
                    for e in scene["events"]:
                        if "unit" in e and e["p"] < len(own):
                            self.assertIn(e["unit"], own[e["p"]], e)
        result = self.run_program("psring", "step", "--strategies", "pp:2+ps", "--servers", 2, "--workers", 4, *JOB)
        self.assertEqual(result.status, 2)
        self.assertIn("--servers in a mesh: psring step cannot simulate it", result.err)
        self.assertEqual(result.err.count("\n"), 1)

    def test_every_strategy(self):
        for strategy, more in STRATEGIES.items():
            with self.subTest(strategy):
                scene = self.scene(strategy, *more)
                self.assertNotIn("error", scene)
                self.assert_bytes_hold(scene)
                self.assert_activities_nest(scene)
                self.assert_sources_known(scene)
                self.assert_plans_hold(scene)
                self.assertEqual(scene["model_sha256"], self.model_of_train(strategy, *more))

    def test_tables(self):
        """Rows' keys, values and gradients are frames of a unit beside the dense ones, and their bytes are as predicted."""
        job = ["--model", "fm:dense=2,features=3,dim=4", "--data", "criteo-like:samples=1k", "--table-optimizer", "adagrad",
               *JOB[4:], "--workers", 3, *LINK]
        models = set()
        for strategy, servers in (("ps", 2), ("hybrid", 3), ("ps-colocated", 3), ("zero1", 1)):
            with self.subTest(strategy):
                more = ["--strategy", strategy, *job, "--servers", servers]
                self.assert_done(self.run_program("psring", "step", "--strategies", *more[1:], "--out", "scene.json"))
                (scene,) = json.loads((self.folder / "scene.json").read_text())["scenes"]
                self.assertNotIn("error", scene)
                self.assert_activities_nest(scene)
                (table,) = [(number, unit) for number, unit in enumerate(scene["units"]) if unit.get("table")]
                self.assertEqual(table[1], {"name": "rows", "table": True, "width": 5, "trained": True})
                sent = [e for e in scene["events"] if e["e"] == "send"]
                self.assertEqual({e["name"] for e in sent if e.get("unit") == table[0] and e["exchange"]}, {"rows_pull", "rows", "rows_push"})
                for place, process in enumerate(scene["processes"]):
                    if process["role"] != "worker":
                        continue
                    moved = sum(e["bytes"] for e in sent if e["p"] == place and e["exchange"])
                    self.assertEqual(moved, sum(process["sent"]))
                    self.assertEqual(moved, scene["steps"] * process["predicted"]["worker_sends"] + process["predicted"]["worker_sends_of_run"])
                of_servers = sum(sum(process["sent"]) for process in scene["processes"] if process["role"] == "server")
                predicted = scene["processes"][0]["predicted"]
                self.assertEqual(of_servers, scene["steps"] * predicted.get("servers_send", 0) + predicted["servers_send_of_run"])
                self.assertEqual({len(e["bytes"]) for e in scene["events"] if e["e"] == "memory"}, {6})
                self.assert_done(self.run_program("psring", "train", *more, "--out", strategy))
                self.assertEqual(scene["model_sha256"], hashlib.sha256((self.folder / strategy / "model.safetensors").read_bytes()).hexdigest())
                models.add(scene["model_sha256"])
        self.assertEqual(len(models), 1)
        with self.subTest("the default strategies that train tables"):
            self.assert_done(self.run_program("psring", "step", *job, "--out", "scene.json"))
            self.assertEqual([scene["label"] for scene in json.loads((self.folder / "scene.json").read_text())["scenes"]], ["ddp"])

    def test_the_same_scene_again(self):
        for strategy in ("ps-async", "zero3"):
            first = self.scene(strategy)
            self.assertEqual(first, self.scene(strategy, out="again.json"))

    def test_the_default_link(self):
        for more, link in (([], LINK[1]), (["--device", "cpu"], LINK[1]), (["--link", "10gbit"], "10gbit")):
            with self.subTest(more):
                self.assertEqual(self.scene("ddp", *more)["job"]["link"], link)

    def test_more_ways(self):
        for more in (["--shard-group", 3], ["--precision", "bf16"], ["--compress", "int8"], ["--eval-every", 1]):
            with self.subTest(more):
                scene = self.scene("zero2", *more)
                self.assertNotIn("error", scene)
                self.assert_activities_nest(scene)

    def test_compressed_gradients(self):
        for strategy in ("zero1", "zero2", "zero3"):
            for codec in ("int8", "top-k:ratio=0.1"):
                with self.subTest((strategy, codec)):
                    self.assert_bytes_hold(self.scene(strategy, "--compress", codec))

    def test_followers(self):
        scene = self.scene("ps", "--servers", 2, "--replicas", 1)
        predicted = scene["processes"][0]["predicted"]
        self.assertEqual(predicted["servers_replicate"], sum(unit["gradient_bytes"] for unit in scene["units"]) * 3)
        servers = [p for p, process in enumerate(scene["processes"]) if process["role"] == "server"]
        self.assertEqual(len(servers), 4)
        self.assertEqual(sum(sum(scene["processes"][p]["sent"]) for p in servers),
                         3 * (predicted["servers_send"] + predicted["servers_replicate"]))
        for p in servers:
            self.assertTrue(any(e["e"] == "join" and e["p"] == p for e in scene["events"]))
            self.assertTrue(any(e["e"] == "memory" and e["p"] == p for e in scene["events"]))

    def test_sources_of_a_strategy(self):
        """The lines are those of the strategy's parts, not of the transport."""
        def files(scene, kind, *names):
            return {scene["sources"][e["source"]]["file"] for e in scene["events"]
                    if e["e"] == kind and e["name"] in names and "source" in e}
        zero3 = self.scene("zero3")
        self.assertEqual(files(zero3, "send", "all_gather"), {"worker/exchange/workers/worker_source.cpp"})
        self.assertEqual(files(zero3, "send", "reduce_scatter"), {"worker/exchange/workers/reduce_scatter.cpp"})
        self.assertEqual(files(zero3, "begin", "forward", "backward", "acquire"), {"worker/walk.cpp"})
        servers = self.scene("ps")
        self.assertEqual(files(servers, "send", "push_pull"), {"worker/exchange/servers/pushed_gradients.cpp"})
        self.assertEqual(files(servers, "begin", "aggregate", "update"), {"server/shard_push.cpp"})
        self.assertEqual(files(servers, "send", "values"), {"server/shard_push.cpp"})

    def test_algorithms(self):
        """Each algorithm has its plan, and real values that follow it."""
        for algorithm, rounds in (("ring", 6), ("exchange", 1), ("doubling", 2), ("halving-doubling", 4), ("star", 2)):
            with self.subTest(algorithm):
                scene = self.scene("ddp", "--algorithm", algorithm, workers=4)
                self.assert_plans_hold(scene)
                plans = [plan for plan in scene["plans"] if plan["operation"] == "all_reduce"]
                self.assertEqual({plan["algorithm"] for plan in plans}, {algorithm})
                self.assertEqual({len(plan["rounds"]) for plan in plans}, {rounds})
                shown = [one for calls in self.collectives(scene) for one in calls.values() if "values" in one[0]]
                self.assertGreaterEqual(len(shown), 4)

    def test_units_of_shard_groups(self):
        """With shard groups, the frames of each unit add up to what moves for the unit."""
        scene = self.scene("zero2", "--shard-group", 2, "--algorithm", "ring", workers=4)
        units = {}
        moved = {}
        for e in scene["events"]:
            if e["e"] == "start" and "group" in e:
                units[e["p"], e["group"], e["call"]] = e.get("units")
            elif e["e"] == "send" and e["exchange"]:
                begin, end = units[e["p"], e["group"], e["call"]]
                self.assertEqual(end, begin + 1)
                key = (begin, e["name"])
                moved[key] = moved.get(key, 0) + e["bytes"]
        for number, unit in enumerate(scene["units"]):
            size = unit["gradient_bytes"] * scene["steps"]
            # Within two groups of 2 a half of the unit moves at each rank; the two owners of a half average it: as much.
            self.assertEqual(moved[number, "reduce_scatter"], 4 * size // 2)
            self.assertEqual(moved[number, "all_gather"], 4 * size // 2)
            self.assertEqual(moved[number, "all_reduce"], 4 * size // 2)

    def test_servers_take_time(self):
        """Aggregation and update take their bytes over the rate; model and bytes stay the same."""
        slow = self.scene("ps", "--server-gbytes", 0.1)
        quick = self.scene("ps", "--server-gbytes", 1000)
        open_spans, lanes = {}, {}
        for e in slow["events"]:
            if e.get("name") in ("aggregate", "update") and slow["processes"][e["p"]]["role"] == "server":
                if e["e"] == "begin":
                    open_spans[e["p"], e["name"]] = e
                else:
                    begun = open_spans.pop((e["p"], e["name"]))
                    self.assertAlmostEqual(e["t"] - begun["t"], e["bytes"] / 0.1, delta=1)
                    lanes[e["name"]] = lanes.get(e["name"], 0) + e["bytes"]
        gradient = sum(unit["gradient_bytes"] for unit in slow["units"])
        self.assertEqual(lanes, {"aggregate": 3 * gradient * 3, "update": 3 * gradient * 3})  # SGD: g + 2 p
        self.assertGreater(slow["duration_ns"], quick["duration_ns"])
        self.assertEqual(slow["model_sha256"], quick["model_sha256"])
        self.assertEqual([p["sent"] for p in slow["processes"]], [p["sent"] for p in quick["processes"]])

    def test_kills(self):
        """--kills records the death of each worker and server; the runs end in the bits of the undisturbed one."""
        for strategy, more in (("ps", ["--replicas", 1]), ("zero1", [])):
            with self.subTest(strategy):
                scene = self.scene(strategy, *more, "--kills", 1)
                names = [f"kill {p['name']}" for p in scene["processes"] if p["rank"] < (1 if p["role"] == "server" else 3)]
                self.assertEqual(list(scene["runs"]), names)
                for name, run in scene["runs"].items():
                    with self.subTest(name):
                        self.assertNotIn("error", run)
                        self.assertEqual((f"kill {scene['processes'][run['process']]['name']}", run["step"]), (name, 1))
                        self.assertGreater(run["events_in_common"], 0)
                        events = scene["events"][:run["events_in_common"]] + run["events"]
                        # Nobody else has the optimizer state of a worker of zero1: there all begin anew.
                        died, returned = ([e["p"] for e in events if e["e"] == kind] for kind in ("die", "return"))
                        self.assertEqual(died[0], run["process"])
                        self.assertEqual(sorted(returned), sorted(died) if strategy == "zero1" else [run["process"]])
                        self.assertEqual(len(set(died)), 3 if strategy == "zero1" else 1)
                        self.assertEqual(run["model_sha256"], scene["model_sha256"])
                        sent = [e["frame"] for e in events if e["e"] == "send"]
                        self.assertEqual(sent, list(range(len(sent))))
                # Recorded alone, a run has the same events.
                alone = self.scene(strategy, *more, "--fault", "kill:worker:1@step=1", "--max-restarts", 1)
                run = scene["runs"]["kill worker 1"]
                events = scene["events"][:run["events_in_common"]] + run["events"]
                self.assertEqual([(e["t"], e["e"], e["p"]) for e in alone["events"]], [(e["t"], e["e"], e["p"]) for e in events])

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

    def test_scene_files(self):
        """--scene puts recorded scenes into a page."""
        self.scene("ddp", out="ddp.json")
        self.scene("ps", out="ps.json")
        self.assert_done(self.run_program("psring", "step", "--scene", "ddp.json,ps.json", "--out", "both.json"))
        both = json.loads((self.folder / "both.json").read_text())
        self.assertEqual([scene["label"] for scene in both["scenes"]], ["ddp", "ps"])
        self.assert_done(self.run_program("psring", "step", "--scene", "ddp.json", "--out", "page.html"))
        self.assertIn('"psring-scene"', (self.folder / "page.html").read_text())
        for text in ("{}", '{"format":"psring-scene","version":99,"scenes":[]}', "no JSON"):
            (self.folder / "wrong.json").write_text(text)
            result = self.run_program("psring", "step", "--scene", "wrong.json")
            self.assertEqual(result.status, 3, result.err)
            self.assertIn("wrong.json", result.err)
        self.assert_refused(self.run_program("psring", "step", "--scene", "none.json"), 3, "none.json: no such file")
        for other in (["--strategies", "ps"], ["--gflops", 2], ["--kills", 1], ["--text"], ["--workers", 3], ["--lr", 1]):
            self.assert_refused(self.run_program("psring", "step", "--scene", "ddp.json", *other), 2, other[0], "--scene")
        for flag in ("--gflops", "--server-gbytes"):
            self.assert_refused(self.run_program("psring", "step", flag, "inf"), 2, f"{flag} inf: expected a rate")

    def test_mixed_servers(self):
        """Two standalone servers own more than the three in the workers' processes; the model is that of train."""
        mixed = ["--servers", "mixed:2"]
        scene = self.scene("ps", *mixed)
        self.assert_bytes_hold(scene)
        self.assertEqual(scene["model_sha256"], self.model_of_train("ps", *mixed))
        shares = scene["ownership"]["shares"]
        self.assertEqual([round(share, 6) for share in shares], [round(4 / 11, 6)] * 2 + [round(1 / 11, 6)] * 3)

    def test_refused(self):
        for more, word in ((["--strategies", "ps", "--local-reduce"], "--local-reduce"), (["--strategies", "ddp", "--transport", "shm"], "shm"),
                           (["--strategies", "ps", "--fault", "drop:worker:1=1%"], "--fault"),
                           (["--strategies", "ddp", "--gflops", 0], "--gflops"),
                           (["--strategies", "ps", "--server-gbytes", 0], "--server-gbytes"),
                           (["--strategies", "ddp", "--workers", 2, "--kills", 9], "--kills"),
                           (["--strategies", "ps-colocated", "--workers", 2, "--kills", 1], "--kills"),
                           (["--strategies", "ps", "--workers", 2, "--servers", "mixed:1", "--kills", 1], "--kills"),
                           (["--strategies", "ddp", "--out", "/nowhere/scene.json"], "/nowhere")):
            with self.subTest(more):
                result = self.run_program("psring", "step", *JOB, *more)
                self.assertIn(result.status, (2, 3))
                self.assertEqual(len(result.err.splitlines()), 1, result.err)
                self.assertIn(word, result.err)


if __name__ == "__main__":
    unittest.main()
