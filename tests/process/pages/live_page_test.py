"""The page of the live view: a headless Chromium reads it from a small server that plays recorded states."""

import json
import unittest

from browser import CHROMIUM, Browser
from live_server import LiveServer, snapshot
from page_checks import check_contrast, check_keyboard, check_saved_figures
from support import BIN, until

PAGE = BIN.parent / "view" / "live.html"
MOST_BYTES = 1_500_000
NASTY = "x<script>alert(1)</script><img src=x onerror=alert(2)>"


@unittest.skipIf(CHROMIUM is None, "no chromium")
class LivePage(unittest.TestCase):
    def serve(self, state):
        server = LiveServer(PAGE.read_bytes(), state)
        self.addCleanup(lambda: server.ends or server.stop())
        return server

    def text(self, browser, selector):
        return browser.run(f"document.querySelector({json.dumps(selector)})?.textContent")

    def cell(self, browser, section, row, name):
        return self.text(browser, f'#{section} [data-row="{row}"] [data-name="{name}"]')

    def tile(self, browser, name):
        return self.text(browser, f'[data-tile="{name}"] strong')

    def shows(self, browser, selector, words):
        until(lambda: words in (self.text(browser, selector) or ""), f"{selector} says {words}")

    def open(self, browser, server, options="lang=en&theme=light"):
        browser.visit(server.url(options))
        self.shows(browser, '[data-tile="step"] strong', "397")

    def click(self, browser, button):
        browser.run(f"document.getElementById('{button}').click()")

    def visible(self, browser):
        return browser.run("[...document.querySelectorAll('section')].filter((one) => !one.hidden).map((one) => one.id)")

    def test_numbers_equal_the_state(self):
        self.assertLess(PAGE.stat().st_size, MOST_BYTES)
        server = self.serve(snapshot())
        with Browser() as browser:
            self.open(browser, server)
            self.assertEqual([self.tile(browser, name) for name in ("step", "loss", "speed", "left", "elapsed")],
                             ["397 of 1,000", "0.7183", "1,234", "1 min 3 s", "42 s"])
            self.assertEqual(browser.run("document.title"), "39 % · runs/a")
            self.assertEqual(self.visible(browser), ["curves", "workers", "servers", "links"])
            columns = ("step", "lag", "time", "waiting", "memory", "pss", "sent")
            self.assertEqual([self.cell(browser, "workers", 0, name) for name in columns],
                             ["397", "0", "100.00 ms", "—", "3.552 MiB", "29.56 MiB", "488.3 MiB"])
            self.assertEqual([self.cell(browser, "workers", 3, name) for name in columns[:4]],
                             ["400", "3", "109.00 ms", "server 0: parameters, for 1.2 s"])
            self.assertEqual(self.text(browser, "#waiting-now"), "3 of 4 workers wait now, 3 of them for server 0.")
            self.assertEqual([self.cell(browser, "servers", 1, name) for name in ("busy", "updates", "waiting")], ["75 %", "397", "—"])
            self.assertIn("worker 3 → server 1: 5.722 MiB/s", browser.run("[...document.querySelectorAll('#links title')].map((one) => one.textContent)"))
            changed = snapshot()
            changed["progress"].update(step=1000, left_s=0)
            changed["phase"] = "done"
            changed["recoveries"] = [{"time_s": 12.0, "what": "worker 1 was ended by signal 9", "step": 120, "delay_s": 1.4}]
            server.send(changed)
            self.shows(browser, "#phase", "done")
            self.assertEqual((self.tile(browser, "step"), browser.run("document.title")), ("1,000 of 1,000", "done · runs/a"))
            self.assertEqual([self.cell(browser, "recoveries", 0, name) for name in ("time", "what", "step", "delay")],
                             ["12 s", "worker 1 was ended by signal 9", "120", "1.40"])
            self.assertEqual(browser.errors, [])

    def test_a_mesh(self):
        """A worker's place names the axes that the mesh has; a stage's bubble is a share of its last step."""
        state = snapshot()
        for mesh, places in (({"data": 2, "tensor": 1, "pipeline": 2}, ["copy 0, stage 0", "copy 0, stage 1", "copy 1, stage 0", "copy 1, stage 1"]),
                             ({"data": 1, "tensor": 2, "pipeline": 2}, ["stage 0, tensor rank 0", "stage 0, tensor rank 1", "stage 1, tensor rank 0",
                                                                        "stage 1, tensor rank 1"])):
            state["run"]["mesh"] = mesh
            for worker in state["workers"]:
                rank = worker["rank"]
                worker["place"] = {"data": rank // (mesh["tensor"] * mesh["pipeline"]), "stage": rank // mesh["tensor"] % mesh["pipeline"],
                                   "tensor": rank % mesh["tensor"]}
                worker["bubble_s"] = 0.02
            server = self.serve(state)
            with Browser() as browser:
                self.open(browser, server)
                self.assertEqual([self.cell(browser, "workers", rank, "place") for rank in range(4)], places)
                self.assertEqual(self.cell(browser, "workers", 0, "bubble"), "20.0 %")
                # The bubble is a part of the exposed time of 30 ms.
                parts = browser.run("document.querySelector('#workers [data-row=\"0\"] [data-name=\"time\"] .track').getAttribute('aria-label')")
                self.assertEqual(parts, "compute 60.00 ms, bubble 20.00 ms, exposed communication 10.00 ms, other 10.00 ms")
                self.assertEqual(browser.errors, [])
        server = self.serve(snapshot())
        with Browser() as browser:
            self.open(browser, server)
            for name in ("place", "bubble"):
                self.assertEqual(browser.run(f"[...document.querySelectorAll('#workers [data-name=\"{name}\"]')].every((one) => one.offsetParent === null)"), True)

    def test_rows_of_tables(self):
        state = snapshot()
        for server in state["servers"]:
            server["rows"] = 12345 + server["rank"]
            server["memory"]["index"] = 5 << 20
        server = self.serve(state)
        with Browser() as browser:
            self.open(browser, server)
            self.assertEqual([self.cell(browser, "servers", rank, "rows") for rank in range(2)], ["12,345", "12,346"])
            self.assertIn("index of rows 5 MiB", browser.run("document.querySelector('#servers [data-row=\"0\"] [data-name=\"memory\"] .track').getAttribute('aria-label')"))
            self.assertEqual(browser.errors, [])
        server = self.serve(snapshot())
        with Browser() as browser:
            self.open(browser, server)
            self.assertEqual(browser.run("[...document.querySelectorAll('#servers [data-name=\"rows\"]')].every((one) => one.offsetParent === null)"), True)

    def test_a_metric_of_the_model(self):
        state = snapshot()
        for evaluation in state["evaluations"]:
            evaluation["own"] = {"test_auc": 0.5 + evaluation["step"] / 1000}
        server = self.serve(state)
        with Browser() as browser:
            self.open(browser, server)
            browser.run("document.querySelector('#quality svg').focus()")
            browser.press("End")
            self.assertIn("test auc 0.8", self.text(browser, "#quality .readout"))
            self.assertNotIn("accuracy", self.text(browser, "#quality"))
            self.assertEqual(browser.errors, [])

    def test_language_theme_and_keys(self):
        server = self.serve(snapshot(stale=True))
        with Browser() as browser:
            self.open(browser, server)
            background = browser.run("getComputedStyle(document.body).backgroundColor")
            self.click(browser, "theme")
            self.assertNotEqual(browser.run("getComputedStyle(document.body).backgroundColor"), background)
            self.click(browser, "language")
            self.assertEqual((self.text(browser, "#phase"), self.text(browser, "#curves h2")), ("训练中", "损失与速度"))
            self.assertEqual(browser.run("[document.documentElement.lang, document.activeElement.id]"), ["zh-CN", "language"])
            self.assertIn("staleness", self.visible(browser))
            browser.run("document.querySelector('#loss svg').focus()")
            browser.press("Home")
            at = self.text(browser, "#loss .readout")
            self.assertIn("步 0", at)
            again = snapshot(stale=True)
            again["progress"]["step"] = 398
            server.send(again)
            self.shows(browser, '[data-tile="step"] strong', "398")
            # A new drawing keeps the focus and the cursor.
            self.assertEqual((self.text(browser, "#loss .readout"), browser.run("document.activeElement.tagName")), (at, "svg"))
            self.click(browser, "over-time_s")
            self.assertEqual(browser.run("document.getElementById('over-time_s').getAttribute('aria-pressed')"), "true")
            self.assertEqual(browser.errors, [])

    def test_looks_and_saved_figures(self):
        """In both languages and themes texts have contrast, every control is reached, and every figure can be saved."""
        state = snapshot(stale=True)
        state["recoveries"] = [{"time_s": 12.0, "what": "worker 1 was ended by signal 9", "step": 120, "delay_s": 1.4}]
        server = self.serve(state)
        for options, width in (("lang=en&theme=light", 1280), ("lang=zh&theme=dark", 390)):
            with self.subTest(options), Browser(width) as browser:
                self.open(browser, server, options)
                saved = check_saved_figures(self, browser, 6)
                self.assertLessEqual({"loss", "quality", "speed", "step-time", "links", "staleness-steps", "recoveries-line"}, set(saved))
                browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
                check_contrast(self, browser)
                self.assertLessEqual(browser.run("document.documentElement.scrollWidth"), width)
                if width == 1280:
                    check_keyboard(self, browser)
                self.assertEqual(browser.errors, [])

    def test_names_stay_text(self):
        state = snapshot(name=NASTY)
        state["run"].update(model=NASTY, data=NASTY, strategy=NASTY, command=[NASTY])
        state.update(phase="recovering", error=NASTY)
        state["workers"][0]["waiting"] = {"operation": NASTY, "peer": NASTY, "since_s": 1}
        state["links"][0].update({"from": NASTY, "operation": NASTY})
        state["recoveries"] = [{"time_s": 1, "what": NASTY, "step": None, "delay_s": None}]
        server = self.serve(state)
        with Browser(390) as browser:
            self.open(browser, server)
            for selector in ("#name", "#what", "#command", "#error", '[data-row="0"] [data-name="waiting"]', "#links tbody", "#links svg",
                             "#recoveries tbody"):
                self.assertIn("<img src=x onerror=alert(2)>", self.text(browser, selector), selector)
            self.assertEqual(browser.run("[document.querySelectorAll('script').length, document.querySelectorAll('img').length]"), [1, 0])
            self.assertLessEqual(browser.run("document.documentElement.scrollWidth"), 390)
            self.assertEqual(browser.errors, [])

    def test_a_lost_connection(self):
        server = self.serve(snapshot())
        with Browser() as browser:
            self.open(browser, server)
            self.shows(browser, "#connection", "Connected")
            server.stop()
            self.shows(browser, "#connection", "Connection lost, retrying. The last state came at ")
            self.assertEqual(self.tile(browser, "step"), "397 of 1,000")
            server.state["progress"]["step"] = 500
            server.start()
            self.shows(browser, '[data-tile="step"] strong', "500")
            self.shows(browser, "#connection", "Connected")
            self.assertEqual([error for error in browser.errors if "ERR_CONNECTION_REFUSED" not in error and "ERR_INCOMPLETE" not in error], [])

    def test_without_a_token_and_with_too_many_viewers(self):
        server = self.serve(snapshot())
        with Browser() as browser:
            browser.visit(server.url("lang=en", token="wrong"))
            self.shows(browser, "#connection", "refuses the token")
            server.crowded = True
            self.open(browser, server)
            self.shows(browser, "#connection", "as many viewers as it takes")

    def test_what_is_not_recorded(self):
        state = snapshot(workers=1, servers=0, live=False)
        state["evaluations"], state["links"], state["series"]["exposed_s"] = [], None, None
        with Browser() as browser:
            self.open(browser, self.serve(state))
            self.assertEqual(self.visible(browser), ["curves", "workers"])
            self.assertIn("who waits for whom", self.text(browser, "#absent"))
            self.assertEqual([browser.run(f"getComputedStyle(document.querySelector('#workers tbody [data-name={name}]')).display") for name in ("step", "waiting", "sent")],
                             ["table-cell", "none", "none"])
            self.assertEqual(browser.errors, [])
            nothing = snapshot(workers=0, servers=0, live=False)
            nothing.update(phase="starting", evaluations=[], time_s=None, series={name: [] for name in nothing["series"]})
            nothing["progress"] = {"step": 0, "steps": 1000, "samples_per_second": None, "tokens_per_second": None, "left_s": None, "loss": None}
            browser.visit(self.serve(nothing).url("lang=en"))
            self.shows(browser, "#phase", "starting")
            self.assertEqual((self.visible(browser), self.tile(browser, "loss")), ([], "—"))
            self.assertEqual(browser.errors, [])

    def test_64_workers_are_cheap(self):
        """A hidden tab draws nothing; many states within a second are drawn once."""
        server = self.serve(snapshot(64, 8))
        with Browser() as browser:
            self.open(browser, server)
            self.assertEqual(browser.run("document.querySelectorAll('#workers tbody tr').length"), 64)
            # Counts drawings from inside the page: each replaces the loss figure once.
            browser.run("""(() => {
              window.drawings = 0;
              new MutationObserver(() => ++window.drawings).observe(document.querySelector('#loss .box'), { childList: true });
              window.began = performance.now();
            })()""")
            for step in range(398, 438):
                state = snapshot(64, 8)
                state["progress"]["step"] = step
                server.send(state)
            self.shows(browser, '[data-tile="step"] strong', "437")
            drawings, seconds = browser.run("[window.drawings, (performance.now() - window.began) / 1000]")
            self.assertLessEqual(drawings, seconds + 2)
            browser.run("Object.defineProperty(document, 'hidden', { value: true, configurable: true })")
            before = browser.run("window.drawings")
            state["progress"]["step"] = 500
            server.send(state)
            browser.run("new Promise((resolve) => { const source = new EventSource(`events${location.search}`); source.addEventListener('state', () => setTimeout(() => { source.close(); resolve(); }, 1500)); })")
            self.assertEqual(browser.run("window.drawings"), before)
            browser.run("(() => { delete document.hidden; document.dispatchEvent(new Event('visibilitychange')); })()")
            self.shows(browser, '[data-tile="step"] strong', "500")
            self.assertEqual(browser.errors, [])


if __name__ == "__main__":
    unittest.main()
