"""The lessons: every command prints what the page says, pictures are those of the commands, both languages agree, and the
Chinese uses one word for each term. Each causal sentence has an assertion that holds. And the checks of scripts/lessons themselves refuse what is wrong."""

import importlib.machinery
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import unittest

from support import BIN, ProgramTest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

from teach.causes import CAUSES, Cause, faults_of  # noqa: E402
from teach.lesson import Lesson, difference  # noqa: E402
from teach.pictures import begins_of, passes_of  # noqa: E402

LESSONS = ROOT / "docs" / "lessons"
GLOSSARY = LESSONS / "glossary.zh-CN.md"

# Terms that are ordinary words in some sentences: 'step through', 'in part', 'the range of values', 'parameter server'.
COMMON = {"step", "part", "range", "server"}


def without_code(text):
    text = re.sub(r"(?s)```.*?```|<!--.*?-->|\[[\w/]+\.(?:h|cpp|py)\]\([^)]*\)", "", text)  # nor names of source files
    return re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "", text))


def chinese_pages():
    pages = [*LESSONS.glob("*.zh-CN.md"), *(ROOT / "docs" / "exercises").rglob("*.zh-CN.md"), *(ROOT / "docs").glob("bridge.zh-CN.md")]
    return sorted(page for page in pages if page != GLOSSARY)


class Lessons(ProgramTest):
    def test_every_lesson(self):
        result = subprocess.run([ROOT / "scripts" / "lessons", "--check", "--bin", BIN], capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        pages = [page for page in LESSONS.glob("[0-9]*.md") if "zh-CN" not in page.name]
        self.assertEqual(len(re.findall(r"(?m): as printed$", result.stdout)), len(pages))

    def test_index_and_links(self):
        for name in ("README.md", "README.zh-CN.md"):
            page = (LESSONS / name).read_text()
            for lesson in LESSONS.glob("[0-9]*.md"):
                if ("zh-CN" in lesson.name) == ("zh-CN" in name):
                    self.assertIn(f"]({lesson.name})", page)

    def test_one_word_for_each_term(self):
        rows = re.findall(r"(?m)^\| ([^|]+) \| ([^|]+) \| ([^|]*)\|$", GLOSSARY.read_text())[2:]
        unused = [word.strip() for row in rows for word in row[2].split("、") if word.strip()]
        self.assertGreater(len(unused), 20)
        for page in [*sorted((ROOT / "docs").rglob("*.zh-CN.md")), ROOT / "README.zh-CN.md"]:
            for word in unused if page != GLOSSARY else ():
                self.assertNotIn(word, page.read_text(), f"{page.relative_to(ROOT)}: the glossary has another word")

    def test_terms_have_their_word(self):
        """A page whose English prose has a term of the glossary has its word in Chinese."""
        words = {}
        for english, chinese, _ in re.findall(r"(?m)^\| ([^|]+) \| ([^|]+) \| ([^|]*)\|$", GLOSSARY.read_text())[2:]:
            terms, translations = re.sub(r"\(.*?\)", "", english).split(","), chinese.split("、")
            for i, term in enumerate(terms):  # a row has one word for all its terms, or one for each
                words.setdefault(term.strip(), []).append(translations[i if len(translations) == len(terms) else 0].strip())
        self.assertGreater(len(words), 40)
        missing = []
        for page in chinese_pages():
            english = page.with_name(page.name.replace(".zh-CN", ""))
            before, after = (without_code(each.read_text()) for each in (english, page))
            for term, translations in words.items():
                if term in COMMON or not re.search(rf"(?i)(?<![\w-]){re.escape(term)}(?:s|es)?(?![\w-])", before):
                    continue
                if not any(word in after for word in translations):
                    missing.append(f"{page.relative_to(ROOT)}: '{term}' is '{' or '.join(translations)}'")
        self.assertEqual(missing, [])

    def test_differences_are_found(self):
        same = [("a 12 b\n", "a 12 b\n", "exact"), ("…\nlast 7\n", "x\ny\nlast  7\n", "exact"),
                ("t 1.50 ms, 3 steps\n", "t 9.75 ms, 3 steps\n", "times"), ("r 2.0\n", "r 2.1\n", "within 0.06")]
        for expected, found, mode in same:
            self.assertIsNone(difference(expected, found, mode))
        wrong = [("a 12 b\n", "a 13 b\n", "exact"), ("a 12 b\n", "a 12 c\n", "exact"), ("a\nb\n", "a\n", "exact"),
                 ("a\n", "a\nb\n", "exact"), ("t 1.50 ms, 3 steps\n", "t 1.50 ms, 4 steps\n", "times"),
                 ("r 2.0\n", "r 2.2\n", "within 0.06"), ("…\nlast\n", "x\n", "exact")]
        for expected, found, mode in wrong:
            self.assertIsNotNone(difference(expected, found, mode), (expected, found, mode))

    def test_causes_are_listed(self):
        """A causal word outside of the listed sentences is found, in both languages, and so is a sentence that left the page."""
        prose = "Steps are short here,\nso they end early. Then they wait."
        self.assertEqual(list(faults_of(prose, ["Steps are short here, so they end early."], "en")), [])
        for listed, words in (([], "'so' claims a cause without an assertion"), (["They wait because of it."], "lists a sentence that the page lacks")):
            self.assertTrue(any(words in text for text in faults_of(prose, listed, "en")), listed)
        for claim in ("It ends Because it is short.", "It is short; therefore it ends.", "It is short, which is why it ends."):
            self.assertEqual(len(list(faults_of(claim, [], "en"))), 1, claim)
        for claim in ("它很短，所以很快结束。", "因为很短。", "因此结束。"):
            self.assertEqual(len(list(faults_of(claim, [], "zh"))), 1, claim)
        self.assertEqual(list(faults_of("它很短，\n所以很快结束。", ["它很短，所以很快结束。"], "zh")), [])

    def test_causes_are_asserted(self):
        """An assertion that fails, or that cannot be tested, is a failure of its lesson."""
        loader = importlib.machinery.SourceFileLoader("lessons", str(ROOT / "scripts" / "lessons"))
        lessons = importlib.util.module_from_spec(importlib.util.spec_from_loader("lessons", loader))
        loader.exec_module(lessons)
        for cause, words in ((Cause("01", "a", "", "near(1, 1.01, 0.02)", "echo '[]' >made.json"), None),
                             (Cause("01", "a", "", "1 > 2"), "does not hold: 1 > 2"),
                             (Cause("01", "a", "", "ms('absent.json', 'ddp') > 0"), "cannot be tested"),
                             (Cause("01", "a", "", "True", "exit 3"), "ended with status 3")):
            checker = lessons.Checker(BIN, write=False)
            checker.assert_causes(LESSONS / "01-primitives.md", [cause], self.folder)
            self.assertEqual(len(checker.mistakes), 0 if words is None else 1, checker.mistakes)
            if words is not None:
                self.assertIn(words, checker.mistakes[0])
        self.assertTrue((self.folder / "made.json").exists())
        numbers = {page.name[:2] for page in LESSONS.glob("[0-9]*.md")}
        self.assertEqual({cause.lesson for cause in CAUSES} - numbers, set())
        self.assertEqual([name for name in ("README.md", "README.zh-CN.md") if list(
            faults_of(Lesson(LESSONS / name).prose(), [], "zh" if "zh" in name else "en"))], [])

    def test_missing_pictures_are_found(self):
        page = self.folder / "page.md"
        page.write_text("# Lesson\n\n<!-- picture curve far.json -->\n![A curve](pictures/far.svg)\n\n![Another](pictures/other.svg)\n")
        texts = list(Lesson(page).missing_pictures())
        self.assertEqual([text.split()[0] for text in texts], ["pictures/far.svg", "pictures/other.svg"])
        self.assertIn("does not exist", texts[0])
        (self.folder / "pictures").mkdir()
        (self.folder / "pictures" / "far.svg").write_text("<svg/>")
        self.assertEqual([text.split()[0] for text in Lesson(page).missing_pictures()], ["pictures/other.svg"])

    def test_steps_that_a_table_skips(self):
        """The first step takes 90 ms, the others 10 ms: --skip leaves it out, and the table says how many steps it used."""
        events = [{"t": 0, "e": "begin", "p": 0, "name": "step"}]
        events += [{"t": (90 + 10 * step) * 1_000_000, "e": "report", "p": 0, "step": step, "exposed_ns": 1_000_000 * (1 + step), "loss": 1}
                   for step in range(4)]
        # A worker whose gradients a backup worker replaces has no step in some windows.
        events += [{"t": 0, "e": "begin", "p": 1, "name": "step"},
                   {"t": 5_000_000, "e": "report", "p": 1, "step": 0, "exposed_ns": 0, "loss": 1}]
        scene = {"label": "ddp", "steps": 4, "processes": [{"role": "worker", "sent": [8, 8, 8, 8]}, {"role": "worker", "sent": [8]}], "events": events}
        (self.folder / "scene.json").write_text(json.dumps({"format": "psring-scene", "scenes": [scene]}))

        def table(*arguments):
            result = subprocess.run([ROOT / "scripts" / "scene-table", *arguments, self.folder / "scene.json"], capture_output=True, text=True)
            return result.returncode, result.stdout + result.stderr
        for arguments, used, step, exposed in (((), "2 of 4 steps, 3 to 4", "10.000", "3.500"), (("--skip", "0"), "4 of 4 steps, 1 to 4", "30.000", "2.500"),
                                               (("--skip", "3"), "1 of 4 steps, 4 to 4", "10.000", "4.000")):
            status, text = table(*arguments)
            self.assertEqual((status, text.splitlines()[0]), (0, f"times over {used}"))
            self.assertRegex(text, rf"(?m)^ddp +{step} +{exposed} +8 +0$")
        for skip in ("4", "-1"):
            status, text = table(f"--skip={skip}")
            self.assertEqual(status, 3, text)
            self.assertIn(f"--skip {skip}: 'ddp' has 4 steps, and one has to remain", text)

    def test_passes_of_a_pipeline(self):
        """A pass begins when its stage is free and its neighbour has ended; an order without end is refused."""
        printed = self.folder / "printed.txt"
        printed.write_text("a line before\nstage 0: F0 F1 B0 B1\nstage 1: F0 B0 F1 B1\n")
        begins = begins_of(passes_of(printed), {"F": 1, "B": 2})
        self.assertEqual(begins, [{("F", 0): 0, ("F", 1): 1, ("B", 0): 4, ("B", 1): 7}, {("F", 0): 1, ("B", 0): 2, ("F", 1): 4, ("B", 1): 5}])
        with self.assertRaisesRegex(ValueError, "the stages wait for each other"):
            begins_of([[("B", 0), ("F", 0)], [("F", 0), ("B", 0)]], {"F": 1, "B": 2})
        printed.write_text("no stages\n")
        with self.assertRaisesRegex(ValueError, "no line 'stage 0: F0 ...'"):
            passes_of(printed)

    def test_unexplained_figures_are_found(self):
        page = self.folder / "page.md"
        page.write_text("# Lesson\n\n```sh\npsring step --steps 100\n```\n\n<!-- prints exact -->\n```\nsent 786432\n```\n\n"
                        "786,432 bytes in 100 steps, 12.5 ms and 4096 of 3.\n\n<!-- figures 12.5 = 100 / 8; 7.1 = 7 -->\n")
        lesson = Lesson(page)
        self.assertEqual(lesson.unexplained(), ["4096"])
        self.assertEqual(lesson.wrong_figures(), ["7.1 is not 7 = 7"])


if __name__ == "__main__":
    unittest.main()
