"""Arranges the documentation as the pages of a book for MkDocs.

The book mirrors the repository: README.md, CONTRIBUTING.md, CHANGELOG.md and docs lie at their own paths, so that links between
pages hold. Sources that pages link to become pages with their text, and recorded scenes become pages of the step viewer.
"""

import html
import json
import pathlib
import re
import subprocess
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s]+)(\))")
LANGUAGES = {"English": "", "中文": ".zh-CN"}

# The guide's pages in the order of reading; the others follow by name.
GUIDE = ("README", "training", "networks", "sharding", "parallelism", "tables", "memory", "planning", "asynchrony", "faults", "compression",
         "precision", "generation", "gpus", "several-hosts", "clusters", "clusters-kubernetes", "library", "pytorch",
         "pytorch-programs", "report", "live", "step", "run-folder", "reading", "reference")
TITLES = {"English": ("Lessons", "Exercises", "Guide", "Reference"), "中文": ("课程", "练习", "指南", "参考")}
DESIGN = ("idea", "house", "loop", "tables", "promises", "command-line", "speed", "dependencies", "glossary")
RESULTS = ("training", "exchange", "strategies", "asynchrony", "compression", "faults", "watching", "on-a-gpu", "gpu", "pytorch",
           "generation", "predictions", "virtual-time")
REFERENCE = ("docs/walk", "docs/design", *(f"docs/design/{page}" for page in DESIGN), "docs/formulas",
             "docs/results", *(f"docs/results/{page}" for page in RESULTS), "docs/scene", "docs/scenes/README", "docs/events",
             "docs/wire", "docs/checkpoints", "docs/security", "CONTRIBUTING", "CHANGELOG")


def slugify(heading, separator="-"):
    """Returns the anchor of a heading as GitHub makes it: letters of all scripts, digits, hyphens."""
    text = re.sub(r"<[^>]+>", "", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", separator)


def pages():
    return [ROOT / "README.md", ROOT / "README.zh-CN.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md",
            *sorted((ROOT / "docs").rglob("*.md"))]


class Book:
    def __init__(self, folder):
        self.folder = folder
        self.sources = set()  # linked files and folders of the repository that are no pages

    def arrange(self):
        known = {page.resolve() for page in pages()}
        for page in pages():
            path = page.relative_to(ROOT)
            text = LINK.sub(lambda match: match[1] + self.target(page, match[2], known) + match[3], page.read_text())
            self.write(path, widen_lists(text))
        for asset in [*(ROOT / "docs").rglob("*.svg"), *(ROOT / "docs").rglob("*.png")]:
            self.copy(asset)
        done = set()
        while self.sources - done:
            for source in sorted(self.sources - done):
                done.add(source)
                self.write_source(source)

    def target(self, page, link, known):
        """A link's target in the book: a source's page in place of a source."""
        if re.match(r"[a-z]+:", link) or link.startswith("#"):
            return link
        path, _, anchor = link.partition("#")
        file = (page.parent / urllib.parse.unquote(path)).resolve()
        if file in known or file.suffix in (".svg", ".png") or not file.is_relative_to(ROOT) or not file.exists():
            return link  # a link to a page that does not exist is found by the check of links
        if file.suffix == ".json" and file.parent == ROOT / "docs" / "scenes":
            return re.sub(r"\.json$", ".html", link)
        self.sources.add(file)
        return (path.rstrip("/") + "/index.md" if file.is_dir() else path + ".md") + (f"#{anchor}" if anchor else "")

    def write_source(self, source):
        path = source.relative_to(ROOT)
        if source.is_dir():
            names = sorted(child for child in source.iterdir() if child.is_file() and not child.name.startswith("."))
            self.sources.update(child for child in names if is_text(child))
            lines = [f"- [{child.name}]({child.name}.md)" for child in names if is_text(child)]
            self.write(path / "index.md", f"# {path}\n\n" + "\n".join(lines) + "\n")
        else:
            self.write(pathlib.Path(f"{path}.md"), f"# {path}\n\n<pre><code>{html.escape(source.read_text())}</code></pre>\n")

    def write(self, path, text):
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text)

    def copy(self, asset):
        to = self.folder / asset.relative_to(ROOT)
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(asset.read_bytes())

    def show_scenes(self, psring):
        """Makes a page of the step viewer from each recorded scene, and shows them below the index of scenes."""
        scenes = sorted((ROOT / "docs" / "scenes").glob("*.json"))
        for scene in scenes:
            to = self.folder / "docs" / "scenes" / f"{scene.stem}.html"
            subprocess.run([psring, "step", "--scene", scene, "--out", to], check=True, stdout=subprocess.DEVNULL)
        for suffix in LANGUAGES.values():
            index = self.folder / "docs" / "scenes" / f"README{suffix}.md"
            language = "#lang=zh" if suffix else ""
            frames = [f'\n## {scene.stem}\n\n<iframe src="{scene.stem}.html{language}" title="{scene.stem}" loading="lazy" '
                      'style="width:100%;height:44em;border:1px solid #ccc"></iframe>\n' for scene in scenes]
            index.write_text(index.read_text() + "\n".join(frames))

    def navigation(self):
        nav = [{"psring": "README.md"}, {"psring（中文）": "README.zh-CN.md"}]
        for language, suffix in LANGUAGES.items():
            lessons, exercises, guide, reference = TITLES[language]
            nav.append({language: [
                {lessons: self.entries("docs/lessons", suffix, ("README",)) + self.one("docs/bridge", suffix)},
                {exercises: self.one("docs/exercises/README", suffix) + [
                    entry for folder in sorted((ROOT / "docs" / "exercises").glob("[0-9]*"))
                    for entry in self.one(f"docs/exercises/{folder.name}/README", suffix)]},
                {guide: self.entries("docs/guide", suffix, GUIDE)},
                {reference: [entry for name in REFERENCE for entry in self.one(name, suffix)]},
            ]})
        return nav

    def one(self, name, suffix):
        """The page of this name in one language, or in English if there is no other."""
        for path in (f"{name}{suffix}.md", f"{name}.md"):
            if (self.folder / path).exists():
                title = re.search(r"(?m)^# (.+)$", (self.folder / path).read_text())[1]
                return [{title: path}]
        return []

    def entries(self, folder, suffix, first):
        names = sorted(page.name.removesuffix(f"{suffix}.md") for page in (self.folder / folder).glob(f"*{suffix}.md")
                       if suffix or not page.name.endswith(".zh-CN.md"))
        names.sort(key=lambda name: (first.index(name) if name in first else len(first), name))
        return [entry for name in names for entry in self.one(f"{folder}/{name}", suffix)]

    def configuration(self, site):
        return json.dumps({  # JSON is YAML
            "site_name": "psring", "docs_dir": str(self.folder), "site_dir": str(site), "use_directory_urls": False,
            "theme": {"name": "readthedocs", "navigation_depth": 3, "highlightjs": False, "include_homepage_in_sidebar": False}, "nav": self.navigation(),
            "plugins": [{"search": {"lang": ["en"]}}], "extra_javascript": ["search/book.js"],
            "markdown_extensions": ["tables", "fenced_code", "md_in_html"], "mdx_configs": {}}, ensure_ascii=False, indent=1)


def is_text(path):
    return path.suffix in (".h", ".cpp", ".cu", ".cuh", ".py", ".txt", ".cmake", ".sh", ".json", ".md", ".html", "") and path.stat().st_size < 200_000


def widen_lists(text):
    """Indents nested list items and paragraphs by four columns, as Markdown in Python wants it; outside of code."""
    lines, fenced = [], False
    previous = ""
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        item = re.match(r"( *)([-*]|\d+\.) ", line)
        if not fenced and item and not item[1] and previous.strip() and not re.match(r" *([-*]|\d+\.) |#|  ", previous):
            lines.append("")  # a list needs an empty line before it
        if not fenced and re.match(r" {2,3}(?=[-*] |\d+\. )", line):
            line = "    " + line.lstrip()
        lines.append(line)
        previous = line
    return "\n".join(lines) + "\n"
