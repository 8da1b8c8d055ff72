"""Tables: rows by 64-bit keys that a job's servers own."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator
from ctypes import byref, c_size_t, c_uint64
from typing import Any

from . import _library
from ._accounts import Moved
from ._job import Job
from ._library import LIBRARY, UsageError, call, raise_error, results, whole
from ._waiting import wait


class Rows:
    """The rows of one batch's keys in a table. `values` and `places` are addresses, from `wait` on: of the different rows,
    and of the place of each key among them."""

    __slots__ = ("table", "count", "values", "places", "different", "_handle", "_free", "__weakref__")

    def __init__(self, table: Table, handle: int, count: int) -> None:
        self.table = table
        self.count = count
        self.values = self.places = self.different = -1
        self._handle = handle
        self._free = weakref.finalize(self, LIBRARY.psring_rows_free, handle)
        self._free.atexit = False

    def wait(self, timeout: float | None = None) -> None:
        """Waits until the rows are here."""
        if self.different >= 0:
            return
        self.table.tables._wait(
            lambda seconds: int(LIBRARY.psring_rows_wait(self._handle, seconds)), timeout, f"rows of '{self.table.name}'"
        )
        values, places, self.different = results("rows_values", self._handle)
        self.values, self.places = values or 0, places or 0

    def pool(self, bags: _library.Bags, out: int) -> None:
        """Writes the sum or mean of each bag's rows to the address."""
        call("rows_pool", self._handle, byref(bags), out)

    def add_pooled(self, bags: _library.Bags, gradients: int) -> None:
        """Adds the gradients of bags, at the address, to those of their rows."""
        self.table.tables.refuse_closed()
        call("rows_add_pooled", self._handle, byref(bags), gradients)

    def add(self, gradients: int) -> None:
        """Adds a gradient to each of the different rows; those that are all zeros are left out."""
        self.table.tables.refuse_closed()
        call("rows_add", self._handle, gradients)


class Table:
    """A table of `Tables`."""

    def __init__(self, tables: Tables, name: str, width: int, row_bytes: int, most_keys: int, handle: int) -> None:
        self.tables = tables
        self.name = name
        self.width = width
        self.row_bytes = row_bytes  # on the wire
        self.most_keys = most_keys
        self._handle = handle

    def __deepcopy__(self, _memo: Any) -> Table:
        return self  # a copy of a module has the same rows

    def fetch(self, keys: int, count: int, version: int) -> Rows:
        """Begins to bring the rows of the keys at the address, as they are after `version` updates."""
        (rows,) = results("table_fetch", self._handle, keys, count, version)
        return Rows(self, rows, count)

    def add(self, keys: int, count: int, gradients: int) -> None:
        """Adds gradients to the rows of the keys at the address, which may repeat and need not have been fetched."""
        call("table_add", self._handle, keys, count, gradients)

    def assign(self, keys: int, count: int, values: int) -> None:
        """At rank 0: gives rows the values at the address; `Tables.wait` waits until the servers have them."""
        call("table_assign", self._handle, keys, count, values)

    def listed(self) -> Iterator[tuple[Any, Any, int]]:
        """The rows that were trained or assigned, some at a time: arrays of keys and of values, and the number of rows."""
        most = max(1, min(self.most_keys, (1 << 20) // (8 + 4 * self.width)))
        keys, values = (c_uint64 * most)(), (ctypes.c_float * (most * self.width))()
        cursor, count = c_uint64(), c_size_t()
        while True:
            self.tables._wait(
                lambda seconds: int(
                    LIBRARY.psring_table_list(self._handle, byref(cursor), most, keys, values, byref(count), seconds)
                ),
                None,
                f"the list of rows of '{self.name}'",
            )
            if count.value == 0:
                return
            yield keys, values, count.value


class Tables:
    """The tables of a job with servers; all workers open the same ones, in the same order, and then `start`. Under bsp a step
    is a step of all workers; in a job with --consistency asp it is one of this worker. Methods take addresses;
    psring.torch.Tables takes tensors.

    tables = Tables(job); ads = tables.open("ads", 16); tables.start()
    rows = ads.fetch(keys, count, tables.step); rows.wait(); ...; tables.wait(); tables.end_step(lr)
    """

    MOST_KEYS = 65536
    MOST_POSSIBLE_KEYS = 1 << 32

    def __init__(self, job: Job) -> None:
        self.job = job
        self.step = 0
        self.all: dict[str, Table] = {}
        self.closed = False  # the job was left

    def refuse_closed(self) -> None:
        if self.closed:
            raise UsageError("psring: close() has left the servers, which own the rows: call the model, and train it, before")

    def open(
        self, name: str, width: int, *, bf16: bool = False, init: str = "uniform:0.05", most_keys: int | None = None
    ) -> Table:
        """Declares a table of rows of `width` values. bf16: rows and gradients travel in half the bytes; the servers keep f32.
        init: initial values, by key. most_keys: different keys of a worker in one batch, or with gradients in one step, at
        most (65,536)."""
        if not isinstance(name, str) or not name or "\0" in name:
            raise UsageError(f"psring: the name of a table is a text that is not empty, got {name!r}")
        if not isinstance(init, str):
            raise UsageError(f"psring: table '{name}': init={init!r}: expected uniform:A, normal:A or constant:A")
        width = whole(f"table '{name}': width", width)
        most = self.MOST_KEYS if most_keys is None else whole(f"table '{name}': most_keys", most_keys)
        if not 1 <= most <= self.MOST_POSSIBLE_KEYS:
            raise UsageError(f"psring: table '{name}': most_keys={most}: expected 1 to {self.MOST_POSSIBLE_KEYS}")
        options = _library.TableOptions(
            size=ctypes.sizeof(_library.TableOptions),
            name=name.encode(),
            width=width,
            type=3 if bf16 else 0,
            init=init.encode(),
            most_keys=most,
        )
        (handle,) = results("table_open", self.job.handle, byref(options))
        self.all[name] = table = Table(self, name, width, width * (2 if bf16 else 4), most, handle)
        return table

    def start(self) -> int:
        """Waits until the servers have taken the tables. Returns the step that the job begins with."""
        (self.step,) = results("table_start", self.job.handle)
        self.job.progress["step"] = self.step
        return self.step

    def wait(self, timeout: float | None = None) -> None:
        """Waits until the rows of this step that were fetched are here, and the servers have taken what was pushed."""
        self._wait(
            lambda seconds: int(LIBRARY.psring_table_wait(self.job.handle, seconds)),
            timeout,
            f"the servers to take the gradients of step {self.step - 1}",
        )

    def end_step(self, lr: float) -> None:
        """Pushes the gradients that were added, and begins the next step; after `wait`. Under bsp all workers give the same
        rate."""
        call("table_end_step", self.job.handle, lr)
        self.step += 1
        self.job.progress["step"] = self.step

    def drop(self) -> None:
        """Drops the gradients that were added since the last step."""
        call("table_drop", self.job.handle)

    def moved(self) -> Moved:
        """The bytes of fetches and pushes so far."""
        return Moved(*results("table_moved", self.job.handle))

    def predicted(self) -> Moved:
        """The same by formula: 8 for each different key of a fetch, and its row back; key and row for each gradient."""
        return Moved(*results("table_predict", self.job.handle))

    def _wait(self, function: Any, timeout: float | None, awaited: str) -> None:
        rank = self.job.rank
        status = wait(
            function,
            timeout,
            lambda: f"worker {rank}: waiting for {awaited}",
            "all workers have to end each step",
            lambda: self.job.refuse_ended(self.step),
        )
        if status:
            raise_error(status)
