"""CSV files as Python reads them: a drawn file trains the same model as the numbers that csv and float find in it."""

import csv
import io
import random
import struct
import unittest

from support import ProgramTest

INPUTS = 3
BOM = b"\xef\xbb\xbf"


def f32(text):
    return struct.unpack("<f", struct.pack("<f", float(text)))[0]


class Drawn:
    """A file of numbers in one of the ways that programs write them."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.end = self.random.choice(["\n", "\r\n"])
        self.mark = self.random.choice([b"", BOM])
        self.header = self.random.choice([None, ["x", "y", "z", "class"], ["", "NA", "a, b", "c"], ["é", 'q"q', "two\nlines", "t"]])

    def number(self):
        value = self.random.choice([
            lambda: repr(self.random.uniform(-1, 1)),
            lambda: f"{self.random.uniform(-3, 3):.2e}",
            lambda: f"{self.random.randrange(-9, 9)}",
            lambda: f"{self.random.randrange(9)}.",
            lambda: f".{self.random.randrange(9)}",
            lambda: self.random.choice(["1e-50", "-1e-400", "1e-40", "5e-324", "0.1E1", "00.5", "-0"]),
        ])()
        return self.random.choice(["", "", "+"]) + value if value[0] not in "-+" else value

    def cell(self, text):
        style = self.random.randrange(6)
        return {0: f'"{text}"', 1: f" {text}", 2: f"{text}\t"}.get(style, text)

    def content(self):
        out = io.StringIO()
        if self.header:
            csv.writer(out, lineterminator=self.end).writerow(self.header)
        for _ in range(12):
            row = [self.cell(self.number()) for _ in range(INPUTS)] + [str(self.random.randrange(2))]
            out.write(",".join(row) + self.end)
            if self.random.randrange(5) == 0:
                out.write(self.end)
        text = out.getvalue()
        return self.mark + (text if self.random.randrange(2) else text.removesuffix(self.end)).encode()


def numbers_of(content, header):
    rows = [row for row in csv.reader(io.StringIO(content.decode("utf-8-sig"), newline="")) if row]
    return [[f32(cell) for cell in row] for row in rows[1 if header else 0 :]]


class Csv(ProgramTest):
    def model_of(self, name, data):
        self.assert_done(self.train("--strategy", "single", "--workers", 1, "--model", f"mlp:{INPUTS}-4-2", "--global-batch", 12,
                                    "--steps", 2, "--shuffle", "none", "--data", data, "--out", name))
        return self.model(name)

    def test_drawn_files_hold_the_numbers_that_python_finds(self):
        for seed in range(25):
            drawn = Drawn(seed)
            content = drawn.content()
            rows = numbers_of(content, drawn.header)
            self.assertEqual(len(rows), 12)
            self.file("drawn.csv", content)
            self.file("plain.csv", "".join(",".join(f"{cell:.9g}" for cell in row) + "\n" for row in rows).encode())
            with self.subTest(seed=seed, content=content):
                self.assertEqual(self.model_of(f"drawn-{seed}", "csv:drawn.csv"), self.model_of(f"plain-{seed}", "csv:plain.csv"))

    def test_missing_values(self):
        self.file("holes.csv", BOM + b"a,b,c,class\r\n1,?,3,0\r\n,2,5,1\r\n")
        self.file("zero.csv", b"1,0,3,0\n0,2,5,1\n")
        self.file("mean.csv", b"1,2,3,0\n1,2,5,1\n")
        command = ["--model", "mlp:3-4-2", "--global-batch", 2, "--workers", 1, "--strategy", "single", "--steps", 1]
        self.assert_refused(self.train(*command, "--data", "csv:holes.csv"), 3, "holes.csv: line 2, column 2: '?'", "missing=mean")
        for how in ("zero", "mean"):
            self.assert_done(self.train(*command, "--data", f"csv:holes.csv,missing={how}", "--out", f"filled-{how}"))
            self.assert_done(self.train(*command, "--data", f"csv:{how}.csv", "--out", f"plain-{how}"))
            self.assertEqual(self.model(f"filled-{how}"), self.model(f"plain-{how}"))


if __name__ == "__main__":
    unittest.main()
