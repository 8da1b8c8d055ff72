"""What a host lacks is said at launch, in one line with the cause, before anything is made or waited for."""

import os
import subprocess
import unittest

from support import BIN, TINY, ProgramTest

JOB = [*TINY, "--steps", 3, "--workers", 2, "--servers", 2, "--strategy", "ps"]
SOON = 5  # seconds: no time-out of a job is as short


class LaunchChecks(ProgramTest):
    def limited(self, limit):
        return ["sh", "-c", f'ulimit {limit}; exec "$0" "$@"']

    def apart(self, *words):
        """A prefix that runs in namespaces of its own; skips where this system does not let us."""
        prefix = ["unshare", "--user", "--map-root-user", *words]
        try:
            subprocess.run([*prefix, "true"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            self.skipTest(f"no namespaces: {error}")
        return prefix

    def refused_at_once(self, prefix, *words):
        for command in (["train", *JOB], ["compare", *TINY, "--steps", 3, "--strategies", "ps,ddp"]):
            result = self.run_program("psring", *command, "--out", "run", prefix=prefix)
            self.assert_refused(result, 3, *words)
            self.assertLess(result.seconds, SOON)
            self.assertFalse((self.folder / "run").exists())

    def test_open_files(self):
        for count in (8, 12, 20, 30):
            self.refused_at_once(self.limited(f"-n {count}"), f"open files: {count} per process", f"hard limit of {count}")
        self.assert_done(self.train(*JOB, "--out", "run", prefix=self.limited("-Sn 20")))  # the programs raise this limit

    def test_sizes(self):
        self.refused_at_once(self.limited("-v 450000"), "size limits: address space up to 439 MiB", "ulimit -v unlimited")
        self.refused_at_once(self.limited("-f 1000"), "size limits: files up to", "ulimit -v unlimited -f unlimited")

    def test_no_loopback(self):
        self.refused_at_once(self.apart("--net"), "loopback port: Network is unreachable", "ip link set lo up")

    def test_full_disk(self):
        mounted = 'mkdir full; mount -t tmpfs -o size=64k none full && head -c 65536 /dev/zero >full/zeros; exec "$0" "$@"'
        result = self.run_program("psring", "train", *JOB, "--out", "full/run",
                                  prefix=[*self.apart("--mount"), "sh", "-c", mounted])
        self.assert_refused(result, 3, "full/run", "No space left on device")
        self.assertLess(result.seconds, SOON)

    def test_full_disk_at_the_end(self):
        """The last files of a run: what was being written, and why it was not."""
        mounted = 'mkdir full; mount -t tmpfs -o size=28k none full; exec "$0" "$@"'
        result = self.run_program("psring", "train", *TINY, "--steps", 3, "--strategy", "single", "--out", "full/run",
                                  prefix=[*self.apart("--mount"), "sh", "-c", mounted])
        self.assert_refused(result, 3, "full/run", "No space left on device")


class StandardFiles(ProgramTest):
    def test_closed(self):
        """Each program, with any of its standard files closed, ends as with /dev/null in their place."""
        programs = [(["psring", "train", *JOB, "--out"], 0), (["psring", "doctor", "--processes", "0"], 2),
                    (["psring-server", "--key", "none", "--rdzv-endpoint", "127.0.0.1:1"], 3),
                    (["psring-worker", "--key", "none", "--rdzv-endpoint", "127.0.0.1:1"], 3),
                    (["psring-bench", "no-such"], 2)]
        for number, closed in enumerate(("<&-", ">&-", "2>&-", "<&- >&- 2>&-")):
            for program, status in programs:
                with self.subTest(program=program[0], closed=closed):
                    words = list(map(str, program)) + ([f"run{number}"] if program[-1] == "--out" else [])
                    ended = subprocess.run(["sh", "-c", f'exec "$0" "$@" {closed}', BIN / words[0], *words[1:]],
                                           cwd=self.folder, env=self.environment, timeout=60)
                    self.assertEqual(ended.returncode, status)
            self.assertTrue((self.folder / f"run{number}" / "model.safetensors").exists())
            self.assertTrue((self.folder / f"run{number}" / "summary.json").exists())


if __name__ == "__main__":
    unittest.main()
