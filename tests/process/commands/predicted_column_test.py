"""The column 'step on a cluster' of psring compare: what the cost model predicts for one process a host, from this machine's own
computing, whatever the runs of the table share or shape."""

import csv
import json
import os
import unittest

from support import TINY, ProgramTest

USAGE = 2
JOB = [*TINY, "--steps", 2]


class PredictedColumn(ProgramTest):
    def compare(self, *arguments, out="table", program="psring", status=0, job=JOB):
        result = self.run_program(program, "compare", *job, "--out", out, *arguments)
        self.assertEqual((result.status, result.err), (status, ""), result)
        rows = json.loads((self.folder / out / "compare.json").read_text())["rows"]
        return result.out, {row["strategy"]: row for row in rows}

    def steps(self, row):
        """The predicted seconds of a row by link."""
        return {step["link"]: step["step_s"] for step in row["predicted"]}

    def test_every_row_has_a_step_in_all_files(self):
        out, rows = self.compare("--strategies", "single,ddp,zero1,zero2,zero3,ps,ps-colocated,ps-zero3,dp", "--workers", 2, "--wide")
        self.assertIn("computing, measured alone: mlp:16-16-4 in f32: ", out)
        self.assertIn("cluster: step on a cluster in ms, predicted: one process a host, links of 10gbit,20us, encrypted.", out)
        self.assertRegex(out, r"\nstrategy +cluster +samples/s")
        for name, row in rows.items():
            with self.subTest(name):
                (step,) = row["predicted"]
                self.assertEqual((step["link"], step["encrypted"]), ("10gbit,20us", True))
                self.assertGreater(step["step_s"], step["compute_s"])
                self.assertGreater(step["compute_s"], 0)
                self.assertRegex(out, rf"(?m)^{name} +{1e3 * step['step_s']:.2f} ")
        with open(self.folder / "table" / "table.csv") as file:
            table = [line for line in csv.DictReader(file) if line["role"] == "workers"]
        self.assertEqual({line["strategy"]: float(line["predicted_step_s"]) for line in table},
                         {name: row["predicted"][0]["step_s"] for name, row in rows.items()})
        self.assertIn("| strategy | cluster |", (self.folder / "table" / "compare.md").read_text())

    def test_two_links_have_a_column_each(self):
        out, rows = self.compare("--strategies", "ddp,ps", "--predict-link", "10gbit,20us,1mbit,1ms", "--encrypt", "off")
        self.assertRegex(out, r"\nstrategy +10gbit,20us +1mbit,1ms +samples/s")
        self.assertIn("1mbit,1ms: step on a cluster in ms, predicted: one process a host, links of 1mbit,1ms.\n", out)
        for row in rows.values():
            steps = self.steps(row)
            self.assertEqual(list(steps), ["10gbit,20us", "1mbit,1ms"])
            # All bytes of the model, 352 elements or more, go through a card of 1 Mbit/s at least once.
            self.assertGreater(steps["1mbit,1ms"], steps["10gbit,20us"] + 352 * 4 * 8 / 1e6)

    def test_the_links_and_transports_of_the_runs_do_not_matter(self):
        _, rows = self.compare("--strategies", "ddp", "--link", "10mbit,1gbit", "--predict-link", "1mbit")
        self.assertEqual(len(rows), 2)
        first, second = (self.steps(row)["1mbit"] for row in rows.values())
        self.assertEqual(first, second)

    def test_more_workers_compute_less_and_send_more(self):
        _, rows = self.compare("--strategies", "ddp", "--workers", "2,4", "--predict-link", "1mbit")
        two, four = (rows[f"ddp n={n}"]["predicted"][0] for n in (2, 4))
        self.assertLess(two["step_s"], four["step_s"])

    def test_sleeping_workers(self):
        _, rows = self.compare("--strategies", "ddp,ps", "--compute", "sleep:40ms")
        for row in rows.values():
            self.assertAlmostEqual(row["predicted"][0]["compute_s"], 0.04, delta=1e-6)

    def test_meshes(self):
        out, rows = self.compare("--strategies", "tp:2,pp:2,tp:2+ddp,ps-zero2", "--workers", 4, "--accumulate", 2)
        self.assertGreaterEqual(len(rows), 4)
        for name, row in rows.items():
            self.assertGreater(row["predicted"][0]["step_s"], 0, name)
        out, rows = self.compare("--strategies", "ps,ddp", "--workers", 4, "--tensor", 2, "--servers", 2, out="servers")
        self.assertIsNone(rows["ps"]["predicted"][0]["step_s"])
        self.assertIn("in a mesh", rows["ps"]["predicted"][0]["reason"])
        self.assertRegex(out, r"no prediction of ps: ")
        self.assertRegex(out, r"\nps +— ")
        self.assertGreater(rows["ddp"]["predicted"][0]["step_s"], 0)

    def test_rows_of_tables(self):
        """Nothing but the rows' width differs: four times as many bytes of rows go through the cards."""
        steps = {}
        for width in (16, 64):
            job = ["--model", f"dlrm:dense=4,features=8,dim={width},bottom={width}", "--data", "criteo-like:samples=2k", "--steps", 2]
            _, rows = self.compare("--strategies", "ps,hybrid,single", "--servers", 2, "--predict-link", "10mbit,1ms", out=f"rows{width}", job=job)
            steps[width] = {name: self.steps(row)["10mbit,1ms"] for name, row in rows.items()}
        for strategy in ("ps", "hybrid"):
            self.assertGreater(steps[64][strategy], 2.5 * steps[16][strategy])
        self.assertLess(steps[64]["single"], steps[16]["ps"])

    def test_a_users_strategy_has_none(self):
        wrong = os.environ["PSRING_WRONG_STRATEGIES"]
        out, rows = self.compare("--strategies", "single,claims-nothing", "--workers", 2, program=wrong)
        self.assertIsNone(rows["claims-nothing"]["predicted"][0]["step_s"])
        self.assertIn("no prediction of claims-nothing: the cost model knows psring's own strategies only", out)
        self.assertGreater(rows["single"]["predicted"][0]["step_s"], 0)

    def test_none(self):
        out, rows = self.compare("--strategies", "single,ddp", "--predict-link", "none")
        self.assertNotIn("cluster", out)
        self.assertNotIn("measured alone", out)
        self.assertEqual([row["predicted"] for row in rows.values()], [[], []])

    def test_refused(self):
        for text, words in (("fast", "RATE[,DELAY]"), ("1gbit,2gbit,3gbit", "one or two links"), ("1gbit,1gbit", "different"),
                            ("10gbit,", "RATE[,DELAY]")):
            with self.subTest(text):
                result = self.run_program("psring", "compare", *JOB, f"--predict-link={text}", "--out", "refused")
                self.assert_refused(result, USAGE, "--predict-link", words)
                self.assertFalse((self.folder / "refused").exists())

    def test_a_comparison_that_goes_on_predicts_again(self):
        first, _ = self.compare("--strategies", "single,ddp")
        document = json.loads((self.folder / "table" / "compare.json").read_text())
        document["ended"] = False
        (self.folder / "table" / "compare.json").write_text(json.dumps(document))
        second, rows = self.compare("--strategies", "single,ddp")
        self.assertIn("was finished before", second)
        self.assertTrue(all(row["predicted"][0]["step_s"] > 0 for row in rows.values()))


if __name__ == "__main__":
    unittest.main()
