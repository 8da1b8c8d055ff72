"""--events on: what processes record is read to the last flush, whatever became of them, and trace.json is a view of it."""

import json
import os
import re
import signal
import unittest

from report_test import document_of
from support import ENDLESS, TINY, ProgramTest, until

DATA = 3
STEPS = 30
JOB = [*TINY, "--steps", STEPS, "--workers", 2]


class Events(ProgramTest):
    def trace(self, run):
        """Writes the trace of a run from its events, and returns its events."""
        result = self.run_program("psring", "trace", run)
        self.assert_done(result)
        self.assertEqual(result.out, f"{run}/trace.json\n")
        return json.loads((self.folder / run / "trace.json").read_text())["traceEvents"]

    def files(self, run):
        return sorted(path.name for path in (self.folder / run / "events").iterdir())

    def steps(self, events):
        """The number of steps by process."""
        names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
        counts = dict.fromkeys(names.values(), 0)
        for event in events:
            if event["name"] == "step":
                counts[names[event["pid"]]] += 1
        return counts

    def test_trace_is_a_view(self):
        for strategy in ("zero3", "ps"):
            with self.subTest(strategy):
                run = self.folder / strategy
                self.assert_done(self.train(*JOB, "--strategy", strategy, "--trace", "on", "--out", strategy))
                by_train = (run / "trace.json").read_bytes()
                (run / "trace.json").unlink()
                steps = self.steps(self.trace(strategy))
                self.assertEqual((run / "trace.json").read_bytes(), by_train)
                self.assertEqual((steps["worker 0"], steps["worker 1"]), (STEPS, STEPS))
                self.assertFalse((run / "trace").exists())

    def test_events_alone(self):
        """They make no trace.json; the report draws a step from them; a run without them has neither."""
        self.assert_done(self.train(*JOB, "--strategy", "ps", "--servers", 2, "--events", "on", "--out", "run"))
        self.assertFalse((self.folder / "run" / "trace.json").exists())
        self.assertEqual(self.files("run"), ["server-0.events", "server-1.events", "worker-0.events", "worker-1.events"])
        self.assert_done(self.run_program("psring", "report", "run"))
        figures = document_of(self.folder / "run" / "report.html")["rows"][0]["runs"][0]["trace"]
        self.assertEqual([worker["steps"] for worker in figures["workers"]], [12, 12])  # of 30: the first ten, 10 and 20
        self.assertTrue(figures["slices"])
        self.assert_done(self.train(*JOB, "--strategy", "ps", "--out", "plain"))
        self.assertFalse((self.folder / "plain" / "events").exists())
        self.assert_refused(self.run_program("psring", "trace", "plain"), DATA, "plain: holds no recorded events", "--events on")

    def test_frames_of_some_steps(self):
        """--events on keeps details of steps 0 to 9, 10 and 20: both ends of frames, a worker's and a server's work; --trace on
        keeps all."""
        every = set(range(25))
        some = {*range(11), 20}
        for strategy, operations in (("ps-zero3", {"push", "pull", "values"}), ("ps-async", {"push_pull", "values"})):
            for mode, expected in (("events", some), ("trace", every)):
                with self.subTest(strategy, mode=mode):
                    run = f"{strategy}-{mode}"
                    self.assert_done(self.train(*TINY, "--steps", 25, "--workers", 2, "--strategy", strategy, f"--{mode}", "on",
                                                "--out", run))
                    events = self.trace(run)
                    steps = {}
                    for event in events:
                        steps.setdefault((event["ph"], event["name"]), set()).add(event.get("args", {}).get("step"))
                    for operation in operations:
                        for end in ("leaves", "arrives"):
                            self.assertEqual(steps["i", f"{operation} {end}"], expected, (operation, end))
                    work = {step for (phase, name), found in steps.items() if phase == "X" and " of worker " in name for step in found}
                    self.assertEqual(work, expected)
                    for name in ("forward", "backward"):
                        found = {step for (phase, own), steps_of in steps.items() if phase == "X" and own.split()[0] == name
                                 for step in steps_of}
                        self.assertEqual(found, expected, name)
                    self.assertEqual(steps["X", "step"], every)

    def kill_after_first_part(self, rank, *arguments):
        """Starts a job, and kills the worker once a part of its events is there."""
        job = self.start("psring", "train", *arguments, "--events", "on", "--compute", "sleep:1ms", "--out", "run")
        file = self.folder / "run" / "events" / f"worker-{rank}.events"
        until(lambda: (file.exists() and file.stat().st_size > 0) or job.poll() is not None, "no events")
        os.kill(self.process_of("role-worker", rank), signal.SIGKILL)
        return job

    def test_worker_that_is_killed(self):
        result = self.finish(self.kill_after_first_part(1, *ENDLESS, "--strategy", "ddp", "--workers", 2))
        self.assert_refused(result, 4, "worker 1")
        steps = self.steps(self.trace("run"))
        self.assertGreater(steps["worker 1"], 0)
        self.assertGreaterEqual(steps["worker 0"], steps["worker 1"])

    def test_worker_that_is_started_again(self):
        job = [*TINY, "--steps", 3000, "--strategy", "ps", "--workers", 2, "--max-restarts", 1]
        self.assert_done(self.finish(self.kill_after_first_part(1, *job)))
        events = self.trace("run")
        names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
        self.assertEqual({name: names.count(name) for name in names}, {"server 0": 1, "worker 0": 2, "worker 1": 2})
        frames = {event["id"].split(", ")[1].split(".")[0] for event in events if event["ph"] in "sf"}
        self.assertEqual(frames, {"0", "1"})
        steps = {event["args"]["step"] for event in events if event["name"] == "step" and event["pid"] == 1}
        self.assertEqual(steps, set(range(3000)))

    def test_other_features(self):
        """Elastic jobs, shard groups, servers in workers' processes, and buckets that have no low-rank tensor."""
        elastic = ["--strategy", "ddp", "--elastic", "2:3", "--fault", "kill:worker:1@step=20"]
        groups = ["--strategy", "zero3", "--workers", 4, "--shard-group", 2]
        colocated = ["--strategy", "ps-colocated", "--workers", 2]
        low_rank = ["--strategy", "ddp", "--workers", 2, "--compress", "power-sgd:rank=32", "--bucket", 1]
        for name, arguments, files in (("elastic", elastic, 2), ("groups", groups, 4), ("colocated", colocated, 4),
                                       ("low-rank", low_rank, 2)):
            with self.subTest(name):
                self.assert_done(self.train(*TINY, "--steps", 40, *arguments, "--events", "on", "--out", name))
                self.assertGreaterEqual(len(self.files(name)), files)
                self.assertGreaterEqual(self.steps(self.trace(name))["worker 0"], 20)
                self.assert_done(self.run_program("psring", "report", name))

    def test_resumed_run(self):
        job = self.start("psring", "train", *TINY, "--steps", 400, "--strategy", "ps", "--checkpoint-every", 10, "--events",
                         "on", "--compute", "sleep:5ms", "--out", "run")
        self.until_trains(job, "run")
        job.send_signal(signal.SIGINT)
        self.assertEqual(self.finish(job).status, 130)
        self.assert_done(self.run_program("psring", "resume", "run"))
        first = {event["args"]["step"] for event in self.trace("run/parts/0") if event["name"] == "step"}
        second = {event["args"]["step"] for event in self.trace("run") if event["name"] == "step"}
        self.assertEqual(first | second, set(range(400)))
        self.assertFalse(first & second)

    def test_jobs_of_several_hosts(self):
        key = self.key()
        coordinator = self.start("psring", "coordinator", "--listen", "127.0.0.1:0", "--key", key, "--out", "run", *JOB,
                                 "--strategy", "ps", "--servers", 2, "--nodes", 2, "--trace", "on")
        endpoint = re.match(r"coordinator at (\S+): waiting", coordinator.stdout.readline()).group(1)
        agents = [self.start("psring", "agent", "--rdzv-endpoint", endpoint, "--key", key, "--logs", f"logs-{i}") for i in "12"]
        for process in (*agents, coordinator):
            self.assert_done(self.finish(process))
        by_coordinator = (self.folder / "run" / "trace.json").read_bytes()
        steps = self.steps(self.trace("run"))
        self.assertEqual((steps["worker 0"], steps["worker 1"]), (STEPS, STEPS))
        self.assertEqual((self.folder / "run" / "trace.json").read_bytes(), by_coordinator)

    def test_comparison(self):
        self.assert_done(self.run_program("psring", "compare", *JOB, "--strategies", "ddp,ps", "--events", "on", "--out", "cmp"))
        for row in ("ddp", "ps"):
            self.assertEqual(self.steps(self.trace(f"cmp/{row}"))["worker 1"], STEPS)

    def test_damaged_files(self):
        self.assert_done(self.train(*JOB, "--strategy", "ddp", "--events", "on", "--out", "run"))
        file = self.folder / "run" / "events" / "worker-1.events"
        whole = file.read_bytes()
        file.write_bytes(whole[:-1])
        for command in ("trace", "report"):
            self.assert_refused(self.run_program("psring", command, "run"), DATA, "run/events/worker-1.events: byte ",
                                "the file is cut")
        file.write_bytes(whole + b"\x1b[31m<script>")
        self.assert_refused(self.run_program("psring", "trace", "run"), DATA, f"worker-1.events: byte {len(whole)}: ")
        file.write_bytes(whole[:40] + bytes([whole[40] ^ 1]) + whole[41:])
        self.assert_refused(self.run_program("psring", "trace", "run"), DATA, "worker-1.events: byte ", "checksum")


if __name__ == "__main__":
    unittest.main()
