"""What a run has measured survives its end, however that comes."""

import csv
import json
import os
import signal
import unittest

from support import ENDLESS, TINY, ProgramTest, until

DATA = 3


def state_of(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return file.read().rsplit(")", 1)[1].split()[0]


class Records(ProgramTest):
    def test_metrics_of_a_run_that_fails(self):
        """Of all steps before the one that failed, though the run took less time than lines wait for each other."""
        for strategy in ("ps", "ddp"):
            with self.subTest(strategy):
                result = self.train(*TINY, "--strategy", strategy, "--workers", 2, "--steps", 1000, "--lr", "1e30", "--out",
                                    strategy)
                self.assert_refused(result, DATA, "step ", f"; run folder {self.folder / strategy}; log ", "logs/worker-",
                                    "no checkpoint, as --checkpoint-every was not given")
                failed = int(result.err.split("step ")[1].split(":")[0])
                self.assertGreater(failed, 0)
                lines = [json.loads(line) for line in (self.folder / strategy / "metrics.jsonl").read_text().splitlines()]
                steps = {line["step"] for line in lines if line["worker"] == 0 and "loss" in line}
                self.assertEqual(steps, set(range(failed)))

    def compare(self, *arguments):
        return self.start("psring", "compare", *TINY, "--strategies", "single,ddp,ps", "--out", "cmp", *arguments)

    def test_comparison_that_is_ended(self):
        """Rows that were finished are in its files, and the same command goes on with the others."""
        slow = ["--steps", 60, "--fault", "slow:worker:1=100x", "--compute", "sleep:1ms"]
        for end, status in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
            with self.subTest(end.name):
                job = self.compare(*slow)
                self.until_trains(job, "cmp/ddp")
                job.send_signal(end)
                self.assertEqual(self.finish(job).status, status)
                until(lambda: not self.processes(), "its processes still run")
                table = json.loads((self.folder / "cmp" / "compare.json").read_text())
                self.assertEqual([row["strategy"] for row in table["rows"]], ["single"])
                self.assertFalse(table["ended"])
                self.assertIn("single", (self.folder / "cmp" / "compare.md").read_text())
                with open(self.folder / "cmp" / "compare.csv", newline="") as file:
                    self.assertEqual({row["strategy"] for row in csv.DictReader(file)}, {"single"})
        other = self.finish(self.compare("--steps", 61, *slow[2:]))
        self.assert_refused(other, 2, "single", "was made with other options")
        result = self.finish(self.compare(*slow))
        self.assert_done(result)
        self.assertIn("single: was finished before", result.out)
        self.assertNotIn("ddp: was finished before", result.out)
        table = json.loads((self.folder / "cmp" / "compare.json").read_text())
        self.assertEqual([row["strategy"] for row in table["rows"]], ["single", "ddp", "ps"])
        self.assertTrue(table["ended"])
        self.assert_refused(self.finish(self.compare(*slow)), 2, "--out", "holds a run already")

    def test_signal_in_the_last_step_of_a_run(self):
        """The run ends before its evaluation, and the next run does not begin."""
        # The last step takes long enough for the worker to hear of the signal.
        job = self.compare("--steps", 3, "--fault", "stop:worker:0@step=2 slow:worker:0=300x")
        worker = until(lambda: self.process_of("role-worker", 0) or job.poll() is not None, "no worker")
        until(lambda: state_of(worker) == "T", "the worker did not stop")
        job.send_signal(signal.SIGINT)
        until(lambda: "SIGINT: the job ends after the step under way" in job.stdout.readline(), "not said")
        os.kill(worker, signal.SIGCONT)
        result = self.finish(job)
        self.assert_refused(result, 130, "single: interrupted at step 3")
        self.assertEqual(result.out, "")
        self.assertFalse((self.folder / "cmp" / "ddp").exists())

    def test_comparison_with_checkpoints_that_is_ended(self):
        """It goes on by the same command, and makes a run anew with which psring resume went on."""
        words = ["compare", *TINY, "--strategies", "single,ps", "--steps", 100, "--compute", "sleep:5ms",
                 "--checkpoint-every", 10, "--out", "cmp"]
        job = self.start("psring", *words)
        self.until_trains(job, "cmp/single")
        job.send_signal(signal.SIGINT)
        result = self.finish(job)
        self.assert_refused(result, 130, "single: interrupted at step ", "; checkpoint ", "; to go on, repeat the same command")
        self.assertNotIn("psring resume", result.err)
        self.assert_done(self.run_program("psring", "resume", "cmp/single"))
        self.assert_done(self.run_program("psring", *words))
        self.assertTrue((self.folder / "cmp" / "single.unfinished-1" / "parts").is_dir())
        self.assertFalse((self.folder / "cmp" / "single" / "parts").exists())
        table = json.loads((self.folder / "cmp" / "compare.json").read_text())
        self.assertEqual([row["strategy"] for row in table["rows"]], ["single", "ps"])


if __name__ == "__main__":
    unittest.main()
