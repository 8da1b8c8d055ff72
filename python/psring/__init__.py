"""psring from Python: jobs, collectives and memory through the C interface (psring/c.h).

with psring.init() as job:  # of the processes that psring.run has started
    job.all_reduce(array)
"""

from ._init import init
from ._job import Group, Job, Memory, Op, Type, Work, join
from ._library import (
    DataError,
    Error,
    PeerLostError,
    ProtocolError,
    TimeoutError,
    UnauthorisedError,
    UsageError,
)
from ._saved import Rows, SavedTable
from ._tables import Tables
from ._vector import FINAL, Vector

__version__ = "0.1.0"

__all__ = [
    "FINAL",
    "DataError",
    "Error",
    "Group",
    "Job",
    "Memory",
    "Op",
    "PeerLostError",
    "ProtocolError",
    "Rows",
    "SavedTable",
    "Tables",
    "TimeoutError",
    "Type",
    "UnauthorisedError",
    "UsageError",
    "Vector",
    "Work",
    "init",
    "join",
]
