"""The commands of both READMEs run as printed: in a folder of their own, in their order, shortened where they are long.

A block of commands is marked ```sh. Both READMEs have the same commands. Shortened means fewer steps and smaller models,
a port that is free, and this host in place of others; all other words are those of the README. Where a command cannot run
here (it installs packages, it needs a GPU), it has to be refused for that reason, or to be there at least."""

import os
import pathlib
import re
import shlex
import signal
import socket
import subprocess
import unittest

from support import BIN, ProgramTest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FASHION_MNIST = pathlib.Path("/usr/share/datasets/fashion-mnist")
FEWER = [
    (r"--steps \d+ --max-restarts", "--steps 60 --max-restarts"),
    (r"kill:worker:1@step=200 kill:server:0@step=300", "kill:worker:1@step=20 kill:server:0@step=30"),
    (r"--epochs 1\b", "--steps 3"),
    (r"--steps (?!60\b)\d+", "--steps 3"),
    (r"gpt:layers=4,dim=128,heads=4,context=128", "gpt:layers=4,dim=16,heads=4,context=32"),
    (r"gelu-mlp:dim=1024,layers=4", "gelu-mlp:dim=64,layers=4"),
]


def commands_of(name):
    """Of each block, its commands: lines that end in a backslash are joined, comments are kept apart."""
    blocks = re.findall(r"(?ms)^```sh\n(.*?)^```$", (ROOT / name).read_text())
    found = []
    for block in blocks:
        lines = block.replace("\\\n", " ").splitlines()
        found.append([(re.sub(r"\s+", " ", line.split(" #")[0]).strip(), "#" in line) for line in lines if line.strip()])
    return found


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Readme(ProgramTest):
    def setUp(self):
        super().setUp()
        self.environment["PATH"] = f"{BIN}{os.pathsep}{self.environment['PATH']}"
        self.ports = {}
        (self.folder / "train.bin").write_bytes(bytes(2 * 64 * 1024))  # more than a batch of samples at 1024 tokens

    def port_of(self, port):
        """One for each block: what has just been used may not be free yet."""
        return self.ports.setdefault(port, free_port())

    def shortened(self, command):
        for pattern, fewer in FEWER:
            command = re.sub(pattern, fewer, command)
        command = re.sub(r"(?:127\.0\.0\.1|10\.77\.0\.1):(\d+)", lambda match: f"127.0.0.1:{self.port_of(match[1])}", command)
        if re.match(r"psring (train|compare|coordinator)", command) and "--steps" not in command:
            command += " --steps 3"
        if command.startswith("psring-bench all_reduce"):
            command += " --sizes 4K --rounds 1 --iterations 2 --warm-up 1"
        return command

    def begin(self, command):
        process = subprocess.Popen(shlex.split(command), cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.started.append(process)
        return process

    def end(self, process):
        result = self.finish(process, 120)
        self.assertEqual((result.status, result.err), (0, ""), (process.args, result))

    def run_alone(self, command):
        program = shlex.split(command)[0]
        if program.startswith("scripts/"):  # they install packages, and build
            self.assertTrue(os.access(ROOT / program, os.X_OK), program)
            self.assertEqual(subprocess.run(["bash", "-n", ROOT / program]).returncode, 0)
        elif program == "export":
            self.assertEqual(command, "export PATH=$PWD/build/release/bin:$PATH")
        elif program == "bible":
            self.text(command)
        elif "--device cuda" in command and not pathlib.Path("/dev/nvidiactl").exists():
            result = self.finish(self.begin(self.shortened(command)))
            self.assert_refused(result, 2, "--device cuda")
        else:
            self.end(self.begin(self.shortened(command)))

    def text(self, command):
        """Without the package another text will do, as the README says."""
        words, _, file = command.partition(" > ")
        result = subprocess.run(shlex.split(words), capture_output=True) if self.has_bible() else None
        (self.folder / file).write_bytes(result.stdout[:50000] if result else b"in the beginning " * 1000)
        self.assertGreater((self.folder / file).stat().st_size, 10000, command)

    @staticmethod
    def has_bible():
        return any(os.access(pathlib.Path(folder) / "bible", os.X_OK) for folder in os.environ["PATH"].split(os.pathsep))

    def run_together(self, commands):
        """Processes in terminals of their own: the first makes the key, and the others need each other."""
        first, *others = commands
        self.end(self.begin(self.shortened(first)))
        started = [self.begin(self.shortened(command)) for command in others]
        for process in started:
            self.end(process)

    def run_block(self, block):
        self.ports.clear()
        commands = [command for command, _ in block if command]
        if commands[0].startswith("psring keygen "):
            twice = [command for command in commands for _ in range(2 if re.match(r"psring-(server|worker)", command) else 1)]
            return self.run_together(twice)
        if commands[0] == "psring doctor":
            doctor, listen, peer = commands
            self.assertIn(self.finish(self.begin(doctor), 120).status, (0, 3))  # what this host lacks is not the README's
            ends = [self.begin(self.shortened(listen))]
            self.assertIn("waiting at", ends[0].stdout.readline())  # the other end comes once this one listens
            ends.append(self.begin(self.shortened(peer)))
            for end in ends:
                result = self.finish(end, 120)
                self.assertIn(result.status, (0, 3), (end.args, result))
                self.assertNotIn("psring:", result.err)
            return None
        if commands[-1].startswith("psring resume "):
            return self.interrupt_and_go_on(*commands)
        for command in commands:
            with self.subTest(command):
                self.run_alone(command)
        return None

    def interrupt_and_go_on(self, train, resume):
        """Steps enough for some seconds, of which most are left at the first line of metrics."""
        job = self.begin(train.replace("--steps 5000", "--steps 1500"))
        self.until_trains(job, resume.split()[-1])
        job.send_signal(signal.SIGINT)
        result = self.finish(job)
        self.assertEqual(result.status, 130, result)
        self.assertRegex(result.out + result.err, rf"interrupted at step \d+; checkpoint .*; continue with: psring resume .*{resume.split()[-1]}")
        self.end(self.begin(resume))

    def test_every_block(self):
        if not FASHION_MNIST.is_dir():
            self.skipTest("SKIPPED: the package dataset-fashion-mnist is not installed")
        blocks = commands_of("README.md")
        self.assertGreater(len(blocks), 12)
        for block in blocks:
            with self.subTest(block[0][0]):
                self.run_block(block)

    def test_both_readmes_have_the_same_commands(self):
        self.assertEqual(commands_of("README.md"), commands_of("README.zh-CN.md"))

    def test_no_command_is_outside_of_the_marked_blocks(self):
        for name in ("README.md", "README.zh-CN.md"):
            for label, text in re.findall(r"(?ms)^```(\w*)\n(.*?)^```$", (ROOT / name).read_text()):
                if label != "sh":
                    self.assertNotRegex(text, r"(?m)^(psring|psring-\w+) --?\w|^psring (train|compare|doctor|keygen) ", name)


if __name__ == "__main__":
    unittest.main()
