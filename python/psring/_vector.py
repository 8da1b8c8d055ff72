"""Push and pull: the vector of f32 values that a job's servers own."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from ctypes import c_size_t
from dataclasses import dataclass
from typing import Any, Callable

from . import _library
from ._accounts import Moved
from ._job import Job
from ._library import LIBRARY, PENDING, call, raise_error, results
from ._waiting import wait

FINAL = 2**64 - 1
"""The version of the values once all workers have finished; see `Vector.finish`."""


class Place:
    """A tensor of the vector: the addresses of its values and gradients in this process."""

    __slots__ = ("values", "gradients", "count", "shape")

    def __init__(self, values: int, gradients: int, count: int, shape: tuple[int, ...]) -> None:
        self.values = values
        self.gradients = gradients
        self.count = count
        self.shape = shape


@dataclass(frozen=True)
class UnitSize:
    """The elements of a unit, padding included, and the bytes that one push of it sends and one pull receives."""

    count: int
    pushed: int
    pulled: int


class Vector:
    """The vector that the servers of a job own, cut into units, which move by themselves. `units` maps the name of a unit
    to the names and shapes of its tensors; all workers name the same. A job has one vector.

    holds: False: the vector has no memory of its own. `agree`, `begin`, `push_from` and `pull_into` take its caller's, a
    unit's at a time, where tensors begin at multiples of 256 elements.

    values = Vector(job, {"all": {"w": (1000,)}})
    values.start()                       # the vector begins with rank 0's values
    values.gradient("w")[:] = ...
    values.push_pull(0, step=0); values.wait(0, version=1)
    """

    def __init__(self, job: Job, units: Mapping[str, Mapping[str, Sequence[int]]], *, holds: bool = True) -> None:
        self.job = job
        self.names = list(units)
        self.version = 0
        self.in_step = False  # all workers push each step before its update, as under bsp
        self._places: dict[str, Place] = {}
        described = (_library.Unit * len(units))()
        keeps: list[Any] = []
        for unit, (name, tensors) in zip(described, units.items()):
            array = (_library.Tensor * len(tensors))()
            for tensor, (tensor_name, shape) in zip(array, tensors.items()):
                sizes = (c_size_t * len(shape))(*shape)
                keeps.append(sizes)
                tensor.name, tensor.shape, tensor.dimensions = tensor_name.encode(), sizes, len(shape)
            keeps.append(array)
            unit.name, unit.tensors, unit.count = name.encode(), array, len(tensors)
        (self._handle,) = results("vector_open", job.handle, described, len(units))
        if not holds:
            return
        for index, tensors in enumerate(units.values()):
            for number, (name, shape) in enumerate(tensors.items()):
                values, gradients, count = results("vector_tensor", self._handle, index, number)
                self._places[name] = Place(values or 0, gradients or 0, count, tuple(shape))

    def __len__(self) -> int:
        return len(self.names)

    def place(self, tensor: str) -> Place:
        return self._places[tensor]

    def value(self, tensor: str) -> Any:
        """The tensor's values, a NumPy array in the memory that pulls arrive in."""
        return self._array(tensor, self._places[tensor].values)

    def gradient(self, tensor: str) -> Any:
        """The tensor's gradient, a NumPy array in the memory that pushes leave from."""
        return self._array(tensor, self._places[tensor].gradients)

    def _array(self, tensor: str, at: int) -> Any:
        import numpy

        place = self._places[tensor]
        memory: Any = (ctypes.c_float * place.count).from_address(at)
        memory._psring_job = self.job
        return numpy.frombuffer(memory, dtype=numpy.float32).reshape(place.shape)

    def start(self) -> int:
        """Waits until the servers have taken the layout. A new job begins with the values that rank 0 has in its memory.
        Returns the version that the job begins with, which is pulled for all units."""
        (self.version,) = results("vector_start", self._handle)
        self.job.progress["step"] = self.version
        return self.version

    def size(self, unit: int) -> UnitSize:
        return UnitSize(*results("vector_unit", self._handle, unit))

    def moved(self) -> Moved:
        """The bytes that pushes have sent and pulls have received so far, without those of the start."""
        return Moved(*results("vector_moved", self._handle))

    def agree(self) -> int:
        """`start` without values: rank 0 of a new job then has to `begin` each unit."""
        (self.version,) = results("vector_agree", self._handle)
        self.job.progress["step"] = self.version
        return self.version

    def begin(self, unit: int, at: int) -> None:
        """Begins to pull the unit's first values into the memory at the address. Rank 0 of a new job gives them there."""
        call("vector_begin", self._handle, unit, at)

    def push_from(self, unit: int, step: int, at: int) -> None:
        """`push` of the gradient at the address, which has to stay until the servers have it; see `wait_pushed`."""
        call("push_from", self._handle, unit, step, at)
        self.job.progress["step"] = step + 1

    def pull_into(self, unit: int, version: int, at: int) -> None:
        """`pull` into the memory at the address."""
        call("pull_into", self._handle, unit, version, at)

    def push(self, unit: int, step: int) -> None:
        """Begins to send the unit's gradient of a step (0, 1, ...)."""
        call("push", self._handle, unit, step)
        self.job.progress["step"] = step + 1

    def pull(self, unit: int, version: int) -> None:
        """Asks for a version of the unit's values (n: after n updates)."""
        call("pull", self._handle, unit, version)

    def push_pull(self, unit: int, step: int) -> None:
        """Pushes the step's gradient, and asks for the values that it leads to, version step + 1."""
        call("push_pull", self._handle, unit, step)
        self.job.progress["step"] = step + 1

    def wait(self, unit: int, version: int, timeout: float | None = None) -> None:
        """Waits for the unit's last pull, in at least this version."""
        self._wait(
            lambda left: LIBRARY.psring_wait_pull(self._handle, unit, version, left),
            timeout,
            lambda: f"version {version} of unit '{self.names[unit]}'",
            lambda: self._look(version),
        )

    def has(self, unit: int, version: int) -> bool:
        """Has the unit's last pull arrived, in at least this version?"""
        status = LIBRARY.psring_wait_pull(self._handle, unit, version, 0.0)
        if status not in (0, PENDING):
            raise_error(status)
        return bool(status == 0)

    def wait_pushed(self, unit: int, timeout: float | None = None) -> None:
        """Waits until the servers have the unit's last push."""
        self._wait(
            lambda left: LIBRARY.psring_wait_push(self._handle, unit, left),
            timeout,
            lambda: f"the servers to take unit '{self.names[unit]}'",
        )

    def _look(self, version: int) -> None:
        """Raises PeerLostError if a worker has left the job before the steps that this version needs under bsp."""
        if self.in_step:
            self.job.refuse_ended(version)

    def _wait(
        self,
        function: Callable[[float], int],
        timeout: float | None,
        awaited: Callable[[], str],
        look: Callable[[], None] = lambda: None,
    ) -> None:
        rank = self.job.rank
        line = lambda: f"worker {rank}: waiting for {awaited()}"  # noqa: E731
        status = wait(function, timeout, line, "all workers have to make it", look)
        if status:
            raise_error(status)

    def finish(self) -> None:
        """This worker pushes nothing more. Under ssp and asp it comes before a pull of FINAL."""
        call("vector_finish", self._handle)

    def save(self, version: int) -> None:
        """Saves the servers' state of this version, to which the pushes of all units lead, in the job's checkpoint folder."""
        call("vector_save", self._handle, version)

    def staleness(self) -> float:
        """The mean number of others' updates between a pull and this worker's next update, since the last call."""
        (mean,) = results("vector_staleness", self._handle)
        return float(mean)
