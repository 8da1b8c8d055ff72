"""The help of every program: 80 columns, all that can be named on a command line, and what exit statuses mean."""

import os
import re
import unittest

from support import ProgramTest

COMMANDS = [("psring",), *(("psring", command) for command in ("train", "compare", "report", "trace", "watch", "coordinator", "agent", "manifests", "keygen", "doctor", "generate", "tokenize", "quantize", "export", "rows")),
            ("psring-server",), ("psring-worker",), ("psring-bench",),
            *(("psring-bench", command) for command in ("all_reduce", "push_pull", "rows", "train", "gpu"))]
JOB_COMMANDS = ("train", "compare", "coordinator")
STRATEGIES = ["single", "dp", "ps", "ps-ssp", "ps-async", "ps-zero2", "ps-zero3", "ps-colocated", "ddp-naive", "ddp", "hybrid", "hybrid-async", "hybrid-colocated", "zero1",
              "zero2", "zero3", "fsdp"]


class Help(ProgramTest):
    def help(self, program, *words, flag="--help"):
        result = self.run_program(program, *words, flag)
        self.assert_done(result)
        return result.out

    def test_every_line_fits_a_terminal(self):
        for words in COMMANDS:
            with self.subTest(words):
                text = self.help(*words)
                self.assertEqual([line for line in text.splitlines() if len(line) > 80], [])
                self.assertIn("Usage: ", text)

    def test_every_line_of_all_options_fits_a_terminal(self):
        for command in JOB_COMMANDS:
            with self.subTest(command):
                text = self.help("psring", command, flag="--help-all")
                self.assertEqual([line for line in text.splitlines() if len(line) > 80], [])

    def test_everyday_options(self):
        for command in JOB_COMMANDS:
            with self.subTest(command):
                few, every = (set(re.findall(r"(?m)^  (--[a-z-]+)", self.help("psring", command, flag=flag)))
                              for flag in ("--help", "--help-all"))
                self.assertLess(few, every)
                self.assertTrue({"--model", "--lr", "--workers", "--resume", "--config"} <= few)
                self.assertTrue({"--heartbeat-timeout", "--bucket", "--fault"} <= every - few)
                self.assertLess(len(few), 35)
                self.assertGreater(len(every), 75)

    def test_exit_statuses(self):
        for words in (("psring",), ("psring", "train"), ("psring", "compare"), ("psring-worker",)):
            with self.subTest(words):
                text = self.help(*words)
                self.assertRegex(text, r"(?m)^Exit status:$")
                for status in ("0", "1", "2", "3", "4", "5", "6", "129, 130, 131, 138, 143"):
                    self.assertRegex(text, rf"(?m)^  {status} +\S")

    def test_names(self):
        for command in ("train", "compare", "coordinator"):
            with self.subTest(command):
                text = self.help("psring", command)
                for strategy in STRATEGIES:
                    self.assertRegex(text, rf"(?m)^  {strategy}\s+\S")
                flat = " ".join(text.split())
                self.assertIn("Keys: dim (1024), layers (4)", flat)  # gelu-mlp
                for key in ("layers (blocks)", "dim (width)", "heads (of attention)", "context (tokens", "vocab (different"):
                    self.assertIn(key, flat)
                for name in ("fashion-mnist", "synthetic", "lamb", "trimmed-mean"):
                    self.assertRegex(text, rf"(?m)^  {name} +\S")

    def test_a_program_s_own_names(self):
        text = self.help(os.environ["PSRING_WRONG_STRATEGIES"], "compare")
        self.assertRegex(text, r"(?m)^  claims-equality +wrong$")
        self.assertRegex(text, r"(?m)^  throws +throws:in=factory, throws:in=layer$")  # a model
        self.assertRegex(text, r"(?m)^  throws +its samples cannot be read$")  # a data set


if __name__ == "__main__":
    unittest.main()
