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
        awaited = "the agents of 2 hosts" if "--nodes" in arguments else "2 workers and 2 servers"
        return process, re.match(rf"coordinator at (\S+): waiting for {awaited};", process.stdout.readline()).group(1)

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
                job = json.loads((self.folder / "by-hand" / "run.json").read_text())["job"]
                self.assertEqual((job["lr"], job["beta1"], job["eps"], job["steps"]), (0.01, 0.9, 1e-8, 20))
                (self.folder / "by-hand").rename(self.folder / f"by-hand-{transport}")

    def test_processors(self):
        """Workers whose kernels differ: said once at joining, and marked in the manifest."""
        for narrow in ("AVX2", "SSE41"):
            with self.subTest(narrow):
                coordinator, endpoint = self.coordinator(*JOB)
                common = ["--rdzv-endpoint", endpoint, "--key", "job.key"]
                servers = [self.start("psring-server", *common) for _ in "12"]
                workers = [self.start("psring-worker", *common, "--rank", i, env={"ONEDNN_MAX_CPU_ISA": isa})
                           for i, isa in enumerate(("AVX2", narrow))]
                out, *others = (self.finish(process) for process in (coordinator, *servers, *workers))
                for result in (out, *others):
                    self.assert_done(result)
                mixed = narrow != "AVX2"
                self.assertEqual(len(re.findall(r"workers have different processors.*worker 0 \(.*with AVX2.*"
                                                r"worker 1 \(.*with SSE4.1", out.out)), int(mixed), out.out)
                manifest = json.loads((self.folder / "by-hand" / "run.json").read_text())
                self.assertEqual(manifest["mixed_processors"], mixed)
                self.assertRegex(manifest["processors"]["worker 0"], r"\S, oneDNN [\d.]+ with AVX2$")
                (self.folder / "by-hand").rename(self.folder / f"by-hand-{narrow}")

    def test_ipv6(self):
        with open("/proc/net/if_inet6", encoding="ascii") as interfaces:
            if not any(line.split()[-1] == "lo" for line in interfaces):
                self.skipTest("no IPv6 on the loopback interface")
        result = self.train(*JOB, "--listen", "[::1]:0", "--transport", "tcp", "--out", "six")
        self.assert_done(result)
        self.assertEqual(self.model("six"), self.model("launched"))
        self.assertRegex((self.folder / "six" / "logs" / "worker-0.log").read_text(), r"through tcp \[::1\]:\d+\n")
        coordinator, endpoint = self.coordinator(*JOB, "--transport", "tcp")
        common = ["--rdzv-endpoint", endpoint, "--key", "job.key", "--bind", "::1"]
        roles = [self.start(program, *common) for program in ("psring-worker", "psring-server") for _ in "12"]
        self.assertIn("through tcp [::1]:", self.assert_same(coordinator, *roles)[1].out)

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
