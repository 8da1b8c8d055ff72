"""What a job accounts: the bytes of memory by purpose, and the bytes that operations move."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from ._job import Group, Job, Type
from ._library import call, results


class Purpose(IntEnum):
    """The purpose of memory, as the run's report names it."""

    PARAMETERS = 0
    GRADIENTS = 1
    OPTIMIZER = 2
    ACTIVATIONS = 3
    COMMUNICATION = 4
    STAGING = 5


class Collective(IntEnum):
    """A collective whose bytes its plan predicts."""

    ALL_REDUCE = 0
    REDUCE_SCATTER = 1
    ALL_GATHER = 2


class Booked(NamedTuple):
    """Bytes of memory: now, and at their peak."""

    now: int
    peak: int


class Moved(NamedTuple):
    """Bytes of payload that one rank has sent and received."""

    sent: int
    received: int

    def plus(self, other: Moved) -> Moved:
        return Moved(self.sent + other.sent, self.received + other.received)


def book(job: Job, purpose: Purpose, size: int) -> None:
    """Books so many bytes of memory more, or fewer if negative."""
    call("book", job.handle, purpose, size)


def booked(job: Job, purpose: Purpose) -> Booked:
    return Booked(*results("memory", job.handle, purpose))


def moved(group: Group) -> Moved:
    """The bytes that the group's operations have moved at this rank so far."""
    return Moved(*results("moved", group.handle))


def predicted(group: Group, collective: Collective, count: int, kind: Type) -> Moved:
    """The bytes that such a call moves at this rank, by the formula of its plan."""
    return Moved(*results("predict", group.handle, collective, count, kind))


def booked_by_purpose(job: Job) -> dict[str, Booked]:
    """The bytes of memory that the job has booked at this worker, by the purpose's name."""
    return {purpose.name.lower(): booked(job, purpose) for purpose in Purpose}
