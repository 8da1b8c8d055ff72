"""The lessons: every command prints what the page says, pictures are those of the commands, both languages agree, and the
Chinese uses one word for each term. And the checks of scripts/lessons themselves refuse what is wrong."""

import pathlib
import re
import subprocess
import sys
import unittest

from support import BIN, ProgramTest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

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
        for page in chinese_pages():
            for word in unused:
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
