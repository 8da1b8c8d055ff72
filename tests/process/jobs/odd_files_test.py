"""Paths that are no regular files: one line that says what they are. Streams are read, and a signal ends the wait."""

import os
import signal
import socket
import subprocess
import unittest

from support import BIN, LIMIT, TINY, ProgramTest, until

GPT = "gpt:layers=1,dim=8,heads=2,context=8,vocab=256"


class OddFiles(ProgramTest):
    def setUp(self):
        super().setUp()
        os.mkfifo(self.folder / "pipe", 0o600)
        (self.folder / "folder").mkdir()
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        before = os.getcwd()
        os.chdir(self.folder)  # a path of a socket may not be long
        listener.bind("socket")
        os.chdir(before)

    KINDS = {"pipe": "is a pipe", "folder": "is a folder", "socket": "is a socket", "/dev/null": "is a device"}

    def readers(self, path):
        """A command for each option that reads a file: its words, and whether a folder is another thing to it."""
        job = ["train", *TINY, "--steps", 1]
        text = ["train", "--model", GPT, "--global-batch", 4, "--steps", 1, "--data"]
        table = ["train", "--model", "mlp:4-2", "--global-batch", 4, "--steps", 1, "--data"]
        return [
            (["train", *table[1:], f"csv:{path}"], False),
            (["train", *table[1:], f"csv:train={path},test={path}"], False),
            ([*text, f"text:{path}"], False),
            ([*text, f"tokens:{path}"], False),
            ([*job, "--init", path], False),
            ([*job, "--config", path], False),
            ([*job, "--key", path], False),
            ([*job, "--strategy", "ddp", "--tuning", path], False),
            (["plan", "--model", "mlp:4-2", "--global-batch", 8, "--fit", path], False),
            (["generate", "--init", path, "--prompt", "a"], False),
            (["generate", "--init", "model.safetensors", "--evaluate", f"text:{path}"], False),
            (["generate", "--init", "model.safetensors", "--prompt", "a", "--tokenizer", path], True),
            (["quantize", "--init", path, "--weights", "int8", "--out", "q"], False),
            (["tokenize", "text", "--tokenizer", path, "--out", "t"], True),
            (["coordinator", "--job", path, "--key", "job.key", "--out", "c"], False),
        ]

    def test_readers_say_what_a_path_is(self):
        self.key()
        self.file("text", b"some text\n")
        self.assert_done(self.train("--model", GPT, "--global-batch", 1, "--workers", 1, "--steps", 1, "--data", "text:text", "--out", "run"))
        os.rename(self.folder / "run" / "model.safetensors", self.folder / "model.safetensors")
        for path, kind in self.KINDS.items():
            for words, takes_folder in self.readers(path):
                if path == "folder" and takes_folder:
                    continue
                with self.subTest(" ".join(map(str, words))):
                    self.assert_refused(self.run_program("psring", *words), 3, path, kind)

    def test_a_pipe_that_nobody_reads_is_refused(self):
        self.file("text", b"some text\n")
        for words in (["tokenize", "text", "--out", "pipe"], ["doctor", "--json", "pipe"]):
            with self.subTest(" ".join(words)):
                self.assert_refused(self.run_program("psring", *words), 3, "pipe", "nobody reads this pipe")

    def test_a_link_is_followed(self):
        self.file("data.csv", b"1,2,0\n3,4,1\n")
        os.symlink("data.csv", self.folder / "link")
        self.assert_done(self.train("--model", "mlp:2-2", "--global-batch", 2, "--steps", 1, "--workers", 1, "--data", "csv:link"))

    def test_streams_are_read(self):
        text = b"first line\r\nsecond\n"
        for path in ("/dev/stdin", "pipe"):
            words = [BIN / "psring", "tokenize", path, "--out", "tokens"]
            with self.subTest(path):
                feeder = subprocess.Popen(["sh", "-c", "cat > pipe"], cwd=self.folder, stdin=subprocess.PIPE) if path == "pipe" else None
                process = subprocess.Popen(words, cwd=self.folder, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                (feeder or process).communicate(text, timeout=LIMIT)
                out, err = process.communicate(timeout=LIMIT)
                self.assertEqual((process.returncode, err), (0, b""), out)
                self.assertEqual((self.folder / "tokens").read_bytes()[::2], text)

    def test_prompts_come_from_a_pipe(self):
        self.file("text", b"some text\n")
        self.assert_done(self.train("--model", GPT, "--global-batch", 1, "--workers", 1, "--steps", 1, "--data", "text:text", "--out", "run"))
        words = ["generate", "--init", "run/model.safetensors", "--tokens", 1, "--prompt-file"]
        self.file("prompts", b"\xef\xbb\xbfab\r\ncd\n")
        self.file("plain", b"ab\ncd\n")
        plain = self.run_program("psring", *words, "plain")
        self.assert_done(plain)
        piped = subprocess.run([BIN / "psring", *map(str, words), "/dev/stdin"], cwd=self.folder, env=self.environment, timeout=LIMIT,
                               input=(self.folder / "prompts").read_bytes(), capture_output=True)
        self.assertEqual((piped.returncode, piped.stderr), (0, b""))
        samples = [line for line in plain.out.splitlines() if line.startswith("[")]
        self.assertEqual(len(samples), 2, plain.out)
        self.assertEqual([line for line in piped.stdout.decode().splitlines() if line.startswith("[")], samples)

    def test_a_signal_ends_the_wait_for_a_writer(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(number):
                process = self.start("psring", "tokenize", "pipe", "--out", "tokens")
                reads = lambda: any(os.path.realpath(f"/proc/{process.pid}/fd/{fd}").endswith("/pipe") for fd in os.listdir(f"/proc/{process.pid}/fd"))
                until(reads, "the pipe was not opened")
                process.send_signal(number)
                self.assertEqual(self.finish(process).status, -number)


if __name__ == "__main__":
    unittest.main()
