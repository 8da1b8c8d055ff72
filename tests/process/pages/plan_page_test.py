"""The page of psring plan: a headless Chromium opens it and reads its numbers, which equal those of --json."""

import itertools
import json
import pathlib
import re
import shutil
import tempfile
import unittest

from browser import CHROMIUM, Browser
from page_checks import check_contrast, check_keyboard, check_saved_figures
from support import ProgramTest

PLAN = ["plan", "--model", "gpt:layers=4,dim=256,heads=4,context=128,vocab=1000", "--data", "synthetic", "--hosts", 8, "--workers-per-host", 2,
        "--link-between", "10gbit,50us", "--global-batch", 256, "--tflops", 5, "--memory", "512M", "--choose", "compress"]
FIGURES = {"curve-step", "curve-rate", "curve-exposed", "curve-memory", "rows-step", "rows-memory"}
SECTIONS = ["cluster", "curves", "rows", "memory", "start"]
MOST_BYTES = 1_500_000
CELLS = "[...document.querySelectorAll('td[data-path]')].map((one) => [one.dataset.path, one.dataset.unit, one.textContent])"


def numbers(rows):
    """Returns how many numbers a table of these rows shows: the rows of a pipeline have a bubble, too."""
    return sum(9 if row["mesh"]["pipeline"] > 1 else 8 for row in rows)


@unittest.skipIf(CHROMIUM is None, "no chromium")
class PlanPage(ProgramTest):
    large = None  # of large_plan, for all tests

    def large_plan(self):
        """The document and the page of PLAN, which takes seconds: made once."""
        if PlanPage.large is None:
            folder = pathlib.Path(tempfile.mkdtemp(prefix="psring-plan-"))
            self.addClassCleanup(shutil.rmtree, folder)
            document, page = self.plan(*PLAN)
            PlanPage.large = document, pathlib.Path(shutil.copy(page, folder))
        return PlanPage.large

    def plan(self, *arguments):
        """Returns the document that --json writes, and the path of the page."""
        self.assert_done(self.run_program("psring", *arguments, "--json", "plan.json", "--html", "plan.html"))
        page = self.folder / "plan.html"
        document = json.loads((self.folder / "plan.json").read_text())
        (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.S)
        self.assertEqual(json.loads(text), document)
        self.assertLess(page.stat().st_size, MOST_BYTES)
        return document, page

    def cells_equal(self, browser, document):
        """Each number that the table shows is the document's, rounded to the digits that it shows."""
        cells = browser.run(CELLS)
        for path, unit, text in cells:
            value = document
            for name in path.split("."):
                value = value[int(name)] if isinstance(value, list) else value[name]
            number, _, suffix = text.replace(",", "").partition(" ")
            scale = {"ms": 1e-3, "": 1}[unit] * {"": 1, "%": 0.01, "B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}[suffix]
            digits, _, exponent = number.partition("e")
            rounding = 0.5001 * 10 ** (int(exponent or 0) - len(digits.partition(".")[2]))
            self.assertLessEqual(abs(float(number) - value / scale), max(rounding, 1e-3 * abs(value / scale) if suffix else 0), (path, text, value))
        return [path for path, _, _ in cells]

    def pick(self, browser, name, value):
        browser.run(f"(() => {{ const one = document.getElementById('{name}'); one.value = {value}; one.dispatchEvent(new Event('change')); }})()")

    def test_numbers_equal_the_plan(self):
        document, page = self.large_plan()
        self.assertEqual((document["sweep"], [point["value"] for point in document["points"]]), ("hosts", ["1", "2", "4", "8", "16", "32", "64"]))
        with Browser() as browser:
            browser.open(page, "lang=en")
            self.assertEqual(browser.run("[...document.querySelectorAll('section')].map((one) => one.id)"), SECTIONS)
            shown = self.cells_equal(browser, document)
            self.assertEqual(len(shown), numbers(document["rows"]))
            self.assertEqual(browser.run("document.querySelector('#cluster dl').textContent.includes(" + json.dumps(document["reason"]["en"]) + ")"), True)
            # The rows of another point of the sweep.
            self.pick(browser, "choose-point", 3)
            shown = self.cells_equal(browser, document)
            self.assertEqual({path.rsplit(".rows", 1)[0] for path in shown}, {"points.2"})
            self.assertEqual(len(shown), numbers(document["points"][2]["rows"]))
            self.assertEqual(browser.errors, [])
        # The point of the plan has the rows of the plan.
        self.assertEqual([row["step_s"] for row in document["points"][3]["rows"]], [row["step_s"] for row in document["rows"]])

    def test_curves_and_crossings(self):
        """A curve goes through the sweep's values, and rings mark the crossings of those that are shown."""
        document, page = self.large_plan()
        crossing = {(one["of"], one["before"], one["after"]) for one in document["crossings"]}
        self.assertIn(("per_host", "ps s=1", "ddp"), crossing | {(of, after, before) for of, before, after in crossing})
        with Browser() as browser:
            browser.open(page, "lang=en")
            pressed = lambda: browser.run("[...document.querySelectorAll('.legend [aria-pressed=true]')].map((one) => one.textContent.trim())")
            rings = lambda: browser.run("[...document.querySelectorAll('#curve-step circle[r=\"5\"], #curve-rate circle[r=\"5\"]')].length")

            def expected():
                return sum(one["before"] in shown and one["after"] in shown for one in document["crossings"])

            shown = pressed()
            self.assertTrue({"ddp", "ps s=1", "ps s=hosts", "zero3", "zero3 group=host"} <= set(shown), shown)
            self.assertGreater(expected(), 0)
            self.assertEqual(rings(), expected())
            self.assertEqual(browser.run("document.querySelectorAll('[data-crossing]').length"), expected())
            for number in browser.run("[...document.querySelectorAll('[data-crossing]')].map((one) => [Number(one.dataset.crossing), one.textContent])"):
                one = document["crossings"][number[0]]
                value = float(number[1].removesuffix(" ms").replace(",", "")) * (1e-3 if one["of"] == "step_s" else 1)
                self.assertAlmostEqual(value / one["y"], 1, delta=0.02)
            files = check_saved_figures(self, browser, len(FIGURES))
            self.assertEqual(set(files), FIGURES)
            lines = [line.split(",") for line in files["curve-step"][1].splitlines()[1:]]
            for series, value, label, step in lines:
                (point,) = [point for point in document["points"] if point["value"] == value]
                self.assertTrue(any(row["label"] == label and series in row["series"] and abs(row["step_s"] - float(step)) < 1e-12 for row in point["rows"]))
            self.assertEqual({line[0] for line in lines}, set(shown))
            # The cursor says the values under it; the keyboard moves it.
            browser.run("document.querySelector('#curve-step .plot').focus()")
            browser.press("Home")
            said = browser.run("document.querySelector('#curve-step .readout').textContent")
            self.assertTrue(said.startswith("hosts 1: "), said)
            # A name hides its curve, and keeps the focus.
            browser.run("(() => { const one = [...document.querySelectorAll('.legend button')].find((b) => b.textContent.trim() === 'ddp'); one.focus(); one.click(); })()")
            shown = pressed()
            self.assertNotIn("ddp", shown)
            self.assertEqual(rings(), expected())
            self.assertEqual(browser.run("document.activeElement.textContent.trim()"), "ddp")
            browser.run("[...document.querySelectorAll('.legend [aria-pressed=false]')].map((one) => one.id).forEach((id) => document.getElementById(id).click())")
            self.assertEqual(len(pressed()), len({name for point in document["points"] for row in point["rows"] for name in row["series"]}))
            self.assertEqual(browser.errors, [])

    def test_a_row_can_be_started(self):
        document, page = self.plan("plan", "--model", "mlp:64-32-10", "--data", "synthetic", "--hosts", 2, "--global-batch", 8, "--tflops", 1, "--steps", 1)
        with Browser() as browser:
            browser.open(page, "lang=zh&theme=dark")
            for number, row in enumerate(document["rows"][:3]):
                browser.run(f"document.getElementById('row-{number}').click()")
                command = browser.run("document.getElementById('start-command').textContent")
                self.assertIn(f"--strategy {row['strategy']} ", command + " ")
                self.assert_done(self.train(*command.split()[2:], "--out", f"run{number}"))
                (self.folder / "job.toml").write_text(browser.run("document.getElementById('start-file').textContent"))
                self.assert_done(self.train("--config", "job.toml", "--out", f"file{number}"))
            self.assertEqual(browser.errors, [])

    def test_a_sweep_of_an_option(self):
        document, page = self.plan("plan", "--model", "mlp:64-32-10", "--data", "synthetic", "--hosts", 4, "--tflops", 1, "--sweep",
                                   "link-between=1gbit,1ms;10gbit,20us", "--strategies", "ddp,ps")
        with Browser(390) as browser:
            browser.open(page, "lang=en&at=10gbit%2C20us")
            self.assertEqual({path.rsplit(".rows", 1)[0] for path in self.cells_equal(browser, document)}, {"points.1"})
            self.assertLessEqual(browser.run("document.documentElement.scrollWidth"), 390)
            self.assertEqual(browser.errors, [])

    def test_looks_and_keys(self):
        """In both languages, themes and widths texts have contrast and room, and every control is reached."""
        _, page = self.large_plan()
        with Browser() as browser:
            for language, theme, width in itertools.product(("en", "zh"), ("light", "dark"), (390, 1280)):
                with self.subTest(language, theme=theme, width=width):
                    browser.size(width, 900)
                    browser.open(page, f"lang={language}&theme={theme}")
                    browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
                    check_contrast(self, browser)
                    self.assertLessEqual(browser.run("document.documentElement.scrollWidth"), width)
                    self.assertEqual(browser.run("[...document.querySelectorAll('figure svg')].filter((one) => one.getBoundingClientRect().width > one.parentElement.clientWidth + 1).length"), 0)
                    if width == 1280 and (language, theme) in (("en", "light"), ("zh", "dark")):
                        check_keyboard(self, browser)
                    self.assertEqual(browser.errors, [])

    def test_hostile_names(self):
        """Text of the command line is shown as it is, never as markup."""
        nasty = "x<script>alert(1)<!--"
        document, page = self.plan("plan", "--model", "mlp:64-32-10", "--data", f"synthetic", "--out", nasty, "--hosts", 2, "--tflops", 1)
        self.assertIn(nasty, document["command"])
        with Browser() as browser:
            browser.open(page, "lang=en")
            self.assertIn(nasty, browser.run("document.querySelector('#cluster pre').textContent"))
            self.assertEqual(browser.run("document.scripts.length"), 2)
            self.assertEqual(browser.errors, [])


if __name__ == "__main__":
    unittest.main()
