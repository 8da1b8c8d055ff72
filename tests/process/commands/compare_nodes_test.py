"""psring compare --nodes: every run of the table is made by the same agents, which stay between the runs, and end when the table
ends, when a host is lost, and when the launcher is."""

import json
import signal
import unittest

from support import TINY, ProgramTest, until

PEER_LOST = 4
USAGE = 2
ROWS = ["single", "ddp", "ps", "zero3"]


class CompareNodes(ProgramTest):
    def launch(self, *arguments, nodes=2, steps=5):
        self.key()
        launcher = self.start("psring", "compare", *TINY, "--steps", steps, "--workers", 2, "--strategies", ",".join(ROWS), "--nodes",
                              nodes, "--key", "job.key", "--predict-link", "none", "--out", "table", *arguments)
        while "waiting for the agents" not in (line := launcher.stdout.readline()):
            self.assertTrue(line, "the launcher has ended")
        endpoint = line.split()[2].rstrip(":")
        agents = [self.start("psring", "agent", "--rdzv-endpoint", endpoint, "--key", "job.key", "--logs", f"agent-{i}",
                             "--join-timeout", 20) for i in range(1, nodes)]
        return launcher, agents

    def until_row(self, row, launcher):
        metrics = self.folder / "table" / row / "metrics.jsonl"
        until(lambda: (metrics.exists() and metrics.stat().st_size > 0) or launcher.poll() is not None, f"no step of {row}")
        self.assertIsNone(launcher.poll())

    def rows(self):
        return json.loads((self.folder / "table" / "compare.json").read_text())["rows"]

    def test_the_same_agents_make_every_run(self):
        launcher, agents = self.launch("--runs", 2, nodes=3)
        self.assert_done(self.finish(launcher))
        for agent in agents:
            result = self.finish(agent)
            self.assertEqual((result.status, result.err), (0, ""), result)
        rows = self.rows()
        self.assertEqual([row["strategy"] for row in rows], ROWS)
        self.assertEqual([row["equality"] for row in rows], ["—", "=", "=", "="])
        self.assertEqual([len(row["runs"]) for row in rows], [2] * 4)
        logs = {path.name for path in (self.folder / "agent-1").iterdir()}
        self.assertIn("worker-1.log", logs)

    def test_a_lost_agent_is_one_error(self):
        launcher, agents = self.launch("--heartbeat-timeout", 2, nodes=3, steps=2_000_000)
        self.until_row("single", launcher)  # in which the agents have nothing to do
        agents[0].send_signal(signal.SIGKILL)
        self.assert_refused(self.finish(launcher), PEER_LOST, "agent")
        self.assertEqual(self.finish(agents[1]).status, PEER_LOST)

    def test_the_launcher_dies(self):
        launcher, agents = self.launch("--heartbeat-timeout", 2, steps=2_000_000)
        self.until_row("single", launcher)
        launcher.send_signal(signal.SIGKILL)
        self.assertNotEqual(self.finish(agents[0]).status, 0)

    def test_a_signal_ends_all(self):
        launcher, agents = self.launch(steps=2_000_000)
        self.until_row("single", launcher)
        launcher.send_signal(signal.SIGINT)
        self.assertEqual(self.finish(launcher).status, 130)
        self.assertEqual(self.finish(agents[0]).status, 130)

    def test_a_row_that_is_not_finite_is_left_out_and_the_agents_stay(self):
        launcher, agents = self.launch("--optimizer", "sgd", "--lr", "1e-3,1e30")
        result = self.finish(launcher)
        self.assertEqual(result.status, 3, result)
        self.assertIn("ended early: ", result.out)
        self.assertEqual([row["strategy"] for row in self.rows()], [f"{row} lr=1e-3" for row in ROWS])
        self.assertEqual(self.finish(agents[0]).status, 0)

    def test_refused(self):
        result = self.run_program("psring", "compare", *TINY, "--nodes", 2)
        self.assert_refused(result, USAGE, "--nodes 2", "--key")
        result = self.run_program("psring", "compare", *TINY, "--nodes", 0)
        self.assert_refused(result, USAGE, "--nodes")
        result = self.run_program("psring", "compare", *TINY, "--listen", "nowhere")
        self.assert_refused(result, USAGE, "--listen")


if __name__ == "__main__":
    unittest.main()
