"""psring watch and psring train --live: the state that they serve is the state of the run, whoever looks, and who may not look is refused."""

import http.client
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import unittest

from browser import CHROMIUM, Browser
from support import ENDLESS, TINY, ProgramTest, until

SIX_STEPS = [*TINY, "--strategy", "ps", "--workers", 2, "--servers", 1, "--steps", 6, "--eval-every", 3]


class Viewer:
    """A connection that reads the events of a live view."""

    def __init__(self, view):
        self.connection = http.client.HTTPConnection("127.0.0.1", view.port, timeout=60)
        self.connection.request("GET", f"/events?token={view.token}")
        self.answer = self.connection.getresponse()

    def next(self):
        """The next state."""
        while True:
            line = self.answer.fp.readline().decode()
            if not line:
                raise EOFError("the stream has ended")
            if line.startswith("data: "):
                return json.loads(line.removeprefix("data: "))

    def close(self):
        self.connection.close()
        self.answer.close()


class View:
    """A live view by its printed address."""

    def __init__(self, url):
        self.port, self.token = re.search(r"http://127\.0\.0\.1:(\d+)/\?token=([0-9a-f]{32})", url).groups()
        self.port = int(self.port)

    def ask(self, path, headers=(), method="GET", body=None, token=True):
        """The answer's status, content type and text."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        query = f"?token={self.token}" if token else ""
        connection.request(method, path + query, headers=dict(headers), body=body)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, answer, text

    def state(self):
        return json.loads(self.ask("/state")[2])


class Live(ProgramTest):
    def watch(self, run, *arguments):
        process = self.start("psring", "watch", run, *arguments)
        line = process.stdout.readline()
        self.assertIn("live view: http://", line, process.stderr.read() if not line else "")
        return process, View(line)

    def end(self, process):
        process.terminate()
        process.wait()

    def lines_of(self, run, name="metrics.jsonl"):
        return [json.loads(line) for line in (self.folder / run / name).read_text().splitlines()]

    def test_finished_run(self):
        """The state has the figures of the run folder. A folder whose name is markup is a name."""
        name = "<script>alert(1)"
        self.assert_done(self.train(*SIX_STEPS, "--out", name))
        process, view = self.watch(name)
        state = view.state()
        lines = self.lines_of(name)
        steps = [line for line in lines if "step_s" in line]
        self.assertEqual((state["schema"], state["phase"], state["error"]), (1, "done", None))
        self.assertEqual(state["run"]["name"], name)
        self.assertEqual(state["progress"]["step"], 6)
        self.assertEqual(state["progress"]["left_s"], 0)
        self.assertEqual(state["series"]["step"], list(range(6)))
        for step in range(6):
            own = [line for line in steps if line["step"] == step]
            loss = sum(line["loss"] * line["samples"] for line in own) / sum(line["samples"] for line in own)
            self.assertAlmostEqual(state["series"]["loss"][step], loss, places=4)
        for worker in state["workers"]:
            (last,) = [line for line in steps if line["worker"] == worker["rank"] and line["step"] == 5]
            self.assertEqual((worker["step"], worker["loss"], worker["step_s"]), (6, last["loss"], last["step_s"]))
            self.assertGreater(worker["memory"]["rss"], 0)
            self.assertIsNone(worker["waiting"])
        self.assertEqual([entry["step"] for entry in state["evaluations"]],
                         sorted({line["step"] for line in lines if "test_rows" in line}))
        for entry in state["evaluations"]:
            own = [line for line in lines if line.get("test_rows") and line["step"] == entry["step"]]
            self.assertAlmostEqual(entry["test_accuracy"], sum(line["test_correct"] for line in own) / sum(line["test_rows"] for line in own))
        self.assertNotIn("<script>alert", view.ask("/")[2])
        self.end(process)

    def test_refusals(self):
        """Whoever has no token, asks for another path, or comes from another page is refused."""
        self.assert_done(self.train(*SIX_STEPS, "--out", "run"))
        process, view = self.watch("run")
        for path in ("/", "/state", "/events", "/metrics", "/run.json"):
            self.assertEqual(view.ask(path, token=False)[0], 403, path)
            self.assertEqual(view.ask(f"{path}?token={'0' * 32}", token=False)[0], 403, path)
        for path in ("/run.json", "/../run.json", "/%2e%2e/run.json", "//etc/passwd", "/state/", "/job.json"):
            self.assertEqual(view.ask(path)[0], 404, path)
        bearer = {"Authorization": f"Bearer {view.token}"}
        self.assertEqual(view.ask("/metrics", bearer, token=False)[0], 200)
        self.assertEqual(view.ask("/metrics", {"Authorization": "Bearer 0"}, token=False)[0], 403)
        self.assertEqual(view.ask("/state", {"Origin": "http://evil.example"})[0], 403)
        self.assertEqual(view.ask("/state", {"Origin": f"http://127.0.0.1:{view.port}"})[0], 200)
        for host, status in (("evil.example", 403), (f"evil.example:{view.port}", 403), ("127.0.0.1.evil.example", 403), ("", 403),
                             (f"localhost:{view.port}", 200), ("localhost:8080", 200), (f"[::1]:{view.port}", 200)):
            self.assertEqual(view.ask("/state", {"Host": host})[0], status, host)
        for method, status in (("POST", 405), ("PUT", 405), ("DELETE", 405), ("OPTIONS", 405), ("HEAD", 405)):
            self.assertEqual(view.ask("/state", method=method)[0], status, method)
        self.assertEqual(view.ask("/state", body="x" * 10)[0], 413)
        self.assertEqual(view.ask("/state", {"Range": "bytes=" + "1-1," * 3000})[0], 200)
        status, answer, _ = view.ask("/")
        self.assertEqual(status, 200)
        self.assertEqual(answer.headers["Cache-Control"], "no-store")
        self.assertEqual(answer.headers["Referrer-Policy"], "no-referrer")
        self.assertEqual(answer.headers["X-Content-Type-Options"], "nosniff")
        self.assertIn("default-src 'none'", answer.headers["Content-Security-Policy"])
        self.end(process)

    def test_large_and_broken_requests(self):
        self.assert_done(self.train(*SIX_STEPS, "--out", "run"))
        process, view = self.watch("run")
        for request, status in ((b"POST /state?token=%b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048576\r\n\r\n" % view.token.encode() + b"x" * (1 << 20), b"405"),
                                (b"GET /state HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * (1 << 20), b"431"),
                                (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", b"4"),
                                (b"\x00\xff garbage\r\n\r\n", b"400")):
            with socket.create_connection(("127.0.0.1", view.port), timeout=60) as connection:
                try:
                    connection.sendall(request)
                except (BrokenPipeError, ConnectionResetError):
                    pass
                self.assertTrue(connection.recv(4096).startswith(b"HTTP/1.1 " + status), request[:60])
        # Half a request is closed after 2 s.
        with socket.create_connection(("127.0.0.1", view.port), timeout=60) as connection:
            connection.sendall(b"GET /state HTTP/1.1\r\n")
            self.assertEqual(connection.recv(4096), b"")
        self.assertEqual(view.state()["phase"], "done")
        self.end(process)

    def test_idle_connections(self):
        """1,000 connections that say nothing keep nobody from the view."""
        self.assert_done(self.train(*SIX_STEPS, "--out", "run"))
        process, view = self.watch("run")
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        idle = []
        for _ in range(1000):
            idle.append(socket.create_connection(("127.0.0.1", view.port), timeout=60))
        self.assertEqual(view.state()["phase"], "done")
        for connection in idle:
            connection.close()
        self.end(process)

    def test_viewers_of_a_job(self):
        """Two viewers see the job go on, at most 16 read events, and one that stops reading stops nobody."""
        job = self.start("psring", "train", *ENDLESS, "--strategy", "ddp", "--workers", 2, "--out", "run")
        self.until_trains(job, "run")
        process, view = self.watch("run")
        first, second = Viewer(view), Viewer(view)
        seen = [until(lambda: viewer.next()["progress"]["step"], "no step") for viewer in (first, second)]
        for viewer, step in zip((first, second), seen):
            until(lambda: viewer.next()["progress"]["step"] > step, "no further step")
        self.assertEqual(view.state()["phase"], "training")
        stopped = socket.socket()
        stopped.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stopped.connect(("127.0.0.1", view.port))
        stopped.sendall(b"GET /events?token=%b HTTP/1.1\r\nHost: localhost\r\n\r\n" % view.token.encode())
        step = first.next()["progress"]["step"]
        until(lambda: first.next()["progress"]["step"] > step, "no further step")
        more = [Viewer(view)]
        while more[-1].answer.status == 200:  # those that do not read are cut off after a while
            more.append(Viewer(view))
        self.assertEqual(more[-1].answer.status, 503)
        self.assertGreater(len(more), 12)
        second.close()
        os.kill(job.pid, signal.SIGINT)
        self.finish(job)
        state = until(lambda: (state := first.next())["phase"] == "failed" and state, "not failed")
        self.assertIsNone(state["progress"]["left_s"])
        for viewer in (first, *more):
            viewer.close()
        stopped.close()
        self.end(process)

    def test_recovery(self):
        """A worker that is killed and started again: the view shows the loss and the recovery, and goes on."""
        job = self.start("psring", "train", *ENDLESS, "--strategy", "ps", "--workers", 2, "--servers", 1, "--max-restarts", 3, "--out", "run")
        self.until_trains(job, "run")
        process, view = self.watch("run")
        viewer = Viewer(view)
        os.kill(until(lambda: self.process_of("role-worker", 1), "no worker"), signal.SIGKILL)
        state = until(lambda: (state := viewer.next())["recoveries"] and state["recoveries"][0]["delay_s"] and state, "no recovery")
        self.assertIn("worker 1", state["recoveries"][0]["what"])
        os.kill(until(lambda: self.process_of("coordinator"), "no coordinator"), signal.SIGKILL)
        step = viewer.next()["progress"]["step"]
        until(lambda: viewer.next()["progress"]["step"] > step + 10, "no further step")
        viewer.close()
        os.kill(job.pid, signal.SIGINT)
        self.finish(job)
        self.end(process)

    def line_of(self, process, words):
        """The next line that a process prints with these words."""
        while words not in (line := process.stdout.readline()):
            self.assertTrue(line, process.stderr.read() if not line else "")
        return line

    def live(self, *arguments):
        """A job with --live, and its view."""
        job = self.start("psring", "train", "--live", *arguments)
        return job, View(self.line_of(job, "live view: http://"))

    def state_at_end(self, viewer):
        return until(lambda: (state := viewer.next())["phase"] not in ("starting", "training") and state, "no end")

    def sums(self, run):
        """Payload bytes by sender, receiver and operation, as the processes reported them in the end."""
        sums = {}
        for file in (self.folder / run / "reports").glob("*-*.json"):
            sent = json.loads(file.read_text()).get("bytes", {}).get("sent", {})
            for operation, peers in sent.items():
                for peer, count in peers.items():
                    sums[file.stem.replace("-", " "), peer, operation] = count["payload"]
        return sums

    def test_live_job(self):
        """--live: in the end, the view has the bytes of the reports, and the model is that of a run without the view."""
        for strategy in (["ps", "--servers", 1], ["zero3"]):
            with self.subTest(strategy):
                arguments = [*TINY, "--strategy", *strategy, "--workers", 2, "--steps", 40]
                name = strategy[0]
                self.assert_done(self.train(*arguments, "--out", f"{name}-without"))
                job, view = self.live(*arguments, "--out", name)
                viewer = Viewer(view)
                state = self.state_at_end(viewer)
                self.assertEqual((state["phase"], state["progress"]["step"]), ("done", 40), state)
                links = {(link["from"], link["to"], link["operation"]): link["bytes"] for link in state["links"]}
                self.assertEqual(links, self.sums(name))
                for worker in state["workers"]:
                    self.assertGreater(worker["bytes_sent"], 0)
                for server in state["servers"]:
                    self.assertEqual(server["updates"], 40)
                viewer.close()
                self.assert_done(self.finish(job))
                models = [(self.folder / run / "model.safetensors").read_bytes() for run in (name, f"{name}-without")]
                self.assertEqual(*models)

    def test_live_tables(self):
        """--live with tables: in the end, the view has the rows of each server, and the model is that of a run without it."""
        for strategy in ("ps", "hybrid"):
            with self.subTest(strategy):
                arguments = ["--strategy", strategy, "--workers", 2, "--servers", 2, "--model", "fm:dense=2,features=4,dim=3", "--data",
                             "criteo-like:samples=2k", "--global-batch", 16, "--steps", 40]
                self.assert_done(self.train(*arguments, "--out", f"{strategy}-without"))
                job, view = self.live(*arguments, "--out", strategy)
                viewer = Viewer(view)
                state = self.state_at_end(viewer)
                viewer.close()
                self.assert_done(self.finish(job))
                roles = json.loads((self.folder / strategy / "summary.json").read_text())["roles"]
                for server in state["servers"]:
                    self.assertGreater(server["rows"], 100)
                    self.assertEqual(server["rows"], roles[f"server {server['rank']}"]["tables"][0]["rows"])
                self.assertEqual(*[(self.folder / run / "model.safetensors").read_bytes() for run in (strategy, f"{strategy}-without")])

    def test_live_wait(self):
        """A worker that is stopped: the others are seen waiting for it."""
        job, view = self.live(*ENDLESS, "--strategy", "ddp", "--workers", 2, "--heartbeat-timeout", 300, "--out", "run")
        self.until_trains(job, "run")
        stopped = until(lambda: self.process_of("role-worker", 1), "no worker")
        os.kill(stopped, signal.SIGSTOP)
        try:
            viewer = Viewer(view)
            until(lambda: viewer.next()["workers"], "no worker is seen")
            waiting = until(lambda: (wait := viewer.next()["workers"][0]["waiting"]) and wait["peer"] and wait, "nobody waits")
            self.assertEqual((waiting["operation"], waiting["peer"]), ("wait", "worker 1"))
            until(lambda: viewer.next()["workers"][0]["waiting"]["since_s"] > waiting["since_s"], "the wait does not last")
            viewer.close()
        finally:
            os.kill(stopped, signal.SIGCONT)
        last = Viewer(view)
        os.kill(job.pid, signal.SIGINT)
        state = self.state_at_end(last)
        last.close()
        ended = self.finish(job)
        self.assertEqual((ended.status, state["phase"]), (130, "failed"), ended)
        cause = json.loads((self.folder / "run" / "live" / "end.json").read_text())["cause"]
        self.assertIn(cause, ended.err)
        self.assertEqual(state["error"], cause)

    def test_live_recovery(self):
        """The view of --live outlives workers and coordinators; a job outlives its view."""
        job, view = self.live(*ENDLESS, "--strategy", "ps", "--workers", 2, "--servers", 1, "--max-restarts", 9, "--out", "run")
        self.until_trains(job, "run")
        viewer = Viewer(view)
        stopped = Viewer(view)  # reads nothing any more
        for role in (("role-worker", 1), ("coordinator",)):
            os.kill(until(lambda: self.process_of(*role), "no process"), signal.SIGKILL)
            until(lambda: (state := viewer.next())["phase"] == "training" and state["recoveries"] and
                  all(recovery["delay_s"] for recovery in state["recoveries"]), "no recovery")
            before = [worker["bytes_sent"] or 0 for worker in viewer.next()["workers"]]
            until(lambda: all((worker["bytes_sent"] or 0) > sent + 10000
                              for worker, sent in zip(viewer.next()["workers"], before)), "no further bytes")
        viewer.close()
        stopped.close()
        os.kill(until(lambda: self.process_of("watch"), "no view"), signal.SIGKILL)
        self.line_of(job, "the live view was ended by signal 9 (Killed); the job goes on without it")
        step = len(self.lines_of("run"))
        until(lambda: len(self.lines_of("run")) > step, "no further step")
        os.kill(job.pid, signal.SIGINT)
        self.finish(job)

    def assert_told(self, state, steps):
        """Each process of a job with two workers has told what it did."""
        self.assertEqual((state["phase"], state["progress"]["step"]), ("done", steps), state)
        self.assertEqual(len(state["workers"]), 2)
        for process in state["workers"] + state["servers"]:
            self.assertGreater(process["bytes_sent"], 0, process)

    def test_live_hosts(self):
        """The view of the host with the coordinator shows the processes of the other host, too."""
        key = self.key()
        job, view = self.live(*TINY, "--steps", 40, "--workers", 2, "--nodes", 2, "--listen", "127.0.0.1:0", "--key", key, "--out", "run")
        endpoint = re.search(r"coordinator at (\S+):", self.line_of(job, "coordinator at"))[1]
        viewer = Viewer(view)
        agent = self.start("psring", "agent", "--rdzv-endpoint", endpoint, "--key", key, "--logs", "logs")
        self.assert_told(self.state_at_end(viewer), 40)
        viewer.close()
        self.assert_done(self.finish(job))
        self.assert_done(self.finish(agent))
        self.assertEqual(len(list((self.folder / "logs").glob("worker-*.log"))), 1)

    def test_live_by_hand(self):
        """psring coordinator --live: the same view, of roles that are started by hand."""
        key = self.key()
        coordinator = self.start("psring", "coordinator", "--live", *TINY, "--steps", 40, "--workers", 2, "--servers", 1, "--key", key, "--out", "run")
        viewer = Viewer(View(self.line_of(coordinator, "live view: http://")))
        endpoint = re.search(r"coordinator at (\S+):", self.line_of(coordinator, "coordinator at"))[1]
        roles = [self.start(program, "--rdzv-endpoint", endpoint, "--key", key)
                 for program in ("psring-worker", "psring-worker", "psring-server")]
        self.assert_told(self.state_at_end(viewer), 40)
        viewer.close()
        for process in (coordinator, *roles):
            self.assert_done(self.finish(process))

    def test_live_resume(self):
        """A resumed run has its view again, at another address if that is given."""
        job, _ = self.live(*TINY, "--steps", 1000000, "--checkpoint-every", 1000, "--strategy", "ddp", "--workers", 2, "--out", "run")
        until(lambda: list(self.folder.glob("run/checkpoints/step-*")), "no checkpoint")
        os.kill(job.pid, signal.SIGINT)
        self.assertEqual(self.finish(job).status, 130)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            self.assert_refused(self.run_program("psring", "resume", "run", "--live", address), 2, f"--live {address}")
        self.assertFalse((self.folder / "run" / "parts").exists())
        for arguments in ([], ["--live"], ["--live", "127.0.0.1:0"]):
            job = self.start("psring", "resume", "run", *arguments)
            viewer = Viewer(View(self.line_of(job, "live view: http://")))
            until(lambda: (state := viewer.next())["phase"] == "training" and state["workers"] and state["workers"][0]["bytes_sent"],
                  "does not train")
            os.kill(job.pid, signal.SIGINT)
            self.assertEqual(self.state_at_end(viewer)["phase"], "failed")
            viewer.close()
            self.assertEqual(self.finish(job).status, 130)

    def test_live_usage(self):
        self.assert_refused(self.train(*SIX_STEPS, "--live", "here"), 2, "--live here")
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            self.assert_refused(self.train(*SIX_STEPS, "--live", address, "--out", "run"), 2, f"--live {address}")
        self.assertFalse((self.folder / "run" / "run.json").exists())
        self.assert_refused(self.run_program("psring", "compare", *TINY, "--steps", 2, "--live"), 2, "--live: ")
        self.assert_refused(self.run_program("psring", "step", *TINY, "--live"), 2, "--live: psring step cannot simulate it")

    def test_metrics(self):
        """/metrics is what the strict parser of OpenMetrics takes if the reader asks for it, else what promtool takes."""
        self.assert_done(self.train(*SIX_STEPS, "--out", "run"))
        process, view = self.watch("run")
        _, answer, text = view.ask("/metrics", {"Accept": "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.4,*/*;q=0.1"})
        _, classic, plain = view.ask("/metrics")
        self.end(process)
        self.assertEqual(classic.headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
        self.assertIn("# TYPE psring_steps_total counter\npsring_steps_total{worker=\"0\"} 6\n", plain)
        self.assertEqual([line for line in plain.splitlines() if line.startswith(("# EOF", "# UNIT")) or " info" in line], [])
        self.assertTrue(answer.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0"))
        self.assertTrue(text.endswith("# EOF\n"))
        if shutil.which("promtool"):
            checked = subprocess.run(["promtool", "check", "metrics"], input=plain, capture_output=True, text=True)
            self.assertEqual((checked.returncode, checked.stderr), (0, ""))
        sys.path.append("/usr/lib/python3/dist-packages")  # another Python than the distribution's may run this
        try:
            from prometheus_client.openmetrics.parser import text_string_to_metric_families
        except ImportError:
            self.skipTest("python3-prometheus-client is not installed")
        families = {family.name: family for family in text_string_to_metric_families(text)}
        steps = {sample.labels["worker"]: sample.value for sample in families["psring_steps"].samples}
        self.assertEqual(steps, {"0": 6, "1": 6})
        self.assertIn("psring_memory_bytes", families)

    @unittest.skipIf(CHROMIUM is None, "no chromium")
    def test_page(self):
        """The page reads the state under the server's policy, again after a reload, and a run's name stays text."""
        name = "<img src=x onerror=alert(1)>"
        self.assert_done(self.train(*SIX_STEPS, "--out", name))
        process, view = self.watch(name)
        step = "document.querySelector('[data-tile=\"step\"] strong')?.textContent"
        with Browser() as browser:
            for _ in range(2):
                browser.visit(f"http://127.0.0.1:{view.port}/?token={view.token}#lang=en")
                until(lambda: (browser.run(step) or "").startswith("6 of 6"), "no step on the page")
                self.assertIn(name, browser.run("document.title"))
                self.assertEqual(browser.run("document.images.length"), 0)
            self.assertEqual(browser.errors, [])
        self.end(process)

    def test_usage(self):
        self.assert_refused(self.run_program("psring", "watch", "nothing"), 3, "nothing: no such folder")
        self.assert_done(self.train(*SIX_STEPS, "--out", "run"))
        self.assert_refused(self.run_program("psring", "watch", "run", "--listen", "here"), 2, "--listen here")
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            self.assert_refused(self.run_program("psring", "watch", "run", "--listen", f"127.0.0.1:{port}"), 3, str(port))


if __name__ == "__main__":
    unittest.main()
