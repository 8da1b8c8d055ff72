"""Processes that are started one by one, as in terminals: the same bits as the launcher's."""

import json
import os
import pathlib
import re
import signal
import unittest

from support import ENDLESS, TINY, ProgramTest, until

JOB = [*TINY, "--steps", 20, "--optimizer", "adam", "--lr", "0.01", "--workers", 2, "--servers", 2]


OWN_WORKER = os.environ["PSRING_OWN_WORKER"]
OTHER_WORKER = os.environ["PSRING_OTHER_WORKER"]  # the same program, of another build


def state_of(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


class Places(ProgramTest):
    """Processes that ask for a place in a job: who gets it, who waits for what, and who is refused."""

    def setUp(self):
        super().setUp()
        self.key()

    def coordinator(self, *arguments):
        process = self.start("psring", "coordinator", *arguments, "--key", "job.key", "--out", "run")
        line = process.stdout.readline()
        self.assertRegex(line, r"^coordinator at \S+: waiting for ")
        self.common = ["--rdzv-endpoint", line.split()[2].rstrip(":"), "--key", "job.key"]
        return process, line

    def own(self, program, elements, steps=3):
        return self.start(program, self.common[1], self.common[3], elements, steps)

    def end(self, *processes):
        for process in processes:
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGTERM)
        return [self.finish(process) for process in processes]

    def test_a_taken_rank(self):
        """The holder is named at once, and its next heartbeat refuses the second process."""
        for more in (["--max-restarts", 2], []):
            with self.subTest(more):
                coordinator, _ = self.coordinator(*ENDLESS, "--workers", 1, "--servers", 1, *more)
                server = self.start("psring-server", *self.common, "--rank", 0)
                worker = self.start("psring-worker", *self.common)
                metrics = self.folder / "run" / "metrics.jsonl"
                until(lambda: metrics.exists() and metrics.stat().st_size > 0, "no step was made")
                second = self.finish(self.start("psring-server", *self.common, "--rank", 0))
                self.assert_refused(second, 2, f":{server.pid}), last heard ", "has joined already", "--rank")
                self.assertEqual(f"server: server 0 (" in second.out, bool(more), second)
                self.end(coordinator)
                self.finish(server), self.finish(worker)
                (self.folder / "run").rename(self.folder / f"run-{len(more)}")

    def test_a_silent_holder(self):
        """A process that comes before the loss is noticed says what it waits for, and takes the place."""
        job = [*TINY, "--steps", 200, "--workers", 2, "--servers", 1]
        self.assert_done(self.train(*job, "--out", "launched"))
        coordinator, _ = self.coordinator(*job, "--max-restarts", 1, "--heartbeat-timeout", 6, "--fault",
                                          "stop:worker:1@step=20")
        roles = [self.start("psring-server", *self.common),
                 *(self.start("psring-worker", *self.common, "--rank", rank) for rank in (0, 1))]
        stopped = roles.pop()
        until(lambda: state_of(stopped.pid) == "T", "worker 1 does not stop")
        second = self.start("psring-worker", *self.common, "--rank", 1)
        results = [self.finish(process) for process in (second, coordinator, *roles)]
        for result in results:
            self.assert_done(result)
        self.assertRegex(results[0].out, rf"worker: worker 1 \(\S+:{stopped.pid}\), last heard .* has joined already: waiting")
        self.assertEqual(self.model("run"), self.model("launched"))
        stopped.kill()
        self.finish(stopped)

    def test_agents_start_the_roles(self):
        """A role that comes by hand to a job of agents is told at once."""
        coordinator, _ = self.coordinator(*TINY, "--steps", 3, "--workers", 2, "--nodes", 2)
        for program in ("psring-server", "psring-worker"):
            self.assert_refused(self.run_program(program, *self.common), 2, "the job's roles are started by agents", "psring agent")
        self.end(coordinator)

    def test_followers_are_counted(self):
        coordinator, line = self.coordinator(*TINY, "--steps", 5, "--workers", 1, "--servers", 2, "--replicas", 1,
                                             "--join-timeout", 8)
        self.assertIn("waiting for 1 worker and 4 servers (primaries 0, 1, and a follower of each", line)
        roles = [self.start(program, *self.common) for program in ("psring-worker", "psring-server", "psring-server")]
        missing = "2 servers (2 of 4 servers: primaries 0, 1; waiting for followers of 0, 1)"
        result = self.finish(coordinator)
        self.assert_refused(result, 4, missing)
        self.assertIn(f"still waiting for {missing}", result.out)
        for role in roles:
            self.finish(role)

    def test_another_build(self):
        job = [*TINY, "--steps", 3, "--workers", 1, "--servers", 1]
        coordinator, _ = self.coordinator(*job)
        processes = [self.start("psring-server", *self.common), self.own(OTHER_WORKER, 100)]
        results = [self.finish(process) for process in (coordinator, *processes)]
        for result in results:
            self.assert_done(result)
        self.assertEqual(len(re.findall(r"warning: worker 0 \(\S+\) is another build than the coordinator's: psring 0\.0\.7 \(other\), "
                                        r"sources 0123456789abcdef, .*the coordinator is psring .*--same-build", results[0].out)),
                         1, results[0])
        (self.folder / "run").rename(self.folder / "warned")
        coordinator, _ = self.coordinator(*job, "--same-build")
        server = self.start("psring-server", *self.common)
        self.assert_refused(self.finish(self.own(OTHER_WORKER, 100)), 3, "psring 0.0.7 (other)", "--same-build")
        self.assert_done(self.finish(self.own(OWN_WORKER, 100)))
        self.assert_done(self.finish(server))
        result = self.finish(coordinator)
        self.assert_done(result)
        self.assertNotIn("warning", result.out)

    def test_another_model(self):
        """Workers with different models: everybody ends with status 3, and the difference, not with a worker that left."""
        coordinator, _ = self.coordinator(*TINY, "--steps", 3, "--workers", 2, "--servers", 1)
        processes = [self.start("psring-server", *self.common), *(self.own(OWN_WORKER, elements) for elements in (1000, 2000))]
        for result in [self.finish(process) for process in (coordinator, *processes)]:
            self.assert_refused(result, 3, "has another model than", "'vector'", "[1000]", "[2000]")

    def test_a_loss_names_the_lost(self):
        """Survivors that see the ends of other survivors first do not blame these."""
        for strategy in ("ddp", "ps"):
            with self.subTest(strategy):
                coordinator, _ = self.coordinator(*ENDLESS, "--strategy", strategy, "--workers", 3, "--transport", "tcp",
                                                  "--heartbeat-timeout", 3)
                servers = [self.start("psring-server", *self.common)] if strategy == "ps" else []
                workers = [self.start("psring-worker", *self.common, "--rank", rank) for rank in range(3)]
                metrics = self.folder / "run" / "metrics.jsonl"
                until(lambda: metrics.exists() and metrics.stat().st_size > 0, "no step was made")
                workers[2].kill()
                for result in [self.finish(process) for process in (coordinator, *servers, *workers[:2])]:
                    self.assert_refused(result, 4, "worker 2 (", f":{workers[2].pid}) exited before the workers were done")
                self.finish(workers[2])
                (self.folder / "run").rename(self.folder / strategy)


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
