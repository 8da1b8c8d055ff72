"""A server that plays psring's live view for a test: it sends the snapshots that the test gives it, as docs/guide/live.md says."""

import http.server
import json
import threading
import urllib.parse

TOKEN = "5f3a9c"
# The policy that psring sends with the page.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'"


def snapshot(workers=4, servers=2, live=True, stale=False, name="runs/a"):
    """Returns a state as psring records it, with numbers that differ from each other."""
    steps = list(range(0, 400, 4))
    return {
        "schema": 1,
        "run": {"name": name, "command": ["psring", "train", "--strategy", "ps"], "strategy": "ps", "model": "mlp:784-512-10",
                "data": "synthetic", "workers": workers, "servers": servers, "steps": 1000, "global_batch": 128, "text_model": False},
        "phase": "training", "error": None, "time_s": 41.5,
        "progress": {"step": 397, "steps": 1000, "samples_per_second": 1234.4, "tokens_per_second": None, "left_s": 63.2, "loss": 0.71825},
        "series": {"step": steps, "time_s": [0.1 * s for s in steps], "loss": [2.3 / (1 + 0.01 * s) for s in steps],
                   "samples_per_second": [1200 + s % 50 for s in steps], "step_s": [0.1 + 0.0001 * (s % 70) for s in steps],
                   "exposed_s": [0.03 + 0.0001 * (s % 30) for s in steps], "staleness": [1.5 if stale else 0.0 for _ in steps]},
        "evaluations": [{"step": s, "time_s": 0.1 * s, "test_loss": 2.2 / (1 + 0.01 * s), "test_accuracy": 0.5 + 0.001 * s, "test_perplexity": None}
                        for s in (100, 200, 300)],
        "workers": [{"rank": r, "step": 397 + r, "seen_s": 0.4, "loss": 0.7, "step_s": 0.1 + 0.003 * r, "compute_s": 0.06 + 0.003 * r,
                     "exposed_s": 0.03, "staleness": 2.0 if stale else 0.0, "lag": r,
                     "waiting": {"operation": "acquire", "peer": "server 0", "since_s": 1.2} if live and r > 0 else None,
                     "memory": {"parameters": 1628000 + r, "gradients": 1628000, "optimizer": 0, "activations": 403000,
                                "communication": 65536, "rss": 60_000_000, "pss": 31_000_000},
                     "bytes_sent": 512_000_000 + r if live else None, "bytes_received": 498_000_000 if live else None} for r in range(workers)],
        "servers": [{"rank": r, "seen_s": 0.2, "busy": 0.25 + 0.5 * r if live else None, "updates": 397 if live else None,
                     "waiting": {"operation": "wait", "peer": "worker 1", "since_s": 0.7} if live and r == 0 else None,
                     "memory": {"parameters": 814000, "gradients": 814000, "optimizer": 814000, "activations": None, "communication": 4096,
                                "rss": 22_000_000, "pss": 12_000_000},
                     "bytes_sent": 996_000_000 if live else None, "bytes_received": 1_024_000_000 if live else None} for r in range(servers)],
        "links": [{"from": f"{a} {i}", "to": f"{b} {j}", "operation": operation, "bytes": 256_000_000 + i, "bytes_per_second": 1_500_000 * (i + 1) + j,
                   "retransmissions": None}
                  for a, b, operation in (("worker", "server", "push"), ("server", "worker", "pull"))
                  for i in range(workers if a == "worker" else servers) for j in range(workers if b == "worker" else servers)] if live else [],
        "recoveries": [],
    }


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def answer(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        owner = self.server.owner
        address = urllib.parse.urlsplit(self.path)
        owner.asked.append(address.path)
        if urllib.parse.parse_qs(address.query).get("token") != [TOKEN]:
            return self.answer(403, "text/plain", b"no token") if address.path != "/" else self.answer(200, "text/html", owner.page)
        if address.path == "/":
            return self.answer(200, "text/html; charset=utf-8", owner.page)
        if address.path == "/state":
            return self.answer(200, "application/json", json.dumps(owner.state).encode())
        if address.path == "/events":
            return self.stream(owner)
        return self.answer(404, "text/plain", b"no such path")

    def stream(self, owner):
        if owner.crowded:
            return self.answer(503, "text/plain", b"too many viewers")
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        sent = -1
        while True:
            with owner.changed:
                owner.changed.wait_for(lambda: owner.ends or owner.version != sent)
                if owner.ends:
                    return None
                sent, text = owner.version, json.dumps(owner.state)
            try:
                self.wfile.write(f"retry: 200\nevent: state\ndata: {text}\n\n".encode())
                self.wfile.flush()
            except OSError:
                return None


class LiveServer:
    """Serves the page and one state until `stop`; `send` replaces the state, and `start` serves at the same port again."""

    def __init__(self, page, state):
        self.page, self.state, self.version, self.asked, self.crowded = page, state, 0, [], False
        self.changed, self.port = threading.Condition(), 0
        self.start()

    def start(self):
        self.ends = False
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.server.daemon_threads, self.server.owner, self.port = True, self, self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    def send(self, state):
        with self.changed:
            self.state, self.version = state, self.version + 1
            self.changed.notify_all()

    def stop(self):
        with self.changed:
            self.ends = True
            self.changed.notify_all()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def url(self, options="", token=TOKEN):
        return f"http://127.0.0.1:{self.port}/?token={token}#{options}"
