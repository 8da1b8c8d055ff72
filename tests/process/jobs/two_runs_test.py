"""Two runs at the same time that ask for one folder: one gets it, and the other is refused in one line."""

import json
import os
import signal
import unittest

from support import ENDLESS, TINY, ProgramTest, until

WAYS = (["--strategy", "ps", "--workers", 2, "--servers", 2], ["--strategy", "zero3", "--workers", 2])


class TwoRuns(ProgramTest):
    def manifests(self, folder):
        return [json.loads(path.read_text()) for path in sorted((self.folder / folder).glob("step-*/manifest.json"))
                if "partial" not in str(path)]

    def test_comparisons(self):
        """The second of two on one folder is refused, and so is a run in a comparison's folder."""
        words = ["compare", *TINY, "--strategies", "ps,ddp", "--workers", 2, "--compute", "sleep:5ms", "--steps", 100, "--out", "cmp"]
        first = self.start("psring", *words)
        until(lambda: list(self.folder.glob("cmp/ps/run.json")), "no run")
        self.assert_refused(self.run_program("psring", *words), 2, "cmp: is under way")
        self.assert_refused(self.train(*TINY, "--steps", 4, "--out", "cmp"), 2, "--out cmp: holds a comparison")
        self.assert_done(self.finish(first))
        self.assertEqual(list(self.folder.glob("cmp/*unfinished*")), [])

    def test_second_on_a_checkpoint_folder_is_refused(self):
        saving = ["--checkpoint-every", 1, "--checkpoint-dir", "ck", "--checkpoint-keep", 3]
        first = self.start("psring", "train", *ENDLESS, *WAYS[0], *saving, "--out", "first")
        until(lambda: len(self.manifests("ck")) >= 2 or first.poll() is not None, "no checkpoint")
        for resume in ([], ["--resume", "ck"]):
            result = self.train(*TINY, "--steps", 100000, *WAYS[1], *saving, *resume, "--out", "second")
            if result.status == 3 and resume:
                self.assertIn("ck/step-", result.err)  # the newest went between two looks
                continue
            self.assert_refused(result, 2, "--checkpoint-dir", str(self.folder / "ck"), "another run saves there")
            self.assertFalse((self.folder / "second").exists())
        self.assertIsNone(first.poll())
        os.kill(until(lambda: self.process_of("role-worker", 0), "no worker"), signal.SIGKILL)
        self.assertEqual(self.finish(first).status, 4)
        step = self.manifests("ck")[-1]["step"]
        self.assert_done(self.train(*TINY, *WAYS[1], "--steps", step + 3, *saving, "--resume", "ck", "--out", "third"))

    def test_both_at_once_on_a_checkpoint_folder(self):
        for number in range(8):
            folder = f"ck{number}"
            runs = [self.start("psring", "train", *TINY, *WAYS[(number + i) % 2], "--seed", 10 + i, "--steps", 60,
                               "--checkpoint-every", 1, "--checkpoint-dir", folder, "--out", f"run{number}-{i}") for i in (0, 1)]
            results = [self.finish(run) for run in runs]
            self.assertEqual(sorted(result.status for result in results), [0, 2], results)
            winner = next(i for i in (0, 1) if results[i].status == 0)
            self.assert_refused(results[1 - winner], 2, "--checkpoint-dir")
            self.assertEqual({manifest["facts"]["seed"] for manifest in self.manifests(folder)}, {str(10 + winner)})
            self.assertEqual(len({manifest["run"] for manifest in self.manifests(folder)}), 1)
            self.assertEqual(len(self.manifests(folder)), 60)

    def test_both_at_once_on_a_run_folder(self):
        for _ in range(4):
            runs = [self.start("psring", "train", *TINY, "--strategy", "single", "--steps", 5) for _ in range(4)]
            folders = set()
            for run in runs:
                result = self.finish(run)
                self.assert_done(result)
                folders.add(result.out.split("run folder: ")[1])
            self.assertEqual(len(folders), 4)
        runs = [self.start("psring", "train", *TINY, "--strategy", "single", "--steps", 5, "--out", "same") for _ in range(4)]
        results = sorted((self.finish(run) for run in runs), key=lambda result: result.status)
        self.assert_done(results[0])
        for result in results[1:]:
            # The second sentence: the winner had made its folder, and was at work in it.
            self.assert_refused(result, 2, "same")
            self.assertRegex(result.err, "--out .*same: holds a run already|same: is under way")


if __name__ == "__main__":
    unittest.main()
