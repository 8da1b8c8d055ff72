"""psring.Rows: rows of trained tables from files, without a job and without PyTorch."""

import array
import ctypes
import importlib
import json
import os
import struct
import subprocess
import tempfile
import threading
import unittest
from pathlib import Path

import psring
from psring._library import LIBRARY, call, last_line

BIN = Path(os.environ["PSRING_BIN"])
JOB = ["--strategy", "ps", "--workers", "2", "--servers", "2", "--model", "fm:dense=4,features=6,dim=4", "--data",
       "criteo-like:samples=2k", "--global-batch", "64", "--steps", "20", "--checkpoint-every", "10", "--out", "run"]
WIDTH = 5


class Tensor(list):
    """Keys that have an __index__, as arrays of NumPy and tensors of PyTorch have."""

    ndim = 1

    def __index__(self):
        raise TypeError("only a tensor of a single element can be converted to an index")


class RowsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.temporary.name)
        for words in (["train", *JOB], ["export", "run/checkpoints/step-00000010", "exports"], ["export", "run", "exports"]):
            subprocess.run([BIN / "psring", *words], cwd=cls.folder, check=True, stdout=subprocess.DEVNULL)
        cls.saved = psring.Rows(cls.folder / "run" / "model.safetensors")
        cls.exported = psring.Rows(cls.folder / "exports")
        data = (cls.folder / "run" / "model.safetensors").read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        entry = json.loads(data[8:8 + length])["rows.keys"]
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        cls.keys = struct.unpack(f"<{(end - begin) // 8}Q", data[begin:end])

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def test_exports_have_the_rows_of_the_model(self):
        self.assertEqual((list(self.exported), self.exported.step), (["rows"], 20))
        self.assertEqual((list(self.saved), self.saved.step), (["rows"], None))
        table = self.exported["rows"]
        self.assertEqual((table.width, len(table), len(self.saved["rows"])), (WIDTH, len(self.keys), len(self.keys)))
        values = table[self.keys]
        self.assertEqual((values.shape, values.format), ((len(self.keys), WIDTH), "f"))
        self.assertEqual(values.tobytes(), self.saved["rows"][self.keys].tobytes())
        self.assertEqual(table[self.keys[7]].tolist(), values.tolist()[7])

    def test_keys_of_any_kind(self):
        table = self.exported["rows"]
        expected = table[self.keys[:5]].tobytes()
        signed = [key - 2**64 if key >= 2**63 else key for key in self.keys[:5]]
        first = self.keys[:5]
        for keys in (array.array("Q", first), array.array("q", signed), signed, first, iter(first)):
            self.assertEqual(table.find(keys)[0].tobytes(), expected)
        for keys in (array.array("Q", first), signed, Tensor(first)):
            self.assertEqual(table[keys].tobytes(), expected)
        for module, make in (("numpy", "array"), ("torch", "tensor")):
            try:
                keys = getattr(importlib.import_module(module), make)(signed)
            except ImportError:
                continue
            self.assertEqual(table[keys].tobytes(), expected)
            self.assertEqual(table[keys[0]].tobytes(), table[signed[0]].tobytes())
            self.assertEqual(table[keys[:1]].shape, (1, WIDTH))
        with self.assertRaisesRegex(TypeError, "64-bit integers"):
            table[array.array("f", [1.0])]
        for key in (2**64 + first[0], -(2**63) - 1):
            with self.assertRaisesRegex(OverflowError, "64 bits"):
                table[key]
            with self.assertRaisesRegex(OverflowError, "64 bits"):
                table.find([key])

    def test_keys_without_a_row(self):
        table = self.exported["rows"]
        absent = 2**64 - 1
        values, found = table.find([self.keys[0], absent])
        self.assertEqual((list(found), values.tolist()[1]), ([1, 0], [0.0] * WIDTH))
        for wanted in ([self.keys[0], absent], iter([self.keys[0], absent])):
            with self.assertRaises(KeyError) as caught:
                table[wanted]
            self.assertEqual(caught.exception.args, (absent,))
        with self.assertRaises(KeyError):
            table[absent]
        self.assertEqual([len(part) for part in table.find([])], [0, 0])

    def test_errors(self):
        with self.assertRaisesRegex(psring.DataError, "missing"):
            psring.Rows(self.folder / "missing")
        with self.assertRaisesRegex(psring.DataError, "no exports"):
            psring.Rows(self.folder / "run")
        with self.assertRaises(KeyError):
            self.exported["ads"]

    def test_wrong_calls_of_the_c_interface(self):
        handle, count = self.saved._handle, ctypes.c_uint64()
        for name, *arguments in (
            ("open", None, ctypes.byref(ctypes.c_void_p())),
            ("open", b"x", None),
            ("tables", None, None, None),
            ("table", None, 0, None, None),
            ("table", handle, 1, None, None),
            ("count", handle, 2**64 - 1, ctypes.byref(count)),
            ("count", handle, 0, None),
            ("read", None, 0, None, 0, None, None),
            ("read", handle, 0, None, 1, None, None),
        ):
            with self.subTest(name=name, arguments=arguments):
                self.assertEqual(getattr(LIBRARY, f"psring_saved_{name}")(*arguments), 2)
                self.assertIn(f"psring_saved_{name}: ", last_line())
        LIBRARY.psring_saved_free(None)
        call("saved_read", handle, 0, None, 0, None, None)

    def test_threads_share_it(self):
        expected = self.exported["rows"][self.keys].tobytes()
        wrong = []

        def read():
            for _ in range(20):
                if self.exported["rows"][self.keys].tobytes() != expected:
                    wrong.append(1)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main()
