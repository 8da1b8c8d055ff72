"""What a host lacks is said at launch, in one line with the cause, before anything is made or waited for."""

import os
import shutil
import socket
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

    def test_ipv6_alone(self):
        """A host without 127.0.0.1: jobs begin on ::1, and no advice names a flag that the command does not have."""
        if not shutil.which("ip"):
            self.skipTest("ip is missing (package iproute2)")
        alone = 'ip link set lo up && ip address del 127.0.0.1/8 dev lo && exec "$0" "$@"'
        prefix = [*self.apart("--net"), "sh", "-c", alone]
        for transport in ("shm", "tcp"):
            for strategy in ("ps", "ddp"):
                self.assert_done(self.train(*TINY, "--steps", 3, "--workers", 2, "--strategy", strategy, "--transport", transport,
                                            prefix=prefix))
        self.assert_done(self.run_program("psring", "compare", *TINY, "--steps", 1, "--strategies", "ddp", prefix=prefix))
        checks = self.run_program("psring", "doctor", prefix=prefix).out
        self.assertRegex(checks, r"(?m)^ok +loopback port +\[::1\]:\d+ accepts connections$")
        self.assertNotIn("--bind", checks)
        bound = self.run_program("psring-worker", "--rdzv-endpoint", "[::1]:9", "--key", self.key(), "--bind", "lo",
                                 "--join-timeout", 0.2, prefix=prefix)
        self.assert_refused(bound, 4, "no coordinator answered")  # lo is an interface of this host

    def test_taken_port(self):
        """The flag that is advised is the flag that was given."""
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            taken = f"127.0.0.1:{other.getsockname()[1]}"
            self.assert_done(self.train(*TINY, "--steps", 1, "--out", "done"))
            for flag, words in (("--live", ["train", *JOB, "--out", "run"]), ("--listen", ["train", *JOB, "--out", "run"]),
                                ("--listen", ["watch", "done"])):
                with self.subTest(words[0], flag=flag):
                    result = self.run_program("psring", *words, flag, taken)
                    self.assert_refused(result, 3 if words[0] == "watch" else 2, f"{flag} {taken}: ", "Address already in use")
                    self.assertEqual(result.err.count("--"), 1, result.err)
            self.assertFalse((self.folder / "run" / "run.json").exists())

    def test_a_link_beyond_the_range(self):
        self.assert_refused(self.train(*JOB, "--link", "2000gbit"), 2, "a rate from 1kbit to 1000gbit, got '2000gbit'")

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
