"""Loads libpsring_c and declares its functions (psring/c.h)."""

from __future__ import annotations

import builtins
import ctypes
import operator
import os
from ctypes import POINTER, Structure, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any, NoReturn

ABI_VERSION = 1

PENDING = 8
ANY_RANK = c_size_t(-1).value


class Error(RuntimeError):
    """An error of psring; its text is one line that names the peer, the operation or the argument."""


class UsageError(Error, ValueError):
    """An argument is wrong, or ranks called different operations."""


class DataError(Error):
    """A bad file, or not enough memory or threads."""


class PeerLostError(Error, ConnectionError):
    """A peer died or fell silent, or aborted the job."""


class TimeoutError(Error, builtins.TimeoutError):
    """A deadline passed."""


class ProtocolError(Error):
    """A peer sent what the protocol does not allow."""


class UnauthorisedError(Error, PermissionError):
    """This process or a peer does not hold the job's key."""


_ERRORS: dict[int, type[Error]] = {
    2: UsageError,
    3: DataError,
    4: PeerLostError,
    5: TimeoutError,
    6: ProtocolError,
    7: UnauthorisedError,
}


class JoinOptions(Structure):
    """psring_join_options"""

    _fields_ = [
        ("size", c_size_t),
        ("endpoint", c_char_p),
        ("key_file", c_char_p),
        ("rank", c_int64),
        ("bind", c_char_p),
        ("join_timeout", c_double),
        ("memory_bytes", c_size_t),
    ]


class Tensor(Structure):
    """psring_tensor"""

    _fields_ = [("name", c_char_p), ("shape", POINTER(c_size_t)), ("dimensions", c_size_t)]


class Unit(Structure):
    """psring_unit"""

    _fields_ = [("name", c_char_p), ("tensors", POINTER(Tensor)), ("count", c_size_t)]


class TableOptions(Structure):
    """psring_table_options"""

    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("width", c_size_t),
        ("type", c_int32),
        ("init", c_char_p),
        ("most_keys", c_size_t),
    ]


class Bags(Structure):
    """psring_bags"""

    _fields_ = [
        ("size", c_size_t),
        ("places", c_void_p),
        ("lookups", c_size_t),
        ("begins", c_void_p),
        ("bags", c_size_t),
        ("weights", c_void_p),
        ("mean", c_int32),
    ]


_WORK = POINTER(c_void_p)
_NUMBER = POINTER(c_uint64)
_COUNTS = POINTER(c_size_t)

# The arguments of each function that returns a status.
_CALLS: dict[str, list[Any]] = {
    "join": [POINTER(JoinOptions), POINTER(c_void_p)],
    "leave": [c_void_p, c_double],
    "abort": [c_void_p, c_char_p],
    "check": [c_void_p],
    "allocate": [c_void_p, c_size_t, POINTER(c_void_p)],
    "release": [c_void_p, c_void_p],
    "allocate_for": [c_void_p, c_size_t, c_int, POINTER(c_void_p)],
    "book": [c_void_p, c_int, c_int64],
    "memory": [c_void_p, c_int, POINTER(c_size_t), POINTER(c_size_t)],
    "split": [c_void_p, POINTER(c_uint32), c_size_t, c_uint32, POINTER(c_void_p)],
    "all_reduce": [c_void_p, c_void_p, c_size_t, c_int, c_int, _WORK],
    "reduce_scatter": [c_void_p, c_void_p, c_size_t, _COUNTS, c_int, c_int, _WORK],
    "all_gather": [c_void_p, c_void_p, c_size_t, _COUNTS, c_int, _WORK],
    "broadcast": [c_void_p, c_void_p, c_size_t, c_int, c_size_t, _WORK],
    "barrier": [c_void_p, _WORK],
    "all_to_all": [c_void_p, c_void_p, _COUNTS, c_void_p, _COUNTS, c_int, _WORK],
    "send": [c_void_p, c_void_p, c_size_t, c_int, c_size_t, c_int64, _WORK],
    "recv": [c_void_p, c_void_p, c_size_t, c_int, c_size_t, c_int64, _WORK],
    "source": [c_void_p, POINTER(c_size_t)],
    "moved": [c_void_p, POINTER(c_uint64), POINTER(c_uint64)],
    "predict": [c_void_p, c_int, c_size_t, c_int, POINTER(c_uint64), POINTER(c_uint64)],
    "vector_open": [c_void_p, POINTER(Unit), c_size_t, POINTER(c_void_p)],
    "vector_tensor": [c_void_p, c_size_t, c_size_t, POINTER(c_void_p), POINTER(c_void_p), POINTER(c_size_t)],
    "vector_start": [c_void_p, POINTER(c_uint64)],
    "vector_agree": [c_void_p, POINTER(c_uint64)],
    "vector_begin": [c_void_p, c_size_t, c_void_p],
    "vector_unit": [c_void_p, c_size_t, POINTER(c_size_t), POINTER(c_uint64), POINTER(c_uint64)],
    "vector_moved": [c_void_p, POINTER(c_uint64), POINTER(c_uint64)],
    "push_from": [c_void_p, c_size_t, c_uint64, c_void_p],
    "pull_into": [c_void_p, c_size_t, c_uint64, c_void_p],
    "push": [c_void_p, c_size_t, c_uint64],
    "pull": [c_void_p, c_size_t, c_uint64],
    "push_pull": [c_void_p, c_size_t, c_uint64],
    "wait_pull": [c_void_p, c_size_t, c_uint64, c_double],
    "wait_push": [c_void_p, c_size_t, c_double],
    "vector_finish": [c_void_p],
    "vector_save": [c_void_p, c_uint64],
    "vector_staleness": [c_void_p, POINTER(c_double)],
    "saved_open": [c_char_p, POINTER(c_void_p)],
    "saved_tables": [c_void_p, POINTER(c_size_t), POINTER(c_uint64)],
    "saved_table": [c_void_p, c_size_t, POINTER(c_char_p), POINTER(c_size_t)],
    "saved_count": [c_void_p, c_size_t, POINTER(c_uint64)],
    "saved_read": [c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_void_p],
    "table_open": [c_void_p, POINTER(TableOptions), POINTER(c_void_p)],
    "table_start": [c_void_p, _NUMBER],
    "table_fetch": [c_void_p, c_void_p, c_size_t, c_uint64, POINTER(c_void_p)],
    "rows_wait": [c_void_p, c_double],
    "rows_values": [c_void_p, POINTER(c_void_p), POINTER(c_void_p), _COUNTS],
    "rows_pool": [c_void_p, POINTER(Bags), c_void_p],
    "rows_add_pooled": [c_void_p, POINTER(Bags), c_void_p],
    "rows_add": [c_void_p, c_void_p],
    "table_add": [c_void_p, c_void_p, c_size_t, c_void_p],
    "table_wait": [c_void_p, c_double],
    "table_end_step": [c_void_p, c_double],
    "table_drop": [c_void_p],
    "table_assign": [c_void_p, c_void_p, c_size_t, c_void_p],
    "table_list": [c_void_p, _NUMBER, c_size_t, c_void_p, c_void_p, _COUNTS, c_double],
    "table_moved": [c_void_p, _NUMBER, _NUMBER],
    "table_predict": [c_void_p, _NUMBER, _NUMBER],
    "wait": [c_void_p, c_double],
    "test": [c_void_p],
}


def _candidates() -> list[Path]:
    here = Path(__file__).resolve().parent
    return [here / "lib" / "libpsring_c.so.1"]


def folder_of_programs() -> Path:
    """The folder of the program psring: the wheel's, or that of PSRING_BIN."""
    given = os.environ.get("PSRING_BIN")
    return Path(given) if given else Path(__file__).resolve().parent / "bin"


def load() -> ctypes.CDLL:
    """The library of PSRING_LIBRARY, or the wheel's own."""
    given = os.environ.get("PSRING_LIBRARY")
    found = [Path(given)] if given else [path for path in _candidates() if path.exists()]
    if not found:
        raise ImportError(f"psring: no {_candidates()[0]}; PSRING_LIBRARY can name another libpsring_c.so.1")
    try:
        library = ctypes.CDLL(str(found[0]))
    except OSError as error:
        raise ImportError(f"psring: cannot load {found[0]}: {error}") from error
    try:
        _declare(library, found[0])
    except AttributeError as error:  # a function that the library does not have
        raise ImportError(f"psring: {found[0]} is not the libpsring_c of this package: {error}") from error
    return library


def _declare(library: ctypes.CDLL, path: Path) -> None:
    """Sets the types of the library's functions. Throws ImportError if it has another version of the interface."""
    library.psring_abi_version.restype = c_uint32
    if library.psring_abi_version() != ABI_VERSION:
        raise ImportError(
            f"psring: {path} has version {library.psring_abi_version()} of the C interface; expected {ABI_VERSION}"
        )
    for name, arguments in _CALLS.items():
        function = getattr(library, "psring_" + name)
        function.argtypes = arguments
        function.restype = c_int
    for name in ("free", "group_free", "rows_free", "saved_free", "work_free"):
        function = getattr(library, "psring_" + name)
        function.argtypes = [c_void_p]
        function.restype = None
    library.psring_world.argtypes = [c_void_p]
    library.psring_world.restype = c_void_p
    for name in ("rank", "size"):
        function = getattr(library, "psring_" + name)
        function.argtypes = [c_void_p]
        function.restype = c_size_t
    library.psring_last_error.argtypes = []
    library.psring_last_error.restype = c_char_p


LIBRARY = load()


def last_line() -> str:
    """The line of this thread's last call that failed, or did not wait for long enough."""
    return str(LIBRARY.psring_last_error().decode(errors="replace"))


def error_of(status: int) -> Error:
    """The exception of a status that is not OK, which this thread's last call has returned."""
    return _ERRORS.get(status, Error)(last_line())


def raise_error(status: int) -> NoReturn:
    """Raises it."""
    raise error_of(status)


def whole(what: str, value: Any) -> int:
    """The value as an int."""
    try:
        return operator.index(value)
    except TypeError:
        raise UsageError(f"psring: {what}={value!r}: expected a whole number") from None


def call(name: str, *arguments: Any) -> None:
    """Calls psring_NAME; raises if it fails."""
    status = getattr(LIBRARY, "psring_" + name)(*arguments)
    if status:
        raise_error(status)


def results(name: str, *arguments: Any) -> tuple[Any, ...]:
    """Calls psring_NAME, and returns the values that it writes to the addresses behind these arguments; raises if it fails."""
    places = [pointer._type_() for pointer in _CALLS[name][len(arguments) :]]
    call(name, *arguments, *map(ctypes.byref, places))
    return tuple(place.value for place in places)
