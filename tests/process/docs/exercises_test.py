"""psring check: every start file is refused with a helpful line, every reference solution passes, and wrong solutions are
refused with a message that points to the cause."""

import importlib.util
import pathlib
import re
import shlex
import signal
import unittest

from support import BIN, ProgramTest, until

ROOT = pathlib.Path(__file__).resolve().parents[3]
EXERCISES = ROOT / "docs" / "exercises"
TESTS = ROOT / "tests" / "exercises"
FOLDERS = sorted(folder for folder in EXERCISES.iterdir() if folder.is_dir())


def start_of(folder):
    (start,) = folder.glob("start.*")
    return start


def solution_of(number):
    (solution,) = (TESTS / "solutions").glob(f"{number}.*")
    return solution


def wrong_solutions():
    """Yields number, name, text and the words that the refusal has to contain."""
    for path in sorted(TESTS.glob("wrong_*.py")):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        number = path.stem.removeprefix("wrong_")
        for name, (changes, words) in module.WRONG.items():
            text = solution_of(number).read_text()
            for old, new in changes:
                if old not in text:
                    raise AssertionError(f"{path.name}, {name}: the solution has no longer {old!r}")
                text = text.replace(old, new)
            yield number, name, text, words


class Exercises(ProgramTest):
    def check(self, *arguments, **options):
        return self.run_program("psring", "check", *arguments, **options)

    def test_start_copies_an_exercise(self):
        for folder in FOLDERS:
            with self.subTest(folder.name):
                number, copy = folder.name[:2], self.folder / f"my{folder.name[:2]}"
                self.assertIn(f"psring check {number} my{number}/{start_of(folder).name}", self.check(number, "--start", copy.name).out)
                self.assertEqual(sorted(path.name for path in copy.iterdir()), sorted(path.name for path in folder.iterdir()
                                                                                      if path.name != "check.html"))
                self.assertEqual((copy / start_of(folder).name).read_text(), start_of(folder).read_text())
                for page in ("README.md", "README.zh-CN.md"):
                    for link in re.findall(r"\]\(([^)]+)\)", (copy / page).read_text()):
                        self.assertTrue((copy / link).exists(), f"{page} leads to {link}")
                    outer = re.findall(r"\]\((\.\./[^)]+)\)", (folder / page).read_text())
                    self.assertGreater(len(outer), 0)
                    for link in outer:
                        self.assertIn(f"({(folder / link).resolve().relative_to(ROOT)})", (copy / page).read_text())
        for arguments, words in ((["01", "--start", "my01"], "--start my01: it exists already; name a new folder"),
                                 (["01", "my01/start.cpp", "--start", "other"], "leave out 'my01/start.cpp' or --start"),
                                 (["--start", "other"], "psring check NN --start DIR")):
            result = self.check(*arguments)
            self.assertEqual(result.status, 2, result.out)
            self.assertIn(words, result.err)
        (self.folder / "taken").write_text("")
        self.assertEqual(self.check("01", "--start", "taken/my01").status, 3)
        self.assertEqual(self.check("05", cwd=self.folder / "my05").status, 6)  # FILE: the starting file of this folder
        self.assertEqual(self.check("05", "my05").status, 6)

    def test_writes_beside_the_solution_only(self):
        """Neither the folder of the command nor the folder of temporary files keeps anything, also if the code writes."""
        here, temporary, mine = (self.folder / name for name in ("here", "temporary", "mine"))
        for folder in (here, temporary, mine):
            folder.mkdir()
        (mine / "code.cpp").write_text("#include <fstream>\n" + start_of(FOLDERS[0]).read_text().replace(
            "(void)link;\n", '(void)link;\n  std::ofstream("left.txt") << "left";\n', 1))
        result = self.check("01", "../mine/code.cpp", cwd=here, env={"TMPDIR": str(temporary)})
        self.assertEqual((result.status, result.err), (6, ""), result.out)
        self.assertEqual([*here.iterdir(), *temporary.iterdir()], [])
        self.assertEqual(sorted(path.name for path in mine.iterdir()), ["check.html", "code.cpp"])
        self.assertIn("../mine/check.html", result.out)

    def test_starts_fail_with_a_helpful_line_and_earn_nothing(self):
        for folder in FOLDERS:
            for language in ("en", "zh"):
                with self.subTest(folder.name, language=language):
                    start = self.folder / start_of(folder).name
                    start.write_text(start_of(folder).read_text())
                    result = self.check(folder.name[:2], start, "--lang", language)
                    self.assertEqual((result.status, result.err), (6, ""), result.out)
                    self.assertRegex(result.out, "(?m)^0 of [1-9][0-9]* points$" if language == "en" else "(?m)^0 / [1-9][0-9]* 分$")
                    reasons = re.findall(r"(?m)^  ✗ .*\n {11}(.+)$", result.out)
                    self.assertGreaterEqual(len(reasons), 1, result.out)
                    for reason in reasons:
                        self.assertGreater(len(reason), 30 if language == "en" else 15, result.out)
                        if language == "zh":
                            self.assertRegex(reason, "[\u4e00-\u9fff]")

    def test_solutions_pass(self):
        for folder in FOLDERS:
            with self.subTest(folder.name):
                result = self.check(folder.name[:2], solution_of(folder.name[:2]))
                self.assertEqual((result.status, result.err), (0, ""), result.out)
                self.assertRegex(result.out, r"(?m)^(\d+) of \1 points$")
                self.assertNotIn("✗", result.out)

    def test_wrong_solutions(self):
        for number, name, text, words in wrong_solutions():
            with self.subTest(name, exercise=number):
                solution = self.folder / f"wrong{solution_of(number).suffix}"
                solution.write_text(text)
                result = self.check(number, solution, "--seconds", 20)
                self.assertEqual((result.status, result.err), (6, ""), result.out)
                self.assertRegex(result.out, words)
                self.assertEqual(result.out.count("✗"), 1, f"one mistake, several failed checks:\n{result.out}")

    def test_a_line_that_cannot_be_read_is_one_failed_check(self):
        for number in ("05", "08", "12"):
            with self.subTest(number):
                (self.folder / "answers.txt").write_text(solution_of(number).read_text() + "no equals sign\n")
                result = self.check(number, "answers.txt")
                self.assertEqual((result.status, result.out.count("✗")), (6, 1), result.out)
                self.assertRegex(result.out, r"(?m)^ {11}line \d+: expected NAME = VALUE, got 'no equals sign'$")
                self.assertRegex(result.out, r"(?m)^ {11}not reached: 'every line is NAME = VALUE' has to pass first$")
                self.assertRegex(result.out, "(?m)^0 of 100 points$")

    def test_figures_of_the_lesson(self):
        """Exercise 05 takes the times that lesson 2 prints for the same jobs, and those of the formula."""
        lesson = (ROOT / "docs" / "lessons" / "02-parameter-server.md").read_text()
        figures = dict(re.findall(r"(?m)^(ps s=\d|ddp n=4|ddp) +(\d+\.\d+) ", lesson))
        rows = {"step_ms_1_server": "ps s=1", "step_ms_2_servers": "ps s=2", "step_ms_4_servers": "ps s=4", "step_ms_ring": "ddp"}
        (self.folder / "lesson.txt").write_text("server_receives_bytes = 6_291_456\n" +
                                                "".join(f"{name} = {figures[row]}\n" for name, row in rows.items()))
        result = self.check("05", "lesson.txt")
        self.assertEqual((result.status, result.err), (0, ""), result.out)

    def test_points_that_a_start_keeps(self):
        """A check that the starting file passes counts once another check passes."""
        text = start_of(FOLDERS[11]).read_text()
        (self.folder / "notes.txt").write_text(text.replace("ddp_sgd_f32 = 12", "ddp_sgd_f32 = 8"))
        result = self.check("12", "notes.txt")
        self.assertRegex(result.out, r"(?m)^  ✓ 10/10  ddp_adamw_mixed$")
        self.assertRegex(result.out, "(?m)^40 of 100 points$")
        (self.folder / "notes.txt").write_text(text + "# another comment\n")
        result = self.check("12", "notes.txt")
        self.assertRegex(result.out, r"(?m)^  ✓  0/10  ddp_adamw_mixed\n {11}the starting file passes this, too")
        self.assertRegex(result.out, "(?m)^0 of 100 points$")

    def test_list(self):
        listed = re.findall(r"(?m)^    (docs/exercises/\S+)$", self.check().out)
        self.assertEqual([ROOT / path for path in listed], [start_of(folder) for folder in FOLDERS])
        for language, name in (("en", "README.md"), ("zh", "README.zh-CN.md")):
            page = (EXERCISES / name).read_text()
            for folder in FOLDERS:
                self.assertIn(f"]({folder.name}/{name})", page, language)
                self.assertIn(f"psring check {folder.name[:2]}", (folder / name).read_text())

    def test_commands_of_the_texts(self):
        """The other commands of a text run, and both languages have the same."""
        def commands(page):
            blocks = re.findall(r"(?ms)^```sh\n(.*?)^```$", page.read_text())
            return [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
        for folder in FOLDERS:
            with self.subTest(folder.name):
                english = commands(folder / "README.md")
                self.assertEqual(english, commands(folder / "README.zh-CN.md"))
                number = folder.name[:2]
                self.assertIn(f"psring check {number} --start my{number}", english)
                self.assertIn(f"psring check {number} my{number}/{start_of(folder).name}", english)
                for command in english:
                    program, subcommand, *words = shlex.split(command)
                    self.assertEqual(program, "psring")
                    if subcommand != "check" or "--start" in words:
                        self.assert_done(self.run_program(program, subcommand, *words))
                    else:
                        self.assertEqual(self.check(*words).status, 6)

    def test_scene_of_a_refused_run(self):
        result = self.check("01", start_of(FOLDERS[0]), "--scene", "shown.html")
        self.assertIn("shown.html", result.out)
        page = (self.folder / "shown.html").read_text()
        self.assertIn("start.cpp: reduce_scatter", page)
        self.assertIn("psring-scene", page)

    def code(self, body):
        solution = self.folder / "code.cpp"
        solution.write_text(f"#include <cstdio>\n#include <cstdlib>\n#include <psring/cli/check/exercise.h>\n{body}\n")
        return self.check("01", solution, "--seconds", 3)

    def test_code_that_crashes_or_never_ends(self):
        gather = "void all_gather(psring::exercise::Link&, std::span<float>) {}"
        for body, words in (
            ("for (;;) std::getenv(\"HOME\");", "it has not ended after 3 s"),
            ("float* nowhere = nullptr; *(volatile float*)nowhere = 1;", r"ended by signal 11 \(Segmentation fault\)"),
            ("std::printf(\"%g\\n\", values[values.size()]);", "Assertion .*[\\s\\S]*ended by signal 6"),
            ("std::exit(3);", "the code ended the process with status 3"),
            ("values.data()[values.size() + 1] = 1;", "rank 0 of 4 wrote element 5, but its vector has 4 elements"),
            ("throw 7;", "rank 0: an exception that is no std::exception"),
            ("for (;;) std::puts(\"endless\");", "endless\n[\\s\\S]*it has printed more than 16 MiB"),
            ("for (;;) std::fputs(\"endless\\n\", stderr);", "endless\n[\\s\\S]*it has (printed more than 16 MiB|not ended after 3 s)"),
        ):
            with self.subTest(body):
                result = self.code(f"void reduce_scatter(psring::exercise::Link&, [[maybe_unused]] std::span<float> values) {{ {body} }}\n{gather}")
                self.assertEqual(result.status, 6, result.out + result.err)
                self.assertRegex(result.out, words)

    def test_code_that_ends_before_the_checks(self):
        result = self.code("struct Early { Early() { std::_Exit(7); } } early;\n"
                           "void reduce_scatter(psring::exercise::Link&, std::span<float>) {}\n"
                           "void all_gather(psring::exercise::Link&, std::span<float>) {}")
        self.assertEqual(result.status, 6)
        self.assertEqual(result.out.count("the code ended the process with status 7"), 1, result.out)

    def test_nothing_outlives_the_command(self):
        """Processes of the code that leave its session, also by several forks, end with the command."""
        hop = ("for (int hop = 0; hop < 3; ++hop) { if (fork() > 0) _exit(0); setsid(); }")
        for name, body, words in (
            ("returns", "", "0 of 100 points"),
            ("exits", "_exit(3);", "the code ended the process with status 3"),
            ("never ends", "for (;;) pause();", "it has not ended after 3 s"),
        ):
            with self.subTest(name):
                pids = self.folder / f"pids-{name}"
                write = f'if (FILE* file = std::fopen("{pids}", "a")) {{ std::fprintf(file, "%d\\n", getpid()); std::fclose(file); }}'
                result = self.code(
                    "#include <fcntl.h>\n#include <sys/wait.h>\n#include <unistd.h>\n"
                    "void reduce_scatter(psring::exercise::Link& link, std::span<float>) {\n  if (link.rank() > 0) return;\n"
                    "  int ends[2]; if (pipe(ends) != 0) _exit(9);\n"
                    f"  if (fork() == 0) {{\n    {hop}\n    {write}\n    close(ends[1]); for (;;) pause();\n  }}\n"
                    "  close(ends[1]); char byte; while (read(ends[0], &byte, 1) > 0) {}\n"
                    f"  {body}\n}}\nvoid all_gather(psring::exercise::Link&, std::span<float>) {{}}")
                self.assertEqual(result.status, 6, result.out + result.err)
                self.assertRegex(result.out, words)
                escaped = [int(line) for line in pids.read_text().split()]
                self.assertGreater(len(escaped), 0)
                self.assertEqual([pid for pid in escaped if pathlib.Path(f"/proc/{pid}").exists()], [])

    def test_interrupted(self):
        """Ctrl-C while the code compiles or runs ends all of it, and removes its folder."""
        (self.folder / "slow").write_text("#!/bin/sh\nsleep 100\n")
        (self.folder / "slow").chmod(0o755)
        solution = self.folder / "loop.cpp"
        solution.write_text("#include <psring/cli/check/exercise.h>\n#include <cstdlib>\n"
                            "struct Loop { Loop() { for (;;) std::getenv(\"HOME\"); } } loop;\n")
        temporary = self.folder / "temporary"
        temporary.mkdir()
        for compiler, sign in ((self.folder / "slow", "compiler.log"), ("c++", "run.log")):
            with self.subTest(sign):
                process = self.start("psring", "check", "01", solution, "--compiler", compiler,
                                     env={"TMPDIR": str(temporary)})
                until(lambda: list(temporary.glob(f"*/{sign}")), f"no {sign}")
                process.send_signal(signal.SIGINT)
                self.assertEqual(self.finish(process).status, 130)
                self.assertEqual(list(temporary.iterdir()), [])

    def test_bad_input(self):
        for arguments, status, words in (
            (["99"], 2, "exercise '99': there is none of this number or name; known are 01, 02"),
            (["01", "nowhere.cpp"], 3, "nowhere.cpp"),
            (["01"], 3, "start.cpp: no such file in this folder; psring check 01 --start DIR copies the exercise"),
            (["01", start_of(FOLDERS[0]), "--compiler", "no-such-compiler"], 2,
             "the C.. compiler 'no-such-compiler' cannot be run; install g"),
            (["01", start_of(FOLDERS[0]), "--seconds", "0"], 2, "--seconds 0: expected a time above 0"),
            (["01", start_of(FOLDERS[0]), "--seconds", "1e300"], 2, "--seconds 1e.300: expected a time above 0, and at most"),
            (["01", start_of(FOLDERS[0]), "--lang", "fr"], 2, "--lang: expected en or zh"),
        ):
            with self.subTest(arguments):
                result = self.check(*arguments)
                self.assertEqual(result.status, status, result.out + result.err)
                self.assertRegex(result.err, words)
                self.assertEqual(len(result.err.splitlines()), 1)
        (self.folder / "broken.cpp").write_text("int main( {\n")
        result = self.check("01", "broken.cpp")
        self.assertEqual(result.status, 3)
        self.assertIn("broken.cpp does not compile; the compiler's messages stand above", result.err)
        self.assertIn("broken.cpp:1:", result.out)
        (self.folder / "empty.cpp").write_text("\n")
        result = self.check("01", "empty.cpp")
        self.assertEqual(result.status, 3)
        self.assertIn("the solution defines no function reduce_scatter", result.err)


if __name__ == "__main__":
    unittest.main()
