"""psring generate --tensor: ranks that divide a model choose the tokens of one process; a lost rank ends all and is named."""

import json
import os
import signal
import subprocess
import time
import unittest

from generating import GenerateTest
from support import BIN, until

USAGE, DATA, PEER_LOST = 2, 3, 4


class GenerateTensor(GenerateTest):
    def test_the_tokens_are_those_of_one_process(self):
        model = self.trained(steps=200)
        prompts = ["the cat ", "s", "when it rains, the river"]
        batch = [option for prompt in prompts for option in ("--prompt", prompt)]
        drawn = ["--temperature", "1.5", "--top-k", 50, "--top-p", "0.95", "--seed", 3]
        for weights in ("f32", "int8", "int4:group=32,scheme=affine"):
            options = ["--init", model, "--weights", weights, "--tokens", 40]
            together = self.tokens(*options, *batch)
            chosen = self.tokens(*options, *batch, *drawn)
            self.assertNotEqual(together, chosen)
            for ranks in (2, 4):
                with self.subTest(weights, ranks=ranks):
                    divided = [*options, "--tensor", ranks]
                    self.assertEqual(self.tokens(*divided, *batch), together)
                    self.assertEqual(self.tokens(*divided, *batch, "--cache", "off", "--threads", 2), together)
                    self.assertEqual(self.tokens(*divided, *batch, *drawn), chosen)
                    self.assertEqual(self.tokens(*divided, "--prompt", prompts[2]), together[2:])
        for weights in ("int8", "int4"):
            self.assert_done(self.run_program("psring", "quantize", "--init", model, "--weights", weights, "--out", "q.safetensors"))
            options = ["--init", "q.safetensors", *batch, "--tokens", 40]
            self.assertEqual(self.tokens(*options, "--tensor", 2), self.tokens(*options))
        loss = self.generate("--init", model, "--evaluate", "text:corpus.txt")
        divided = self.generate("--init", model, "--evaluate", "text:corpus.txt", "--tensor", 2)
        received = divided.pop("received_bytes")
        self.assertEqual({**divided, "weight_bytes": 0}, {**loss, "weight_bytes": 0})
        # Each token is a row with logits: half of the columns of seven results a layer, half of the logits, and the
        # embedding, if rank 1 has it: tokens from 128. The text is ASCII, so it has none of these.
        self.assertEqual(received, 4 * loss["tokens"] * (2 * 7 * 32 + 128))

    def test_memory_and_bytes_of_each_rank(self):
        model = self.trained(steps=1)
        options = ["--init", model, "--prompt", "abcde", "--tokens", 30, "--measure"]
        whole, figures = self.generate(*options), self.generate(*options, "--tensor", 4)
        self.assertEqual(figures["sequences"], whole["sequences"])
        self.assertEqual(len(figures["ranks"]), 4)
        for rank in figures["ranks"]:
            self.assertEqual(rank["cache_bytes"], 2 * 2 * 48 * 16 * 4)  # 2 L T d bytes, with a quarter of the 64 dims
            # 34 rows: the other ranks' columns of four results a layer; 30 times their logits; and the rows of tokens that they have.
            results, logits = 4 * 34 * 2 * (7 * 64 - 7 * 16), 4 * 30 * (256 - 64)
            self.assertEqual((rank["received_bytes"] - results - logits) % (4 * 64), 0)
            self.assertLessEqual(rank["received_bytes"], results + logits + 4 * 34 * 64)
        tokens = [*b"abcde", *figures["sequences"][0]["tokens"][:-1]]
        for number, rank in enumerate(figures["ranks"]):
            others = sum(token // 64 != number for token in tokens)
            self.assertEqual(rank["received_bytes"], 4 * (34 * 2 * 7 * 48 + 30 * 192 + others * 64))
        self.assertEqual(figures["cache_bytes"], whole["cache_bytes"])
        self.assertLess(max(rank["weight_bytes"] for rank in figures["ranks"]), 0.6 * whole["weight_bytes"])  # panels are filled up
        shown = self.run_program("psring", "generate", *options, "--tensor", 2)
        self.assert_done(shown)
        for word in ("2 ranks of 1 thread", "rank 0     weights", "rank 1     weights", "KV cache 2 x 2 layers x 48 tokens x 32 x 4 B", "exchange",
                     "recomputing all", "calculator", "bound"):
            self.assertIn(word, shown.out)

    def endless(self):
        """A generation that takes minutes."""
        if not (self.folder / "run").exists():
            self.trained(steps=1)
            (self.folder / "prompts").write_text("abc\n" * 3000)
        return self.start("psring", "generate", "--init", "run/model.safetensors", "--prompt-file", "prompts", "--tokens", 60, "--cache", "off",
                          "--tensor", 4)

    def rank(self, number):
        for pid, arguments in self.processes().items():
            if "--tensor-rank" in arguments and arguments[arguments.index("--tensor-rank") + 1] == str(number):
                return pid
        return None

    def test_a_lost_rank_ends_all(self):
        for number, number_of_signal, said in ((1, signal.SIGKILL, "signal 9 (Killed)"), (3, signal.SIGSEGV, "signal 11"),
                                               (2, signal.SIGSTOP, "stood still")):
            with self.subTest(number_of_signal):
                job = self.endless()
                pids = [until(lambda: self.rank(each), "no rank") for each in (1, 2, 3)]
                os.kill(pids[number - 1], number_of_signal)
                self.assert_refused(self.finish(job, limit=90), PEER_LOST, f"tensor rank {number} (process {pids[number - 1]})", said)
                self.assert_nothing_left()
        job = self.endless()
        until(lambda: self.rank(3), "no rank")
        job.kill()
        self.assertEqual(self.finish(job).status, -signal.SIGKILL)
        self.assert_nothing_left()

    def test_an_early_signal_leaves_no_folder(self):
        """Whenever the signal comes, the folder with the ranks' key is gone."""
        model = self.trained(steps=1)
        place = self.folder / "temporary"
        place.mkdir()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            for delay_ms in range(0, 40, 4):
                job = self.start("psring", "generate", "--init", model, "--prompt", "abc", "--tokens", 60, "--cache", "off", "--tensor", 4,
                                 env={"TMPDIR": str(place)})
                begin = time.monotonic()
                while time.monotonic() < begin + delay_ms / 1000:
                    pass
                job.send_signal(number)
                self.finish(job, limit=90)
                self.assertEqual(list(place.iterdir()), [], (number, delay_ms))
        self.assert_nothing_left()

    def test_an_ignored_signal_ends_nothing(self):
        """As under nohup, and in a script's background: whenever the signal comes, the text is that of one process."""
        options = ["--init", self.trained(steps=1), "--prompt", "abc", "--tokens", 60, "--cache", "off"]
        expected = self.tokens(*options)
        for number in (signal.SIGHUP, signal.SIGINT):
            for delay_ms in range(0, 40, 4):
                before = signal.signal(number, signal.SIG_IGN)  # the program inherits it
                try:
                    job = self.start("psring", "generate", "--json", *options, "--tensor", 4)
                finally:
                    signal.signal(number, before)
                time.sleep(delay_ms / 1000)
                job.send_signal(number)
                result = self.finish(job, limit=90)
                self.assertEqual((result.status, result.err), (0, ""), (number, delay_ms))
                self.assertEqual([each["tokens"] for each in json.loads(result.out)["sequences"]], expected, (number, delay_ms))
        self.assert_nothing_left()

    def test_output_that_cannot_be_written(self):
        model = self.trained(steps=1)
        for more in ([], ["--tensor", 2], ["--json"]):
            with open("/dev/full", "w") as full:
                words = [str(word) for word in [BIN / "psring", "generate", "--init", model, "--prompt", "abc", "--tokens", 5, *more]]
                result = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, cwd=self.folder, env=self.environment, timeout=90)
            self.assertEqual(result.returncode, DATA, result)
            self.assertEqual(result.stderr, "psring: standard output: cannot write: No space left on device\n")

    def test_bad_input(self):
        model = self.trained(steps=1)
        five = ["--tokens", 5]
        run = ["--init", model, "--prompt", "abc"]
        for options, status, words in (
            ([*run, "--tensor", 3, *five], USAGE, ["--tensor 3", "4 heads of attention are not divisible by 3"]),
            ([*run, "--tensor", 0, *five], USAGE, ["--tensor 0"]),
            ([*run, "--tensor", 8, *five], USAGE, ["--tensor 8: the model has only 4 heads"]),
            ([*run, "--tensor", 1000000, *five], USAGE, ["--tensor 1000000: the model has only 4 heads"]),
            ([*run, "--tensor", "two", *five], USAGE, ["--tensor"]),
            ([*run, "--tensor", 2, "--tensor-rank", 1, *five], USAGE, ["--tensor-rank 1"]),
            ([*run, "--tensor", 2, "--tensor-rank", 1, "--tensor-key", "nowhere", *five], DATA, ["nowhere"]),
            ([*run, "--tensor", 2, "--prompt-tokens", 256, *five], USAGE, ["token 256", "vocabulary of 256"]),
            ([*run, "--tensor", 2, "--tokens", 64], USAGE, ["at most 62"]),
            ([*run, "--tensor", 2, "--tokenizer", "nowhere", *five], DATA, ["nowhere"]),
            (["--init", "nowhere", "--prompt", "a", "--tensor", 2], DATA, ["nowhere"]),
            (["--init", model, "--prompt-file", "/dev/null", "--tensor", 2], USAGE, ["--prompt-file /dev/null", "regular file"]),
            (["--init", model, "--evaluate", "text:nowhere", "--tensor", 2], DATA, ["nowhere"]),
        ):
            with self.subTest(options):
                self.assert_refused(self.run_program("psring", "generate", *options), status, *words)

    def test_an_error_of_one_rank_is_told(self):
        """A value that is not finite, in the embedding of a token that only rank 1 has."""
        model = self.folder / self.trained(steps=1)
        content = bytearray(model.read_bytes())
        length = int.from_bytes(content[:8], "little")
        begin = 8 + length + json.loads(content[8 : 8 + length])["wte.weight"]["data_offsets"][0]
        place = begin + 200 * 64 * 4
        content[place : place + 4] = b"\x00\x00\xc0\x7f"
        model.write_bytes(content)
        result = self.run_program("psring", "generate", "--init", model, "--prompt", "abc", "--tokens", 5, "--tensor", 2)
        self.assert_refused(result, DATA, "tensor rank 1", "wte.weight", "nan")


if __name__ == "__main__":
    unittest.main()
