"""Runs the commands of the README and of the guide as printed: page by page, in their order, the pages in three parts with a
folder each.

A block of commands is marked ```sh. The English and the Chinese version of a page have the same commands. Long commands
are shortened: fewer steps and processes, smaller models, a free port, this host in place of others; all other words are
those of the page. A command that cannot run here (it installs packages, it needs a GPU) has to be refused for that
reason, or its script has to exist."""

import os
import pathlib
import re
import shlex
import signal
import subprocess
import unittest

from support import BIN, ProgramTest, free_port

ROOT = pathlib.Path(__file__).resolve().parents[3]
FASHION_MNIST = pathlib.Path("/usr/share/datasets/fashion-mnist")
PAGES = ["README.md", *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs" / "guide").glob("*.md")
                             if not page.name.endswith(".zh-CN.md"))]
FEWER = [
    (r"--workers 2,4,8\b", "--workers 2,4"),
    (r"--workers 4\b", "--workers 2"),
    (r"--servers 4\b(?!.* --(?:tensor|pipeline))", "--servers 2"),  # in a mesh, one for each part of the model
    (r"kill:worker:1@step=\d\d+", "kill:worker:1@step=20"),
    (r"kill:server:0@step=\d\d+", "kill:server:0@step=30"),
    (r"--epochs \d+\b", "--steps 3"),
    (r"--tokens \d+", "--tokens 5"),
    (r"gpt:layers=\d,dim=128,heads=4,context=\d+", "gpt:layers=4,dim=16,heads=4,context=32"),
    (r"gpt:layers=24,dim=2048,heads=16,context=1024", "gpt:layers=6,dim=512,heads=8,context=256"),  # plans take 20 s each
    (r"gelu-mlp:dim=1024,layers=4", "gelu-mlp:dim=64,layers=4"),
]


def commands_of(name):
    """Returns the commands of each block. Lines that end in a backslash are joined; comments are kept apart."""
    blocks = re.findall(r"(?ms)^```sh\n(.*?)^```$", (ROOT / name).read_text())
    found = []
    for block in blocks:
        lines = block.replace("\\\n", " ").splitlines()
        found.append([(re.sub(r"\s+", " ", line.split(" #")[0]).strip(), "#" in line) for line in lines if line.strip()])
    return found


def chinese(name):
    return name.replace(".md", ".zh-CN.md")


class Commands(ProgramTest):
    def setUp(self):
        super().setUp()
        self.environment["PATH"] = f"{BIN}{os.pathsep}{self.environment['PATH']}"
        self.ports = {}
        (self.folder / "train.bin").write_bytes(bytes(2 * 64 * 1024))  # more than a batch of samples at 1024 tokens

    def port_of(self, port):
        """Returns a free port for each block: a port that was just used may not be free yet."""
        return self.ports.setdefault(port, free_port())

    def shortened(self, command):
        for pattern, fewer in FEWER:
            command = re.sub(pattern, fewer, command)
        steps = 60 if "kill:" in command else 6 if "--resume " in command else 3
        command = re.sub(r"--steps \d+", f"--steps {steps}", command)
        command = re.sub(r"(?:127\.0\.0\.1|10\.77\.0\.1):(\d+)", lambda match: f"127.0.0.1:{self.port_of(match[1])}", command)
        if re.match(r"psring (train|compare|coordinator)", command) and "--steps" not in command:
            command += " --steps 3"
        if command.startswith("psring-bench all_reduce"):
            command += " --sizes 4K --rounds 1 --iterations 2 --warm-up 1"
        return command

    def begin(self, command):
        process = subprocess.Popen(shlex.split(command), cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   errors="replace")  # a model of bytes that has learned little prints any bytes
        self.started.append(process)
        return process

    def end(self, process):
        result = self.finish(process, 300)  # on a busy machine
        self.assertEqual((result.status, result.err), (0, ""), (process.args, result))

    def run_alone(self, command):
        program = shlex.split(command)[0]
        if program.startswith("scripts/"):  # they install packages, and build
            self.assertTrue(os.access(ROOT / program, os.X_OK), program)
            source = (ROOT / program).read_text()
            if "python3" in source.partition("\n")[0]:
                compile(source, program, "exec")
            else:
                self.assertEqual(subprocess.run(["bash", "-n", ROOT / program]).returncode, 0)
            if command == "scripts/data debian debian":
                self.package_graph(self.folder / "debian")
        elif program == "export":
            self.assertEqual(command, "export PATH=$PWD/build/release/bin:$PATH")
        elif program == "bible":
            self.text(command)
        elif "--device cuda" in command and not pathlib.Path("/dev/nvidiactl").exists():
            result = self.finish(self.begin(self.shortened(command)))
            self.assert_refused(result, 2, "--device cuda")
        else:
            self.end(self.begin(self.shortened(command)))

    @staticmethod
    def package_graph(folder):
        """Writes what scripts/data makes from Debian's packages, for a few that do not exist."""
        folder.mkdir()
        names = [f"p{i}" for i in range(200)]
        (folder / "packages.tsv").write_text("".join(f"{name}\tsection=s{i % 7}\tword=w{i % 13}\n" for i, name in enumerate(names)))
        (folder / "edges.tsv").write_text("".join(f"{a}\t{b}\n" for i, a in enumerate(names) for b in names[i % 5:i:9]))

    def text(self, command):
        """Writes a text, and another text if the package is not installed."""
        words, _, file = command.partition(" > ")
        result = subprocess.run(shlex.split(words), capture_output=True) if self.has_bible() else None
        (self.folder / file).write_bytes(result.stdout[:50000] if result else b"in the beginning " * 1000)
        self.assertGreater((self.folder / file).stat().st_size, 10000, command)

    @staticmethod
    def has_bible():
        return any(os.access(pathlib.Path(folder) / "bible", os.X_OK) for folder in os.environ["PATH"].split(os.pathsep))

    def run_together(self, commands):
        """Runs processes in terminals of their own: the first makes the key, and the others need each other."""
        first, *others = commands
        (self.folder / shlex.split(first)[-1]).unlink(missing_ok=True)  # another block's: a key is never overwritten
        self.end(self.begin(self.shortened(first)))
        started = [self.begin(self.shortened(command)) for command in others]
        for process in started:
            self.end(process)

    def run_block(self, block):
        self.ports.clear()
        commands = [command for command, _ in block if command]
        if commands[0].startswith("psring keygen "):
            twice = [command for command in commands for _ in range(2 if re.match(r"psring-(server|worker|bench)", command) else 1)]
            return self.run_together(twice)
        if commands[0] == "psring doctor":
            doctor, listen, peer = commands
            self.assertIn(self.finish(self.begin(doctor), 120).status, (0, 3))  # 3: this host lacks something
            ends = [self.begin(self.shortened(listen))]
            self.assertIn("waiting at", ends[0].stdout.readline())  # the other end is started once this end listens
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
        """Runs enough steps for some seconds, most of which are left at the first line of metrics."""
        run = resume.split()[-1]
        self.assertFalse((self.folder / run).exists(), f"another command makes {run} too")
        job = self.begin(train.replace("--steps 5000", "--steps 1500"))
        self.until_trains(job, run)
        job.send_signal(signal.SIGINT)
        result = self.finish(job)
        self.assertEqual(result.status, 130, result)
        self.assertRegex(result.out + result.err, rf"interrupted at step \d+; checkpoint .*; continue with: psring resume .*{run}")
        self.end(self.begin(resume))

    def run_part(self, part):
        if not FASHION_MNIST.is_dir():
            self.skipTest("SKIPPED: the package dataset-fashion-mnist is not installed")
        blocks = [(page, block) for page in PAGES[part::3] for block in commands_of(page)]
        self.assertGreater(len(blocks), 10)
        for page, block in blocks:
            with self.subTest(page, command=block[0][0]):
                self.run_block(block)

    def test_part_0(self):
        self.run_part(0)

    def test_part_1(self):
        self.run_part(1)

    def test_part_2(self):
        self.run_part(2)


class Texts(unittest.TestCase):
    def test_both_languages_have_the_same_commands(self):
        for page in PAGES:
            with self.subTest(page):
                self.assertEqual(commands_of(page), commands_of(chinese(page)))

    def test_no_command_is_outside_of_the_marked_blocks(self):
        """But for the lesson on precision, whose commands take minutes."""
        for name in (name for page in PAGES for name in (page, chinese(page)) if "precision" not in name):
            for label, text in re.findall(r"(?ms)^```(\w*)\n(.*?)^```$", (ROOT / name).read_text()):
                if label != "sh":
                    self.assertNotRegex(text, r"(?m)^(psring|psring-\w+) --?\w|^psring (train|compare|doctor|keygen) ", name)

    def test_the_readme_is_short(self):
        for name in ("README.md", "README.zh-CN.md"):
            self.assertLessEqual(len((ROOT / name).read_text().splitlines()), 160, name)

    def test_every_link_leads_to_a_file(self):
        pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
        self.assertGreater(len(pages), len(PAGES))
        for page in pages:
            for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text()):
                self.assertTrue((page.parent / link).exists(), f"{page.relative_to(ROOT)}: {link}")


if __name__ == "__main__":
    unittest.main()
