"""psring report: the page's data equals what the runs recorded, names are data, errors are one line; and, in a headless
Chromium if one is installed, the page draws it."""

import html.parser
import json
import pathlib
import re
import shutil
import subprocess
import unittest

from browser import Browser
from page_checks import check_contrast, check_keyboard, check_saved_figures
from support import LIMIT, TINY, ProgramTest

ROOT = pathlib.Path(__file__).resolve().parents[3]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MOST_BYTES = 1_500_000
NASTY = "x<script>alert(1)<!--"
SECTIONS = ["ran", "cluster", "owners", "loss", "time", "bytes", "memory", "next", "absent"]


def document_of(page):
    """Returns the JSON that the page holds."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.S)
    return json.loads(text)


class Drawn(html.parser.HTMLParser):
    """Collects the sections of a page as a browser drew it, its heading, and unit and text of the cells that name their data."""

    def __init__(self, text):
        super().__init__()
        self.sections, self.cells, self.scripts, self.links, self.heading = [], {}, 0, [], ""
        self.open = None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "section":
            self.sections.append(attributes["id"])
        self.scripts += tag == "script"
        self.links += [attributes[name] for name in ("src", "href") if attributes.get(name)]
        self.open = "h1" if tag == "h1" else None
        if tag == "td" and "data-path" in attributes:
            self.open = (attributes["data-path"], attributes["data-unit"])

    def handle_data(self, data):
        if self.open == "h1":
            self.heading += data
        elif self.open:
            path, unit = self.open
            self.cells[path] = (unit, data)

    def handle_endtag(self, tag):
        self.open = None


class Advice(unittest.TestCase):
    """Every sentence of cli/compare/bound.cpp has its pattern in the page's Chinese."""

    # Texts whose places are not all numbers, as they are printed.
    PRINTED = {
        "{} on {}": "3 threads on 1 processor",
        "other programs took {:.1f} of {}": "other programs took 1.0 of 2 processors",
        "worker {} computes for {} ms a step, the others for {}; {}":
            "worker 1 computes for 2 ms a step, the others for 1; nobody waits",
        "{}; {} {} for {} ms of it": "waits for 1.0 of 2.0 ms; 2 processors work for 3.0 ms of it",
        "uses {} of {} processors: more {}--threads": "uses 1 of 2 processors: more --workers or --threads",
        "fewer --workers{}, or more processors": "fewer --workers or --servers, or more processors",
        "{}--server-threads, or a cheaper --optimizer": "more --server-threads, or a cheaper --optimizer",
        ", a server works for {}": "waits for 1.0 of 2.0 ms, a server works for 3.0",
        "; floors in ms:":
            "computes for 1 of 2 ms; floors in ms: compute 1, slowest worker 1, processors 1, memory 1, worker link 1, "
            "server link 1",
    }
    # Parts of another text above.
    PARTS = {" {}{}", "{} {} {}", " or --servers", "--workers or ", "more --servers or ", "more ", "works", "work", ","}
    SAME = re.compile(r"--[a-z-]+( on| off| block)?|worker|server|ps-async|ps|GPU|MB|GB/s")

    def test_is_translated(self):
        patterns = [
            (re.compile(pattern), re.sub(r"\$(\d)", r"\\\1", chinese))
            for pattern, chinese in re.findall(
                r"^  \[/(.*)/g, \"(.*)\"\],$", (ROOT / "view/web/report/texts/advice.js").read_text(), re.M
            )
        ]
        self.assertGreater(len(patterns), 40)
        code = (ROOT / "cli/compare/bound.cpp").read_text()
        code = re.sub(r'kNames =.*?;|text\.empty\(\) \? "[^"]*" : ","|\bcount_of\([^()]*\)|""', "", code, flags=re.S)
        texts = set(re.findall(r'"((?:[^"\\\n]|\\.)*[a-z,](?:[^"\\\n]|\\.)*)"', code)) - self.PARTS
        self.assertGreater(len(texts), 30)
        for text in texts:
            with self.subTest(text=text):
                printed = self.PRINTED.get(text) or re.sub(r"{[^}]*}", "1.0", text.replace("{:.0f}", "1"))
                for pattern, chinese in patterns:
                    printed = pattern.sub(chinese, printed)
                self.assertNotRegex(self.SAME.sub("", printed), "[a-z]{3}")


class Report(ProgramTest):
    def compare(self, out, *more):
        """Compares, and returns what the program printed."""
        result = self.run_program("psring", "compare", *TINY, "--steps", 12, "--eval-every", 4, "--out", out, *more)
        self.assert_done(result)
        return result.out

    def report(self, *words):
        result = self.run_program("psring", "report", *words)
        self.assert_done(result)
        return result

    def read(self, *path):
        return json.loads(self.folder.joinpath(*path).read_text())

    def test_of_a_comparison(self):
        printed = self.compare("cmp", "--strategies", "single,ddp,zero3,ps", "--workers", 2)
        page = self.folder / "cmp" / "report.html"
        self.assertIn(f"report: {page} (", printed)
        written = page.read_bytes()
        self.assertIn(str(page), self.report("cmp").out)
        self.assertEqual(page.read_bytes(), written)
        self.assertLess(page.stat().st_size, MOST_BYTES)
        document = document_of(page)
        for part in (self.equals_the_records, self.has_owners, self.has_formulas, self.of_one_run):
            with self.subTest(part.__name__):
                part(document)
        with self.subTest("the browser"):
            self.drawn(page, document)

    def equals_the_records(self, document):
        compared = self.read("cmp", "compare.json")
        self.assertEqual([row["label"] for row in document["rows"]], [row["strategy"] for row in compared["rows"]])
        self.assertEqual(document["sources"][0]["command"], compared["command"])
        for row, was in zip(document["rows"], compared["rows"]):
            del was["job"], was["runs"]
            self.assertEqual(row["compare"], was)
            (run,) = row["runs"]
            summary = self.read("cmp", row["label"], "summary.json")
            roles = summary.pop("roles")
            self.assertEqual(run["summary"], summary)
            for worker in run["workers"]:
                for name in ("step_s", "exposed_step_s", "busy_step_s"):
                    self.assertEqual(worker[name], roles[worker["process"]][name])
            lines = [json.loads(line) for line in (self.folder / "cmp" / row["label"] / "metrics.jsonl").read_text().splitlines()]
            own = [line for line in lines if line.get("step") == 3 and "loss" in line]
            mean = sum(line["loss"] * line["samples"] for line in own) / sum(line["samples"] for line in own)
            self.assertAlmostEqual(run["loss"]["loss"][3], mean, delta=1e-5 * mean)
            self.assertEqual(run["loss"]["step"], list(range(12)))
            self.assertEqual(run["evaluations"]["step"], [4, 8, 12])
            self.assertAlmostEqual(run["evaluations"]["test_accuracy"][-1], summary["test_accuracy"], delta=1e-5)
            self.assertEqual(run["manifest"]["job"], self.read("cmp", row["label"], "run.json")["job"])

    def has_owners(self, document):
        owners = {row["label"]: row["ownership"] for row in document["rows"]}
        whole = {"parameters": "whole", "gradients": "whole", "optimizer": "whole"}
        self.assertEqual((owners["single"]["workers"], owners["single"]["worker"]), (1, whole))
        self.assertEqual((owners["ddp"]["workers"], owners["ddp"]["worker"]), (2, whole))
        self.assertEqual((owners["zero3"]["parts"], owners["zero3"]["worker"]["optimizer"]), (2, "range"))
        self.assertEqual((owners["ps"]["worker"]["optimizer"], owners["ps"]["server"]["optimizer"]), ("none", "range"))

        units = [unit["name"] for unit in owners["zero3"]["units"]]
        self.assertEqual(units, ["layers.0", "layers.1"])
        self.assertEqual([unit["elements"] % 512 for unit in owners["zero3"]["units"]], [0, 0])

    def has_formulas(self, document):
        """Every worker's and the servers' bytes have a formula that gives the prediction."""
        texts = {}
        for row in document["rows"]:
            (run,) = row["runs"]
            self.assertEqual(len(run["formulas"]), len(run["summary"]["bytes"]))
            for formula, check in zip(run["formulas"], run["summary"]["bytes"]):
                self.assertEqual(formula["a_step"] * formula["steps"], check["predicted"])
                self.assertEqual(check["measured"], check["predicted"])
                texts[row["label"], check["role"].rstrip(" 01"), check["direction"]] = formula["text"]
                value = formula["text"]
                for name in ("Mg", "Mp", "n", "A"):
                    value = re.sub(rf"\b{name}\b", str(formula["values"][name]), value)
                value = re.sub(r"(\d)\(", r"\1*(", value).replace("−", "-").replace("·", "*")
                self.assertEqual(eval(value), formula["a_step"], formula["text"])
        self.assertEqual(texts["ddp", "worker", "sent"], "2(n − 1)/n · Mg")
        self.assertEqual(texts["zero3", "worker", "received"], "(n − 1)/n · (Mg + 2 · Mp)")
        self.assertEqual((texts["ps", "worker", "sent"], texts["ps", "servers", "sent"]), ("Mg", "n · Mp"))

    def of_one_run(self, document):
        """Runs of several folders in one page: the same rows, without what compare adds."""
        self.report("cmp/ddp", "cmp/ps", "cmp", "--out", "some.html")
        rows = document_of(self.folder / "some.html")["rows"]
        self.assertEqual([row["label"] for row in rows], ["ddp (ddp)", "ps (ps)", "single", "ddp (cmp)", "zero3", "ps (cmp)"])
        self.assertIsNone(rows[0]["compare"])
        self.assertEqual(rows[0]["runs"][0]["summary"], document["rows"][1]["runs"][0]["summary"])

    def drawn(self, page, document, sections=SECTIONS):
        """Compares the page with its data: each cell that names its place shows the number there."""
        shown = self.open_in_browser(page, "lang=en")
        self.assertEqual(shown.sections, sections)
        self.assertGreater(len(shown.cells), 40)
        for path, cell in shown.cells.items():
            value = document
            for name in path.split("."):
                value = value[int(name)] if isinstance(value, list) else (value or {}).get(name)
            self.equal_as_text(path, cell, value)
        self.assertEqual([link for link in shown.links if not link.startswith("#")], [])
        self.assertEqual(self.open_in_browser(page, "lang=zh&theme=dark").sections, sections)
        return shown

    def equal_as_text(self, path, shown, value):
        """The cell shows the value, rounded to the digits that it shows."""
        unit, text = shown
        if text == "—":
            return self.assertIn(value, (None, 0), path)
        number, _, suffix = text.replace(",", "").partition(" ")
        if isinstance(value, int) and not suffix and not unit:
            return self.assertEqual(int(number), value, path)
        scale = {"ms": 1e-3, "": 1}[unit] * {"": 1, "%": 0.01, "B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}[suffix]
        digits, _, exponent = number.partition("e")
        rounding = 0.5001 * 10 ** (int(exponent or 0) - len(digits.partition(".")[2]))
        self.assertLessEqual(abs(float(number) - value / scale), rounding, (path, text, value))
        return None

    def open_in_browser(self, page, options):
        """Returns the drawn page. An error of the script would leave a page without sections."""
        if CHROMIUM is None:
            self.skipTest("no chromium")
        # The flags keep the browser from the network; --no-sandbox is for root, in containers.
        result = subprocess.run(
            [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr",
             f"--user-data-dir={self.folder / 'profile'}", "--window-size=1280,900", "--dump-dom", f"{page.resolve().as_uri()}#{options}"],
            capture_output=True, text=True, timeout=LIMIT, env=self.environment, cwd=self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual([line for line in result.stderr.splitlines() if "CONSOLE" in line], [])
        return Drawn(result.stdout)

    def test_of_meshes(self):
        """The groups of a mesh, the units of its stages, and the bubble as the run measured it."""
        self.compare("cmp", "--strategies", "ddp,pp:2:1f1b,tp:2,pp:2+zero1", "--workers", 4, "--accumulate", 2)
        page = self.folder / "cmp" / "report.html"
        document = document_of(page)
        rows = {row["label"].split()[0]: row for row in document["rows"]}
        self.assertNotIn("mesh", rows["ddp"]["ownership"])
        for label, (data, tensor, pipeline, parts) in {"pp:2:1f1b": (1, 1, 2, 1), "tp:2": (1, 2, 1, 1), "pp:2+zero1": (2, 1, 2, 2)}.items():
            own = rows[label]["ownership"]
            self.assertEqual((own["mesh"], own["parts"]), ({"data": data, "tensor": tensor, "pipeline": pipeline}, parts))
            stages = [unit["stages"] for unit in own["units"]]
            self.assertEqual(sorted({stage for unit in stages for stage in unit}), list(range(pipeline)))
            self.assertEqual(stages, sorted(stages))
            workers = rows[label]["runs"][0]["workers"]
            self.assertEqual(["bubble" in worker for worker in workers], [pipeline > 1] * len(workers))
            if pipeline > 1:
                measured = rows[label]["runs"][0]["summary"]["pipeline"]
                self.assertAlmostEqual(measured["bubble"], sum(worker["bubble"]["median"] for worker in workers) / len(workers), places=6)
                self.assertAlmostEqual(measured["predicted_bubble"], 1 / 3, places=6)
        self.drawn(page, document, ["ran", "cluster", "owners", "mesh", *SECTIONS[3:]])

    def test_of_servers_in_workers(self):
        """The system counts memory by process: a server within a worker's process has none of its own."""
        self.compare("cmp", "--strategies", "ps-colocated", "--workers", 2)
        (row,) = document_of(self.folder / "cmp" / "report.html")["rows"]
        log = row["runs"][0]["memory_log"]
        self.assertEqual([one for one in log["server 0"]["rss"] if one is not None], [])
        self.assertTrue(all(log["worker 0"]["rss"]))

    def test_of_tables(self):
        """The rows of each server, the keys with the most updates, and the different keys of batches are those of the run."""
        job = ["--model", "dlrm:dense=4,features=6,dim=8,bottom=16-8,top=16-1", "--data", "criteo-like:samples=2k", "--global-batch", 36,
               "--steps", 6, "--eval-every", 2, "--table-optimizer", "adagrad"]
        for strategy, owners in (("ps", 3), ("hybrid-async", 3), ("single", 1)):
            with self.subTest(strategy):
                workers = ["--workers", 2, "--servers", owners] if strategy != "single" else []
                self.assert_done(self.run_program("psring", "train", "--strategy", strategy, *workers, *job, "--out", strategy))
                self.report(strategy)
                page = self.folder / strategy / "report.html"
                document = document_of(page)
                (run,) = document["rows"][0]["runs"]
                (table,) = run["tables"]
                self.assertEqual((table["name"], table["fused"], len(table["owners"])), ("rows", True, owners))
                with open(self.folder / strategy / "model.safetensors", "rb") as file:
                    (saved,) = json.loads(file.read(int.from_bytes(file.read(8), "little")))["rows.keys"]["shape"]
                self.assertEqual(sum(owner["rows"] for owner in table["owners"]), saved)
                lookups = 36 * 6 * 6 // len(table["workers"])
                self.assertEqual([(one["batches"], one["lookups"]) for one in table["workers"]], [(6, lookups)] * len(table["workers"]))
                asked = {one["process"]: 8 * one["keys"] for one in table["workers"]}
                if owners > 1:
                    moved = {process: sum(line[3] for line in run["traffic"] if line[0] == process and line[2] == "rows_pull") for process in asked}
                    self.assertEqual(moved, asked)  # evaluations and saving are start-up
                summary = json.loads((self.folder / strategy / "summary.json").read_text())
                self.assertEqual(run["evaluations"]["step"], [2, 4, 6])
                self.assertAlmostEqual(run["evaluations"]["test_auc"][-1], summary["own"]["test_auc"], delta=1e-5)
                hot = [row["updates"] for row in table["hot"]]
                self.assertEqual((len(hot), hot), (16, sorted(hot, reverse=True)))
                ranked = [(-row["updates"], row["key"]) for row in table["hot"]]
                self.assertEqual(ranked, sorted(ranked))
                self.assertEqual(hot[0], 6 if strategy != "hybrid-async" else 12)  # a feature of 10 values is in each batch
                sections = [one for one in SECTIONS if one != "cluster"]
                sections.insert(sections.index("memory") + 1, "tables")
                if strategy == "hybrid-async":
                    sections.insert(sections.index("tables") + 1, "asynchrony")
                self.assertIn("rows.0.runs.0.summary.own.test_auc", self.drawn(page, document, sections).cells)

    def test_of_a_model_without_a_metric(self):
        """Its quality is the test loss."""
        self.assert_done(self.run_program("psring", "train", "--strategy", "single", "--model", "mse-mlp:8-8-2", "--data", "synthetic", "--global-batch", 8,
                                          "--steps", 6, "--eval-every", 2, "--out", "run"))
        self.report("run")
        page = self.folder / "run" / "report.html"
        (row,) = document_of(page)["rows"]
        self.assertEqual(row["runs"][0]["evaluations"]["step"], [2, 4, 6])
        if CHROMIUM:
            with Browser() as browser:
                browser.visit(page.as_uri() + "#lang=en")
                self.assertIn("Test loss over steps", browser.run("document.getElementById('quality-steps').textContent"))
                self.assertEqual(browser.errors, [])

    def test_of_a_trace(self):
        self.compare("cmp", "--strategies", "zero3,ps", "--workers", 2, "--trace", "on", "--link", "1gbit")
        page = self.folder / "cmp" / "report.html"
        arrows = 0  # of both rows: frames may leave before the step that is shown, and arrive after it
        for row in document_of(page)["rows"]:
            trace = row["runs"][0]["trace"]
            self.assertEqual([worker["steps"] for worker in trace["workers"]], [12, 12])
            for worker in trace["workers"]:
                self.assertGreater(worker["forward_s"], 0)
                self.assertLessEqual(worker["hidden_s"], worker["in_flight_s"])
                self.assertLessEqual(worker["in_flight_s"], worker["step_s"])
            self.assertEqual({"forward", "backward", "wait"} - {slice[1] for slice in trace["slices"]}, set())
            arrows += len(trace["arrows"])
            for _, left, _, arrived in (arrow[1:] for arrow in trace["arrows"]):
                self.assertLessEqual(left, arrived)
            events = (self.folder / "cmp" / row["label"] / "trace.json").read_text()
            self.assertEqual(len(re.findall(r'"name":"step","ph":"X"', events)), 24)
            held = trace["whole_units"]
            self.assertEqual(sorted(held), ["worker 0", "worker 1"] if row["label"] == "zero3" else [])
        self.drawn(page, document_of(page), ["ran", "cluster", "owners", "loss", "time", "timeline", "bytes", "memory", "next", "absent"])
        self.assertGreater(arrows, 0)
        self.waits(document_of(page))
        self.figures(page, {"waits", "timeline-step", "memory-within-0", "step-parts", "flows", "owned-ranges"})

    def waits(self, document):
        """A worker of a ring waits for its neighbour, one with servers for these; a server waits for workers."""
        ring, servers = [row["runs"][0]["trace"] for row in document["rows"]]
        for trace in (ring, servers):
            sums = {worker["process"]: 0 for worker in trace["workers"]}
            for process, peer, seconds in trace["waits"]:
                self.assertNotEqual(process, peer)
                self.assertGreaterEqual(seconds, 0)
                if process in sums:
                    sums[process] += seconds
            self.assertEqual([process for process, seconds in sums.items() if seconds == 0], [])
        self.assertLessEqual({("worker 0", "worker 1"), ("worker 1", "worker 0")}, {(process, peer) for process, peer, _ in ring["waits"]})
        self.assertEqual({peer for process, peer, _ in servers["waits"] if process.startswith("worker")}, {""})

    def test_of_workers_that_sleep(self):
        """Steps without details count neither in the times of a step nor in the waits."""
        self.assert_done(self.run_program("psring", "train", "--strategy", "ps", "--workers", 2, *TINY, "--steps", 40, "--compute", "sleep:5ms",
                                          "--fault", "slow:worker:1=10x", "--events", "on", "--out", "run"))
        self.report("run")
        trace = document_of(self.folder / "run" / "report.html")["rows"][0]["runs"][0]["trace"]
        self.assertEqual([worker["steps"] for worker in trace["workers"]], [13, 13])  # the first ten, and every tenth
        self.assertGreater(trace["workers"][0]["waiting_s"], 0.02)
        self.assertGreater(max(seconds for process, _, seconds in trace["waits"] if process == "worker 0"), 0.02)

    def test_of_stages(self):
        self.assert_done(self.run_program("psring", "train", "--strategy", "zero1", "--workers", 2, "--pipeline", 2, "--accumulate", 2, *TINY,
                                          "--steps", 4, "--events", "on", "--out", "run"))
        self.report("run")
        trace = document_of(self.folder / "run" / "report.html")["rows"][0]["runs"][0]["trace"]
        self.assertIn(("worker 0", "stage 1"), {(process, peer) for process, peer, _ in trace["waits"]})
        self.assertEqual({peer for _, peer, _ in trace["waits"]} - {"stage 0", "stage 1", "worker 0", "worker 1", ""}, set())

    def figures(self, page, some):
        """In both languages and themes every figure can be saved, every text read, and every control reached."""
        if CHROMIUM is None:
            self.skipTest("no chromium")
        for options in ("lang=en&theme=light", "lang=zh&theme=dark"):
            for width in (390, 1280):
                with self.subTest(options, width=width), Browser(width) as browser:
                    browser.open(page, options)
                    self.assertLessEqual(some, set(check_saved_figures(self, browser, len(some))))
                    browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
                    check_contrast(self, browser)
                    self.assertLessEqual(browser.run("document.documentElement.scrollWidth"), width)
                    if width == 1280:
                        check_keyboard(self, browser)
                    self.assertEqual(browser.errors, [])

    def test_of_a_sweep(self):
        self.compare("cmp", "--strategies", "ddp,zero1,ps", "--workers", "1,2", "--servers", "1,n", "--optimizer", "adam",
                     "--link", "1gbit")
        page = self.folder / "cmp" / "report.html"
        document = document_of(page)
        rows = {row["strategy"]: row for row in self.read("cmp", "compare.json")["rows"]}
        sweeps = {sweep["option"]: sweep for sweep in document["sweeps"]}
        self.assertEqual(sorted(sweeps), ["servers", "workers"])
        series = {one["label"]: one for one in sweeps["workers"]["series"]}
        self.assertEqual(sorted(series), ["ddp", "ps s=1", "ps s=n", "zero1"])
        for label, one in series.items():
            for workers, step in zip(one["value"], one["step_s"]):
                strategy, _, servers = label.partition(" ")
                name = f"{strategy} n={workers} {servers}".rstrip().replace("s=n", f"s={workers}")
                self.assertEqual(step, rows[name]["step_s"]["median"])
        memory = series["zero1"]["memory"]
        self.assertEqual(memory["measured"], memory["predicted"])
        self.assertEqual(memory["ratio"], 2)  # Adam in f32: 4 + 4 bytes are whole, 8 are divided
        self.assertEqual(series["ddp"]["memory"]["ratio"], 1)
        self.drawn(page, document, ["ran", "cluster", "owners", "loss", "time", "bytes", "memory", "sweeps", "next", "absent"])

    def test_of_asynchrony(self):
        self.assert_done(self.run_program("psring", "train", *TINY, "--strategy", "ps-async", "--steps", 200,
                                          "--workers", 3, "--out", "async"))
        self.report("async")
        page = self.folder / "async" / "report.html"
        document = document_of(page)
        (run,) = document["rows"][0]["runs"]
        self.assertEqual(run["summary"]["staleness"], self.read("async", "summary.json")["staleness"])
        self.assertLessEqual(max(len(one["step"]) for one in run["staleness"].values()), 200)
        self.drawn(page, document, ["ran", "owners", "loss", "time", "bytes", "memory", "asynchrony", "next", "absent"])
        self.assertEqual(sorted(run["lag"]), ["worker 0", "worker 1", "worker 2"])
        for one in run["lag"].values():
            self.assertEqual(len(one["time_s"]), len(one["lag"]))
            self.assertEqual(one["time_s"], sorted(one["time_s"]))
            self.assertLess(max(one["lag"]), 200)
        with self.subTest("the browser"):
            self.figures(page, {"lag", "staleness", "staleness-steps"})

    def test_names_are_data(self):
        self.compare(NASTY, "--strategies", "single")
        self.report(NASTY, "--out", "nasty.html")
        page = self.folder / "nasty.html"
        self.assertNotIn("alert(1)<", page.read_text())
        self.assertEqual(page.read_text().count("<script"), 2)
        document = document_of(page)
        self.assertEqual(document["sources"][0]["name"], NASTY)
        shown = self.open_in_browser(page, "lang=en")
        self.assertEqual((shown.heading, shown.scripts), (f"psring report: {NASTY}", 2))

    def test_of_a_loss(self):
        self.assert_done(self.run_program("psring", "train", *TINY, "--strategy", "ddp", "--steps", 900, "--workers", 2,
                                          "--max-restarts", 1, "--fault", "kill:worker:1@step=20", "--out", "lost"))
        self.report("lost")
        (row,) = document_of(self.folder / "lost" / "report.html")["rows"]
        (run,) = row["runs"]
        lines = [json.loads(line) for line in (self.folder / "lost" / "recoveries.jsonl").read_text().splitlines()]
        self.assertEqual(run["recoveries"], lines)
        self.assertEqual((run["loss"]["steps"], run["loss"]["step"][-1]), (900, 899))
        self.assertLessEqual(len(run["loss"]["step"]), 400)
        self.assertEqual(run["loss"]["time_s"], sorted(run["loss"]["time_s"]))
        with self.subTest("the browser"):
            page = self.folder / "lost" / "report.html"
            self.assertIn("recoveries", self.open_in_browser(page, "").sections)
            self.recovers_in_seconds(page, run)

    def recovers_in_seconds(self, page, run):
        """The line of seconds marks the loss between the steps before and after it; the commands leave out the fault."""
        step, time = run["loss"]["step"], run["loss"]["time_s"]
        after = next(i for i, one in enumerate(step) if one >= run["recoveries"][-1]["step"])
        with Browser() as browser:
            browser.open(page, "lang=en&theme=light")
            line, band = browser.run("""['line', 'rect'].map((tag) => {
              const one = document.querySelector(`#recovery-seconds ${tag}`);
              return Object.fromEntries([...one.attributes].map((attribute) => [attribute.name, Number(attribute.value)]));
            })""")
            commands = browser.run("[...document.querySelectorAll('#next pre')].map((one) => one.textContent)")
            reasons = browser.run("[...document.querySelectorAll('#next p')].map((one) => one.textContent)")
            self.assertEqual(browser.errors, [])
        scale = (line["x2"] - line["x1"]) / time[-1]
        self.assertAlmostEqual((band["x"] - line["x1"]) / scale, time[after - 1], delta=1e-3 * time[-1])
        self.assertAlmostEqual(band["width"] / scale, time[after] - time[after - 1], delta=2 / scale)
        self.assertEqual([word for command in commands for word in command.split() if word in ("--fault", "--out")], [])
        self.assertIn(" compare --strategies ddp,ps,ps-async ", commands[-1])
        self.assertEqual(reasons[0], run["summary"]["bound"]["because"])

    def test_of_a_run_that_did_not_end(self):
        self.compare("cut", "--strategies", "single")
        run = self.folder / "cut" / "single"
        (run / "summary.json").unlink()
        with (run / "metrics.jsonl").open("a") as metrics:
            metrics.write('{"step":12,"wor')  # its process was killed
        self.report("cut/single")
        document = document_of(run / "report.html")
        self.assertFalse(document["sources"][0]["ended"])
        self.assertEqual(len(document["rows"][0]["runs"][0]["loss"]["step"]), 12)
        with self.subTest("the browser"):
            self.assertEqual(self.open_in_browser(run / "report.html", "").sections, ["ran", "owners", "loss", "absent"])

    def test_of_what_is_no_run(self):
        self.assert_refused(self.run_program("psring", "report"), 2, "RUN")
        self.assert_refused(self.run_program("psring", "report", "nowhere"), 3, "nowhere: no such folder")
        (self.folder / "empty").mkdir()
        self.assert_refused(self.run_program("psring", "report", "empty"), 3, "empty: holds no run")
        self.compare("bad", "--strategies", "single")
        run = self.folder / "bad" / "single"
        for name, text, words in (
            ("metrics.jsonl", '{"step":0,"loss":1}\n', "metrics.jsonl:1: is not a line that psring writes"),
            ("metrics.jsonl", "{}\n{}\nno\n{}\n", "metrics.jsonl:3: is not a JSON object"),
            ("memory.jsonl", "[]\n", "memory.jsonl:1: is not a JSON object"),
            ("summary.json", '{\n "steps": 3,\n oh\n}', "summary.json:3: is not JSON"),
            ("summary.json", "", "summary.json: is empty"),
            ("run.json", '{"job": {}}', "run.json: is not what psring writes"),
        ):
            with self.subTest(words):
                whole = (run / name).read_bytes()
                (run / name).write_text(text)
                self.assert_refused(self.run_program("psring", "report", "bad"), 3, words)
                (run / name).write_bytes(whole)
        self.assert_refused(self.run_program("psring", "report", "bad", "--out", "no/such/r.html"), 3, "no/such/r.html")


if __name__ == "__main__":
    unittest.main()
