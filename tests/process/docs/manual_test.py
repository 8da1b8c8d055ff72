"""The manual pages and completions that scripts/manual writes have every option which the programs' help shows. bash, zsh,
fish and groff accept them, and bash completes with them."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
BIN = pathlib.Path(os.environ["PSRING_BIN"])
ASK = r"""
source "$1"
ask() { COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _psring; echo "= $*"; ((${#COMPREPLY[@]} == 0)) || printf '%s\n' "${COMPREPLY[@]}"; }
"""


def run(*command, **more):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MASTER_", "RANK"))}
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, env=environment, **more)


def shown_names(text):
    """The options in a help text, and the commands."""
    options = set(re.findall(r"^  (?:-\w,)?(--[\w-]+)", text, re.M)) | set(re.findall(r"^  (-\w),--", text, re.M))
    listed = re.search(r"^Subcommands:\n((?:  .*\n)+)", text, re.M)
    return options, re.findall(r"^  (\S+)", listed[1], re.M) if listed else []


class Manual(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        done = run(sys.executable, "-B", ROOT / "scripts" / "manual", "--bin", BIN, "--out", cls.folder)
        assert done.returncode == 0, done.stderr
        cls.share = cls.folder / "share"
        cls.bash = cls.share / "bash-completion" / "completions" / "psring"
        cls.options = {}  # by command: "psring train"
        cls.commands = {}  # by program
        for program in ("psring", "psring-server", "psring-worker", "psring-bench"):
            cls.options[program], cls.commands[program] = shown_names(run(BIN / program, "--help").stdout)
            for name in cls.commands[program]:
                text = run(BIN / program, name, "--help").stdout
                if "--help-all" in text:
                    text = run(BIN / program, name, "--help-all").stdout
                cls.options[f"{program} {name}"], _ = shown_names(text)

    def page_of(self, title):
        name = title.split()[0] if title.startswith("psring-bench") else title.replace(" ", "-")
        return self.share / "man" / "man1" / f"{name}.1"

    def test_finds_the_options(self):
        self.assertGreater(len(self.options), 30)
        self.assertGreater(len(self.options["psring train"]), 90)

    def test_pages_have_every_option_and_command(self):
        for title, names in self.options.items():
            text = self.page_of(title).read_text().replace("\\-", "-")
            for name in names:
                self.assertIn(f"\\fB{name}\\fR", text, title)
        for program, names in self.commands.items():
            text = self.page_of(program).read_text().replace("\\-", "-")
            for name in names:
                self.assertIn(f"\\fB{name}\\fR" if program == "psring-bench" else f"\\fB{program}-{name}(1)\\fR", text)

    def test_pages_write_values_as_they_are_typed(self):
        cases = {
            "psring report": r"\fBpsring report\fR \fIRUN\fR... [\fIOPTION\fR]...",
            "psring tokenize": r"\fBpsring tokenize\fR \fIFILE\fR... [",
            "psring check": r"\fBpsring check\fR [\fIEXERCISE\fR] [\fIFILE\fR] [",
            "psring train": "\nsgd, momentum",
        }
        for title, text in cases.items():
            self.assertIn(text, self.page_of(title).read_text())

    def test_zsh_repeats_positional_arguments(self):
        text = (self.share / "zsh" / "vendor-completions" / "_psring").read_text()
        for spec in ("'*:RUN:_files'", "'*:FILE:_files'", "'::EXERCISE: '", "'::FILE:_files'"):
            self.assertIn(spec, text)

    def test_no_page_is_left_over(self):
        pages = {self.page_of(title) for title in self.options}
        self.assertEqual(pages, set((self.share / "man" / "man1").iterdir()))

    def test_groff_has_no_warning(self):
        if shutil.which("man") is None or shutil.which("groff") is None:
            self.skipTest("no man with groff (Debian: man-db groff)")
        for page in (self.share / "man" / "man1").iterdir():
            done = run("env", "MANWIDTH=80", "LC_ALL=C.UTF-8", "man", "--warnings", "-l", page)
            self.assertEqual((done.returncode, done.stderr), (0, ""), page.name)
            self.assertIn("EXIT STATUS", done.stdout)

    def ask_bash(self, lines):
        """What bash completes each line to. A line is a list of words, the last of them the one that is completed."""
        script = ASK + "\n".join("ask " + " ".join(f"'{word}'" for word in words) for words in lines)
        done = run("bash", "-c", script, "bash", self.bash, cwd=self.folder)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        answers = re.split(r"^= .*\n", done.stdout, flags=re.M)[1:]
        self.assertEqual(len(answers), len(lines))
        return [set(answer.split()) for answer in answers]

    def test_bash_completes_every_option(self):
        titles = list(self.options)
        for title, answer in zip(titles, self.ask_bash([[*title.split(), "-"] for title in titles])):
            self.assertEqual(answer, self.options[title], title)
        programs = [program for program, names in self.commands.items() if names]
        for program, answer in zip(programs, self.ask_bash([[program, ""] for program in programs])):
            self.assertEqual(answer, set(self.commands[program]))

    def test_bash_completes_values(self):
        (self.folder / "job.key").touch()
        cases = {
            "psring com": {"compare"},
            "psring train --strategy ps-z": {"ps-zero2", "ps-zero3"},
            "psring train --strategy = ps-z": {"ps-zero2", "ps-zero3"},
            "psring train --shuffle =": {"epoch", "none"},
            "psring compare --strategies ddp,ps-z": {"ddp,ps-zero2", "ddp,ps-zero3"},
            "psring train --device c": {"cpu", "cuda"},
            "psring coordinator --optimizer ada": {"adagrad", "adam", "adamw", "adamw-8bit"},
            "psring agent --key job": {"job.key"},
            "psring train --steps job": set(),
            "psring train --launcher job": set(),
            "psring train --transport job": set(),
            "psring generate --tokenizer job": {"job.key"},
            "psring resume run --tensorboard o": {"on", "off"},
            "psring train --live --launch": {"--launcher"},
            "psring-bench push_pull --check job": {"job.key"},
            "/usr/bin/psring-server --key job": {"job.key"},
        }
        for (line, expected), answer in zip(cases.items(), self.ask_bash([line.split(" ") for line in cases])):
            self.assertEqual(answer, expected, line)
        done = run("bash", "-c", 'source "$1"; complete -p psring psring-server psring-worker psring-bench', "bash", self.bash)
        self.assertEqual(done.stdout.count("complete -F _psring"), 4, done.stderr)
        for program in self.commands:
            self.assertEqual((self.bash.parent / program).resolve(), self.bash.resolve())

    def test_zsh_and_fish_have_every_option(self):
        zsh = self.share / "zsh" / "vendor-completions" / "_psring"
        for title, names in self.options.items():
            program, _, command = title.partition(" ")
            texts = {zsh: zsh.read_text()}
            fish = self.share / "fish" / "vendor_completions.d" / f"{program}.fish"
            texts[fish] = fish.read_text()
            for name in names:
                self.assertRegex(texts[zsh], re.escape(name) + r"[=[]", title)
                lines = [line for line in texts[fish].splitlines() if re.search(f"-[ls] {name.lstrip('-')} ", line + " ")]
                seen = [line for line in lines if not command or re.search(rf"from [^']*\b{re.escape(command)}\b", line)]
                self.assertTrue(seen, f"{title} {name}")
        for shell, files in (("zsh", [zsh]), ("fish", (self.share / "fish" / "vendor_completions.d").iterdir())):
            for path in files if shutil.which(shell) else []:
                done = run(shell, "-n", path)
                self.assertEqual((done.returncode, done.stderr), (0, ""), path)


if __name__ == "__main__":
    unittest.main()
