"""Processes that are started one by one, as in terminals: the same bits as the launcher's."""

import json
import re
import unittest

from support import TINY, ProgramTest

JOB = [*TINY, "--steps", 20, "--optimizer", "adam", "--lr", "0.01", "--workers", 2, "--servers", 2]


class ByHand(ProgramTest):
    def setUp(self):
        super().setUp()
        self.assert_done(self.train(*JOB, "--out", "launched"))
        self.key()

    def coordinator(self, *arguments, **options):
        process = self.start("psring", "coordinator", *arguments, "--key", "job.key", "--out", "by-hand", **options)
        line = process.stdout.readline()
        return process, re.match(r"coordinator at (\S+): waiting for 2 workers and 2 servers", line).group(1)

    def assert_same(self, *processes):
        results = [self.finish(process) for process in processes]
        for result in results:
            self.assert_done(result)
        self.assertEqual(self.model("by-hand"), self.model("launched"))
        return results

    def test_servers_and_workers(self):
        for transport in ("shm", "tcp"):
            with self.subTest(transport):
                coordinator, endpoint = self.coordinator(*JOB, "--transport", transport)
                common = ["--rdzv-endpoint", endpoint, "--key", "job.key"]
                # Workers first: who comes first does not matter.
                roles = [self.start(program, *common) for program in ("psring-worker", "psring-server") for _ in "12"]
                result = self.assert_same(coordinator, *roles)[0]
                self.assertRegex(result.out, r"ps: 20 steps, loss .*\n(.*as predicted\n)+run folder: .*by-hand")
                summary = json.loads((self.folder / "by-hand" / "summary.json").read_text())
                self.assertEqual(sorted(summary["roles"]), ["server 0", "server 1", "worker 0", "worker 1"])
                (self.folder / "by-hand").rename(self.folder / f"by-hand-{transport}")

    def test_environment_of_other_launchers(self):
        without_workers = [word for i, word in enumerate(JOB) if "--workers" not in (word, JOB[i - 1])]
        coordinator, endpoint = self.coordinator(*without_workers, env={"WORLD_SIZE": "2"})
        address, port = endpoint.split(":")
        master = {"MASTER_ADDR": address, "MASTER_PORT": port}
        servers = [self.start("psring-server", "--key", "job.key", env=master) for _ in "12"]
        workers = [self.start("psring-worker", "--key", "job.key", env={**master, "RANK": rank}) for rank in "10"]
        results = self.assert_same(coordinator, *servers, *workers)
        self.assertIn("worker 1: server 0", results[3].out)  # the first that was started was told to be rank 1

    def test_agents(self):
        coordinator, endpoint = self.coordinator(*JOB, "--nodes", 2)
        agents = [self.start("psring", "agent", "--rdzv-endpoint", endpoint, "--key", "job.key", "--logs", f"logs-{i}")
                  for i in "12"]
        self.assert_same(coordinator, *agents)
        logs = sorted(path.name for path in self.folder.glob("logs-*/*.log"))
        self.assertEqual(logs, ["server-0.log", "server-1.log", "worker-0.log", "worker-1.log"])


if __name__ == "__main__":
    unittest.main()
