"""Rows of trained tables, read from files without a job."""

from __future__ import annotations

import operator
import os
import weakref
from array import array
from collections.abc import Iterable, Iterator, Mapping
from ctypes import c_char

from ._library import LIBRARY, call, results

_NO_STEP = 2**64 - 1


def _bits(key: int) -> int:
    number = operator.index(key)
    if not -(2**63) <= number < 2**64:
        raise OverflowError(f"key {number}: expected 64 bits")
    return number % 2**64


def _keys_of(keys: Iterable[int]) -> array[int]:
    """The keys as 64 bits each; a negative one has the bits that it has as an int64."""
    try:
        view = memoryview(keys)  # type: ignore[arg-type]  # of NumPy, of array
    except TypeError:  # of PyTorch, a list
        return array("Q", [_bits(key) for key in keys])
    if view.itemsize != 8 or view.format not in ("q", "Q", "l", "L"):
        raise TypeError(f"keys of format {view.format!r}; expected 64-bit integers")
    return array("Q", view.tobytes())


class SavedTable:
    """The rows of one table: ``table[key]`` and ``table[keys]`` are their values, as a memoryview of f32 with the shape
    [width] or [keys, width] (``numpy.asarray`` and ``torch.frombuffer`` use its memory). KeyError names a key without a row,
    which has its initial values in training."""

    def __init__(self, saved: Rows, number: int, width: int) -> None:
        self._saved = saved
        self._number = number
        self.width = width

    def __len__(self) -> int:
        """Counts the rows, and reads all keys."""
        (count,) = results("saved_count", self._saved._handle, self._number)
        return int(count)

    def find(self, keys: Iterable[int]) -> tuple[memoryview[float], bytes]:
        """Returns the values [keys, width], and for each key 1 if it has a row; if it has none, its values are 0."""
        wanted = _keys_of(keys)
        if not wanted:
            return memoryview(b"").cast("f"), b""
        values = bytearray(4 * len(wanted) * self.width)
        found = bytearray(len(wanted))
        places = [(c_char * memoryview(each).nbytes).from_buffer(each) for each in (wanted, values, found)]
        call("saved_read", self._saved._handle, self._number, places[0], len(wanted), places[1], places[2])
        return memoryview(values).cast("f", (len(wanted), self.width)), bytes(found)

    def __getitem__(self, keys: int | Iterable[int]) -> memoryview[float]:
        one = hasattr(keys, "__index__") and getattr(keys, "ndim", 0) == 0  # arrays have __index__, too
        wanted = _keys_of([keys.__index__()] if one else keys)  # type: ignore[union-attr, arg-type]
        values, found = self.find(wanted)
        if not all(found):
            raise KeyError(wanted[found.index(0)])
        return values.cast("B").cast("f") if one else values


class Rows(Mapping[str, SavedTable]):
    """The tables in a folder of exports (``psring export``), or in a saved model's safetensors file, by name. DataError if an
    export is missing in the folder. ``step`` is the step of the newest export; None for a saved model. Threads may share
    it; a process that is forked may go on to read."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        (self._handle,) = results("saved_open", os.fsencode(path))
        self._free = weakref.finalize(self, LIBRARY.psring_saved_free, self._handle)
        count, step = results("saved_tables", self._handle)
        self.step = None if step == _NO_STEP else step
        self._tables: dict[str, SavedTable] = {}
        for number in range(count):
            name, width = results("saved_table", self._handle, number)
            self._tables[(name or b"").decode()] = SavedTable(self, number, width)

    def __getitem__(self, table: str) -> SavedTable:
        return self._tables[table]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)
