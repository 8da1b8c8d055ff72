"""A live job under attack: strangers at every port, recorded handshakes, a wrong key, silence. It goes on to the same
bits, counts whom it refused, and says so in few lines. And what passes over the network says nothing that it should not."""

import base64
import contextlib
import json
import os
import random
import re
import resource
import shutil
import secrets
import signal
import socket
import struct
import time
import unittest

from capture import Capture, own_network
from support import TINY, ProgramTest, until

STEPS = 10_000  # at first: twice as many where a job was through before it could be attacked
SILENT = 1100  # connections that say nothing, at each port: more than it keeps
KEPT = 1024
HEADER = 128
UNAUTHORISED = 5
JOBS = {"ps": ["--strategy", "ps", "--servers", 1], "ddp": ["--strategy", "ddp"]}


def listening(pids):
    """What these processes listen at: TCP addresses, and names of local sockets."""
    inodes = set()
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for fd in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    if found := re.match(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{fd}")):
                        inodes.add(found.group(1))
    tcp, local = [], []
    with open("/proc/net/tcp", encoding="ascii") as lines:
        for words in map(str.split, lines):
            if words[3] == "0A" and words[9] in inodes:
                host, port = words[1].split(":")
                tcp.append((socket.inet_ntoa(struct.pack("<I", int(host, 16))), int(port, 16)))
    with open("/proc/net/unix", encoding="ascii") as lines:
        for words in map(str.split, lines):
            if words[3] == "00010000" and words[6] in inodes and len(words) > 7:
                local.append("\0" + words[7][1:])
    return tcp, local


def connect(address):
    local = isinstance(address, str)
    kind = socket.SOCK_SEQPACKET if local else socket.SOCK_STREAM
    stranger = socket.socket(socket.AF_UNIX if local else socket.AF_INET, kind)
    stranger.settimeout(20)
    stranger.connect(address)
    return stranger


def say(address, *parts):
    """Connects, says this, and hears what there is to hear: where nothing comes, not for long."""
    with connect(address) as stranger, contextlib.suppress(ConnectionError, socket.timeout):
        for part in parts:
            stranger.sendall(part)
        stranger.settimeout(0.1)
        while stranger.recv(4096):
            pass


def garbage(seed):
    """Noise, and beginnings of what is right; the same for the same seed."""
    noise = random.Random(seed)
    yield (noise.randbytes(700),)
    yield (b"\xff" + bytes(8) + b"\x7f\x03" + noise.randbytes(60),)  # ZMTP's greeting, and noise
    yield (b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48),)
    yield (b"PSRG" + noise.randbytes(HEADER - 4),)
    yield (b"PSRG\x03\x00\x01\x00",)
    yield (b"GET / HTTP/1.1\r\n\r\n", noise.randbytes(300))


class Attack(ProgramTest):
    def setUp(self):
        network = contextlib.ExitStack()
        network.enter_context(own_network())  # other jobs of this host send more than can be captured
        self.addCleanup(network.close)
        super().setUp()

    def launch(self, run, *arguments):
        """A job of two workers, whose worker 1 stands still once it trains: it cannot end before the attack has. None
        where it was through already."""
        job = self.start("psring", "train", *arguments, "--out", run, "--heartbeat-timeout", 60)
        metrics = self.folder / run / "metrics.jsonl"
        until(lambda: (metrics.exists() and metrics.stat().st_size > 0) or job.poll() is not None, "no step was made")
        self.stopped = self.process_of("role-worker", 1)
        if self.stopped is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.stopped, signal.SIGSTOP)
                if not (self.folder / run / "reports" / "worker-1.json").exists():
                    return job
                self.go_on()
        self.assert_done(self.finish(job))
        shutil.rmtree(self.folder / run)
        return None

    def go_on(self):
        os.kill(self.stopped, signal.SIGCONT)

    def ports(self):
        """Of all that still listen: worker 1 does not answer now."""
        tcp, local = listening(set(self.processes()) - {self.stopped})
        self.assertGreaterEqual(len(tcp), 2)
        return [*tcp, *local]

    def refused(self, run):
        return json.loads((self.folder / run / "summary.json").read_text())["refused"]

    def check_lines(self, run, seconds):
        """At most one line a second of each that refuses; the last says how many in all."""
        found = 0
        for log in (self.folder / run / "logs").glob("*.log"):
            for kind in ("refused", "closed"):
                lines = re.findall(rf": {kind} (\d+) connections .*, (\d+) in all$", log.read_text(), re.M)
                self.assertLessEqual(len(lines), seconds + 2, log)
                self.assertEqual(sum(int(count) for count, _ in lines), int(lines[-1][1]) if lines else 0, log)
                found += int(lines[-1][1]) if lines else 0
        self.assertEqual(found, self.refused(run))

    def descriptors(self):
        """The most that a process of the job has open."""
        counts = [0]
        for pid in self.processes():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                counts.append(len(os.listdir(f"/proc/{pid}/fd")))
        return max(counts)

    def control(self):
        for arguments in self.processes().values():
            if "--rdzv-endpoint" in arguments:
                return arguments[arguments.index("--rdzv-endpoint") + 1]
        return self.fail("no role runs")

    def capture(self):
        try:
            capture = Capture()
        except PermissionError:
            return None
        self.addCleanup(capture.close)
        return capture

    def attack(self, strategy):
        job = [*TINY, *JOBS[strategy], "--workers", 2, "--transport", "tcp"]
        calm, run = f"calm-{strategy}", f"attacked-{strategy}"
        recorded = self.capture()
        begin = time.monotonic()
        steps = STEPS
        while (attacked := self.launch(run, *job, "--steps", steps)) is None:
            steps *= 2
        ports = self.ports()
        said = 0
        for address in ports:
            for parts in garbage(strategy):
                say(address, *parts)
                said += 1
        if recorded:  # handshakes, and what came after them, once more
            for (_, port), stream in recorded.streams().items():
                if ("127.0.0.1", port) in ports:
                    for end in (HEADER // 2, 2 * HEADER, 5 * HEADER, len(stream)):
                        say(("127.0.0.1", port), stream[:end])
                        said += 1
        stranger = self.run_program("psring-worker", "--rdzv-endpoint", self.control(), "--key", "wrong.key")
        self.assert_refused(stranger, UNAUTHORISED, "key")
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        silent = [connect(address) for address in ports for _ in range(SILENT)]
        # All but those that a port keeps are hung up on, or wait in its queue.
        until(lambda: self.descriptors() < 4 * KEPT, f"{self.descriptors()} descriptors")
        self.go_on()
        result = self.finish(attacked)
        for other in silent:
            other.close()
        self.assert_done(result)
        seconds = time.monotonic() - begin
        self.assert_done(self.train(*job, "--steps", steps, "--out", calm))
        self.assertEqual(self.refused(calm), 0)
        self.assertEqual(self.model(run), self.model(calm))
        self.assertGreaterEqual(self.refused(run), said // 2)
        self.check_lines(run, seconds)

    def test_ps(self):
        self.key("wrong.key")
        self.attack("ps")

    def test_ddp(self):
        self.key("wrong.key")
        self.attack("ddp")

    def test_what_passes_over_the_network(self):
        """Encrypted, no parameters; plain or encrypted, and in no file, log or command line, the key."""
        self.key()
        key = bytes.fromhex((self.folder / "job.key").read_text().strip())
        forms = [key, key.hex().encode(), key.hex().upper().encode(), base64.b64encode(key)[:40], base64.b85encode(key)]
        for strategy in ("ps", "zero1"):
            for encrypt in ("off", "on"):
                with self.subTest(strategy=strategy, encrypt=encrypt):
                    capture = self.capture()
                    if capture is None:
                        self.skipTest("capturing packets is not allowed here")
                    run = f"{strategy}-{encrypt}"
                    seed = secrets.randbelow(1 << 31)  # other jobs that pass over loopback now have other parameters
                    servers = ["--servers", 1] if strategy == "ps" else []
                    # At such a rate what is saved is what was sent all the time.
                    self.assert_done(self.train(*TINY, "--strategy", strategy, *servers, "--workers", 2, "--steps", 3,
                                                "--seed", seed, "--lr", "1e-30", "--transport", "tcp",
                                                "--encrypt", encrypt, "--key", "job.key",
                                                "--out", run))
                    self.assertEqual(capture.close(), 0, "packets were missed")
                    passed = b"".join(capture.streams().values())
                    model = self.model(run)
                    tensor = model[8 + struct.unpack("<Q", model[:8])[0]:]
                    found = [at for at in range(0, len(tensor) - 32, 32)
                             if any(tensor[at:at + 32]) and tensor[at:at + 32] in passed]
                    self.assertEqual(bool(found), encrypt == "off")
                    logged = b"".join(path.read_bytes() for path in (self.folder / run).rglob("*") if path.is_file())
                    for form in forms:
                        self.assertNotIn(form, passed)
                        self.assertNotIn(form, logged)


if __name__ == "__main__":
    unittest.main()
