"""The page of psring step: a headless Chromium opens it, steps, jumps, and reads its numbers, which equal the scene's."""

import json
import re
import unittest

from browser import CHROMIUM, Browser
from page_checks import check_contrast, check_keyboard
from support import ProgramTest

GPT = ["--model", "gpt:layers=2,dim=16,heads=2,context=8,vocab=256", "--data", "text:words.txt", "--workers", 4,
       "--global-batch", 8, "--units", "block", "--seed", 1]
MOST_BYTES = 1_500_000
NASTY = "x<script>alert(1)<!--"


def written(size):
    """Returns bytes as the page writes them."""
    return f"{size:g} B" if size < 1024 else f"{float(f'{size / 1024:.4g}'):g} KiB"


def put(document, page):
    """Replaces the document that a page holds."""
    data = json.dumps(document).replace("<", "\\u003c").replace(">", "\\u003e")
    page.write_text(re.sub(r'(id="data">).*?(</script>)', lambda found: found[1] + data + found[2], page.read_text(), count=1, flags=re.S))


def plans(n, elements):
    """Plans of four algorithms for n ranks, a power of two, as a scene has them."""
    size = elements // n
    chunks = [[c * size, (c + 1) * size] for c in range(n)]

    def message(source, target, first, end, action):
        return [source, target, first * size, end * size, action]

    ring = [[message(r, (r + 1) % n, (r - k) % n, (r - k) % n + 1, "reduce") for r in range(n)] for k in range(n - 1)]
    ring += [[message(r, (r + 1) % n, (r + 1 - k) % n, (r + 1 - k) % n + 1, "copy") for r in range(n)] for k in range(n - 1)]
    halving, back, distance = [], [], n // 2
    while distance:
        halving.append([message(r, r ^ distance, (r ^ distance) & ~(distance - 1), ((r ^ distance) & ~(distance - 1)) + distance, "reduce") for r in range(n)])
        back.insert(0, [message(r, r ^ distance, r & ~(distance - 1), (r & ~(distance - 1)) + distance, "copy") for r in range(n)])
        distance //= 2
    tree = [[message(r, r + reach, 0, n, "copy") for r in range(reach)] for reach in (1 << k for k in range(n.bit_length() - 1))]
    direct = [[message(r, owner, owner, owner + 1, "collect") for r in range(n) for owner in range(n) if r != owner]]
    shape = {"ranks": n, "elements": elements, "type": "f32", "chunks": chunks}
    return [{"operation": "all_reduce", "algorithm": "ring", "reduction": "mean", "rounds": ring, **shape},
            {"operation": "all_reduce", "algorithm": "halving-doubling", "reduction": "mean", "rounds": halving + back, **shape},
            {"operation": "broadcast", "algorithm": "tree", "root": 0, "rounds": tree, **shape},
            {"operation": "reduce_scatter", "algorithm": "exchange", "reduction": "sum", "parts": [[one] for one in chunks], "rounds": direct, **shape}]


def add_plans(scene, n=4):
    """Gives the first all-reduces of a scene one plan each, with values; returns what each rank has at the end."""
    for e in scene["events"]:
        if e["e"] in ("start", "finish"):
            for name in ("plan", "values"):
                e.pop(name, None)
    scene["plans"] = plans(n, 1024)
    before = [[(r + 1) * 0.25 + c for c in range(n)] for r in range(n)]
    total = [sum(before[r][c] for r in range(n)) for c in range(n)]
    mean = [[one / n for one in total]] * n
    after = [mean, mean, [before[0]] * n, [[total[c] if c == r else None for c in range(n)] for r in range(n)]]
    calls, reduces, open_ = [0] * n, [0] * n, {}
    for e in scene["events"]:
        if e["e"] == "join":
            calls[e["p"]] = 0
        if e["e"] == "start":
            e |= {"group": 0, "call": calls[e["p"]], "members": list(range(n))}
            calls[e["p"]] += 1
            if e["name"] == "all_reduce" and reduces[e["p"]] < n:
                e |= {"plan": reduces[e["p"]], "values": before[e["p"]]}
                reduces[e["p"]] += 1
            open_[e["p"], e["name"], str(e.get("units"))] = e
        if e["e"] == "finish" and (start := open_.pop((e["p"], e["name"], str(e.get("units"))), None)):
            e |= {"group": 0, "call": start["call"]}
            if "plan" in start:
                e["values"] = after[start["plan"]][e["p"]]
    return after


@unittest.skipIf(CHROMIUM is None, "no chromium")
class StepPage(ProgramTest):
    def make(self, strategies, *more):
        """Returns the document, and the path of the page that holds it."""
        words = self.folder / "words.txt"
        words.write_text("all that is gold does not glitter, not all those who wander are lost. " * 300)
        self.assert_done(self.run_program("psring", "step", "--strategies", strategies, *GPT, *more, "--out", "scene.html"))
        page = self.folder / "scene.html"
        (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.S)
        return json.loads(text), page

    def number(self, browser, pane, name):
        text = browser.run(f"document.querySelector('#pane-{pane} [data-name=\"{name}\"]').dataset.value")
        return int(text) if text else None

    def at(self, browser, pane=0):
        return int(browser.run(f"document.getElementById('pane-{pane}').dataset.at"))

    def click(self, browser, button):
        browser.run(f"document.getElementById('{button}').click()")

    def picture(self, browser):
        return browser.run("[...document.querySelectorAll('.pane')].map((one) => one.outerHTML).join('')")

    def test_numbers_equal_the_scene(self):
        document, page = self.make("ddp,zero1,zero3,ps,ps-async", "--servers", 2, "--steps", 2)
        self.assertLess(page.stat().st_size, MOST_BYTES)
        with Browser() as browser:
            browser.open(page, "lang=en&theme=light")
            for k, scene in enumerate(document["scenes"]):
                with self.subTest(scene["label"]):
                    browser.run(f"(() => {{ const one = document.getElementById('left'); one.value = {k}; one.dispatchEvent(new Event('change')); }})()")
                    self.assertEqual((self.at(browser), self.number(browser, 0, "bytes")), (0, 0))
                    self.click(browser, "to-end")
                    self.assertEqual(self.at(browser), len(scene["events"]))
                    moved = sum(e["bytes"] for e in scene["events"] if e["e"] == "send" and e["exchange"])
                    self.assertEqual(self.number(browser, 0, "bytes"), moved)
                    self.assertEqual(self.number(browser, 0, "predicted"), moved)
                    for p, process in enumerate(scene["processes"]):
                        self.assertEqual(self.number(browser, 0, f"sent.{p}"), sum(process["sent"]))
                        booked = [sum(e["bytes"]) for e in scene["events"] if e["e"] == "memory" and e["p"] == p]
                        self.assertEqual(self.number(browser, 0, f"memory.{p}"), booked[-1])
                        self.assertEqual(self.number(browser, 0, f"peak.{p}"), max(booked))
            self.assertEqual(browser.errors, [])

    def test_tables(self):
        """The rows that a worker has are those of its batch; at the end all bytes are as predicted."""
        self.assert_done(self.run_program("psring", "step", "--strategies", "ps,hybrid", "--workers", 2, "--servers", 2, "--model",
                                          "fm:dense=2,features=3,dim=4", "--data", "criteo-like:samples=1k", "--global-batch", 12, "--out", "scene.html"))
        page = self.folder / "scene.html"
        (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.S)
        with Browser() as browser:
            browser.open(page, "lang=en&theme=light")
            for k, scene in enumerate(json.loads(text)["scenes"]):
                browser.run(f"(() => {{ const one = document.getElementById('left'); one.value = {k}; one.dispatchEvent(new Event('change')); }})()")
                self.click(browser, "to-end")
                moved = sum(e["bytes"] for e in scene["events"] if e["e"] == "send" and e["exchange"])
                self.assertEqual((self.number(browser, 0, "bytes"), self.number(browser, 0, "predicted")), (moved, moved))
                unit = len(scene["units"]) - 1
                titles = [browser.run(f"document.querySelector('#pane-0 [data-cell=\"{place}.{unit}\"] title').textContent")
                          for place in range(len(scene["processes"]))]
                self.assertEqual(titles[0], "worker 0, rows: P rows of the batch; G rows of the batch, not computed yet; OS none; version 2")
                self.assertRegex(titles[2], "server 0, rows: P 1/2; G none, .*; OS none; version 2|server 0, rows: P 1/2; G none, .*; OS 1/2; version 2")
                said = browser.run("document.getElementById('pane-0').textContent")
                self.assertNotIn("undefined", said)
                self.assertNotIn("NaN", said)
            self.assertEqual(browser.errors, [])

    def test_the_table_of_all_scenes(self):
        """The page answers: which memory does each stage save, how often is a unit gathered, what does stage 3 pay?"""
        document, page = self.make("ddp,zero1,zero2,zero3,ps", "--steps", 2, "--optimizer", "adamw")
        with Browser() as browser:
            browser.open(page, "lang=en")
            shown = browser.run("Object.fromEntries([...document.querySelectorAll('#summary [data-name]')].map((one) => [one.dataset.name, Number(one.dataset.value)]))")
            gathers = {}
            for scene in document["scenes"]:
                label = scene["label"]
                most = max((e["bytes"] for e in scene["events"] if e["e"] == "memory" and e["p"] == 0), key=sum)
                categories = ["parameters", "gradients", "optimizer", "activations", "communication"]
                self.assertEqual([shown[f"{label}.0.{one}"] for one in categories], most)
                workers = [one for one in scene["processes"] if one["role"] == "worker"]
                self.assertAlmostEqual(shown[f"{label}.0.sends"], sum(sum(one["sent"]) for one in workers) / len(workers) / 2)
                gathers[label] = shown[f"{label}.0.gathers"]
            self.assertEqual(gathers, {"ddp": 0, "zero1": 1, "zero2": 1, "zero3": 2, "ps": 0})
            self.assertEqual(shown["zero3.0.sends"] / shown["ddp.0.sends"], 1.5)
            said = browser.run("[...document.querySelectorAll('#says li')].map((one) => one.textContent)")
            self.assertEqual([line.split(":")[0] for line in said], ["zero1", "zero2", "zero3", "ps"])
            saved = [shown[f"ddp.0.{one}"] - shown[f"zero3.0.{one}"] for one in ("parameters", "gradients", "optimizer")]
            self.assertIn("a worker keeps less than in ddp: {} of parameters, {} of gradients and {} of optimizer state;".format(*map(written, saved)), said[2])
            self.assertIn(f"keeps less than in ddp: {written(saved[2])} of optimizer state;", said[0])
            self.assertIn(f"it sends as many bytes in a step, {written(shown['ddp.0.sends'])}", said[0])
            self.assertIn(f"it sends 1.5 × the bytes in a step, {written(shown['zero3.0.sends'])} instead of {written(shown['ddp.0.sends'])}: it gathers each "
                          "unit before forward, drops it to save memory, and gathers it again before backward;", said[2])
            events = document["scenes"][3]["events"]
            waited = [e["exposed_ns"] for e in events if e["e"] == "report"]
            self.assertEqual(shown["zero3.0.waits"], sum(waited) / len(waited))
            self.assertIn(f"it waits {shown['zero3.0.waits'] / 1e6:.2f} ms in a step instead of {shown['ddp.0.waits'] / 1e6:.2f} ms.", said[2])
            for which, button, phase in ((1, "zero3.0.gathers", "forward"), (2, "zero3.0.gathers.2", "backward")):
                self.assertEqual(browser.run(f"document.getElementById('{button}').textContent"), f"{phase} →")
                self.click(browser, button)  # leads to the gather
                self.assertEqual(browser.run("document.querySelector('.pane').dataset.label"), "zero3")
                self.assertRegex(browser.run("document.getElementById('what-0').textContent"), f"starts all-gather of .*: number {which} of 2 in this step")
                self.assertIn(f"step 0, {phase} ", browser.run("document.querySelector('#pane-0 h2').textContent"))
            self.assertEqual(browser.run("document.getElementById('zero1.0.gathers').textContent"), "update →")
            for which, at in enumerate([i for i, e in enumerate(events) if e["e"] == "start" and e["name"] == "all_gather" and e["p"] == 0 and e["units"] == [1, 2]][:2], 1):
                browser.open(page, "lang=en")
                browser.run("(() => { const one = document.getElementById('right'); one.value = ''; one.dispatchEvent(new Event('change')); })()")
                browser.run("(() => { const one = document.getElementById('left'); one.value = 3; one.dispatchEvent(new Event('change')); })()")
                browser.run(f"(() => {{ const one = document.getElementById('slider'); one.value = {at + 1}; one.dispatchEvent(new Event('input')); }})()")
                self.assertIn(f"number {which} of 2", browser.run("document.getElementById('what-0').textContent"))
            self.assertEqual(browser.errors, [])

    def test_compares_scenes_with_the_same_options(self):
        """A scene is compared with the first one that has its options; scenes that share a label get labels of their own."""
        document, page = self.make("ddp,zero1", "--steps", 1, "--optimizer", "adamw")
        scenes = self.make("zero1", "--steps", 2, "--optimizer", "adamw")[0]["scenes"] + self.make("ddp,zero3", "--steps", 1)[0]["scenes"]
        document["scenes"] += scenes
        put(document, page)
        with Browser() as browser:
            browser.open(page, "lang=en")
            labels = ["ddp optimizer=adamw", "zero1 steps=1", "zero1 steps=2", "ddp optimizer=sgd", "zero3"]
            self.assertEqual(browser.run("[...document.getElementById('left').options].map((one) => one.textContent)"), labels)
            said = browser.run("[...document.querySelectorAll('#says li')].map((one) => one.textContent)")
            self.assertEqual(len(said), 4)
            self.assertIn("zero1 steps=2: a worker keeps less than in ddp optimizer=adamw: ", said[1])
            self.assertEqual(said[2], "ddp optimizer=sgd: it is not compared with ddp optimizer=adamw, because its options differ: optimizer=sgd.")
            self.assertIn("zero3: a worker keeps less than in ddp optimizer=sgd: ", said[3])
            self.assertNotIn("optimizer state", said[3])
            # Without state of the optimizer, no process shows any.
            browser.run("(() => { const one = document.getElementById('left'); one.value = 4; one.dispatchEvent(new Event('change')); })()")
            self.assertEqual(set(browser.run("[...document.querySelectorAll('#pane-0 [data-cell] title')].map((one) => /OS ([^;]*)/.exec(one.textContent)[1])")), {"none"})
            self.assertEqual(browser.errors, [])

    def test_panes_share_their_scales(self):
        """Memory and bytes of two scenes have one scale, so that the taller curve is the larger; aligned by time, time as well."""
        _, page = self.make("ddp,zero3", "--steps", 1, "--optimizer", "adamw")
        ticks = "[...document.querySelectorAll('.pane')].map((one) => [...one.querySelectorAll('.timeline text[text-anchor={}]')].map((tick) => [tick.textContent, tick.getAttribute('{}')]))"
        with Browser() as browser:
            browser.open(page, "lang=en")
            left, right = browser.run(ticks.format("end", "y"))
            self.assertGreater(len(left), 4)
            self.assertEqual(left, right)
            browser.run("(() => { const one = document.getElementById('align'); one.value = 'time'; one.dispatchEvent(new Event('change')); })()")
            left, right = browser.run(ticks.format("middle", "x"))
            self.assertGreater(len(left), 2)
            self.assertEqual(left, right)

    def test_gradients_that_wait_in_a_server(self):
        """A server has at most one gradient of each worker under bsp, and none of a unit once it has updated the unit."""
        _, page = self.make("ps", "--servers", 2, "--steps", 3)
        with Browser() as browser:
            browser.open(page, "lang=en")
            counts = browser.run("""(() => {
              const found = [], said = [];
              const step = document.getElementById('next-event');
              for (let last = -1; last !== document.getElementById('pane-0').dataset.at; step.click()) {
                last = document.getElementById('pane-0').dataset.at;
                const inCells = [...document.querySelectorAll('#pane-0 [data-cell] text')].map((one) => /^(\\d+) in/.exec(one.textContent)?.[1] ?? 0);
                found.push(Math.max(...inCells));
                const so = /\\((\\d+) so far\\)/.exec(document.getElementById('what-0').textContent);
                if (so) said.push(Number(so[1]));
              }
              return [Math.max(...found), found.at(-1), Math.max(...said)];
            })()""")
            self.assertEqual(counts, [4, 0, 3], "of four workers, of whom the last one's gradient brings the update")
            self.assertEqual(browser.errors, [])

    def test_waits_that_take_no_time(self):
        """The page says how long a wait lasts, and of a wait without length that the result is here."""
        document, page = self.make("zero3", "--steps", 1)
        events = document["scenes"][0]["events"]
        seen = set()
        with Browser() as browser:
            browser.open(page, "lang=en")
            for at, e in enumerate(events):
                if e["e"] != "begin" or e["name"] != "wait":
                    continue
                ended = next(one for one in events[at + 1:] if one["e"] == "end" and one["name"] == "wait" and one["p"] == e["p"])
                lasts = ended["t"] - e["t"]
                if (lasts > 0) in seen:
                    continue
                seen.add(lasts > 0)
                browser.run(f"(() => {{ const one = document.getElementById('slider'); one.value = {at + 1}; one.dispatchEvent(new Event('input')); }})()")
                self.assertIn(f", {lasts / 1e6:.2f} ms." if lasts else "need not wait", browser.run("document.getElementById('what-0').textContent"))
        self.assertEqual(seen, {True, False})

    def test_there_and_back(self):
        document, page = self.make("ddp,zero3", "--steps", 2)
        scene = document["scenes"][0]
        with Browser() as browser:
            browser.open(page, "lang=en&theme=light")
            first = self.picture(browser)
            pictures, places = [first], [(0, 0)]
            for _ in range(30):
                browser.press("ArrowRight")
                pictures.append(self.picture(browser))
                places.append((self.at(browser, 0), self.at(browser, 1)))
            moves = {(now[0] - was[0], now[1] - was[1]) for was, now in zip(places, places[1:])}
            self.assertEqual(moves, {(1, 0), (0, 1)}, "a move stops at each event of both scenes")
            self.assertGreater(min(places[-1]), 0)
            self.click(browser, "to-end")
            last = self.picture(browser)
            self.click(browser, "to-start")
            self.assertEqual(self.picture(browser), first)
            self.click(browser, "to-end")
            self.assertEqual(self.picture(browser), last)
            browser.run("(() => { const one = document.getElementById('slider'); one.value = 30; one.dispatchEvent(new Event('input')); })()")
            for was in reversed(pictures[:-1]):
                browser.press("ArrowLeft")
                self.assertEqual(self.picture(browser), was)
            self.jumps(browser, scene)
            self.phases_agree(browser)
            self.assertEqual(browser.errors, [])

    def jumps(self, browser, scene):
        self.click(browser, "peak")
        booked = [sum(e["bytes"]) for e in scene["events"] if e["e"] == "memory" and e["p"] == 0]
        self.assertEqual(self.number(browser, 0, "memory.0"), max(booked))
        self.click(browser, "wait")
        event = scene["events"][self.at(browser) - 1]
        self.assertIn((event["e"], event["name"]), [("begin", "wait"), ("begin", "acquire")])

    def phases_agree(self, browser):
        """Both panes are in the same phase of the same step, whichever phase the reader goes to."""
        self.click(browser, "to-start")
        seen = set()
        for _ in range(9):
            self.click(browser, "next-phase")
            left, right = browser.run("[...document.querySelectorAll('.pane h2 .quiet')].map((one) => one.textContent.split(' · ')[0])")
            self.assertEqual(left, right)
            seen.add(left)
        self.assertLessEqual({f"step {step}, {phase}" for step in (0, 1) for phase in ("forward", "backward", "update")}, seen)

    def test_looks_and_keys(self):
        """In both languages and themes texts have contrast, and every control is reached; Escape closes what is open."""
        _, page = self.make("ddp,zero3,ps", "--steps", 1)
        for options, width in (("lang=en&theme=light", 1280), ("lang=zh&theme=dark", 390)):
            with self.subTest(options), Browser(width) as browser:
                browser.open(page, options + "&at=60")
                browser.press("c")
                self.assertTrue(browser.run("document.querySelector('#pane-0 svg.plan') !== null"))
                check_contrast(self, browser)
                self.assertLessEqual(browser.run("document.documentElement.scrollWidth"), width)
                if width == 1280:
                    check_keyboard(self, browser)
                browser.press("Escape")
                self.assertTrue(browser.run("document.querySelector('#pane-0 svg.plan') === null"))
                self.click(browser, "predict")
                self.assertTrue(browser.run("document.querySelector('.quiz') !== null"))
                check_contrast(self, browser)
                browser.press("Escape")
                self.assertTrue(browser.run("document.querySelector('.quiz') === null"))
                self.click(browser, "play")
                playing = browser.run("document.getElementById('play').textContent")
                browser.press("Escape")
                self.assertNotEqual(browser.run("document.getElementById('play').textContent"), playing)
                self.assertEqual(browser.errors, [])

    def test_the_quiz(self):
        document, page = self.make("zero3", "--steps", 1)
        events = document["scenes"][0]["events"]
        first = next(i for i, e in enumerate(events) if e["e"] == "send" and e["exchange"])
        with Browser() as browser:
            browser.open(page, "lang=zh")
            self.click(browser, "predict")
            self.assertEqual(self.at(browser), first)
            self.click(browser, "to-end")  # no way leads past the question
            self.assertEqual(self.at(browser), first)
            browser.run(f"document.getElementById('quiz-from').value = {events[first]['p']}; document.getElementById('quiz-to').value = {events[first]['to']}")
            self.click(browser, "quiz-answer")
            self.assertEqual(self.at(browser), first + 1)
            self.assertRegex(browser.run("document.querySelector('#question [role=status]').textContent"), r"^(正确|不对)。")
            self.assertEqual(browser.errors, [])

    def test_faults_and_names(self):
        document, page = self.make("ddp,ps", "--steps", 2, "--fault", "kill:worker:1@step=1", "--max-restarts", 1)
        events = document["scenes"][0]["events"]
        died = next(i for i, e in enumerate(events) if e["e"] == "die")
        document["scenes"][0]["sources"] = [{"file": "ring/a.cpp", "line": 87, "function": NASTY, "text": "die();"}]
        events[died]["source"] = 0
        document["scenes"][0]["label"] = document["scenes"][0]["units"][0]["name"] = document["scenes"][0]["processes"][0]["name"] = NASTY
        put(document, page)
        with Browser(390) as browser:
            browser.open(page, f"lang=en&at={died + 1}")
            self.assertIn("dies", browser.run("document.getElementById('what-0').textContent"))
            self.assertIn(NASTY, browser.run("document.querySelector('#pane-0 h2').textContent"))
            self.assertEqual(browser.run("document.querySelector('#pane-0 .line code').textContent"), f"ring/a.cpp:87 in {NASTY}")
            self.assertEqual(browser.run("document.querySelectorAll('script').length"), 2)
            self.assertLessEqual(browser.run("document.documentElement.scrollWidth"), 390)
            self.click(browser, "to-end")
            self.assertEqual(browser.errors, [])

    def test_a_click_kills_a_process(self):
        document, page = self.make("ddp,ps", "--steps", 2, "--max-restarts", 1)
        faulty, _ = self.make("ddp,ps", "--steps", 2, "--max-restarts", 1, "--fault", "kill:worker:1@step=1")
        for scene, other in zip(document["scenes"], faulty["scenes"]):
            events = other["events"]
            common = next(i for i, (one, two) in enumerate(zip(scene["events"], events)) if one != two)
            scene["runs"] = {"kill worker 1": {
                "process": 1, "step": 1, "events_in_common": common, "events": events[common:], "duration_ns": other["duration_ns"],
                "model_sha256": other["model_sha256"], "sent": [one["sent"] for one in other["processes"]]}}
        put(document, page)
        events = faulty["scenes"][0]["events"]
        died = next(i for i, e in enumerate(events) if e["e"] == "die")
        with Browser() as browser:
            browser.open(page, "lang=en&at=40")
            before = self.picture(browser)
            browser.run("document.getElementById('kill-0-1').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
            self.assertEqual(self.at(browser), died + 1)
            self.assertIn("dies", browser.run("document.getElementById('what-0').textContent"))
            self.click(browser, "to-end")
            self.assertEqual(self.at(browser), len(events))
            self.assertEqual(self.number(browser, 0, "bytes"), sum(e["bytes"] for e in events if e["e"] == "send" and e["exchange"]))
            self.assertEqual(self.at(browser, 1), len(document["scenes"][1]["events"]))
            browser.run("document.getElementById('kill-0-1').focus()")
            browser.press("Enter")
            self.assertEqual(self.at(browser), document["scenes"][0]["runs"]["kill worker 1"]["events_in_common"])
            self.assertFalse(browser.run("document.getElementById('death-0')"))
            browser.press("k")  # kills worker 0, whose death is not recorded
            self.assertIn("--kills", browser.run("document.getElementById('death-0').textContent"))
            self.assertNotIn("dies.", browser.run("document.getElementById('what-0').textContent"))
            self.assertNotEqual(before, self.picture(browser))
            self.assertEqual(browser.errors, [])

    def give(self, browser, name, text, way):
        """Gives the page a file, by the file input or as a drop; waits until the page has read the file."""
        browser.run(f"""(() => {{
          const carried = new DataTransfer();
          carried.items.add(new File([{json.dumps(text)}], {json.dumps(name)}));
          window.seen = document.getElementById('open');
          if ('{way}' === 'drop') return document.dispatchEvent(new DragEvent('drop', {{dataTransfer: carried, cancelable: true}}));
          const input = document.getElementById('file');
          input.files = carried.files;
          return input.dispatchEvent(new Event('change'));
        }})()""")
        browser.run("""new Promise((done) => {
          const look = () => (window.seen.isConnected ? setTimeout(look, 5) : done(1));
          look();
        })""")

    def test_opens_files(self):
        one, _ = self.make("zero1,ps", "--steps", 1)
        other = self.make("zero3", "--steps", 1)[1].read_text()
        _, page = self.make("ddp", "--steps", 1)
        bad = {"cut.json": json.dumps(one)[:-100], "other.json": '{"format": "x"}', "new.json": json.dumps({**one, "version": 2}),
               "none.json": json.dumps({**one, "scenes": []}), NASTY: "<script>alert(1)</script>",
               "events.json": json.dumps({**one, "scenes": [{**one["scenes"][0], "events": [{"e": "die", "t": 0, "p": 9}]}]}),
               "frames.json": json.dumps({**one, "scenes": [{**one["scenes"][0], "units": [None]}]})}
        labels = "[...document.querySelectorAll('.pane')].map((one) => one.dataset.label)"
        with Browser() as browser:
            browser.open(page, "lang=en")
            first = browser.run(labels)
            for name, text in bad.items():
                with self.subTest(name):
                    self.give(browser, name, text, "drop")
                    self.assertIn(name, browser.run("document.getElementById('problem').textContent"))
                    self.assertEqual(browser.run(labels), first)
            self.give(browser, "one.json", json.dumps(one), "input")
            self.assertEqual(browser.run(labels), ["zero1", "ps"])
            self.assertFalse(browser.run("document.getElementById('problem')"))
            self.click(browser, "to-end")
            self.assertEqual(self.at(browser), len(one["scenes"][0]["events"]))
            self.give(browser, "page.html", other, "drop")
            self.assertEqual(browser.run(labels), ["zero3"])
            self.assertEqual(browser.errors, [])

    def test_a_collective_opens_into_its_plan(self):
        document, page = self.make("ddp", "--steps", 2, "--bucket", "1K")
        scene = document["scenes"][0]
        after = add_plans(scene)
        put(document, page)
        chunks = "[...document.querySelectorAll('#pane-0 [data-chunk]')].map((one) => [one.dataset.value, one.dataset.ranks])"
        with Browser() as browser:
            browser.open(page, "lang=en")
            for number, plan in enumerate(scene["plans"]):
                with self.subTest(plan["algorithm"]):
                    at = next(i for i, e in enumerate(scene["events"]) if e.get("plan") == number)
                    browser.run(f"(() => {{ const one = document.getElementById('slider'); one.value = {at + 1}; one.dispatchEvent(new Event('input')); }})()")
                    browser.press("c")
                    seen = [browser.run(chunks)]
                    while not browser.run("document.getElementById('round-next-0').disabled"):
                        browser.press("]")
                        seen.append(browser.run(chunks))
                    self.assertEqual(len(seen), 1 + len(plan["rounds"]) + (plan.get("reduction") == "mean"))
                    told = browser.run("document.getElementById('round-0').textContent")
                    self.assertIn("equal the recorded", told)
                    shown = [float(value) if value else None for value, _ in seen[-1]]
                    for rank, values in enumerate(after[number]):
                        for c, value in enumerate(values):
                            if value is not None:
                                self.assertEqual(shown[4 * rank + c], value)
                    for was in reversed(seen[:-1]):
                        browser.press("[")
                        self.assertEqual(browser.run(chunks), was)
                    browser.press("c")
                    self.assertEqual(browser.run(chunks), [])
            self.assertEqual(browser.errors, [])

    def test_a_step_redraws_only_its_changes(self):
        """A scene of 10,000 events stays quick if a step replaces the few cells that it changes; step_page_timing.py
        measures it."""
        document, page = self.make("zero3", "--steps", 8)
        scene = document["scenes"][0]
        self.assertGreater(len(scene["events"]), 10_000)
        with Browser() as browser:
            browser.open(page, "lang=en&at=5000")
            cells = len(scene["processes"]) * len(scene["units"])
            kept = browser.run("""(() => {
              const kept = [];
              for (let k = 0; k < 60; ++k) {
                const cells = [...document.querySelectorAll('[data-cell]')];
                document.getElementById('next-event').click();
                kept.push(cells.filter((one) => one.isConnected).length);
              }
              return kept;
            })()""")
            self.assertGreaterEqual(min(kept), cells - 2, "an event changes a cell, and ends work on another")
            self.assertEqual(browser.errors, [])


if __name__ == "__main__":
    unittest.main()
