"""Two hosts: network namespaces joined by a veth pair, the launcher in one, an agent in the other.

Skipped, with the reason, where namespaces may not be made.
"""

import contextlib
import os
import pathlib
import re
import subprocess
import sys
import unittest

from support import TINY, ProgramTest

NAMESPACES = pathlib.Path("/run/netns")  # where ip keeps them
JOB = [*TINY, "--steps", 20, "--optimizer", "adam", "--lr", "0.01", "--workers", 2, "--servers", 2]


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


class Hosts:
    """Two namespaces, joined. Their names have our number, so that who comes later can tell what nobody uses."""

    def __init__(self):
        self.names = [f"psring-{os.getpid()}-{host}" for host in "ab"]
        self.addresses = ["10.231.0.1", "10.231.0.2"]

    def __enter__(self):
        self.remove_stale()
        try:
            for name in self.names:
                ip("netns", "add", name)
            a, b = self.names
            ip("-n", a, "link", "add", "veth0", "type", "veth", "peer", "name", "veth0", "netns", b)
            for name, address in zip(self.names, self.addresses):
                ip("-n", name, "addr", "add", f"{address}/24", "dev", "veth0")
                ip("-n", name, "link", "set", "veth0", "up")
                ip("-n", name, "link", "set", "lo", "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in self.names:
            self.remove(name)

    @staticmethod
    def remove(name):
        with contextlib.suppress(subprocess.CalledProcessError):
            ip("netns", "delete", name)  # and the veth pair with it

    @classmethod
    def remove_stale(cls):
        """Those of a test that was killed."""
        if NAMESPACES.exists():
            for name in os.listdir(NAMESPACES):
                found = re.fullmatch(r"psring-(\d+)-[ab]", name)
                if found and not pathlib.Path("/proc", found.group(1)).exists():
                    cls.remove(name)

    def on(self, host):
        return ["ip", "netns", "exec", self.names[host]]


class SeveralHosts(ProgramTest):
    def setUp(self):
        super().setUp()
        self.hosts = Hosts().__enter__()
        self.addCleanup(self.hosts.__exit__)
        self.addCleanup(self.end_all)  # before that
        self.key()

    def launch(self, *arguments):
        """The job over both hosts: the launcher's process, and the endpoint that it tells the agents."""
        launcher = self.start("psring", "train", "--nodes", 2, "--listen", f"{self.hosts.addresses[0]}:0", "--key", "job.key",
                              "--out", "two-hosts", *arguments, prefix=self.hosts.on(0))
        for line in launcher.stdout:
            if found := re.match(r"coordinator at (\S+): waiting for the agents of 1 more host", line):
                return launcher, found.group(1)
        self.fail(launcher.stderr.read())

    def agent(self, endpoint, *arguments):
        return self.start("psring", "agent", "--rdzv-endpoint", endpoint, "--key", "job.key", *arguments,
                          prefix=self.hosts.on(1))

    def links(self):
        """How each worker reaches each server, as its log says."""
        logs = [self.folder / "two-hosts" / "logs" / "worker-0.log", self.folder / "logs" / "worker-1.log"]
        return {(worker, server): way for worker, log in enumerate(logs)
                for server, way in re.findall(r"server (\d) \([^)]*\) through (.*)", log.read_text())}

    def test_same_bits_as_on_one_host(self):
        self.assert_done(self.train(*JOB, "--out", "one-host"))
        for encrypt in ("auto", "off"):
            with self.subTest(f"--encrypt {encrypt}"):
                launcher, endpoint = self.launch(*JOB, "--encrypt", encrypt)
                agent = self.agent(endpoint)
                self.assert_done(self.finish(launcher))
                self.assert_done(self.finish(agent))
                self.assertEqual(self.model("two-hosts"), self.model("one-host"))
                links = self.links()
                for (worker, server), link in links.items():
                    if str(worker) == server:  # of one host
                        self.assertEqual(link, "shared memory", links)
                    else:
                        self.assertRegex(link, rf"^tcp 10\.231\.0\.\d:\d+{', encrypted' if encrypt == 'auto' else ''}$", links)
                self.assertEqual(len(links), 4)
                (self.folder / "two-hosts").rename(self.folder / f"two-hosts-{encrypt}")

    def test_wrong_key(self):
        launcher, endpoint = self.launch(*JOB, "--join-timeout", 3)
        self.key("other.key")
        result = self.run_program("psring", "agent", "--rdzv-endpoint", endpoint, "--key", "other.key",
                                  prefix=self.hosts.on(1))
        self.assert_refused(result, 5, "--key", endpoint)
        self.assert_refused(self.finish(launcher), 4, "3 s", "1 agent")

    def test_lost_host(self):
        """The agent of the other host, and the cable between the two."""
        job = ["--steps", "100000000", *[word for i, word in enumerate(JOB) if "--steps" not in (word, JOB[i - 1])]]
        for cut in ("agent", "cable"):
            with self.subTest(cut):
                launcher, endpoint = self.launch(*job, "--heartbeat-timeout", 2)
                agent = self.agent(endpoint)
                self.until_trains(launcher, "two-hosts")
                if cut == "agent":
                    os.kill(self.process_of("agent"), 9)
                else:
                    ip("-n", self.hosts.names[1], "link", "set", "veth0", "down")
                self.assert_refused(self.finish(launcher, 20), 4)
                if cut == "cable":
                    self.assert_refused(self.finish(agent, 20), 4, endpoint)
                self.assert_nothing_left()
                (self.folder / "two-hosts").rename(self.folder / f"two-hosts-{cut}")


def reason_to_skip():
    try:
        with Hosts():
            return None
    except FileNotFoundError:
        return "the command ip (package iproute2) is missing"
    except subprocess.CalledProcessError as error:
        return f"no network namespaces here: {error.stderr.strip()}"


if __name__ == "__main__":
    if reason := reason_to_skip():
        print(f"SKIPPED: {reason}")
        sys.exit(0)
    unittest.main()
