"""Frames that are lost, doubled, overtaken and changed on purpose: a job ends as if they had not been."""

import json
import unittest

from support import TINY, ProgramTest

FAULTS = " ".join(f"{kind}:{role}:*=5%" for kind in ("drop", "duplicate", "reorder", "corrupt") for role in ("worker", "server"))
JOBS = {
    "ps": ["--strategy", "ps", "--workers", 3, "--servers", 2, "--optimizer", "adam", "--clip-norm", 1],
    "ddp": ["--strategy", "ddp", "--workers", 3, "--algorithm", "ring"],
}


class FrameFaults(ProgramTest):
    def job(self, name, out, *more):
        result = self.train(*TINY, *JOBS[name], "--transport", "tcp", "--out", out, *more)
        self.assert_done(result)
        return self.folder / out

    def test_same_bits_and_bytes(self):
        for name in JOBS:
            with self.subTest(name):
                quiet = self.job(name, f"{name}-quiet", "--steps", 20)
                disturbed = self.job(name, f"{name}-disturbed", "--steps", 20, "--fault", FAULTS)
                self.assertEqual((disturbed / "model.safetensors").read_bytes(), (quiet / "model.safetensors").read_bytes())
                summary = json.loads((disturbed / "summary.json").read_text())
                for entry in summary["bytes"]:
                    self.assertEqual(entry["measured"], entry["predicted"], entry)
                payload = lambda run: [[entry["role"], entry["direction"], entry["measured"]] for entry in
                                       json.loads((run / "summary.json").read_text())["bytes"]]
                self.assertEqual(payload(disturbed), payload(quiet))
                again = 0
                for report in (disturbed / "reports").iterdir():
                    sent = json.loads(report.read_text()).get("bytes", {}).get("sent", {})
                    for count in sent.get("retransmitted", {}).values():
                        self.assertEqual(count["payload"], 0)
                        again += count["messages"]
                self.assertGreater(again, 5)

    def test_losses(self):
        """Frames suffer, and a process is lost."""
        for name, more in (("ps", []), ("ps", ["--replicas", 1]), ("ddp", [])):
            with self.subTest(name=name, more=more):
                quiet = self.job(name, f"{name}-{len(more)}-quiet", "--steps", 200)
                who = "server:0" if more else "worker:1"
                lossy = self.job(name, f"{name}-{len(more)}-lossy", *more, "--steps", 200, "--max-restarts", 2, "--fault",
                                 f"duplicate:worker:*=1% drop:worker:0=1% corrupt:worker:2=1% kill:{who}@step=100")
                self.assertEqual((lossy / "model.safetensors").read_bytes(), (quiet / "model.safetensors").read_bytes())

    def test_refusals(self):
        for words, more in (
            (["--fault drop:worker:0=1%", "--transport shm"], ["--fault", "drop:worker:0=1%", "--transport", "shm"]),
            (["--fault drop:worker:0=1%", "--placement"], ["--fault", "drop:worker:0=1%", "--strategy", "ps-colocated"]),
            (["a share below 100%"], ["--fault", "drop:worker:0=100%"]),
            (["a share such as 20%"], ["--fault", "corrupt:server:0=3"]),
            (["strategy ps has no worker 7 here"], ["--fault", "reorder:worker:7=1%"]),
        ):
            with self.subTest(more):
                self.assert_refused(self.train(*TINY, "--workers", 2, "--steps", 1, *more), 2, *words)


if __name__ == "__main__":
    unittest.main()
