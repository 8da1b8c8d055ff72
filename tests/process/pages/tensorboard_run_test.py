"""--tensorboard on: event files whose every number is that of metrics.jsonl, whatever becomes of the run."""

import json
import math
import os
import re
import signal
import struct
import time
import unittest

from event_files import files_of, read_events, read_run
from support import TINY, ProgramTest, until

MEANS = {"step_s": "step_s", "compute_s": "compute_s", "comm_s": "comm_s", "exposed_s": "exposed_comm_s"}
TEXT = ["--data", "synthetic", "--model", "gpt:layers=1,dim=16,heads=2,context=8,vocab=32", "--global-batch", 8]


def as_float(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def lines_of(run):
    """The last lines of every step and of every evaluation, {(step, is a step): {worker: line}}."""
    found = {}
    for text in (run / "metrics.jsonl").read_text().splitlines():
        line = json.loads(text)
        own = found.setdefault((line["step"], "step_s" in line), {})
        if own and max(other.get("membership", 0) for other in own.values()) < line.get("membership", 0):
            own.clear()
        own[line["worker"]] = line
    return found


def expected_step(own, staleness):
    count = len(own)
    samples = sum(line["samples"] for line in own)
    values = {
        "train/lr": own[0]["lr"],
        "train/epoch": own[0]["epoch"],
        "bytes/sent": sum(line["bytes_sent"] for line in own),
        "bytes/received": sum(line["bytes_received"] for line in own),
        "throughput/samples_per_s": sum(line["samples"] / line["step_s"] for line in own),
        **{f"time/{name}": sum(line[key] for line in own) / count for name, key in MEANS.items()},
    }
    if all(line["loss"] is not None for line in own if line["samples"]):  # otherwise the workers only sleep
        values["train/loss"] = sum(line["loss"] * line["samples"] for line in own if line["samples"]) / samples
    if staleness:
        values |= {f"staleness/worker_{line['worker']}": line["staleness"] for line in own}
    return values


def expected_evaluation(own):
    rows = sum(line["test_rows"] for line in own)
    loss = sum(line["test_loss"] * line["test_rows"] for line in own if line["test_rows"]) / rows
    values = {"eval/loss": loss}
    if "test_correct" in own[0]:
        values["eval/accuracy"] = sum(line["test_correct"] for line in own) / rows
    if "test_perplexity" in own[0]:
        values["eval/perplexity"] = math.exp(loss)
    for name in own[0].get("own", {}):
        values[f"eval/{name.removeprefix('test_')}"] = sum(line["own"][name] * line["test_rows"] for line in own) / rows
    return values


def expected(run, staleness=False):
    curves = {}
    for (step, is_step), workers in lines_of(run).items():
        own = [workers[worker] for worker in sorted(workers)]
        values = expected_step(own, staleness) if is_step else expected_evaluation(own)
        for tag, value in values.items():
            curves.setdefault(tag, {})[step] = as_float(value)
    return curves


class TensorBoard(ProgramTest):
    def setUp(self):
        super().setUp()
        self.began = time.time()

    def values(self, run):
        curves = read_run(self.folder / run)
        for tag, curve in curves.items():
            for step, (_, wall_time) in curve.items():
                self.assertTrue(self.began <= wall_time <= time.time(), f"{tag}, step {step}: {wall_time}")
        return {tag: {step: value for step, (value, _) in curve.items()} for tag, curve in curves.items()}

    def assert_same(self, run, staleness=False):
        values = self.values(run)
        wanted = expected(self.folder / run, staleness)
        self.assertEqual(sorted(values), sorted(wanted))
        for tag, curve in wanted.items():
            self.assertEqual(values[tag], curve, tag)
        return values

    def run_job(self, *arguments, out="run"):
        result = self.train(*arguments, "--tensorboard", "on", "--out", out)
        self.assert_done(result)
        return result

    def test_every_number(self):
        self.run_job(*TINY, "--strategy", "ps", "--workers", 3, "--servers", 2, "--steps", 40, "--eval-every", 10,
                     "--schedule", "cosine:warmup=5")
        values = self.assert_same("run")
        self.assertEqual(sorted(values["train/loss"]), list(range(40)))
        self.assertEqual(sorted(values["eval/accuracy"]), [10, 20, 30, 40])
        self.assertNotIn("eval/perplexity", values)
        (file,) = files_of(self.folder / "run")
        self.assertRegex(file.name, rf"^events\.out\.tfevents\.\d{{10}}\.{re.escape(os.uname().nodename)}\.\d+\.0$")
        self.assertEqual([event["step"] for event in read_events(file)[:3]], [0, 0, 0])

    def test_other_jobs(self):
        """One process, a text model, and servers that take each push as an update; no option, no file."""
        self.run_job(*TINY, "--strategy", "single", "--steps", 20, out="single")
        self.assert_same("single")
        self.run_job(*TEXT, "--strategy", "zero3", "--workers", 2, "--steps", 6, out="text")
        self.assertIn("eval/perplexity", self.assert_same("text"))
        self.run_job("--model", "fm:dense=4,features=6,dim=4", "--data", "criteo-like:samples=2k", "--global-batch", 12, "--strategy", "ps", "--workers", 2,
                     "--servers", 2, "--steps", 6, "--eval-every", 3, out="rows")
        self.assertEqual(sorted(self.assert_same("rows")["eval/auc"]), [3, 6])
        self.run_job(*TINY, "--strategy", "ps-async", "--workers", 3, "--steps", 50, "--compute", "sleep:1ms", "--fault",
                     "slow:worker:2=4x", out="async")
        values = self.assert_same("async", staleness=True)
        self.assertEqual([tag for tag in sorted(values) if "staleness" in tag], [f"staleness/worker_{i}" for i in range(3)])
        self.assert_done(self.train(*TINY, "--strategy", "ddp", "--steps", 3, "--out", "plain"))
        self.assertFalse((self.folder / "plain" / "tensorboard").exists())

    def test_comparison(self):
        self.assert_done(self.run_program("psring", "compare", *TINY, "--strategies", "ps,ddp", "--workers", 2, "--steps", 10,
                                          "--tensorboard", "on", "--out", "cmp"))
        for row in ("ps", "ddp"):
            self.assert_same(f"cmp/{row}")

    def test_job_in_progress_and_killed(self):
        """Steps can be read while the job trains; a job that is killed leaves what it has made, and goes on from there."""
        job = self.start("psring", "train", *TINY, "--strategy", "ps", "--workers", 2, "--steps", 600, "--checkpoint-every", 20,
                         "--compute", "sleep:2ms", "--tensorboard", "on", "--out", "run")
        run = self.folder / "run"

        def steps():
            return max(self.values("run").get("train/lr", [0])) if (run / "tensorboard").exists() else 0

        until(lambda: (run / "checkpoints" / "step-00000100").exists() and steps() > 100 or job.poll() is not None, "no steps")
        self.assertIsNone(job.poll())
        os.kill(self.process_of("coordinator"), signal.SIGKILL)
        self.assertEqual(self.finish(job).status, 4)
        until(lambda: not self.processes(), "its processes still run")
        wanted = expected(run)
        for tag, curve in self.values("run").items():
            for step, value in curve.items():
                self.assertEqual(value, wanted[tag][step], f"{tag}, step {step}")
        (first,) = files_of(run)
        whole, events = first.read_bytes(), len(read_events(first))
        first.write_bytes(whole[:-1])  # as if the machine had stopped in the middle of a write
        self.assertEqual(len(read_events(first)), events - 1)
        first.write_bytes(whole)
        self.assert_done(self.run_program("psring", "resume", "run"))
        self.assertEqual(files_of(run)[0], first)
        self.assertEqual(len(files_of(run)), 2)
        start = read_events(files_of(run)[1])[1]
        self.assertEqual(start["step"] % 20, 0)
        self.assertGreaterEqual(start["step"], 100)
        self.assertEqual(sorted(self.assert_same("run")["train/lr"]), list(range(600)))

    def test_resume_turns_it_on_and_off(self):
        job = [*TINY, "--strategy", "ddp", "--workers", 2, "--checkpoint-every", 10]
        self.assert_done(self.train(*job, "--steps", 10, "--out", "saved"))
        self.run_job(*job, "--steps", 30, "--resume", "saved/checkpoints")
        self.assertEqual(read_events(files_of(self.folder / "run")[0])[1]["step"], 10)
        self.assertEqual(sorted(self.assert_same("run")["train/loss"]), list(range(10, 30)))
        for option, files in (("off", 0), ("on", 1)):
            out = f"run-{option}"
            job = self.start("psring", "train", *TINY, "--strategy", "ddp", "--workers", 2, "--steps", 400, "--checkpoint-every",
                             10, "--compute", "sleep:2ms", "--out", out)
            self.until_trains(job, out)
            job.send_signal(signal.SIGINT)
            self.assertEqual(self.finish(job).status, 130)
            self.assert_refused(self.run_program("psring", "resume", out, "--tensorboard", "yes"), 2, "--tensorboard", "yes")
            self.assert_done(self.run_program("psring", "resume", out, "--tensorboard", option))
            self.assertEqual(len(list((self.folder / out).glob("tensorboard/*"))), files)

    def test_losses(self):
        """Repeated steps take the place of those before them, with the same workers and with fewer."""
        saving = ["--strategy", "zero3", "--checkpoint-every", 50]
        for number, (way, restarts) in enumerate([(["--strategy", "ps", "--servers", 2], 3), (["--strategy", "ddp"], 3), (saving, 3),
                                                  (["--strategy", "ddp", "--elastic", "2:3"], 0)]):
            with self.subTest(way=way):
                workers = [] if "--elastic" in way else ["--workers", 3]
                self.run_job(*TINY, *way, *workers, "--steps", 400, "--eval-every", 60, "--max-restarts", restarts,
                             "--fault", "kill:worker:1@step=220", out=f"run{number}")
                values = self.assert_same(f"run{number}")
                self.assertEqual(sorted(values["train/loss"]), list(range(400)))

    def test_loss_without_barriers(self):
        """Workers that do not wait for each other repeat steps alone: those keep their first values."""
        self.run_job(*TINY, "--strategy", "ps-async", "--workers", 3, "--steps", 400, "--max-restarts", 3, "--fault",
                     "kill:worker:1@step=220")
        values = self.values("run")
        self.assertEqual(sorted(values["train/loss"]), list(range(400)))
        lines = [json.loads(line) for line in (self.folder / "run" / "metrics.jsonl").read_text().splitlines()]
        repeated = {line["step"] for line in lines if line.get("membership")}
        for tag, curve in expected(self.folder / "run", staleness=True).items():
            for step in set(curve) - repeated:
                self.assertEqual(values[tag].get(step), curve[step], f"{tag}, step {step}")

    def test_lost_coordinator(self):
        job = self.start("psring", "train", *TINY, "--strategy", "ps", "--workers", 2, "--steps", 3000, "--max-restarts", 9,
                         "--compute", "sleep:1ms", "--tensorboard", "on", "--out", "run")
        files = 0
        while files < 2:
            files += 1
            until(lambda: (self.folder / "run" / "tensorboard").exists() and len(files_of(self.folder / "run")) == files
                  and self.values("run") or job.poll() is not None, "no scalars")
            os.kill(until(lambda: self.process_of("coordinator"), "no coordinator"), signal.SIGKILL)
        self.assert_done(self.finish(job))
        self.assertEqual(len(files_of(self.folder / "run")), 3)
        self.assertEqual(sorted(self.assert_same("run")["train/lr"]), list(range(3000)))

    def test_file_that_cannot_be_written(self):
        self.file("run/tensorboard", b"")
        result = self.train(*TINY, "--strategy", "ddp", "--steps", 3, "--tensorboard", "on", "--out", "run")
        self.assert_refused(result, 3, "run/tensorboard: cannot create the folder")

    def test_refusals(self):
        self.assert_refused(self.train(*TINY, "--tensorboard", "yes"), 2, "--tensorboard", "yes")
        self.assert_refused(self.run_program("psring", "step", *TINY, "--tensorboard", "on"), 2, "--tensorboard: psring step")


if __name__ == "__main__":
    unittest.main()
