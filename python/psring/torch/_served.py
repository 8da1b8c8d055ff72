"""The home of a ParameterServer's units: the servers of its job."""

from __future__ import annotations

import ctypes

import torch

from .._accounts import Moved, Purpose
from .._job import Job
from .._library import UsageError
from .._vector import FINAL, Vector
from ._flat import FlatUnit, memory_of
from ._rows import view_at
from ._units import Unit


def closed() -> UsageError:
    return UsageError(
        "psring: close() has left the servers, which own the parameters: call state_dict(), the model or its optimizer before"
    )


class Step:
    """The step that this worker is in: the version of the values that its passes want."""

    def __init__(self) -> None:
        self.index = 0
        self.final = False  # all steps are made: the values that all workers leave behind are wanted
        self.closed = False  # the worker has left the job

    def version(self) -> int:
        return FINAL if self.final else self.index


class Served:
    """The servers own values, gradients and the optimizer's state of a unit. This worker keeps whole values and gradients
    (zero=1), whole values (zero=2), or neither: then they have memory while a pass or a push needs them. See `Home`."""

    def __init__(self, index: int, unit: Unit, servers: int, job: Job, vector: Vector, step: Step, zero: int) -> None:
        self.unit = FlatUnit(index, unit, unit.parameters, servers)
        self.keeps = zero < 3
        self.size = vector.size(index)
        assert self.size.count == self.unit.count
        self.predicted = Moved(0, 0)  # of the pushes and pulls that were begun
        self._zero = zero
        self._job = job
        self._vector = vector
        self._step = step
        self._asked = 0  # the version of the last pull
        self._at_servers = True
        self.unit.home = self
        if zero == 1:
            first = vector.place(self.unit.slots[0].name)
            self.unit.move_into(view_at(first.values, ctypes.c_float, torch.float32, (self.unit.count,), job))
            self.unit.gradient = view_at(first.gradients, ctypes.c_float, torch.float32, (self.unit.count,), job)

    def start(self, at_servers: bool) -> None:
        """Begins with the values of the step that the job begins with. Rank 0 of a new job has them."""
        self._at_servers = at_servers
        unit, version = self.unit, self._step.index
        if self._zero > 1:
            purpose = Purpose.PARAMETERS if self.keeps else Purpose.COMMUNICATION
            unit.move_into(memory_of(self._job, unit.count, purpose))
            if self.keeps or self._job.rank == 0:
                assert unit.whole is not None
                self._vector.begin(unit.index, unit.whole.data_ptr())
                self._expect(version)
            unit.free()
            if not self.keeps:
                unit.gathered = -1
        elif at_servers:
            self._expect(version)
        else:
            unit.gathered = version

    def _expect(self, version: int) -> None:
        """A pull of the version into the unit's values was begun."""
        self._asked = version
        self.unit.arriving(version)

    # --- values ---

    def version(self) -> int:
        # A worker that updates its own values has those that it has.
        return self._step.version() if self._at_servers else self.unit.gathered

    def values_memory(self) -> torch.Tensor:
        return memory_of(self._job, self.unit.count, Purpose.COMMUNICATION)

    def begin_fetch(self, whole: torch.Tensor, version: int) -> None:
        if self._step.closed:
            raise closed()
        self._vector.pull_into(self.unit.index, version, whole.data_ptr())
        self._asked = version
        self.predicted = self.predicted.plus(Moved(0, self.size.pulled))

    def wait_fetch(self) -> None:
        self._vector.wait(self.unit.index, self._asked)

    # --- gradients ---

    def gradient_memory(self) -> torch.Tensor:
        return memory_of(self._job, self.unit.count, Purpose.COMMUNICATION)

    def begin_reduce(self, gradient: torch.Tensor) -> None:
        index, step = self.unit.index, self._step.index
        self.predicted = self.predicted.plus(Moved(self.size.pushed, 0))
        if self._zero == 1:
            self._vector.push_pull(index, step)
            self.predicted = self.predicted.plus(Moved(0, self.size.pulled))
            self._expect(step + 1)
            return
        self._vector.push_from(index, step, gradient.data_ptr())
        if self.keeps:
            self.unit.begin_gather(step + 1)

    def absorb(self, _gradient: torch.Tensor) -> None:
        self._vector.wait_pushed(self.unit.index)
