"""Values that are empty, missing, or look like options: over every option of every command of the four programs."""

import json
import os
import re
import subprocess
import unittest

from support import BIN, TINY, ProgramTest

USAGE, DATA = 2, 3
UNKNOWN = "--no-such-option"
MAY_BE_EMPTY = {("psring generate", "--prompt")}


class EmptyValues(ProgramTest):
    def commands(self):
        """The words of each command, with the names of its options: those that take a value, and switches."""
        result = self.run_program("psring", "options")
        self.assert_done(result)
        listed = json.loads(result.out)
        job = [option for group in listed["job"]["groups"] for option in group["options"]]
        for command in listed["commands"]:
            words = command["name"].split()
            options = command["options"] + (job if command["takes_job"] else [])
            names = [(option["names"] if "names" in option else option["name"], option["value"]) for option in options]
            named = [(name.split(",")[-1], value) for name, value in names if name.startswith("-")]
            yield words, {name for name, value in named if value}, {name for name, value in named if not value}
        for command in ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather", "scatter", "all_to_all", "push_pull", "train", "gpu"):
            shown = self.run_program("psring-bench", command, "--help")
            if shown.status != 0:
                continue
            lines = re.findall(r"^  (?:-\w,)?(--[\w-]+)( \S+)?(?:  |$)", shown.out, re.MULTILINE)
            yield (["psring-bench", command], {name for name, value in lines if value and name != "--help"},
                   {name for name, value in lines if not value and name != "--help"})

    def run_words(self, words, *more):
        return self.run_program(words[0], *words[1:], *more)

    def test_every_option(self):
        options = 0
        for words, values, switches in self.commands():
            for name in sorted(values):
                options += 1
                with self.subTest(f"{' '.join(words)} {name}"):
                    may_be_empty = (" ".join(words), name) in MAY_BE_EMPTY
                    said = f"unknown argument '{UNKNOWN}'" if may_be_empty else f"{name}: expected a value, got ''"
                    others = ["--init", "none"] if may_be_empty else []  # which are required, and would be missed first
                    self.assert_refused(self.run_words(words, *others, f"{name}=", UNKNOWN), USAGE, said)
                    if words[-1] not in ("compare", "coordinator", "step"):  # which have the job's options of train
                        self.assert_refused(self.run_words(words, *others, name, "", UNKNOWN), USAGE, said)
            for name in sorted(switches):
                options += 1
                with self.subTest(f"{' '.join(words)} {name}"):
                    self.assert_refused(self.run_words(words, f"{name}=", UNKNOWN), USAGE, f"{name}: expected true or false after '=', got ''")
        self.assertGreater(options, 400)

    def test_the_next_option_is_no_value(self):
        job = [*TINY, "--steps", 1]
        self.assert_refused(self.train(*job, "--out", "--nesterov"), USAGE, "--out: expected a value, got the option '--nesterov'")
        self.assert_refused(self.train(*job, "--resume", "--out=run"), USAGE, "--resume: expected a value, got the option '--out=run'")
        self.assert_refused(self.train(*job, "--out"), USAGE, "--out: expected a value")
        self.assert_done(self.train(*job, "--out=--nesterov"))
        self.assertTrue((self.folder / "--nesterov" / "summary.json").exists())

    def test_values_of_switches(self):
        job = [*TINY, "--steps", 1]
        for value in ("2", "-1", "1e99", "0x10", "1 ", "1,2", "maybe"):
            with self.subTest(value):
                self.assert_refused(self.train(*job, f"--nesterov={value}"), USAGE, f"--nesterov: cannot be '{value}'")
        self.assert_done(self.train(*job, "--nesterov=false", "--out", "without"))
        self.assert_refused(self.run_program("psring", "step", "--kills", 1 << 40), USAGE, f"--kills: '{1 << 40}' is too large")

    def test_items_of_a_list(self):
        for names in (",", "single,,ps", ",single", "single,"):
            with self.subTest(names):
                self.assert_refused(self.run_program("psring", "compare", *TINY, "--steps", 1, f"--strategies={names}", "--wide"), USAGE,
                                    f"--strategies: an item of the list '{names}' is empty")

    def test_arguments_in_brackets(self):
        """[a,b] is one argument, as it was typed, and several arguments stay several."""
        self.file("[a,b]", b"text")
        self.file("c", b"more")
        result = self.run_program("psring", "tokenize", "[a,b]", "c", "--out", "tokens")
        self.assert_done(result)
        self.assertEqual((self.folder / "tokens").read_bytes()[::2], b"textmore")

    def test_a_configuration_file(self):
        self.file("job.toml", b'\xef\xbb\xbfout = ""\r\nnesterov = true\r\n')
        self.assert_refused(self.train(*TINY, "--steps", 1, "--config", "job.toml"), USAGE, "--config job.toml, line 1: --out: expected a value, got ''")
        self.file("job.toml", b"\xef\xbb\xbfsteps = 1\r\nout = 'run'\r\n")
        self.assert_done(self.train(*TINY, "--config", "job.toml"))

    def test_text_that_is_not_utf8(self):
        """Named, in one line: records, reports and messages are UTF-8."""
        name = b"caf\xe9"
        (self.folder / "ok.csv").write_bytes(b"1,2,0\n3,4,1\n")
        (self.folder / os.fsdecode(name)).write_bytes(b"1,2,0\n3,4,1\n")
        job = [b"train", b"--model", b"mlp:2-2", b"--global-batch", b"2", b"--workers", b"1", b"--steps", b"1"]
        for words in ([*job, b"--data", b"csv:" + name], [*job, b"--data", b"csv:ok.csv", b"--out", name], [*job, b"--data", b"csv:ok.csv", b"--out=" + name],
                      [b"report", name], [b"tokenize", name, b"--out", b"tokens"], [b"resume", name], [b"generate", b"--init", name, b"--prompt", b"a"]):
            with self.subTest(words):
                result = subprocess.run([os.fsencode(BIN / "psring"), *words], cwd=self.folder, env=self.environment, capture_output=True)
                self.assertEqual(result.returncode, USAGE, result)
                self.assertRegex(result.stderr, rb"\Apsring: [^\n]*caf\\xe9' is not UTF-8[^\n]*\n\Z")
        folder = self.folder / os.fsdecode(b"caf\xe8")
        folder.mkdir()
        (self.folder / "ok.csv").rename(folder / "ok.csv")
        result = subprocess.run([os.fsencode(BIN / "psring"), *job, b"--data", b"csv:ok.csv", b"--out", b"run"], cwd=folder, env=self.environment, capture_output=True)
        self.assertEqual(result.returncode, DATA, result)
        self.assertRegex(result.stderr, rb"\Apsring: [^\n]*caf\\xe8/run': is not UTF-8[^\n]*\n\Z")


class Messages(ProgramTest):
    def test_a_folder_that_cannot_be_made(self):
        (self.folder / "runs").write_text("a file")
        self.assert_refused(self.train(*TINY, "--steps", 1), DATA, "runs: cannot create the run's folder", "--out DIR")

    def test_quantities_of_kubernetes(self):
        job = ["manifests", "--kubernetes", "--image", "psring:1", "--runs-claim", "runs", *TINY, "--steps", 1]
        for good in ("1e9", "1E9", "2e-1", "+1", ".5", "1.", "500m", "2Gi", "1E", "0.5", "100000000n"):
            with self.subTest(good):
                result = self.run_program("psring", *job, "--memory", good)
                self.assert_done(result)
                self.assertRegex(result.out, rf'memory: "?{re.escape(good)}"?\n')
        for bad, why in (("0", "above 0"), ("0.0", "above 0"), ("0Gi", "above 0"), ("0e5", "above 0"), ("-1", "quantity"), ("1e", "quantity"),
                         ("1 Gi", "quantity"), ("e9", "quantity"), (".", "quantity"), ("1gi", "quantity"), ("1e1.5", "quantity"), ("1Ei9", "quantity")):
            for flag in ("--cpu", "--memory", "--server-cpu", "--server-memory"):
                with self.subTest(f"{flag} {bad}"):
                    self.assert_refused(self.run_program("psring", *job, flag, bad), USAGE, flag, why)


if __name__ == "__main__":
    unittest.main()
