"""Jobs, groups, and operations in flight."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from ctypes import byref, c_size_t, c_uint32, c_void_p
from dataclasses import dataclass
from enum import IntEnum
from types import TracebackType
from typing import Any, Callable, Protocol

from ._library import (
    ANY_RANK,
    LIBRARY,
    PENDING,
    Error,
    JoinOptions,
    PeerLostError,
    TimeoutError,
    UsageError,
    call,
    error_of,
    last_line,
    raise_error,
    results,
)
from ._waiting import wait, warning_time


class Type(IntEnum):
    """The type of a vector's elements."""

    F32 = 0
    F64 = 1
    F16 = 2
    BF16 = 3
    I8 = 4
    U8 = 5
    I32 = 6
    I64 = 7


class Op(IntEnum):
    """A reduction."""

    SUM = 0
    MEAN = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BIT_AND = 5
    BIT_OR = 6
    BIT_XOR = 7


class _Dropped:
    """Operations whose Work was dropped before they were complete. The library still reads and writes what they keep."""

    def __init__(self) -> None:
        # Appended to by the garbage collector, at any moment of any thread: so there is no lock.
        self._works: deque[tuple[int, Any]] = deque()

    def add(self, handle: int, keeps: Any) -> None:
        self._works.append((handle, keeps))

    def sweep(self) -> None:
        """Frees those that are complete by now."""
        for _ in range(len(self._works)):
            try:
                handle, keeps = self._works.popleft()
            except IndexError:  # another thread sweeps, too
                return
            if LIBRARY.psring_test(handle) == PENDING:
                self._works.append((handle, keeps))
            else:
                LIBRARY.psring_work_free(handle)

    def free_all(self) -> list[Any]:
        """Frees all handles. Returns what the operations keep, which the library needs for as long as the job lives."""
        works = list(self._works)
        self._works.clear()
        for handle, _ in works:
            LIBRARY.psring_work_free(handle)
        return [keeps for _, keeps in works]


def _free_job(handle: int, dropped: _Dropped) -> None:
    """Handles of operations keep the library's half of a job alive. Once the job has gone nobody reads their memory."""
    kept = dropped.free_all()
    LIBRARY.psring_free(handle)
    del kept


_open: weakref.WeakSet[Job] = weakref.WeakSet()  # the jobs of this process


class Farewells(Protocol):
    """Tells the ranks of a job which of them have begun to leave it, and how far each had come."""

    @property
    def name(self) -> str:
        """The job's name, which is the same at all ranks."""

    def say(self, progress: dict[str, Any]) -> None:
        """This rank leaves the job."""

    def heard(self) -> dict[int, dict[str, Any]]:
        """The progress of the ranks that leave. Does not wait."""


@dataclass
class Waits:
    """How a group's operations are waited for. Works outlive their group."""

    job: Job
    rank: int
    timeout: float | None = None
    """The seconds after which a wait ends; None: it does not."""
    advice: str = ""
    """What the ranks have to do, where a wait is long or they call different operations."""
    group: str = "group 0"
    """The group's name in the progress of ranks."""
    members: Sequence[int] = ()
    """The ranks of the job that are in the group."""

    def look(self, index: int) -> None:
        """Raises PeerLostError if a rank has left the job before it made the group's collective of this index."""
        awaited = last_line()
        for rank, progress in self.job.heard().items():
            if rank in self.members and progress.get(self.group, 0) <= index:
                raise PeerLostError(f"rank {self.rank}: {awaited}: rank {rank} has ended its program without this call")

    def error_of(self, status: int) -> Error:
        """The error of an operation's call."""
        error = error_of(status)
        if self.advice and str(error).startswith("[ring] operation #"):
            error = type(error)(f"{error}; {self.advice}")
        self.job.error = error
        return error


class Work:
    """An operation in flight: owns the library's handle, and keeps what the operation reads and writes (`keeps`) until the
    library has let go of it. Several threads may wait for it, so that the handle is freed with the object, and not before."""

    __slots__ = ("_handle", "_keeps", "_error", "_source", "_complete", "_waits", "_index", "__weakref__")

    def __init__(self, handle: int | None, keeps: Any, waits: Waits, index: int | None = None) -> None:
        """`index`: of a collective, among those of its group; None: a message."""
        self._handle = handle
        self._index = index
        self._waits = waits  # its job is not freed before
        self._complete = handle is None
        self._keeps = None if self._complete else keeps
        self._error: Error | None = None
        self._source: int | None = None

    @property
    def source(self) -> int:
        """The rank that a complete receive from any rank has received from."""
        if self._source is None:
            raise UsageError("not a receive from any rank that is complete")
        return self._source

    def done(self) -> bool:
        """Is the operation complete? Raises its error."""
        return self._is_over() or self._took(LIBRARY.psring_test(self._handle))

    def done_within(self, seconds: float) -> bool:
        """Waits at most so long; is the operation complete? Raises its error."""
        return self._is_over() or self._took(LIBRARY.psring_wait(self._handle, seconds))

    def wait(self, timeout: float | None = None) -> None:
        """Waits until the operation is complete; raises TimeoutError after so many seconds (None: the group's timeout), and
        its error. After a TimeoutError the operation goes on, and can be waited for again."""
        if self._is_over():
            return
        waits = self._waits
        try:
            status = wait(
                lambda seconds: int(LIBRARY.psring_wait(self._handle, seconds)),
                waits.timeout if timeout is None else timeout,
                lambda: f"rank {waits.rank}: {last_line()}",
                waits.advice or "all ranks of the group have to make this call",
                lambda: None if self._index is None else waits.look(self._index),
            )
        except (TimeoutError, PeerLostError) as error:
            waits.job.error = error
            raise
        self._took(status)

    def _is_over(self) -> bool:
        if self._error is not None:
            raise self._error
        return self._complete

    def _took(self, status: int) -> bool:
        if status == PENDING:
            return False
        if status:
            self._error = self._waits.error_of(status)
        else:
            rank = c_size_t()
            if LIBRARY.psring_source(self._handle, byref(rank)) == 0:
                self._source = rank.value
        self._complete = True
        self._keeps = None
        if self._error is not None:
            raise self._error
        return True

    def __del__(self) -> None:
        if self._handle is None:
            return
        if self._complete:
            LIBRARY.psring_work_free(self._handle)
        else:
            self._waits.job.dropped.add(self._handle, self._keeps)


def _counts(values: Sequence[int] | None) -> Any:
    return None if values is None else (c_size_t * len(values))(*values)


class Group:
    """Ranks that exchange vectors. Methods that end in _at take addresses; the others take objects with a buffer, such as
    NumPy arrays, and wait."""

    def __init__(self, job: Job, handle: int, owned: bool) -> None:
        self.job = job
        self.handle = handle
        self.rank: int = LIBRARY.psring_rank(handle)
        self.size: int = LIBRARY.psring_size(handle)
        self.waits = Waits(job, self.rank, members=range(self.size))
        self._free = weakref.finalize(self, LIBRARY.psring_group_free, handle) if owned else None
        if self._free is not None:
            self._free.atexit = False

    def _start(self, function: Callable[..., int], keeps: Any, *arguments: Any) -> Work:
        """Begins a collective."""
        return self._begin(function, keeps, arguments, collective=True)

    def _begin(self, function: Callable[..., int], keeps: Any, arguments: Any, collective: bool = False) -> Work:
        self.job.dropped.sweep()
        work = c_void_p()
        status = function(self.handle, *arguments, byref(work))
        if status:
            raise self.waits.error_of(status)
        return Work(work.value, keeps, self.waits, self.job.count(self.waits.group) if collective else None)

    def all_reduce_at(self, at: int, count: int, kind: int, op: int, keeps: Any = None) -> Work:
        return self._start(LIBRARY.psring_all_reduce, keeps, at, count, kind, op)

    def reduce_scatter_at(
        self, at: int, count: int, counts: Sequence[int] | None, kind: int, op: int, keeps: Any = None
    ) -> Work:
        return self._start(LIBRARY.psring_reduce_scatter, keeps, at, count, _counts(counts), kind, op)

    def all_gather_at(self, at: int, count: int, counts: Sequence[int] | None, kind: int, keeps: Any = None) -> Work:
        return self._start(LIBRARY.psring_all_gather, keeps, at, count, _counts(counts), kind)

    def broadcast_at(self, at: int, count: int, kind: int, root: int, keeps: Any = None) -> Work:
        return self._start(LIBRARY.psring_broadcast, keeps, at, count, kind, root)

    def barrier_start(self) -> Work:
        return self._start(LIBRARY.psring_barrier, None)

    def all_to_all_at(
        self,
        in_at: int | None,
        in_counts: Sequence[int],
        out_at: int | None,
        out_counts: Sequence[int],
        kind: int,
        keeps: Any = None,
    ) -> Work:
        return self._start(LIBRARY.psring_all_to_all, keeps, in_at, _counts(in_counts), out_at, _counts(out_counts), kind)

    def send_at(self, at: int, count: int, kind: int, to: int, tag: int = 0, keeps: Any = None) -> Work:
        return self._begin(LIBRARY.psring_send, keeps, (at, count, kind, to, tag))

    def recv_at(self, at: int, count: int, kind: int, source: int | None, tag: int = 0, keeps: Any = None) -> Work:
        """`source`: the rank to receive from; None: any, and the work's `source` says which."""
        rank = ANY_RANK if source is None else source
        return self._begin(LIBRARY.psring_recv, keeps, (at, count, kind, rank, tag))

    def all_reduce(self, array: Any, op: Op = Op.SUM, timeout: float | None = None) -> None:
        """`array` becomes the reduction of all ranks' arrays."""
        at, count, kind, view = _vector(array)
        self.all_reduce_at(at, count, kind, op, view).wait(timeout)

    def broadcast(self, array: Any, root: int = 0, timeout: float | None = None) -> None:
        """`array` becomes the root's array."""
        at, count, kind, view = _vector(array)
        self.broadcast_at(at, count, kind, root, view).wait(timeout)

    def all_gather(self, array: Any, timeout: float | None = None) -> None:
        """The r-th of `size` equal parts of `array` becomes rank r's r-th part."""
        at, count, kind, view = _vector(array)
        self.all_gather_at(at, count, None, kind, view).wait(timeout)

    def reduce_scatter(self, array: Any, op: Op = Op.SUM, timeout: float | None = None) -> None:
        """This rank's of `size` equal parts of `array` becomes the reduction of all ranks' parts; the others are
        undefined afterwards."""
        at, count, kind, view = _vector(array)
        self.reduce_scatter_at(at, count, None, kind, op, view).wait(timeout)

    def send(self, array: Any, to: int, tag: int = 0, timeout: float | None = None) -> None:
        at, count, kind, view = _vector(array)
        self.send_at(at, count, kind, to, tag, view).wait(timeout)

    def recv(self, array: Any, source: int | None = None, tag: int = 0, timeout: float | None = None) -> int:
        """Receives the first message with this tag, from `source` or from any rank; returns the rank."""
        at, count, kind, view = _vector(array)
        work = self.recv_at(at, count, kind, source, tag, view)
        work.wait(timeout)
        return work.source if source is None else source

    def barrier(self, timeout: float | None = None) -> None:
        self.barrier_start().wait(timeout)

    def split(self, ranks: Sequence[int], number: int) -> Group:
        """The group of these ranks, which call this with the same `number`, from 1; no other group that shares a rank
        with it has the number."""
        (group,) = results("split", self.handle, (c_uint32 * len(ranks))(*ranks), len(ranks), number)
        made = Group(self.job, group, owned=True)
        made.waits.group = f"group {number}"
        made.waits.members = [self.waits.members[rank] for rank in ranks]
        return made


_FORMATS = {"f": Type.F32, "d": Type.F64, "e": Type.F16, "b": Type.I8, "B": Type.U8, "?": Type.U8}


def _type_of(view: memoryview) -> Type:
    known = _FORMATS.get(view.format)
    if known is not None:
        return known
    if view.format in ("i", "l", "q") and view.itemsize in (4, 8):
        return Type.I32 if view.itemsize == 4 else Type.I64
    raise UsageError(f"elements of the format {view.format!r}: expected f32, f64, f16, i8, u8, i32 or i64")


def _vector(array: Any) -> tuple[int, int, Type, Any]:
    view = memoryview(array)
    if not view.c_contiguous:
        raise UsageError("an array that is not contiguous")
    if view.readonly:
        raise UsageError("an array that is read-only")
    kind = _type_of(view)
    if view.nbytes == 0:
        return 0, 0, kind, view
    held = (ctypes.c_char * view.nbytes).from_buffer(view)
    return ctypes.addressof(held), view.nbytes // view.itemsize, kind, held


class Memory:
    """Memory that the other ranks of this host reach without a copy; freed with the object."""

    def __init__(self, job: Job, size: int, purpose: int = 1) -> None:
        self.job = job
        self.address: int
        (self.address,) = results("allocate_for", job.handle, size, purpose)
        self.bytes = size
        self._free = weakref.finalize(self, LIBRARY.psring_release, job.handle, self.address)
        self._free.atexit = False

    def array(self) -> Any:
        """The memory as a ctypes array of bytes, which keeps it."""
        held: Any = (ctypes.c_ubyte * self.bytes).from_address(self.address)
        held._psring_memory = self
        return held


class Job:
    """This process's membership in a job. `join(...)` joins the job of the coordinator at `endpoint` (HOST:PORT) as a worker,
    and waits until all workers have joined. `key_file`: the job's key (psring keygen). `rank`: the rank to ask for.
    `memory_bytes`: the capacity of `Job.allocate`; 0: 1 GiB. Used with `with`, it leaves the job at the end of the block, and
    aborts it if the block raises."""

    def __init__(
        self,
        endpoint: str,
        key_file: str | os.PathLike[str],
        rank: int | None = None,
        *,
        bind: str | None = None,
        join_timeout: float = 30.0,
        memory_bytes: int = 0,
    ) -> None:
        options = JoinOptions(
            size=ctypes.sizeof(JoinOptions),
            endpoint=endpoint.encode(),
            key_file=os.fsencode(key_file),
            rank=-1 if rank is None else rank,
            bind=None if bind is None else bind.encode(),
            join_timeout=join_timeout,
            memory_bytes=memory_bytes,
        )
        warning_time()
        self.handle: int
        (self.handle,) = results("join", byref(options))
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._ended = False
        self.dropped = _Dropped()
        self.error: Error | None = None  # the last one that an operation has raised
        self.progress: dict[str, int] = {}  # of this rank: the collectives that it has begun, by group, and its steps
        self.farewells: Farewells | None = None  # None: nobody tells when a rank leaves
        self._free = weakref.finalize(self, _free_job, self.handle, self.dropped)
        self._free.atexit = False
        self._world: Group | None = Group(self, LIBRARY.psring_world(self.handle), owned=False)  # until the job has ended
        self.rank = self._world.rank
        self.size = self._world.size
        _open.add(self)

    @property
    def world(self) -> Group:
        """The group of all ranks."""
        if self._world is None:
            self.check()
            raise UsageError("this worker has left the job")
        return self._world

    def all_reduce(self, array: Any, op: Op = Op.SUM, timeout: float | None = None) -> None:
        """`array` becomes the reduction of all ranks' arrays."""
        self.world.all_reduce(array, op, timeout)

    def broadcast(self, array: Any, root: int = 0, timeout: float | None = None) -> None:
        """`array` becomes the root's array."""
        self.world.broadcast(array, root, timeout)

    def all_gather(self, array: Any, timeout: float | None = None) -> None:
        """As Group.all_gather, of all ranks."""
        self.world.all_gather(array, timeout)

    def reduce_scatter(self, array: Any, op: Op = Op.SUM, timeout: float | None = None) -> None:
        """As Group.reduce_scatter, of all ranks."""
        self.world.reduce_scatter(array, op, timeout)

    def barrier(self, timeout: float | None = None) -> None:
        self.world.barrier(timeout)

    def allocate(self, size: int) -> Memory:
        """`size` bytes of zeroed memory that the other ranks of this host reach without a copy."""
        return Memory(self, size)

    def count(self, group: str) -> int:
        """Counts a collective of a group. Returns how many were counted before."""
        with self._lock:
            index = self.progress.get(group, 0)
            self.progress[group] = index + 1
        return index

    def heard(self) -> dict[int, dict[str, int]]:
        """The progress in this job of the ranks that have begun to leave it, or another job that this process has not left:
        there they wait for this rank, and here they make no further call."""
        if self.farewells is None:
            return {}
        found: dict[int, dict[str, int]] = {}
        for job in list(_open):
            if job is self or job.farewells is None or job._ended or not job.is_member():
                continue
            for progress in job.farewells.heard().values():
                other = progress["jobs"].get(self.farewells.name)
                if other is not None:
                    found[other["rank"]] = other
        return found | self.farewells.heard()

    def _say_farewell(self) -> None:
        """Says how far this rank has come in this job, and in the others of this process."""
        if self.farewells is None:
            return
        others = [job for job in list(_open) if job.farewells is not None and job is not self]
        jobs = {job.farewells.name: {**job.progress, "rank": job.rank} for job in others if job.farewells is not None}
        self.farewells.say({**self.progress, "jobs": jobs})

    def refuse_ended(self, steps: int) -> None:
        """Raises PeerLostError if a worker has begun to leave after fewer steps than these, which all have to make."""
        for rank, progress in self.heard().items():
            made = progress.get("step", steps)
            if made < steps:
                raise PeerLostError(
                    f"worker {self.rank}: waiting for the update of step {steps - 1}: worker {rank} has ended its program "
                    f"after {made} steps"
                )

    def check(self) -> None:
        """Raises the error that ended the job."""
        call("check", self.handle)

    def leave(self, timeout: float | None = None) -> None:
        """Waits until all ranks call this, and tells the job that this process is done. Nothing happens if it has left
        or aborted. Raises TimeoutError after so many seconds; then call this or `abort` again."""
        if not self._begin_end():
            return
        self._say_farewell()
        try:
            status = wait(
                lambda seconds: int(LIBRARY.psring_leave(self.handle, seconds)),
                timeout,
                lambda: f"rank {self.rank}: leaving the job: {last_line()}",
                "all ranks have to leave it",
            )
        except TimeoutError:
            self._ended = False
            raise
        self._world = None  # a group refers to its job
        if status:
            raise_error(status)

    def abort(self, reason: str) -> None:
        """Ends the job at all ranks."""
        if self._begin_end():
            self._world = None
            call("abort", self.handle, reason.encode())

    def is_member(self) -> bool:
        """Is this the process that joined? A process that was forked from it is not."""
        return os.getpid() == self._pid

    def _begin_end(self) -> bool:
        """True for the first call in the process that joined."""
        if os.getpid() != self._pid:
            return False
        with self._lock:
            first, self._ended = not self._ended, True
        return first

    def __enter__(self) -> Job:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.leave()
        else:
            self.abort(" ".join(f"{type(error).__name__}: {error}".split())[:400])


join = Job
