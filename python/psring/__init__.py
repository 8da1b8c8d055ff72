"""psring from Python: jobs, collectives and memory through the C interface (psring/c.h).

with psring.join("127.0.0.1:7000", "job.key") as job:
    job.all_reduce(array)
"""

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
    "TimeoutError",
    "Type",
    "UnauthorisedError",
    "UsageError",
    "Vector",
    "Work",
    "join",
]
