"""The bridge from PyTorch's words: every file that it names exists and contains the name, every flag and strategy is psring's,
and both languages have the same rows."""

import json
import pathlib
import re
import unittest

from support import ProgramTest

ROOT = pathlib.Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
FOREIGN = {"--nproc-per-node", "--nnodes"}  # torchrun's


def rows_of(page):
    """The cells of each row; cells have no bar within."""
    rows = re.findall(r"(?m)^\| (.+) \|$", page.read_text())
    return [row.split(" | ") for row in rows if " | " in row]


class Bridge(ProgramTest):
    english, chinese = DOCS / "bridge.md", DOCS / "bridge.zh-CN.md"

    def test_places_exist(self):
        for row in rows_of(self.english)[1:]:
            places = re.findall(r"\[([^]]+)\]\(\.\./([^)]+)\) `([^`]+)`", row[2])
            if row[2] != "where":
                self.assertTrue(places, row)
            for shown, path, name in places:
                self.assertEqual(shown, path)
                file = ROOT / path
                self.assertTrue(file.exists(), path)
                texts = [file] if file.is_file() else sorted(file.rglob("*.py"))
                self.assertTrue(any(name.split("::")[-1] in text.read_text() for text in texts), f"{path} has no {name}")

    def test_flags_exist(self):
        result = self.run_program("psring", "options")
        self.assert_done(result)
        known = set(re.findall(r"--[a-z0-9-]+", json.dumps(json.loads(result.out)))) | {"--json"}
        for page in (self.english, self.chinese):
            flags = set(re.findall(r"--[a-z][a-z0-9-]+", page.read_text())) - FOREIGN
            self.assertGreater(len(flags), 40)
            self.assertEqual(flags - known, set())

    def test_strategies_exist(self):
        help_text = self.run_program("psring", "train", "--help-all").out
        for strategy in set(re.findall(r"--strategy ([a-z0-9-]+)", self.english.read_text())):
            self.assertRegex(help_text, rf"(?m)^\s+{re.escape(strategy)}\b")

    def test_both_languages_have_the_same_rows(self):
        english, chinese = rows_of(self.english), rows_of(self.chinese)
        self.assertEqual(len(english), len(chinese))
        self.assertGreater(len(english), 55)
        for one, other in zip(english, chinese):
            if one[2] == "where":
                self.assertEqual(other[2], "位置")
                continue
            self.assertEqual(one[2], other[2])
            for cell in (0, 1):
                self.assertEqual(sorted(re.findall(r"`[^`]+`", one[cell])), sorted(re.findall(r"`[^`]+`", other[cell])), one[0])
        for level in ("## ", "- "):
            self.assertEqual(*(len(re.findall(rf"(?m)^{level}", page.read_text())) for page in (self.english, self.chinese)))


if __name__ == "__main__":
    unittest.main()
