"""Checkpoints of whole programs: written while a job trains, resumed by another, and there after any kill."""

import json
import os
import random
import shutil
import signal
import unittest

from support import TINY, ProgramTest, until

JOB = [*TINY, "--optimizer", "adamw", "--seed", 3]
PS = ["--strategy", "ps", "--workers", 2, "--servers", 3]
ZERO3 = ["--strategy", "zero3", "--workers", 2]
COLOCATED = ["--strategy", "ps-colocated", "--workers", 2, "--servers", 2]
CLASSIC = ["--strategy", "dp", "--workers", 2]


class Resume(ProgramTest):
    def checkpoints(self, folder="ck"):
        return sorted(path.name for path in (self.folder / folder).iterdir())

    def newest(self, folder="ck"):
        """The step of the newest complete one, as the names say."""
        if not (self.folder / folder).exists():
            return 0
        return max((int(name[5:]) for name in self.checkpoints(folder) if "partial" not in name), default=0)

    def model(self, run):
        return (self.folder / run / "model.safetensors").read_bytes()

    def test_to_the_same_bits(self):
        for number, (first, second) in enumerate([(PS, ZERO3), (ZERO3, PS), (COLOCATED, CLASSIC)]):
            with self.subTest(number):
                saved, whole, resumed = (f"{name}{number}" for name in ("saved", "whole", "resumed"))
                self.assert_done(self.train(*JOB, *first, "--steps", 40, "--checkpoint-every", 7, "--checkpoint-keep", 3,
                                            "--out", saved))
                self.assertEqual(self.checkpoints(f"{saved}/checkpoints"),
                                 ["step-00000028", "step-00000035", "step-00000040"])
                self.assert_done(self.train(*JOB, *second, "--steps", 60, "--out", whole))
                for resume in (f"{saved}/checkpoints", f"{saved}/checkpoints/step-00000028"):
                    self.assert_done(self.train(*JOB, *second, "--steps", 60, "--resume", resume, "--out", resumed))
                    self.assertEqual(self.model(resumed), self.model(whole))
                    lines = [json.loads(line) for line in (self.folder / resumed / "metrics.jsonl").read_text().splitlines()]
                    steps = sorted({line["step"] for line in lines if "loss" in line})
                    begin = 28 if resume.endswith("28") else 40
                    self.assertEqual(steps, list(range(begin, 60)))
                    shutil.rmtree(self.folder / resumed)

    def test_what_error_feedback_keeps(self):
        """Saved and continued, and after a loss: to the same bits."""
        for strategy, compress in (("ps", "top-k:ratio=0.05"), ("ddp", "sign")):
            with self.subTest(strategy):
                job = [*JOB, "--strategy", strategy, "--workers", 3, "--compress", compress]
                saving = ["--checkpoint-every", 10]
                whole, resumed, lost = (f"{strategy}-{name}" for name in ("whole", "resumed", "lost"))
                self.assert_done(self.train(*job, *saving, "--steps", 45, "--out", whole))
                self.assert_done(self.train(*job, "--steps", 45, "--resume", f"{whole}/checkpoints/step-00000020",
                                            "--out", resumed))
                self.assertEqual(self.model(resumed), self.model(whole))
                result = self.train(*job, *saving, "--steps", 45, "--max-restarts", 1, "--fault", "kill:worker:1@step=35",
                                    "--out", lost)
                self.assert_done(result)
                self.assertIn("the job begins again with step 30", result.out)
                self.assertEqual(self.model(lost), self.model(whole))

    def test_restarts_after_the_first_checkpoint_has_gone(self):
        """Retention keeps what a restarted process reads; a checkpoint that somebody else removed is not asked for."""
        self.assert_done(self.train(*JOB, *PS, "--steps", 10, "--checkpoint-every", 10, "--checkpoint-dir", "first",
                                    "--out", "saved"))
        fault = ["--fault", "kill:worker:1@step=33"]
        ways = [(PS, fault), (["--strategy", "ddp", "--workers", 2], fault), (ZERO3, fault), (COLOCATED, fault),
                ([*PS, "--replicas", 1], ["--fault", "kill:server:0@step=33"])]
        for number, (way, fault) in enumerate(ways):
            with self.subTest(way=way):
                shutil.copytree(self.folder / "first", self.folder / f"ck{number}")
                saving = ["--checkpoint-every", 5, "--checkpoint-keep", 1, "--checkpoint-dir", f"ck{number}"]
                steps = ["--steps", 60, "--resume", f"ck{number}"]
                self.assert_done(self.train(*JOB, *way, "--steps", 60, "--out", f"whole{number}"))
                self.assert_done(self.train(*JOB, *way, *steps, *saving, *fault, "--max-restarts", 1, "--out", f"run{number}"))
                self.assertEqual(self.model(f"run{number}"), self.model(f"whole{number}"))

    def test_restarts_after_the_first_checkpoint_was_removed(self):
        for number, way in enumerate((PS, ["--strategy", "ddp", "--workers", 2])):
            with self.subTest(way=way):
                first, later = f"first{number}", f"later{number}"
                self.assert_done(self.train(*JOB, *way, "--steps", 10, "--checkpoint-every", 10, "--checkpoint-dir", first,
                                            "--out", f"saved{number}"))
                job = self.start("psring", "train", *JOB, *way, "--steps", 1500, "--resume", first, "--checkpoint-every", 5,
                                 "--checkpoint-dir", later, "--checkpoint-keep", 2, "--max-restarts", 1,
                                 "--out", f"run{number}")
                until(lambda: self.newest(later) > 20 or job.poll() is not None, "no checkpoint")
                shutil.rmtree(self.folder / first)
                os.kill(self.process_of("role-worker", 1), signal.SIGKILL)
                result = self.finish(job)
                self.assert_done(result)
                self.assertRegex(result.out, r"the job begins again with step \d+")
                self.assertNotIn("begins again with step 10,", result.out)
                self.assert_done(self.train(*JOB, *way, "--steps", 1500, "--out", f"whole{number}"))
                self.assertEqual(self.model(f"run{number}"), self.model(f"whole{number}"))

    def test_compare_continues_all_ways(self):
        self.assert_done(self.train(*JOB, *PS, "--steps", 10, "--checkpoint-every", 10, "--out", "saved"))
        result = self.run_program("psring", "compare", *JOB, "--strategies", "single,ps,ddp,zero3", "--steps", 20,
                                  "--resume", "saved/checkpoints", "--out", "cmp")
        self.assert_done(result)
        rows = json.loads((self.folder / "cmp" / "compare.json").read_text())["rows"]
        self.assertEqual([(row["strategy"], row["equality"], row["ok"]) for row in rows],
                         [("single", "—", True), *((way, "=", True) for way in ("ps", "ddp", "zero3"))])

    def test_other_units_are_frozen(self):
        self.assert_done(self.train(*JOB, *PS, "--steps", 4, "--checkpoint-every", 4, "--freeze", "0", "--out", "saved"))
        resume = ["--steps", 8, "--resume", "saved/checkpoints"]
        said = "saved without the optimizer's state of layers.0: it starts at zero"
        for number, words in enumerate(([], ["--freeze", "0"], ["--freeze", "1"])):
            result = self.train(*JOB, *ZERO3, *resume, *words, "--out", f"resumed{number}")
            self.assert_done(result)
            (self.assertNotIn if words == ["--freeze", "0"] else self.assertIn)(said, result.out)

    def test_refused(self):
        self.assert_done(self.train(*JOB, *ZERO3, "--steps", 8, "--checkpoint-every", 4, "--checkpoint-dir", "ck",
                                    "--out", "saved"))
        resume = ["--steps", 20, "--resume", "ck"]
        path = str(self.folder / "ck" / "step-00000008")
        for words, status, said in (
                (["--seed", 4], 3, ["--resume", path, "seed 3", "4"]),
                (["--optimizer", "adam"], 3, ["--resume", path, "optimizer adamw"]),
                (["--global-batch", 24], 3, ["--resume", path, "global batch 12"]),
                (["--model", "mlp:16-8-4"], 3, ["--resume", path, "mlp:16-16-4", "mlp:16-8-4"]),
                (["--init", "some"], 2, ["--resume and --init"]),
                (["--resume", "saved/logs"], 3, ["--resume", "saved/logs", "no complete checkpoint"]),
                (["--steps", 8], 3, ["--resume", path, "step 8 already"]),
                (["--resume", "ck/step-00000004", "--checkpoint-every", 4, "--checkpoint-dir", "ck"], 2,
                 ["--checkpoint-dir", "step 8"]),
                (["--fault", "kill:worker:0@step=7"], 2, ["--fault kill:worker:0@step=7", "at step 8 to 19"]),
                (["--checkpoint-dir", "new"], 2, ["--checkpoint-dir", "--checkpoint-every"]),
                (["--checkpoint-keep", 2], 2, ["--checkpoint-keep", "--checkpoint-every"])):
            with self.subTest(words):
                # The last value of an option counts, and each option is named once.
                options = dict(zip(map(str, JOB[::2]), JOB[1::2])) | dict(zip(resume[::2], resume[1::2]))
                options |= dict(zip(words[::2], words[1::2]))
                flags = [word for pair in options.items() for word in pair]
                self.assert_refused(self.train(*flags, *ZERO3, "--out", "none"), status, *said)
                self.assertFalse((self.folder / "none").exists())

    def test_run(self):
        """A run that was interrupted, lost a process or was killed goes on in its folder, to the same bits."""
        for number, way in enumerate((PS, ZERO3, ["--strategy", "ps", "--workers", 2, "--max-restarts", 1])):
            whole, run = f"whole{number}", f"run{number}"
            job = [*JOB, *way, "--checkpoint-every", 50, "--checkpoint-keep", 2]
            job_in_folder = self.start("psring", "train", *job, "--same-build", "--steps", 6000, "--out", run)
            for part, end in enumerate((signal.SIGINT, signal.SIGKILL, None)):
                if part > 0:
                    job_in_folder = self.start("psring", "resume", run)
                checkpoints = f"{run}/checkpoints"
                if end is None:
                    break
                before = set(self.checkpoints(checkpoints)) if part > 0 else set()
                until(lambda: job_in_folder.poll() is not None or self.fresh(checkpoints) - before, "no checkpoint")
                self.assertIsNone(job_in_folder.poll(), "it ended before it was to be interrupted")
                job_in_folder.send_signal(end)
                result = self.finish(job_in_folder)
                self.assertEqual(result.status, 130 if end == signal.SIGINT else -end, result)
                if end == signal.SIGINT:
                    self.assertIn(f"; continue with: psring resume {self.folder / run}", result.err)
                until(lambda: not self.processes(), "its processes still run")
            result = self.finish(job_in_folder)
            self.assert_done(result)
            self.assertRegex(result.out, rf"^{self.folder / run}: part 2 continues at step \d+ of 6000, from ")
            self.assert_done(self.train(*job, "--steps", 6000, "--out", whole))
            self.assertEqual(self.model(run), self.model(whole))
            lines = [json.loads(line) for line in (self.folder / run / "metrics.jsonl").read_text().splitlines()]
            self.assertEqual({line["step"] for line in lines if "loss" in line}, set(range(6000)))
            for part in ("0", "1"):
                self.assertTrue((self.folder / run / "parts" / part / "run.json").exists())
            self.assertTrue(json.loads((self.folder / run / "run.json").read_text())["launch"]["same_build"])
            log = (self.folder / run / "logs" / "worker-0.log").read_text()
            self.assertIn("worker 0: interrupted at step ", log, "the first part's log is lost")
            self.assert_refused(self.run_program("psring", "resume", run), 2, "is already complete, at step 6000")

    def fresh(self, folder):
        if not (self.folder / folder).exists():
            return set()
        return {name for name in self.checkpoints(folder) if "partial" not in name}

    def test_run_that_was_lost_in_its_last_evaluation(self):
        """It goes on with the evaluation, and saves the model."""
        for strategy in (["--strategy", "single"], ["--strategy", "zero3", "--workers", 2], PS):
            with self.subTest(strategy=strategy):
                self.assert_done(self.train(*JOB, *strategy, "--steps", 6, "--checkpoint-every", 3, "--out", "whole"))
                shutil.copytree(self.folder / "whole", self.folder / "lost")
                for file in ("model.safetensors", "summary.json"):
                    (self.folder / "lost" / file).unlink()
                result = self.run_program("psring", "resume", "lost")
                self.assert_done(result)
                self.assertIn("part 1 continues at step 6 of 6", result.out)
                self.assertEqual(self.model("lost"), self.model("whole"))
                accuracy = [json.loads((self.folder / run / "summary.json").read_text())["test_accuracy"] for run in ("whole", "lost")]
                self.assertEqual(accuracy[0], accuracy[1])
                self.assert_refused(self.run_program("psring", "resume", "lost"), 2, "is already complete, at step 6")
                for run in ("whole", "lost"):
                    shutil.rmtree(self.folder / run)

    def test_run_that_cannot_go_on(self):
        self.assert_refused(self.run_program("psring", "resume", "none"), 3, "none: no such folder")
        self.assert_done(self.train(*JOB, *PS, "--steps", 4, "--out", "unsaved"))
        self.assert_refused(self.run_program("psring", "resume", "unsaved"), 2, "unsaved: has no checkpoint to continue from",
                            "--checkpoint-every")
        job = self.start("psring", "train", *JOB, *PS, "--steps", 10000000, "--checkpoint-every", 5, "--out", "live")
        until(lambda: self.fresh("live/checkpoints"), "no checkpoint")
        self.assert_refused(self.run_program("psring", "resume", "live"), 2, "live: is under way")
        job.send_signal(signal.SIGTERM)
        self.finish(job)

    def interrupted(self, run, *arguments):
        """A run that has ended after some of its 6000 steps."""
        job = self.start("psring", "train", *JOB, "--steps", 6000, "--checkpoint-every", 50, *arguments, "--out", run)
        self.until_trains(job, run)
        job.send_signal(signal.SIGINT)
        self.assertEqual(self.finish(job).status, 130)

    def test_run_that_began_with_given_parameters(self):
        """Those of the checkpoint count then, also if the file has gone."""
        self.assert_done(self.train(*JOB, *PS, "--steps", 4, "--out", "first"))
        init = self.folder / "first" / "model.safetensors"
        for name, way in (("ps", PS), ("zero3", ZERO3)):
            self.assert_done(self.train(*JOB, *way, "--steps", 6000, "--init", init, "--out", f"{name}-whole"))
            self.interrupted(name, *way, "--init", init)
        init.unlink()
        for name in ("ps", "zero3"):
            self.assert_done(self.run_program("psring", "resume", name))
            self.assertEqual(self.model(name), self.model(f"{name}-whole"))

    def test_parameters_that_were_given_after_a_loss(self):
        """Servers whose state is lost begin again with a checkpoint, not with --init."""
        self.assert_done(self.train(*JOB, *PS, "--steps", 4, "--out", "first"))
        job = [*JOB, *PS, "--steps", 60, "--init", "first/model.safetensors"]
        self.assert_done(self.train(*job, "--out", "whole"))
        self.assert_done(self.train(*job, "--checkpoint-every", 10, "--max-restarts", 1, "--fault", "kill:server:0@step=35",
                                    "--out", "run"))
        self.assertEqual(self.model("run"), self.model("whole"))

    def test_resume_that_fails_leaves_the_run_as_it_was(self):
        self.interrupted("run", *PS)
        before = {path.name: path.read_bytes() for path in (self.folder / "run").iterdir() if path.is_file()}
        self.assert_refused(self.run_program("psring", "resume", "run", "--key", "none.key"), 3, "none.key")
        self.assert_refused(self.run_program("psring", "resume", "run", "--listen", "nowhere"), 2, "nowhere")
        after = {path.name: path.read_bytes() for path in (self.folder / "run").iterdir() if path.is_file()}
        self.assertEqual(after, before)
        self.assertFalse((self.folder / "run" / "parts").exists())
        (self.folder / "run" / "metrics.jsonl").write_text('{"step": 0, "wor')  # a process was killed in its first line
        twice = [self.start("psring", "resume", "run") for _ in "12"]
        results = sorted((self.finish(process) for process in twice), key=lambda result: result.status)
        self.assert_done(results[0])
        self.assert_refused(results[1], 2, "is under way")
        for line in (self.folder / "run" / "metrics.jsonl").read_text().splitlines():
            json.loads(line)

    def test_checkpoints_of_another_run(self):
        """A run does not go on with what another run has saved into the same folder since."""
        shared = ["--checkpoint-dir", self.folder / "shared"]
        self.interrupted("run", *PS, *shared)
        step = self.newest("shared")
        self.assert_done(self.train(*JOB, *PS, "--steps", 9000, "--checkpoint-every", 3000, *shared, "--resume", "shared",
                                    "--out", "other"))
        self.assert_refused(self.run_program("psring", "resume", "run"), 2, f"has reached step {step}",
                            "another run has saved step 9000")
        self.assertFalse((self.folder / "run" / "parts").exists())

    def test_run_with_damaged_checkpoint(self):
        self.assert_done(self.train(*JOB, *PS, "--steps", 8, "--checkpoint-every", 4, "--out", "run"))
        (self.folder / "run" / "checkpoints" / "step-00000008" / "server-1.shard").write_bytes(b"")
        result = self.run_program("psring", "resume", "run")
        self.assert_done(result)
        self.assertIn("this checkpoint is skipped", result.out)
        self.assertIn("continues at step 4 of 8", result.out)
        self.assertIn("step-00000008.damaged", self.checkpoints("run/checkpoints"))

    def test_resume_takes_a_run_folder(self):
        self.assert_done(self.train(*JOB, *PS, "--steps", 8, "--checkpoint-every", 4, "--out", "run"))
        self.assert_done(self.train(*JOB, *ZERO3, "--steps", 12, "--resume", "run", "--out", "further"))
        self.assert_done(self.train(*JOB, *ZERO3, "--steps", 12, "--out", "whole"))
        self.assertEqual(self.model("further"), self.model("whole"))

    def test_damaged(self):
        self.assert_done(self.train(*JOB, *PS, "--steps", 8, "--checkpoint-every", 4, "--checkpoint-dir", "ck",
                                    "--out", "saved"))
        shard = self.folder / "ck" / "step-00000008" / "server-1.shard"
        whole = shard.read_bytes()
        flipped = bytearray(whole)
        flipped[50] ^= 4
        for damaged in (bytes(flipped), whole[:-30], b""):
            shard.write_bytes(damaged)
            result = self.train(*JOB, *ZERO3, "--steps", 20, "--resume", "ck", "--out", "none")
            self.assert_refused(result, 3, "--resume", str(shard), "damaged",
                                str(self.folder / "ck" / "step-00000004") + " is older and complete")
        shard.write_bytes(whole)
        self.assert_done(self.train(*JOB, *ZERO3, "--steps", 20, "--resume", "ck", "--out", "resumed"))

    def test_killed_while_it_saves(self):
        """A job that does nothing but save is killed, or one of its processes, and another continues what it finds."""
        generator = random.Random(7)
        ways = [PS, ZERO3, ["--strategy", "ps-zero3", "--workers", 2, "--servers", 2]]
        step = 0
        for number in range(6):
            job = self.start("psring", "train", *JOB, *ways[number % 3], "--steps", 1000000, "--checkpoint-every", 1,
                             "--checkpoint-dir", "ck", "--checkpoint-keep", 2, "--out", f"run{number}",
                             *(["--resume", "ck"] if step > 0 else []))
            newest = step + generator.randrange(2, 6)
            until(lambda: job.poll() is not None or self.newest() >= newest, f"no step {newest}")
            self.assertIsNone(job.poll())
            processes = sorted(self.processes())
            for victim in generator.sample(processes, generator.choice([1, len(processes)])):
                try:
                    os.kill(victim, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self.finish(job)
            until(lambda: not self.processes(), "its processes still run")
            step = self.newest()
            self.assertGreaterEqual(step, newest)
        self.assert_done(self.train(*JOB, *ZERO3, "--steps", step + 5, "--resume", "ck", "--out", "resumed"))
        self.assert_done(self.train(*JOB, *ZERO3, "--steps", step + 5, "--out", "whole"))
        self.assertEqual(self.model("resumed"), self.model("whole"))


if __name__ == "__main__":
    unittest.main()
