"""scripts/docs: the book has all pages in both languages, search, scenes and sources, and no link that leads nowhere; and the check
of links finds broken ones. The walk through the source names what exists, and the pictures of the results show their tables."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

from support import BIN, ProgramTest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

from teach.book import slugify, widen_lists  # noqa: E402
from teach.links import broken_links  # noqa: E402


class Docs(ProgramTest):
    def test_the_book(self):
        if shutil.which("mkdocs") is None:
            self.skipTest("SKIPPED: mkdocs is not installed")
        book = self.folder / "book"
        result = subprocess.run([ROOT / "scripts" / "docs", "--bin", BIN, "--out", book], capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        for page in (ROOT / "docs").rglob("*.md"):
            name = re.sub(r"README\.html$", "index.html", str(page.relative_to(ROOT).with_suffix(".html")))
            self.assertTrue((book / name).exists(), name)
        for scene in (ROOT / "docs" / "scenes").glob("*.json"):
            self.assertIn("psring-scene", (book / "docs" / "scenes" / f"{scene.stem}.html").read_text())
            self.assertIn(f'src="{scene.stem}.html#lang=zh"', (book / "docs" / "scenes" / "README.zh-CN.html").read_text())
        self.assertTrue((book / "worker" / "walk.cpp.html").exists())
        index = (book / "search" / "book.js").read_text().split("\n", 1)[0]
        titles = {page["title"] for page in json.loads(index.removeprefix("window.bookIndex = ").removesuffix(";"))}
        self.assertLessEqual({"Lesson 4: DDP, from naive to overlapped", "第 4 课：DDP，从朴素到重叠"}, titles)

    def test_broken_links_are_found(self):
        (self.folder / "a.html").write_text('<h1 id="top">A</h1><a href="b.html#there">b</a> <a href="c.html">c</a> '
                                            '<a href="#nowhere">n</a> <a href="https://example.org/">e</a>'
                                            '<script src="https://example.org/x.js"></script><img src="d.png">')
        (self.folder / "b.html").write_text('<h2 id="there">B</h2><a href="a.html#top">a</a><a href="a.html#no">a</a>')
        self.assertEqual(broken_links(self.folder), [
            "a.html: loads https://example.org/x.js from a network", "a.html: d.png does not exist", "a.html: c.html does not exist",
            "a.html: #nowhere names no anchor", "b.html: a.html#no names no anchor"])

    def test_anchors_and_lists(self):
        self.assertEqual(slugify("What the bits depend on"), "what-the-bits-depend-on")
        self.assertEqual(slugify("比较各种策略"), "比较各种策略")
        self.assertEqual(slugify("push & pull: `x_y`"), "push--pull-x_y")
        self.assertEqual(widen_lists("text:\n- a\n  - b\n"), "text:\n\n- a\n    - b\n")
        self.assertEqual(widen_lists("```\ntext\n- a\n  - b\n```\n"), "```\ntext\n- a\n  - b\n```\n")

    def test_the_walk_names_files_and_functions_that_exist(self):
        stop = re.compile(r"(?m)^## (\d+)\. \[([^]]+)\]\(\.\./([^)]+)\): `([^`]+)`$")
        english, chinese = ((ROOT / "docs" / name).read_text() for name in ("walk.md", "walk.zh-CN.md"))
        stops = stop.findall(english)
        self.assertEqual(stops, stop.findall(chinese))
        self.assertEqual([int(number) for number, *_ in stops], list(range(1, len(stops) + 1)))
        self.assertIn(len(stops), range(8, 13))
        for _, title, path, function in stops:
            self.assertEqual(title, path)
            source = (ROOT / path).read_text()
            self.assertRegex(source, rf"(?m)^.*\b{function}\(.*(?:\{{|,|override)", f"{path} does not define {function}")
        sources = [source.read_text() for folder in ("cli", "common", "ring", "worker") for source in (ROOT / folder).rglob("*.cpp")]
        for text in (english, chinese):
            for path in re.findall(r"\b(?:cli|common|ring|worker)/[\w/]+\.(?:cpp|h)\b", text):
                self.assertTrue((ROOT / path).exists(), path)
            for name in set(re.findall(r"`(\w+::\w+)`", text)) - {"ring::Work"}:
                self.assertTrue(any(f"{name}(" in source for source in sources), f"no source defines {name}")

    def test_the_pictures_of_the_results_are_drawn_from_their_tables(self):
        result = subprocess.run([ROOT / "scripts" / "result-pictures", "--check"], capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        shown = re.findall(r"\]\(results/(pictures/[\w-]+\.svg)\)", (ROOT / "docs" / "results.md").read_text())
        drawn = [str(path.relative_to(ROOT / "docs" / "results")) for path in (ROOT / "docs" / "results" / "pictures").glob("*")]
        self.assertEqual((sorted(shown), len(shown)), (sorted(drawn), 10))

    def test_without_the_program(self):
        result = subprocess.run([ROOT / "scripts" / "docs", "--bin", self.folder], capture_output=True, text=True)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, "does not exist; build psring|mkdocs is missing")


if __name__ == "__main__":
    unittest.main()
