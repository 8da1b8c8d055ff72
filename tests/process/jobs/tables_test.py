"""Tables: rows by 64-bit keys in one process and on servers, as users run them."""

import csv
import json
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import unittest

from support import ProgramTest, until

JOB = ["--model", "dlrm:dense=4,features=6,dim=8,bottom=16-8,top=16-1", "--data", "criteo-like:samples=3k", "--global-batch", 60,
       "--steps", 12, "--seed", 3, "--table-optimizer", "adagrad", "--table-lr", 0.1]


def tensors(data):
    """The header of a safetensors file, and the file's data."""
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:8 + length]), data[8 + length:]


class Tables(ProgramTest):
    def summary(self, run):
        return json.loads((self.folder / run / "summary.json").read_text())

    def test_servers_give_the_bits_of_one_process(self):
        result = self.train("--strategy", "single", "--virtual-workers", 2, *JOB, "--eval-every", 6, "--out", "single")
        self.assert_done(result)
        self.assertIn("table 'rows': rows of 8 elements, adagrad (lr 0.1)", result.out)
        for number, flags in enumerate((["--servers", 1], ["--servers", 3, "--transport", "tcp"], ["--servers", 2, "--link", "1gbit"],
                                            ["--placement", "colocated"])):
            run = f"ps{number}"
            done = self.train("--strategy", "ps", "--workers", 2, *flags, *JOB, "--eval-every", 6, "--out", run)
            self.assert_done(done)
            self.assertEqual(self.model(run), self.model("single"), flags)
            self.assertEqual(re.search(r", test auc (\S+);", done.out)[1], f"{self.summary(run)['own']['test_auc']:.4f}")
            summary = self.summary(run)
            for check in summary["bytes"]:
                self.assertEqual(check["measured"], check["predicted"], check)
            for check in summary["memory"]:
                if check.get("predicted") is not None:
                    self.assertEqual(check["peak"], check["predicted"], check)
            index = {check["role"]: check for check in summary["memory"] if check["category"] == "index"}
            self.assertGreater(index["server 0"]["peak"], 0)
            self.assertEqual(index["server 0"]["peak"], index["server 0"]["predicted"])
        header, data = tensors(self.model("single"))
        rows = header["rows.keys"]["shape"][0]
        self.assertEqual((header["rows.keys"]["dtype"], header["rows.values"]["shape"]), ("U64", [rows, 8]))
        begin, end = header["rows.keys"]["data_offsets"]
        keys = struct.unpack(f"<{rows}Q", data[begin:end])
        self.assertEqual(len(set(keys)), rows)
        self.assertLessEqual({key >> 56 for key in keys}, set(range(6)))
        lines = [json.loads(line) for line in (self.folder / "ps1" / "metrics.jsonl").read_text().splitlines()]
        evaluations = [line for line in lines if "test_loss" in line]
        self.assertEqual([(line["step"], line["worker"], line["test_rows"]) for line in evaluations], [(6, 0, 300), (12, 0, 300)])
        for line in evaluations:
            self.assertTrue(0.3 < line["own"]["test_auc"] < 1, line)

    def test_compare(self):
        result = self.run_program("psring", "compare", "--strategies", "single,ps,ps-colocated,hybrid,hybrid-colocated", "--workers", 3, "--servers", "1,2", *JOB,
                                  "--table-type", "bf16", "--accumulate", 2, "--table-lookahead", "0,1", "--out", "cmp")
        self.assert_done(result)
        self.assertRegex(result.out, r"equal +auc +bound by")
        self.assertIn("auc: the model's own metric over the test samples.", result.out)
        with open(self.folder / "cmp" / "compare.csv", newline="") as file:
            last = [row["test_auc"] for row in csv.DictReader(file) if row["test_auc"]]
        self.assertEqual(len(last), 17)  # at the end of each run
        self.assertEqual(float(last[0]), json.loads((self.folder / "cmp" / "compare.json").read_text())["rows"][0]["runs"][0]["own"]["test_auc"])
        table = re.search(r"\nstrategy .*\n-+\n((?:.+\n)+?)cluster:", result.out)[1].splitlines()
        self.assertEqual(sum(" = " in line for line in table), 16, result.out)
        self.assertNotIn("✗", "".join(table))

    def test_the_best_result_of_generated_data_is_printed(self):
        job = ["--model", "fm:dense=4,features=6,dim=8", *JOB[2:]]
        result = self.train("--strategy", "ps", "--workers", 2, "--servers", 2, *job, "--out", "fm")
        self.assert_done(result)
        best = re.search(r"--data criteo-like:samples=3k: the true probabilities rank the test set with an AUC of (0\.\d+)", result.out)
        self.assertTrue(0.75 < float(best[1]) < 0.9, result.out)
        self.assertLess(self.summary("fm")["own"]["test_auc"], float(best[1]) + 0.002)

    def test_files_of_samples_with_keys(self):
        lines = [f"{i % 2}\t{i}\t{i % 7:x}\t{i % 3:x}\n" for i in range(40)]
        (self.folder / "clicks").write_text("".join(lines))
        job = ["--model", "fm:dense=1,features=2,dim=4", "--data", "criteo:clicks", "--global-batch", 6, "--steps", 6, "--seed", 3]
        self.assert_done(self.train("--strategy", "single", "--virtual-workers", 2, *job, "--out", "single"))
        self.assert_done(self.train("--strategy", "hybrid", "--workers", 2, "--servers", 2, *job, "--out", "hybrid"))
        self.assertEqual(self.model("hybrid"), self.model("single"))
        lines_of_metrics = map(json.loads, (self.folder / "single" / "metrics.jsonl").read_text().splitlines())
        self.assertEqual([line["test_rows"] for line in lines_of_metrics if "test_loss" in line], [4])
        (self.folder / "clicks").write_text("".join(lines[:30]) + "1\t2\t100000000000000\t1\n")
        self.assert_refused(self.train("--strategy", "single", *job), 3, "clicks: line 31, column 3: the key 100000000000000 has more than 56 bits")
        (self.folder / "clicks").write_text("".join(lines[:3]) + "1\tx\t1\t1\n")
        self.assert_refused(self.train("--strategy", "single", *job), 3, "clicks: line 4, column 2: 'x' is not a number")
        (self.folder / "clicks").write_text("".join(lines))
        self.assert_refused(self.train("--strategy", "single", *job[:2], "--data", "pairs:clicks", *job[4:]), 3, "does not fit --model fm")

    def test_words_and_their_categories(self):
        animals, plants = ["cat", "dog", "cow"], ["oak", "elm", "fern"]
        rng = random.Random(1)
        verses = [" ".join(rng.choice(kind) for _ in range(6)) for _ in range(200) for kind in (animals, plants)]
        (self.folder / "verses.txt").write_text("\n".join(verses) + "\n")
        (self.folder / "nouns.tsv").write_text("".join(f"{word}\t{kind}\n" for kind, words in (("animal", animals), ("plant", plants))
                                                       for word in words) + "unicorn\tanimal\n")
        self.assert_done(self.train("--strategy", "ps", "--workers", 2, "--model", "skip-gram:dim=8,negatives=3", "--data",
                                    "skip-gram:verses.txt,window=3", "--global-batch", 64, "--steps", 200, "--table-optimizer", "adagrad",
                                    "--table-lr", 0.1, "--out", "words"))
        script = pathlib.Path(__file__).parents[3] / "scripts" / "word-neighbours"
        result = subprocess.run([script, self.folder / "words" / "model.safetensors", self.folder / "nouns.tsv", "cat"],
                                capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        first, second = result.stdout.splitlines()
        self.assertEqual(first, "6 nouns: precision@10 0.200, by chance 0.400")  # of five others, two are of a noun's kind
        self.assertEqual(set(second.split()[1:3]), {"dog", "cow"})
        (self.folder / "few.tsv").write_text("cat\tanimal\n")
        for model, nouns, text in (("nowhere", "nouns.tsv", "nowhere: not a saved model of skip-gram"), ("nouns.tsv", "nouns.tsv", "not a saved model"),
                                   ("words/model.safetensors", "few.tsv", "rows of 1 of the nouns")):
            result = subprocess.run([script, model, nouns], capture_output=True, text=True, cwd=self.folder)
            self.assertEqual((result.returncode, result.stderr.count("\n")), (1, 1), result.stderr)
            self.assertIn(text, result.stderr)

    def test_dense_parameters_among_workers(self):
        result = self.run_program("psring", "compare", "--strategies", "single,ddp,zero1,zero2", "--workers", 3, "--servers", 2,
                                  "--placement", "standalone,colocated", *JOB, "--out", "cmp")
        self.assert_done(result)
        table = re.search(r"\nstrategy .*\n-+\n((?:.+\n)+?)cluster:", result.out)[1]
        self.assertEqual(len(re.findall(" = ", table)), 6, result.out)
        self.assertNotIn("✗", table)

    def test_no_wait_is_predicted_of_dense_parameters_alone(self):
        job = ["--workers", 2, *JOB, "--link", "1gbit"]
        self.assert_done(self.train("--strategy", "hybrid", *job, "--out", "hybrid"))
        self.assertNotIn("predicted_exposed_comm_s", self.summary("hybrid"))
        dense = self.train("--strategy", "ddp", "--workers", 2, "--steps", 4, "--link", "1gbit", "--out", "ddp")
        self.assert_done(dense)
        self.assertIn("predicted_exposed_comm_s", self.summary("ddp"))

    def test_rows_without_waiting(self):
        """Bytes are as predicted, lag is within the bound, and the model learns about as well as under bsp."""
        job = ["--model", "dlrm:dense=4,features=6,dim=8,bottom=16-8,top=16-1", "--data", "criteo-like:samples=20k", "--global-batch", 64,
               "--steps", 600, "--seed", 3, "--table-optimizer", "adagrad", "--table-lr", 0.05, "--lr", 0.05]
        result = self.run_program("psring", "compare", "--strategies", "ps,hybrid-async,ps-ssp", "--workers", "2,4", "--servers", 2, *job,
                                  "--out", "cmp")
        self.assert_done(result)
        table = re.search(r"\nstrategy .*\n-+\n((?:.+\n)+?)cluster:", result.out)[1]
        self.assertNotIn("✗", table)
        for workers in (2, 4):
            auc = {}
            for strategy in ("ps", "hybrid-async", "ps-ssp"):
                (run,) = [path for path in (self.folder / "cmp").iterdir() if path.is_dir()
                          and re.match(rf"{strategy}-n-{workers}(\D|$)", path.name)]
                summary = json.loads((run / "summary.json").read_text())
                auc[strategy] = summary["own"]["test_auc"]
                lags = [worker["most_lag"] for worker in summary.get("staleness", [])]
                self.assertEqual(len(lags), 0 if strategy == "ps" else workers)
                self.assertTrue(strategy != "ps-ssp" or max(lags) <= 3, lags)
                for check in summary["bytes"]:
                    self.assertEqual(check["measured"], check["predicted"], check)
            for strategy, value in auc.items():
                self.assertGreater(value, auc["ps"] - 0.02, auc)

    def test_checkpoints(self):
        three = ["--strategy", "ps", "--workers", 2, "--servers", 3]
        self.assert_done(self.train(*three, *JOB, "--checkpoint-every", 5, "--out", "whole"))
        saved = "whole/checkpoints/step-00000005"
        for number, ways in enumerate((["ps", "--servers", 1], ["ps", "--servers", 2, "--transport", "tcp"], ["ps", "--servers", 5], ["ps-colocated"],
                                       ["hybrid", "--servers", 2], ["ddp", "--placement", "colocated"], ["zero1"], ["zero2", "--servers", 3])):
            self.assert_done(self.train("--strategy", *ways, "--workers", 2, *JOB, "--resume", saved, "--checkpoint-every", 4, "--out", f"way{number}"))
            self.assertEqual(self.model(f"way{number}"), self.model("whole"), ways)
            for check in self.summary(f"way{number}")["bytes"]:
                self.assertEqual(check["measured"], check["predicted"], check)
            again = ["--resume", f"way{number}/checkpoints/step-00000008", "--out", f"again{number}"]
            self.assert_done(self.train("--strategy", "single", "--virtual-workers", 2, *JOB, *again))
            self.assertEqual(self.model(f"again{number}"), self.model("whole"), ways)
        for flags, said in ((["--table-optimizer", "adam"], "table optimizer adagrad, this run's is adam"),
                            (["--table-type", "bf16"], "table type f32, this run's is bf16"),
                            (["--table-init", "constant:0"], "table init"), (["--table-ttl", 5], "rows that leave by no --table-ttl or --table-rows, this run's is --table-ttl 5 --table-sweep 100"),
                            (["--model", JOB[1].replace("dim=8", "dim=4").replace("16-8", "16-4")], "model dlrm")):
            options = dict(zip(JOB[::2], JOB[1::2])) | dict(zip(flags[::2], flags[1::2]))
            result = self.train(*three, *(word for pair in options.items() for word in pair), "--resume", saved)
            self.assert_refused(result, 3, f"--resume {self.folder / saved}: saved with", said)
        for flag in (["--checkpoint-every", 5], ["--resume", saved]):
            for rule in (["--table-admit", 2], ["--table-consistency", "asp"]):
                self.assert_refused(self.train("--strategy", "hybrid", "--workers", 2, *JOB, *flag, *rule), 2, f"{flag[0]} ", f" with {rule[0]} {rule[1]} is refused: ")
        shard = self.folder / saved / "server-1.shard"
        shard.write_bytes(b"\1" + shard.read_bytes()[1:])
        self.assert_refused(self.train(*three, *JOB, "--resume", saved), 3, f"{shard}: damaged")

    def test_a_run_that_was_interrupted(self):
        job = ["--strategy", "ps", "--workers", 2, "--servers", 2, *JOB[:6], "--steps", 4000, *JOB[8:], "--checkpoint-every", 20,
               "--table-lookahead", 1]
        started = self.start("psring", "train", *job, "--out", "run")
        until(lambda: started.poll() is not None or list((self.folder / "run" / "checkpoints").glob("step-*[0-9]")), "no checkpoint")
        started.send_signal(signal.SIGINT)
        self.assertEqual(self.finish(started).status, 130)
        until(lambda: not self.processes(), "its processes still run")
        result = self.run_program("psring", "resume", "run")
        self.assert_done(result)
        self.assertRegex(result.out, r"part 1 continues at step \d+ of 4000")
        self.assert_done(self.train(*job, "--out", "whole"))
        self.assertEqual(self.model("run"), self.model("whole"))

    def all_rules(self):
        """Each rule and type of rows, with the model that one process trains."""
        for rule in ("sgd", "adagrad", "rowwise-adagrad", "adam", "ftrl"):
            for dtype in ("f32", "bf16"):
                flags = [*JOB[:6], "--steps", 8, "--seed", 3, "--table-optimizer", rule, "--table-lr", 0.05, "--table-type", dtype]
                self.assert_done(self.train("--strategy", "single", "--virtual-workers", 2, *flags, "--out", "single"))
                yield flags, self.model("single")
                shutil.rmtree(self.folder / "single")

    def survives(self, flags, wanted, *more):
        """The job ends with these bits; its result."""
        result = self.train("--workers", 2, *flags, *more, "--out", "run")
        self.assert_done(result)
        self.assertEqual(self.model("run"), wanted, more)
        for check in self.summary("run").get("bytes", []) + [{"measured": memory["peak"], "predicted": memory["predicted"]}
                                                     for memory in self.summary("run")["memory"] if memory.get("predicted") is not None]:
            self.assertEqual(check["measured"], check["predicted"], check)
        shutil.rmtree(self.folder / "run")
        return result

    def test_frames_that_are_lost_doubled_overtaken_and_changed(self):
        frames = " ".join(f"{kind}:{role}:*=5%" for kind in ("drop", "duplicate", "reorder", "corrupt") for role in ("worker", "server"))
        for number, (flags, wanted) in enumerate(self.all_rules()):
            for strategy in ("ps", "hybrid"):
                ahead = ["--table-lookahead", (number + number // 2) % 2]
                self.survives(flags, wanted, "--strategy", strategy, "--servers", 2, *ahead, "--fault", frames)
        self.survives(flags, wanted, "--strategy", "ps-colocated", "--fault", "slow:worker:1=2x")
        self.assert_refused(self.train("--strategy", "ps-colocated", "--workers", 2, *JOB, "--fault", "drop:worker:0=1%"), 2, "no frames are sent")

    def test_processes_that_are_lost(self):
        ps = ["--strategy", "ps", "--servers", 2, "--max-restarts", 3, "--heartbeat-timeout", 2]
        saves = ["--checkpoint-every", 3, "--max-restarts", 3, "--heartbeat-timeout", 2]
        hybrid = ["--strategy", "hybrid", *ps[2:]]
        for number, (rules, wanted) in enumerate(self.all_rules()):
            flags = [*rules, "--table-lookahead", (number + number // 2) % 2]
            for strategy in (ps, hybrid):
                result = self.survives(flags, wanted, *strategy, "--replicas", 1, "--fault", "kill:server:0@step=3 kill:worker:1@step=5")
                self.assertIn("the replica of server 0 takes its place", result.out)
                self.assertNotIn("begins again", result.out)
                result = self.survives(flags, wanted, *strategy, "--fault", "kill:worker:0@step=4", "--transport", "tcp")
                self.assertNotIn("begins again", result.out)
        for strategy in (ps, hybrid):
            self.survives(flags, wanted, *strategy, "--replicas", 1)
            self.survives(flags, wanted, *strategy, "--replicas", 1, "--fault",
                          "kill:server:3@step=4 duplicate:worker:*=2% drop:server:*=2%")
        for strategy, fault in ((["ps", "--servers", 2], "kill:server:1@step=5"), (["ps-colocated"], "kill:worker:1@step=5"),
                                (["hybrid", "--servers", 2, "--recovery", "checkpoint"], "kill:worker:0@step=5"), (["hybrid", "--servers", 2], "kill:server:0@step=5"),
                                (["hybrid-colocated"], "kill:worker:1@step=5"), (["zero2", "--servers", 2], "kill:server:1@step=5")):
            result = self.survives(flags, wanted, "--strategy", *strategy, *saves, "--fault", fault)
            self.assertIn("the job begins again with step 3, ", result.out)
        sweeps = [*rules, "--table-ttl", 2, "--table-sweep", 2]
        self.assert_done(self.train("--strategy", "single", "--virtual-workers", 2, *sweeps, "--out", "single-sweeps"))
        result = self.survives(sweeps, self.model("single-sweeps"), "--strategy", "ps", "--servers", 2, *saves, "--fault", "kill:worker:1@step=5")
        self.assertIn("the job begins again with step 3, ", result.out)
        self.assertEqual(self.train("--strategy", "ps", "--workers", 2, *flags, "--fault", "kill:server:0@step=3").status, 4)

    def test_what_tables_do_not_have_is_refused(self):
        for flags in (["--consistency", "asp", "--table-consistency", "bsp"], ["--consistency", "asp", "--remedy", "scale-lr"], ["--compress", "int8"],
                      ["--consistency", "asp", "--max-restarts", 1], ["--table-consistency", "ssp:1", "--max-restarts", 1],
                      ["--table-consistency", "asp", "--elastic", "1:2"],
                      ["--optimizer-on", "worker"], ["--local-reduce"], ["--backup-workers", 1], ["--servers", "mixed:1"],
                      ["--compute", "sleep:1ms"], ["--aggregate", "median"], ["--precision", "f16"]):
            result = self.train("--strategy", "ps", "--workers", 2, *JOB, *flags)
            self.assertEqual(result.status, 2, result)
            self.assertIn("has tables, and --", result.err, flags)
            self.assertEqual(len(result.err.splitlines()), 1, result.err)
        self.assert_refused(self.train("--strategy", "hybrid-async", "--workers", 2, *JOB, "--replicas", 1), 2,
                            "--replicas 1 with --strategy hybrid-async is refused: ")
        for flags, named in ((["--strategy", "zero1", "--placement", "standalone"], "of --strategy zero1"), (["--strategy", "ps", "--table-ttl", 4], None),
                             (["--strategy", "ps", "--table-admit", 2], None), (["--strategy", "hybrid", "--table-rows", 9000], None)):
            result = self.train(*flags, "--workers", 2, *JOB, "--replicas", 1)
            self.assert_refused(result, 2, f"--replicas 1: a job {named or f'with {flags[2]} {flags[3]}'} continues from checkpoints")
        for strategy in ("ddp-naive", "zero3", "ps-zero3", "dp"):
            self.assert_refused(self.train("--strategy", strategy, "--workers", 2, *JOB), 2, f"--strategy {strategy} is refused")
        for model, data in (("dlrm", "criteo-like or criteo:FILE"), ("fm", "criteo-like or criteo:FILE"), ("mf", "pairs:FILE"), ("two-tower", "debian:DIR"),
                            ("skip-gram", "skip-gram:FILE")):
            for command in (["memory"], ["plan", "--tflops", 1, "--hosts", 2]):
                self.assert_refused(self.run_program("psring", *command, "--model", model), 2, f"--model {model}: its rows depend on the data: give --data {data}")
            self.assert_refused(self.train("--strategy", "single", "--model", model, "--data", "synthetic", "--steps", 1), 3,
                                f"--data synthetic does not fit --model {model}: its samples have no keys, the model has tables; it reads {data}")
        plain = ["--model", "mlp:16-16-4", "--data", "synthetic", "--global-batch", 12, "--steps", 1]
        for flag, value in (("optimizer", "adam"), ("lr", "0.5"), ("type", "bf16"), ("init", "constant:0"), ("consistency", "asp"), ("admit", "3"), ("ttl", "5"),
                            ("rows", "5000"), ("sweep", "7")):
            self.assert_refused(self.train("--strategy", "ps", *plain, f"--table-{flag}", value), 2, f"--table-{flag} {value}: --model mlp:16-16-4 has no table")
        self.assert_refused(self.train(*plain[:2], "--data", "criteo-like", *plain[4:]), 3, "its samples have keys, the model has no table")


if __name__ == "__main__":
    unittest.main()
