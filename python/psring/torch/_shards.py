"""The home of Sharded's units: shards at the ranks of a group, which gather and reduce-scatter them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from .._accounts import Collective, Moved, Purpose, predicted
from .._job import Group, Op, Type, Work
from ._flat import BLOCK, FlatUnit, Slot, memory_of, rounded
from ._units import Unit


class Segment:
    """The elements of one group of the optimizer's parameters that this rank owns of a unit. The optimizer updates
    `parameter`, a vector, which may be empty."""

    __slots__ = ("shards", "number", "begin", "end", "parameter")

    def __init__(self, shards: Shards, number: int, begin: int, end: int) -> None:
        """`begin`, `end`: within the rank's part."""
        self.shards = shards
        self.number = number  # of the group
        self.begin = begin
        self.end = end
        self.parameter = nn.Parameter(shards.own[begin:end])

    def slots(self) -> list[Slot]:
        """The unit's parameters of the group."""
        return [slot for slot in self.shards.unit.slots if self.shards.group_of[slot.name] == self.number]


class Shards:
    """Rank r owns the r-th of `size` equal parts of a unit: in stage 1 the optimizer's state of it, in stage 2 also the
    gradients, in stage 3 also the values. See `Home`."""

    def __init__(self, index: int, unit: Unit, group_of: dict[str, int], group: Group, stage: int) -> None:
        """`group_of`: the number of the optimizer's group of parameters, by the parameter's name."""
        self.group = group
        self.stage = stage
        self.keeps = stage < 3
        self.group_of = group_of
        names = sorted(unit.parameters, key=group_of.__getitem__)
        self.unit = FlatUnit(index, unit, names, group.size)
        self.part = self.unit.count // group.size
        self.first = group.rank * self.part
        self.gather_bytes = predicted(group, Collective.ALL_GATHER, self.unit.count, Type.F32)
        self.reduce_bytes = predicted(group, Collective.REDUCE_SCATTER, self.unit.count, Type.F32)
        self.predicted = Moved(0, 0)  # of the operations that were begun
        self._gathering: Work | None = None
        self._reducing: Work | None = None
        self._before: list[torch.Tensor | None] = []  # stage 1: gradients that the next mean is added to
        self._hold()

    def _hold(self) -> None:
        """Moves the parameters into the job's memory."""
        group, unit = self.group, self.unit
        whole = memory_of(group.job, unit.count, Purpose.PARAMETERS if self.keeps else Purpose.COMMUNICATION)
        unit.move_into(whole)
        self._own = None if self.keeps else memory_of(group.job, self.part, Purpose.PARAMETERS)
        self.own.copy_(whole[self.first : self.first + self.part])
        ends = {self.group_of[slot.name]: rounded(slot.end, BLOCK) for slot in unit.slots}
        self.segments: list[Segment] = []
        begin = 0
        for number, end in ends.items():
            low, high = (min(max(at - self.first, 0), self.part) for at in (begin, end))
            self.segments.append(Segment(self, number, low, high))
            begin = end
        # Stage 1 keeps one whole gradient; later stages keep the part that they own.
        self._kept = memory_of(group.job, unit.count if self.stage == 1 else self.part, Purpose.GRADIENTS)
        unit.home = self
        unit.gathered = self.version()
        unit.free()

    @property
    def own(self) -> torch.Tensor:
        """This rank's part of the values."""
        if self._own is not None:
            return self._own
        assert self.unit.whole is not None
        return self.unit.whole[self.first : self.first + self.part]

    def store(self) -> None:
        """The values of the parameters, which are the same at all ranks, become those of the owned parts."""
        if self._own is not None:
            assert self.unit.whole is not None
            self._own.copy_(self.unit.whole[self.first : self.first + self.part])

    # --- values ---

    def version(self) -> int:
        """Grows when an optimizer updates the part that this rank owns, as it does at all ranks."""
        return sum(segment.parameter._version for segment in self.segments)

    def values_memory(self) -> torch.Tensor:
        return memory_of(self.group.job, self.unit.count, Purpose.COMMUNICATION)

    def begin_fetch(self, whole: torch.Tensor, _version: int) -> None:
        if self._own is not None:
            whole[self.first : self.first + self.part].copy_(self._own)
        self.predicted = self.predicted.plus(self.gather_bytes)
        self._gathering = self.group.all_gather_at(whole.data_ptr(), self.unit.count, None, Type.F32, whole)

    def wait_fetch(self) -> None:
        assert self._gathering is not None
        self._gathering.wait()
        self._gathering = None

    # --- gradients ---

    def gradient_memory(self) -> torch.Tensor:
        if self.stage > 1:
            return memory_of(self.group.job, self.unit.count, Purpose.COMMUNICATION)
        self.settle()
        for gap in self._gaps():
            self._kept[gap].zero_()  # others' parts are undefined after a reduce-scatter
        # A gradient that was not cleared lies in this rank's part: it is added again.
        self._before = []
        for segment in self.segments:
            before = segment.parameter.grad
            if before is not None:
                before = memory_of(self.group.job, before.numel(), Purpose.COMMUNICATION).copy_(before)
            self._before.append(before)
        return self._kept

    def _gaps(self) -> Iterator[slice]:
        at = 0
        for slot in self.unit.slots:
            yield slice(at, slot.begin)
            at = slot.end
        yield slice(at, self.unit.count)

    def begin_reduce(self, gradient: torch.Tensor) -> None:
        self.predicted = self.predicted.plus(self.reduce_bytes)
        self._reducing = self.group.reduce_scatter_at(gradient.data_ptr(), self.unit.count, None, Type.F32, Op.MEAN, gradient)

    def settle(self) -> None:
        """Stage 1: waits for a reduction of a backward pass that failed, which still writes into the kept gradient."""
        if self.stage == 1 and self._reducing is not None:
            self._reducing.wait()
            self._reducing = None

    def absorb(self, gradient: torch.Tensor) -> None:
        """Adds the mean to the gradients of the segments."""
        assert self._reducing is not None
        self._reducing.wait()
        self._reducing = None
        part = gradient[self.first : self.first + self.part]
        for index, segment in enumerate(self.segments):
            mean = part[segment.begin : segment.end]
            if self.stage == 1:
                self._absorb_in_place(segment, mean, self._before[index])
            elif segment.parameter.grad is None:
                segment.parameter.grad = self._kept[segment.begin : segment.end]
                segment.parameter.grad.copy_(mean)
            else:
                segment.parameter.grad.add_(mean)
        self._before = []

    @staticmethod
    def _absorb_in_place(segment: Segment, mean: torch.Tensor, before: torch.Tensor | None) -> None:
        if before is not None:
            mean.add_(before)
        segment.parameter.grad = mean
