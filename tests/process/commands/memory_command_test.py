"""psring memory: the memory that runs book, the arithmetic of docs/guide/memory.md, and published figures."""

import json
import pathlib
import re
import unittest

from support import ProgramTest

GUIDES = [pathlib.Path(__file__).resolve().parents[3] / "docs/guide" / name for name in ("memory.md", "memory.zh-CN.md")]
SHAPES = {"7": ("7B", 7e9, 32, 4096), "13": ("13B", 13e9, 40, 5120), "70": ("70B", 70e9, 80, 8192)}

USAGE, DATA = 2, 3
GPT = ["--model", "gpt:layers=2,dim=64,heads=4,context=32,vocab=64", "--global-batch", 12, "--optimizer", "adamw"]
MLP = ["--model", "mlp:784-64-10", "--global-batch", 33, "--momentum", "0.9"]
CONV = ["--model", "conv:1x8x8-4c3-p2-r3-d0.2-16-5", "--global-batch", 12, "--optimizer", "adam"]
HALF = ["--precision", "bf16", "--activation-checkpointing", "unit", "--accumulate", 2]
GB, GIB = 1e9, 2**30


class Memory(ProgramTest):
    def calculate(self, *arguments):
        result = self.run_program("psring", "memory", "--json", *arguments)
        self.assert_done(result)
        return json.loads(result.out)

    def test_runs_book_it(self):
        """To the byte, by category, at every worker and server."""
        number = 0
        for options in (GPT, [*GPT, *HALF], MLP, [*CONV, *HALF]):
            for strategy in ("single", "ddp", "zero1", "zero2", "zero3", "ps", "ps-zero2", "ps-zero3", "ps-colocated"):
                with self.subTest(strategy, options=options):
                    number += 1
                    workers = ["--workers", 1 if strategy == "single" else 3, "--data", "synthetic"]
                    self.assert_done(self.train(*options, *workers, "--strategy", strategy, "--steps", 2, "--out", number))
                    (row,) = self.calculate(*options, *workers, "--strategies", strategy)
                    booked = {}
                    summary = json.loads((self.folder / str(number) / "summary.json").read_text())
                    for entry in summary["memory"]:
                        role = entry["role"].split()[0]
                        booked.setdefault(entry["role"], {})[entry["category"]] = entry["peak"]
                        if role == "worker" and "predicted" in entry:
                            self.assertEqual(entry["peak"], entry["predicted"])
                    totals = {role: sum(parts.values()) for role, parts in booked.items() if role.startswith("worker")}
                    most = max(totals, key=totals.get)
                    for category, peak in booked[most].items():
                        self.assertEqual(row["worker"].get(category, 0), peak, (most, category))
                    for role, parts in booked.items():
                        if role.startswith("server") and row["servers"] and strategy != "ps-colocated":
                            for category in row["server"].keys() - {"total"}:
                                self.assertEqual(parts[category], row["server"][category], (role, category))

    def test_rows_of_a_job(self):
        """--table predicts what a job's servers book for rows, and what travels, from the distribution of the keys alone."""
        options = ["--workers", 2, "--servers", 2, "--steps", 100, "--table-optimizer", "rowwise-adagrad"]
        self.assert_done(self.train("--strategy", "hybrid", "--model", "dlrm:dense=4,features=2,dim=16", "--data",
                                    "criteo-like:samples=60k", "--global-batch", 512, *options, "--out", "rows"))
        summary = json.loads((self.folder / "rows" / "summary.json").read_text())
        booked = {}
        for entry in summary["memory"]:
            if entry["role"].startswith("server"):
                booked[entry["category"]] = booked.get(entry["category"], 0) + entry["peak"] / 2
        # The second feature has 1,000,000 ids; the first has 10, whose rows are too few to be seen in 2 MiB.
        many, few = (self.calculate("--table", size, "--lookups", 256, *options) for size in ("1Mx16", "10x16"))
        for category in ("parameters", "optimizer", "gradients", "index"):
            self.assertAlmostEqual(many["server"][category] / booked[category], 1, delta=0.01, msg=category)
        self.assertEqual(many["server"]["communication"] + few["server"]["communication"], booked["communication"])
        (moved,) = (entry["measured"] for entry in summary["bytes"] if entry["role"] == "servers" and entry["direction"] == "received")
        predicted = 2 * 100 * (many["worker_sends"] + few["worker_sends"])
        self.assertAlmostEqual(predicted / moved, 1, delta=0.01)

    def test_strategies_that_train_tables_are_the_default(self):
        job = ["--model", "fm:dense=4,features=2,dim=4", "--data", "criteo-like:samples=1k", "--global-batch", 32]
        self.assertEqual([row["strategy"] for row in self.calculate(*job)], ["single", "ddp", "zero1", "zero2", "ps"])
        self.assert_refused(self.run_program("psring", "memory", *job, "--strategies", "ddp,zero3"), USAGE, "--strategy zero3")

    def test_colocated_servers_of_tables(self):
        """They are the only servers, and the row shows the largest: those of the first ranks own more keys."""
        job = ["--model", "fm:dense=4,features=4,dim=4", "--data", "criteo-like:samples=2k", "--global-batch", 16]
        result = self.run_program("psring", "memory", *job, "--strategies", "hybrid-colocated")
        self.assert_done(result)
        self.assertNotIn("standalone", result.out)
        (row,) = self.calculate(*job, "--strategies", "hybrid-colocated")
        self.assertEqual(row["colocated_server"], row["server"])
        self.assertEqual(row["host"], 2 * row["worker"]["total"] + 2 * row["server"]["total"])

    def test_small_sizes_are_not_zero(self):
        result = self.run_program("psring", "memory", "--parameters", "1K", "--strategies", "single")
        self.assert_done(result)
        self.assertRegex(result.out, "gradients .* 2000 B\n")

    def test_refused_tables(self):
        for arguments, text in ((["--table", "5M"], "--table"), (["--table", "5Mx16"], "--lookups"), (["--lookups", 5], "--table"),
                                (["--table", "5Mx0", "--lookups", 5], "--table"), (["--table", "5Mx16x2", "--lookups", 5], "--table"),
                                (["--table", "5Mx16", "--lookups", "2x2x2"], "--lookups"), (["--zipf", 2], "--table"),
                                (["--table", "5Mx16", "--lookups", 5, "--zipf", 9], "--zipf"),
                                (["--table", "5Mx16", "--lookups", 5, "--momentum", 0.9], "--momentum"),
                                (["--table", "5Mx16", "--lookups", 5, "--limit", "1G"], "--limit"),
                                (["--table", "5Mx16", "--lookups", 5, "--hosts", 2], "--hosts"),
                                (["--table", "5Mx16", "--lookups", 5, "--strategies", "ddp,ps"], "--strategies"),
                                (["--table", "5Mx16", "--lookups", 5, "--context", 9], "--context: needs --layers"),
                                (["--table", "5Mx16", "--lookups", 5, "--parameters", "7B"], "--table")):
            with self.subTest(arguments):
                result = self.run_program("psring", "memory", *arguments)
                self.assertEqual((result.status, result.err.count("\n")), (USAGE, 1), result)
                self.assertIn(text, result.err)

    def totals(self, *arguments):
        return {row["strategy"]: row["worker"]["total"] for row in self.calculate("--parameters", *arguments)}

    def test_published_table(self):
        """Rajbhandari et al. 2020 (arXiv:1910.02054), figure 1: 7.5B parameters, mixed precision, Adam, 64 GPUs."""
        totals = self.totals("7.5B", "--workers", 64, "--strategies", "ddp,zero1,zero2,zero3")
        for strategy, gigabytes in {"ddp": 120, "zero1": 31.4, "zero2": 16.6, "zero3": 1.9}.items():
            self.assertAlmostEqual(totals[strategy] / GB, gigabytes, delta=0.05)

    def test_arithmetic_of_the_guide(self):
        """16 bytes for each parameter; a worker of 8 in stage 3 has an eighth."""
        for text, parameters in {"7B": 7e9, "13B": 13e9, "70B": 70e9}.items():
            totals = self.totals(text, "--workers", 8, "--strategies", "ddp,zero3")
            self.assertEqual(totals, {"ddp": 16 * parameters, "zero3": 2 * parameters})
        # 1 sample x 32 layers x 2048 x 4096 x (34 + 5 x 32 x 2048 / 4096) bytes
        (row,) = self.calculate("--parameters", "7B", "--layers", 32, "--dim", 4096, "--strategies", "ddp")
        self.assertEqual(row["worker"]["activations"]["bytes"], 32 * 2048 * 4096 * (34 + 80))
        # 2 bytes of a moment in 32 bits become 1 byte and a scale for 2,048 values
        totals = self.totals("7B", "--state-bits", 8, "--strategies", "ddp")
        self.assertEqual(totals["ddp"], 7e9 * (2 + 2 + 4) + int(7e9 * 2 * (1 + 4 / 2048)))

    def test_published_table_of_all_sizes(self):
        """Rajbhandari et al. 2020 (arXiv:1910.02054), table 1: GB per GPU of model states in stages 1, 2 and 3."""
        published = {
            "7.5B": {1: (120, 120, 120), 4: (52.5, 41.3, 30), 16: (35.6, 21.6, 7.5), 64: (31.4, 16.6, 1.88), 256: (30.4, 15.4, 0.47),
                     1024: (30.1, 15.1, 0.12)},
            "128B": {1: (2048, 2048, 2048), 4: (896, 704, 512), 16: (608, 368, 128), 64: (536, 284, 32), 256: (518, 263, 8),
                     1024: (513, 257, 2)},
            "1T": {1: (16000, 16000, 16000), 4: (7000, 5500, 4000), 16: (4750, 2875, 1000), 64: (4187, 2218, 250),
                   256: (4046, 2054, 62.5), 1024: (4011, 2013, 15.6)}}
        for parameters, rows in published.items():
            for workers, row in rows.items():
                totals = self.totals(parameters, "--workers", workers, "--strategies", "zero1,zero2,zero3")
                for strategy, gigabytes in zip(("zero1", "zero2", "zero3"), row):
                    digits = len(str(gigabytes).partition(".")[2])
                    self.assertAlmostEqual(totals[strategy] / GB, gigabytes, delta=1.001 * 10 ** -digits, msg=(parameters, workers, strategy))
        # The paper's section 5: 4 times less, 8 times less, and as many times less as there are GPUs, for many of them.
        whole = self.totals("7.5B", "--strategies", "ddp")["ddp"]
        totals = self.totals("7.5B", "--workers", 2048, "--strategies", "zero1,zero2,zero3")
        for strategy, times in {"zero1": 4, "zero2": 8, "zero3": 2048}.items():
            self.assertAlmostEqual(whole / totals[strategy] / times, 1, delta=0.01)

    def test_tables_of_the_guide(self):
        """Every figure of the guide's hand arithmetic, in both languages."""
        number = lambda text: float(text.replace(",", ""))
        for guide in GUIDES:
            lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in guide.read_text().splitlines() if line.startswith("|")]
            seen = 0
            for cells in lines:
                training = re.match(r"(7|13|70) · 10⁹$", cells[0])
                inference = re.match(r"(7|13|70) · 10⁹[,，]", cells[0])
                activations = re.match(r"(7|13|70)B[:：]", cells[0])
                if not (training or inference or activations):
                    continue
                seen += 1
                text, parameters, layers, dim = SHAPES[(training or inference or activations)[1]]
                shape = ["--parameters", text, "--layers", layers, "--dim", dim]
                with self.subTest(guide.name, row=cells[0]):
                    if training:
                        totals = self.totals(text, "--workers", 8, "--strategies", "ddp,zero1,zero2,zero3")
                        self.assertEqual([round(totals[name] / GB, 2) for name in ("ddp", "zero1", "zero2", "zero3")], [number(cell) for cell in cells[1:]])
                    elif inference:
                        for bits, cell in zip((16, 8, 4), cells[1:4]):
                            found = self.calculate(*shape, "--inference", "--context", 4096, "--weight-bits", bits)
                            self.assertEqual(found["weights"]["bytes"] / GB, number(cell))
                        found = self.calculate(*shape, "--inference", "--context", 4096)
                        product, cache = cells[4].removesuffix(" ").split(" B = ")
                        factors = [int(one.replace(",", "")) for one in product.split(" · ")]
                        self.assertEqual(factors, [2, layers, 4096, dim, 2])
                        self.assertEqual(found["KV cache"]["bytes"], 2 * layers * 4096 * dim * 2)
                        self.assertEqual(round(found["KV cache"]["bytes"] / GB, 2), number(cache))
                        self.assertEqual(round(found["total"] / GB, 2), number(cells[5].split(" = ")[1]))
                    else:
                        (whole,) = self.calculate(*shape, "--strategies", "ddp")
                        (less,) = self.calculate(*shape, "--strategies", "ddp", "--activation-checkpointing", "unit")
                        layer = number(re.search(r"= ([\d,.]+) MiB", cells[1])[1]) * 2**20
                        self.assertEqual(layer, 2048 * dim * (34 + 80))
                        self.assertEqual(whole["worker"]["activations"]["bytes"], layers * layer)
                        self.assertEqual(round(layers * layer / GIB, 2), number(cells[2].removesuffix(" GiB")))
                        self.assertEqual(less["worker"]["activations"]["bytes"], layers * 2 * 2048 * dim + layer)
                        self.assertEqual(round(less["worker"]["activations"]["bytes"] / GIB, 3), number(re.search(r"= ([\d.]+) GiB", cells[3])[1]))
            self.assertEqual(seen, 9, guide)

    def test_shared_heads(self):
        """Ainslie et al. 2023 (arXiv:2305.13245): the cache shrinks with the heads of keys and values; Llama 2 70B has 8 of 64."""
        shape = ["--parameters", "70B", "--layers", 80, "--dim", 8192, "--inference", "--context", 4096]
        whole, shared = self.calculate(*shape), self.calculate(*shape, "--kv-heads", 8)
        self.assertEqual(shared["KV cache"]["bytes"], whole["KV cache"]["bytes"] / 8)
        self.assertEqual(round(shared["KV cache"]["bytes"] / GB, 2), 1.34)
        result = self.run_program("psring", "memory", *shape, "--kv-heads", 8, "--weight-bits", 4, "--limit", "80G")
        (fits,) = re.findall(r"most sequences at a time that fit: (\d+)", result.out)
        total = lambda batch: self.calculate(*shape, "--kv-heads", 8, "--weight-bits", 4, "--batch-size", batch)["total"]
        self.assertLessEqual(total(int(fits)), 80 * GIB)
        self.assertGreater(total(int(fits) + 1), 80 * GIB)

    def test_in_chinese(self):
        """The same figures in both languages; JSON and the default do not depend on the locale."""
        for arguments in (["--parameters", "7B", "--layers", 32, "--dim", 4096, "--workers", 8, "--limit", "24G"],
                          ["--parameters", "7B", "--layers", 32, "--dim", 4096, "--inference", "--limit", "24G"],
                          [*GPT, "--workers", 2, "--limit", "8M", "--hosts", 2]):
            with self.subTest(arguments):
                english = self.run_program("psring", "memory", *arguments, env={"LANG": "zh_CN.UTF-8"})
                chinese = self.run_program("psring", "memory", *arguments, "--lang", "zh", env={"LANG": "C"})
                self.assert_done(english)
                self.assert_done(chinese)
                self.assertTrue(english.out.isascii() or "—" in english.out)
                figures = lambda text: sorted(re.findall(r"\d+\.\d+", text))
                self.assertEqual(figures(chinese.out), figures(english.out))
                self.assertRegex(chinese.out, "参数|权重")
                for word in ("fits", "total", "layers", "each", "optimizer", "largest", "params"):
                    self.assertNotIn(word, chinese.out)
                for line in chinese.out.splitlines():
                    self.assertLessEqual(sum(2 if ord(c) > 0x2e7f else 1 for c in line), 80, line)
                self.assertEqual(self.calculate(*arguments, "--lang", "zh"), self.calculate(*arguments))

    def test_inference(self):
        """Weights, 2 x layers x tokens x dim x 2 bytes of cache for each sequence, and a fifth of the weights."""
        shape = {"7B": (7e9, 32, 4096), "13B": (13e9, 40, 5120), "70B": (70e9, 80, 8192)}
        for text, (parameters, layers, dim) in shape.items():
            for bits in (16, 8, 4):
                found = self.calculate("--parameters", text, "--layers", layers, "--dim", dim, "--inference", "--weight-bits",
                                       bits, "--context", 4096, "--batch-size", 2)
                self.assertEqual(found["weights"]["bytes"], parameters * bits / 8)
                self.assertEqual(found["KV cache"]["bytes"], 2 * layers * 4096 * dim * 2 * 2)
                self.assertAlmostEqual(found["overhead"]["bytes"], parameters * bits / 40, delta=1)

    def test_what_fits(self):
        result = self.run_program("psring", "memory", "--parameters", "7B", "--layers", 32, "--dim", 4096, "--workers", 64,
                                  "--strategies", "zero3", "--limit", "80G")
        self.assert_done(result)
        self.assertIn("largest batch of a worker that fits: 2\n", result.out)
        self.assertIn("smallest number of workers that fits: 3\n", result.out)
        result = self.run_program("psring", "memory", *GPT, "--workers", 2, "--strategies", "ddp,zero3", "--limit", "8M")
        self.assert_done(result)
        self.assertEqual(result.out.count("the largest batch of a worker that fits: "), 2)
        for line in result.out.splitlines():
            self.assertLessEqual(len(line), 80, line)

    def test_recommended_jobs_fit(self):
        """The largest process of a recommended job books no more than the limit, and one sample or worker further it would."""
        model = ["--data", "synthetic", "--model", "mlp:512-512-512-10", "--optimizer", "adam"]
        for strategy, limit in (("ps-colocated", "11M"), ("ps", "12M"), ("ps-zero3", "12M"), ("zero1", "11M")):
            with self.subTest(strategy):
                result = self.run_program("psring", "memory", *model, "--workers", 4, "--batch-size", 8, "--strategies", strategy,
                                          "--limit", limit)
                self.assert_done(result)
                text = " ".join(result.out.split())
                batch = int(re.search(r"largest batch of a worker that fits: (\d+)", text)[1])
                workers, each = map(int, re.search(r"smallest number of workers that fits: (\d+) \(--batch-size (\d+)\)", text).groups())
                self.assertEqual(each, 8)
                for name, options in (("batch", ["--workers", 4, "--batch-size", batch]),
                                      ("workers", ["--workers", workers, "--batch-size", each])):
                    folder = f"{strategy}-{name}"
                    self.assert_done(self.train(*model, *options, "--strategy", strategy, "--steps", 2, "--out", folder))
                    summary = json.loads((self.folder / folder / "summary.json").read_text())
                    most = max(summary["worker_peak_bytes"], summary["server_peak_bytes"])
                    self.assertLessEqual(most, int(limit[:-1]) << 20, (name, options))
                    (row,) = self.calculate(*model, *options, "--strategies", strategy)
                    colocated = (row["colocated_server"] or {"total": 0})["total"]
                    self.assertEqual(most, max(row["worker"]["total"] + colocated, row["server"]["total"]), (name, options))

    def test_what_fits_of_a_divided_model(self):
        """Numbers of workers are those of whole copies, and a colocated server's memory is that of the largest part."""
        for options in (["--strategies", "ps,ps-colocated,ddp,zero1", "--pipeline", 2],
                        ["--strategies", "zero3", "--tensor", 2],
                        ["--strategies", "ps", "--servers", "mixed:2", "--pipeline", 2]):
            with self.subTest(options):
                result = self.run_program("psring", "memory", "--data", "synthetic", *options, "--workers", 4, "--model",
                                          "mlp:784-64-10", "--global-batch", 8, "--limit", "1G")
                self.assert_done(result)
                fits = [int(n) for n in re.findall(r"smallest number of workers that fits: (\d+)", result.out)]
                self.assertEqual(len(fits), options[1].count(",") + 1, result.out)
                for workers in fits:
                    self.assertEqual(workers % 2, 0)
        job = ["--strategy", "ps", "--servers", "mixed:2", "--workers", 4, "--pipeline", 2, "--data", "synthetic", "--model",
               "mlp:784-8-512-512", "--global-batch", 8]
        self.assert_done(self.train(*job, "--steps", 2, "--out", "run"))
        (row,) = self.calculate(*[word if word != "--strategy" else "--strategies" for word in job])
        booked = {}
        for entry in json.loads((self.folder / "run" / "summary.json").read_text())["memory"]:
            if entry["role"].startswith("server"):
                booked.setdefault(entry["role"], {})[entry["category"]] = entry["peak"]
        for category in ("parameters", "gradients"):
            self.assertEqual(row["colocated_server"].get(category, 0),
                             max(booked[f"server {rank}"].get(category, 0) for rank in range(2, 6)), category)

    def test_a_model_that_this_host_cannot_hold(self):
        """7B over 64 workers is calculated here in a moment; a launch of all of it on this host is refused."""
        large = ["--model", "gpt:layers=32,dim=4096,heads=32,context=2048,vocab=32000", "--optimizer", "adamw", "--precision",
                 "bf16", "--global-batch", 64, "--workers", 64, "--data", "synthetic"]
        (row,) = self.calculate(*large, "--strategies", "zero3", "--hosts", 16)
        parameters = 64 * row["worker"]["parameters"] / 2
        self.assertAlmostEqual(parameters / 1e9, 6.58, delta=0.05)
        self.assertAlmostEqual(row["worker"]["optimizer"] / (12 * parameters / 64), 1, delta=0.01)
        result = self.train(*large, "--strategy", "zero3", "--steps", 1, "--out", "large")
        self.assert_refused(result, DATA, "--model gpt:", "book ", " GiB of memory; psring memory shows the parts")

    def test_refused(self):
        for words, arguments in {
                ("--limit", "24X"): ["--parameters", "7B", "--limit", "24X"],
                ("--parameters", "seven"): ["--parameters", "seven"],
                ("--layers", "--dim"): ["--parameters", "7B", "--layers", 32],
                ("--inference", "needs --parameters"): ["--inference"],
                ("--lr", "means nothing"): ["--parameters", "7B", "--lr", 1],
                ("--optimizer", "--inference"): ["--parameters", "7B", "--inference", "--optimizer", "adam"],
                ("--weight-bits 5", "4, 8, 16 or 32"): ["--parameters", "7B", "--inference", "--weight-bits", 5],
                ("--lang", "en or zh"): ["--parameters", "7B", "--lang", "fr"],
                ("--kv-heads", "--inference"): ["--parameters", "7B", "--kv-heads", 8],
                ("--kv-heads 5", "divisor"): ["--parameters", "7B", "--layers", 32, "--dim", 4096, "--inference", "--kv-heads", 5],
                ("--kv-heads", "needs --parameters"): ["--kv-heads", 8],
                ("--state-bits 7", "8 or 32"): ["--parameters", "7B", "--state-bits", 7],
                ("--strategies ps", "give a --model"): ["--parameters", "7B", "--strategies", "ps"],
                ("--limit", "> 0"): ["--limit", "0G"],
                ("--parameters", "'1.5'"): ["--parameters", "1.5"],
                ("--parameters", "'0x10'"): ["--parameters", "0x10"],
                ("--parameters", "'inf'"): ["--parameters", "inf"],
                ("--lookups", "needs --table"): ["--parameters", "7B", "--lookups", "x"],
                ("--zipf", "needs --table"): ["--parameters", "7B", "--zipf", 2],
                ("--hosts", "means nothing"): ["--parameters", "7B", "--hosts", 2],
                ("--heads", "--layers"): ["--parameters", "7B", "--heads", 8],
                ("--heads 3", "--dim 4096"): ["--parameters", "7B", "--layers", 32, "--dim", 4096, "--heads", 3],
                ("--heads", "--kv-heads"): ["--parameters", "7B", "--layers", 32, "--dim", 4096, "--heads", 8, "--inference"],
                ("--context", "> 0"): ["--parameters", "7B", "--layers", 32, "--dim", 4096, "--context", 0],
                ("--layers", "16777216"): ["--parameters", "7B", "--layers", 1 << 63, "--dim", 4096],
                ("--weight-bits", "--inference"): ["--parameters", "7B", "--weight-bits", 8],
                ("--state-bits", "--inference"): ["--parameters", "7B", "--inference", "--state-bits", 8],
                ("--strategies", "--inference"): ["--parameters", "7B", "--inference", "--strategies", "no-such"],
                ("--hosts", "4096"): ["--hosts", 1 << 63],
                ("--hosts", "at least one"): ["--hosts", 0]}.items():
            with self.subTest(words):
                self.assert_refused(self.run_program("psring", "memory", *arguments), USAGE, *words)


if __name__ == "__main__":
    unittest.main()
