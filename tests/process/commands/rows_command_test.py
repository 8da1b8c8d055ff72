"""Exports of rows, and reading them: psring export, psring rows."""

import json
import os
import struct
import unittest

from support import ProgramTest

USAGE, DATA = 2, 3
MODEL = ["--model", "fm:dense=4,features=6,dim=4"]
JOB = ["--data", "criteo-like:samples=6k", "--global-batch", 64, "--seed", 3,
       "--table-optimizer", "adagrad", "--table-lr", 0.1, "--table-ttl", 15, "--table-sweep", 10]
WIDTH = 5  # fm: the weight of a key, and dim factors


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def rows_of(path):
    """The values of each key in a saved model."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    part = lambda name: data[8 + length + header[name]["data_offsets"][0]:8 + length + header[name]["data_offsets"][1]]
    count, width = header["rows.values"]["shape"]
    keys = struct.unpack(f"<{count}Q", part("rows.keys"))
    values = struct.unpack(f"<{count * width}f", part("rows.values"))
    return {key: values[i * width:(i + 1) * width] for i, key in enumerate(keys)}


class Rows(ProgramTest):
    def trained(self):
        """A run with checkpoints of steps 20, 40, 60, and the rows after each of these steps."""
        self.assert_done(self.train("--strategy", "ps", "--workers", 2, "--servers", 3, *MODEL, *JOB, "--steps", 60, "--checkpoint-every", 20,
                                    "--out", "run"))
        after = {60: rows_of(self.folder / "run" / "model.safetensors")}
        for step in (20, 40):
            self.assert_done(self.train("--strategy", "single", "--virtual-workers", 2, *MODEL, *JOB, "--steps", step, "--out", f"to{step}"))
            after[step] = rows_of(self.folder / f"to{step}" / "model.safetensors")
        return after

    def export(self, step, folder="exports", *flags):
        return self.run_program("psring", "export", f"run/checkpoints/step-{step:08}", folder, *flags)

    def read(self, place, keys):
        """The values of each key, None where it has no row."""
        result = self.run_program("psring", "rows", place, *(word for key in keys for word in ("--key", key)))
        self.assert_done(result)
        found = {}
        for line in result.out.splitlines():
            key, rest = line.split(" ", 1)
            found[int(key)] = None if rest == "no row" else tuple(f32(float(value)) for value in rest.split())
        return found

    def test_each_export_has_the_rows_of_its_step(self):
        after = self.trained()
        everywhere = sorted({key for rows in after.values() for key in rows})
        self.assertTrue(any(key not in after[60] for key in everywhere))  # some rows left
        written = 0
        for number, step in enumerate(sorted(after)):
            result = self.export(step)
            self.assert_done(result)
            rows = after[step]
            written = int(result.out.split("rows: ")[1].split()[0])
            self.assertIn(f"of {len(rows)} rows", result.out)
            if number > 0:
                before = after[step - 20]
                changed = sum(rows[key] != before.get(key) for key in rows)
                self.assertEqual(written, changed)
                self.assertIn(f"{sum(key not in rows for key in before)} removed keys", result.out)
            sample = everywhere[::7]
            self.assertEqual(self.read("exports", sample), {key: rows.get(key) for key in sample})
            listed = self.run_program("psring", "rows", "exports")
            self.assertEqual(listed.out, f"rows: {len(rows)} rows of {WIDTH} values at step {step}\n")
        self.assertEqual(sorted(path.name for path in (self.folder / "exports").iterdir()),
                         ["base-00000020.safetensors", "delta-00000040.safetensors", "delta-00000060.safetensors"])
        self.assertEqual(self.read("run/model.safetensors", sample), {key: after[60].get(key) for key in sample})
        with self.subTest("a run folder has its newest checkpoint"):
            self.assert_done(self.run_program("psring", "export", "run", "newest"))
            self.assertEqual(self.read("newest", sample), {key: after[60].get(key) for key in sample})
        with self.subTest("narrower types"):
            for kind, bound in (("bf16", 2.0**-8), ("int8", 0.5 / 127)):
                self.assert_done(self.export(40, kind, "--type", kind))
                self.assert_done(self.export(60, kind, "--type", kind))
                listed = self.run_program("psring", "rows", kind)
                self.assertEqual(listed.out, f"rows: {len(after[60])} rows of {WIDTH} values at step 60\n", listed)
                for key, values in self.read(kind, sample).items():
                    self.assertEqual(values is None, key not in after[60])
                    for value, whole in zip(values or (), after[60].get(key, ())):
                        largest = max(map(abs, after[60][key]))
                        self.assertLessEqual(abs(value - whole), bound * 1.01 * (largest if kind == "int8" else abs(whole)))
        with self.subTest("a new base"):
            self.assert_done(self.export(20, "again"))
            self.assert_done(self.export(60, "again", "--base"))
            self.assertEqual(self.read("again", sample), {key: after[60].get(key) for key in sample})
            self.assert_refused(self.export(60, "again", "--base"), DATA, "step 60 is not after step 60 of again/base-00000060")
        with self.subTest("a new base where an export is missing"):
            for step in (20, 40):
                self.assert_done(self.export(step, "broken"))
            os.remove(self.folder / "broken" / "base-00000020.safetensors")
            self.assert_refused(self.export(60, "broken"), DATA, "broken: there are deltas, and no base")
            self.assert_done(self.export(60, "broken", "--base"))
            self.assertEqual(self.read("broken", sample), {key: after[60].get(key) for key in sample})
        with self.subTest("a gap"):
            os.remove(self.folder / "exports" / "delta-00000040.safetensors")
            for command in (["rows", "exports"], ["export", "run", "exports"]):
                self.assert_refused(self.run_program("psring", *command), DATA,
                                    "exports/delta-00000060.safetensors: it does not follow base-00000020.safetensors")
            self.assert_done(self.export(60, "exports", "--base"))  # a base of the last step, in place of the delta
            self.assertEqual(self.read("exports", sample), {key: after[60].get(key) for key in sample})
            os.remove(self.folder / "exports" / "base-00000060.safetensors")
            os.remove(self.folder / "exports" / "base-00000020.safetensors")
            self.assert_refused(self.run_program("psring", "rows", "exports"), DATA, "exports: there are deltas, and no base")

    def test_what_is_refused(self):
        self.trained()
        self.assert_done(self.export(40))
        self.assert_done(self.train("--strategy", "single", "--model", "mlp:784-8-10", "--data", "synthetic", "--global-batch", 8, "--steps", 2,
                                    "--checkpoint-every", 2, "--out", "dense"))
        self.assert_done(self.train("--strategy", "single", *JOB, "--model", "fm:dense=4,features=6,dim=8", "--steps", 60, "--checkpoint-every",
                                    60, "--out", "wide"))
        (self.folder / "empty").mkdir()
        for step in (40, 60):
            self.assert_done(self.export(step, "part"))
        base = self.run_program("psring", "rows", "part/base-00000040.safetensors")
        self.assertEqual(base.out.split(" ", 1)[1].split("rows ", 1)[1], f"of {WIDTH} values at step 40\n", base)
        cut = self.folder / "cut"
        cut.mkdir()
        whole = (self.folder / "exports" / "base-00000040.safetensors").read_bytes()
        (cut / "base-00000040.safetensors").write_bytes(whole[:-100])
        flipped = self.folder / "flipped"
        flipped.mkdir()
        (flipped / "base-00000040.safetensors").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        odd = self.folder / "odd"
        odd.mkdir()
        (odd / "base-00000040.safetensors").write_bytes(whole.replace(b'"psring.step":"40"', b'"psring.step":"4x"'))
        for words, status, *texts in (
            (["export", "run/checkpoints/step-00000020", "exports"], DATA, "step 20 is not after step 40"),
            (["export", "run", "exports", "--type", "bf16"], USAGE, "--type bf16", "are f32"),
            (["export", "run", "exports", "--type", "f16"], USAGE, "--type: expected f32, bf16 or int8, got 'f16'"),
            (["export", "wide", "exports"], DATA, "table 'rows' of width 9"),
            (["export", "dense", "others"], DATA, "no tables"),
            (["export", "empty", "others"], DATA, "empty"),
            (["export", "run", "/proc/exports"], DATA, "/proc/exports"),
            (["rows", "empty"], DATA, "empty: the folder has no exports"),
            (["rows", "missing"], DATA, "missing"),
            (["rows", "dense/model.safetensors"], DATA, "no table"),
            (["rows", "cut"], DATA, "cut/base-00000040.safetensors"),
            (["rows", "odd"], DATA, "odd/base-00000040.safetensors", "metadata"),
            (["rows", "flipped"], DATA, "flipped/base-00000040.safetensors: damaged: its checksum is"),
            (["rows", "exports", "--table", "ads"], USAGE, "no table 'ads', only rows"),
            (["rows", "part/delta-00000060.safetensors"], DATA, "part/delta-00000060.safetensors: a delta has a part of the rows"),
            (["rows", "flipped/base-00000040.safetensors"], DATA, "flipped/base-00000040.safetensors: damaged"),
            (["rows", "exports", "--key", "-1"], USAGE, "--key"),
            (["rows", "exports", "--key", "18446744073709551616"], USAGE, "2^64"),
            (["rows", "exports", "--key", "0x"], USAGE, "--key"),
            (["rows", "exports", "--key", ""], USAGE, "--key"),
        ):
            with self.subTest(words=words):
                self.assert_refused(self.run_program("psring", *words), status, *texts)
        self.assertEqual(sorted(path.name for path in (self.folder / "exports").iterdir()), ["base-00000040.safetensors"])
        self.assertFalse(list((self.folder / "others").iterdir()) if (self.folder / "others").exists() else [])


if __name__ == "__main__":
    unittest.main()
