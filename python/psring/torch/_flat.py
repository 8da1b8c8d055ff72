"""A unit as one flat vector that is cut evenly among the ranks of a group: the storage of Sharded."""

from __future__ import annotations

from typing import Any, Iterator

import torch
from torch import nn

from .._accounts import Collective, Moved, Purpose, predicted
from .._job import Group, Memory, Op, Type, Work
from ._units import Unit

# Tensors begin at multiples of so many elements, and ranks' parts do, too.
_BLOCK = 256
_FLOAT = 4


def _rounded(count: int, to: int) -> int:
    return -(-count // to) * to


def memory_of(group: Group, count: int, purpose: Purpose) -> torch.Tensor:
    """A vector of zeros in memory that the other ranks of this host reach without a copy."""
    memory = Memory(group.job, max(1, count) * _FLOAT, purpose)
    return torch.frombuffer(memory.array(), dtype=torch.float32, count=max(1, count))[:count]


class Slot:
    """A parameter of a unit: its place in the flat vector."""

    __slots__ = ("name", "parameter", "unit", "begin", "shape", "freed", "ready", "node", "handle")

    def __init__(self, name: str, parameter: nn.Parameter, unit: FlatUnit, begin: int) -> None:
        self.name = name
        self.parameter = parameter
        self.unit = unit
        self.begin = begin
        self.shape = parameter.shape
        # The values of a parameter that is freed: not numbers, in the right shape.
        self.freed = torch.full((1,), float("nan")).expand(self.shape)
        self.ready = False  # its gradient of this backward pass is complete
        # The node that accumulates the gradient. Its hook runs after it; it lives as long as somebody holds it.
        self.node: Any = parameter.expand_as(parameter).grad_fn.next_functions[0][0]  # type: ignore[union-attr]
        self.handle: Any = None

    @property
    def end(self) -> int:
        return self.begin + self.shape.numel()

    def of(self, vector: torch.Tensor) -> torch.Tensor:
        """The parameter's place in a vector of the unit's length."""
        return vector[self.begin : self.end].view(self.shape)


class Segment:
    """The elements of one group of the optimizer's parameters that this rank owns of a unit. The optimizer updates
    `parameter`, a vector, which may be empty."""

    __slots__ = ("unit", "number", "begin", "end", "parameter")

    def __init__(self, unit: FlatUnit, number: int, begin: int, end: int, own: torch.Tensor) -> None:
        """`begin`, `end`: within the rank's part, `own`."""
        self.unit = unit
        self.number = number  # of the group
        self.begin = begin
        self.end = end
        self.parameter = nn.Parameter(own[begin:end])

    def slots(self) -> list[Slot]:
        """The unit's parameters of the group."""
        return [slot for slot in self.unit.slots if self.unit.group_of[slot.name] == self.number]


class FlatUnit:
    """A unit's values and gradients. Rank r owns the r-th of `size` equal parts of the flat vector. In stages 1 and 2
    `whole` always has memory; in stage 3 only while `gather` has been called and `free` has not."""

    def __init__(self, unit: Unit, group_of: dict[str, int], group: Group, stage: int) -> None:
        """`group_of`: the number of the optimizer's group of parameters, by the parameter's name."""
        self.name = unit.name
        self.group = group
        self.stage = stage
        self.group_of = group_of
        self.slots: list[Slot] = []
        ends: dict[int, int] = {}
        at = 0
        for name, parameter in sorted(unit.parameters.items(), key=lambda item: group_of[item[0]]):
            self.slots.append(Slot(name, parameter, self, at))
            at += _rounded(parameter.numel(), _BLOCK)
            ends[group_of[name]] = at
        self.count = _rounded(at, _BLOCK * group.size)
        self.part = self.count // group.size
        self.first = group.rank * self.part
        self._hold(ends)
        self.gather_bytes = predicted(group, Collective.ALL_GATHER, self.count, Type.F32)
        self.reduce_bytes = predicted(group, Collective.REDUCE_SCATTER, self.count, Type.F32)
        self.predicted = Moved(0, 0)  # of the operations that were begun
        self._reset_passes()
        self.gathering: Work | None = None
        self.gathered = self.version()  # the version of the segments that `whole` has
        self.gradient: torch.Tensor | None = None  # of this rank, whole
        self.reducing: Work | None = None
        self._before: list[torch.Tensor | None] = []  # stage 1: gradients that the next mean is added to
        self.free()

    def _reset_passes(self) -> None:
        """State of the passes; `Passes` and `Sharded` write it."""
        self.index = 0
        self.modules = 0  # before which the unit has to be here
        self.running = 0  # of them
        self.finished: set[int] = set()  # of them, since the unit was gathered
        self.used = False  # one of the modules was ever called
        self.expected = False  # the last forward pass has used it
        self.saved = False  # autograd has saved values of it, which no backward pass has read
        self.read = False  # a backward pass has read values of it
        self._in_pass = False  # this forward pass has used it
        self.missing = len(self.slots)  # parameters whose gradients of this backward pass are not complete
        self._seen = -1  # the version that the last forward pass has used

    def mark_used(self) -> None:
        """A forward pass reads the values."""
        self.used = self._in_pass = True
        self._seen = self.gathered

    def changed(self) -> bool:
        """Was the unit updated after the last forward pass?"""
        return self._seen != self.version()

    def begin_pass(self) -> None:
        self.running = 0
        self.finished.clear()
        self._in_pass = False

    def end_pass(self) -> None:
        """A forward pass has ended, by an exception perhaps: the values are not needed any more."""
        self.expected = self._in_pass
        self.free()

    def end_backward(self) -> None:
        self.free()
        self.saved = False
        self.missing = len(self.slots)
        for slot in self.slots:
            slot.ready = False

    def _hold(self, ends: dict[int, int]) -> None:
        """Moves the parameters into the job's memory."""
        group, kept = self.group, self.stage < 3
        whole = memory_of(group, self.count, Purpose.PARAMETERS if kept else Purpose.COMMUNICATION)
        for slot in self.slots:
            slot.of(whole).copy_(slot.parameter.data)
            slot.parameter.data = slot.of(whole)
            slot.parameter.grad = None
        self.whole: torch.Tensor | None = whole
        self._own = None if kept else memory_of(group, self.part, Purpose.PARAMETERS)
        self.own.copy_(whole[self.first : self.first + self.part])
        self.segments: list[Segment] = []
        begin = 0
        for number, end in ends.items():
            low, high = (min(max(at - self.first, 0), self.part) for at in (begin, end))
            self.segments.append(Segment(self, number, low, high, self.own))
            begin = end
        # Stage 1 keeps one whole gradient; later stages keep the part that they own.
        self._kept = memory_of(group, self.count if self.stage == 1 else self.part, Purpose.GRADIENTS)

    @property
    def own(self) -> torch.Tensor:
        """This rank's part of the values."""
        if self._own is not None:
            return self._own
        assert self.whole is not None
        return self.whole[self.first : self.first + self.part]

    def version(self) -> int:
        """Grows when an optimizer updates the part that this rank owns, as it does at all ranks."""
        return sum(segment.parameter._version for segment in self.segments)

    # --- values ---

    def begin_gather(self) -> None:
        """Begins to gather the values, if `whole` does not have them."""
        if self.gathering is not None or (self.whole is not None and self.gathered == self.version()):
            return
        if self.whole is None:
            self.whole = memory_of(self.group, self.count, Purpose.COMMUNICATION)
        if self._own is not None:
            self.whole[self.first : self.first + self.part].copy_(self._own)
        self.gathered = self.version()
        self.predicted = self.predicted.plus(self.gather_bytes)
        self.gathering = self.group.all_gather_at(self.whole.data_ptr(), self.count, None, Type.F32, self.whole)

    def gather(self) -> None:
        """Waits until all parameters have their values."""
        self.begin_gather()
        if self.gathering is None:
            return
        self.gathering.wait()
        self.gathering = None
        if self.stage == 3:
            assert self.whole is not None
            for slot in self.slots:
                slot.parameter.data = slot.of(self.whole)

    def is_here(self) -> bool:
        return self.whole is not None and self.gathering is None

    def free(self) -> None:
        """Stage 3: the parameters have no values until the next `gather`."""
        if self.stage < 3 or self.whole is None:
            return
        if self.gathering is not None:
            self.gathering.wait()
            self.gathering = None
        for slot in self.slots:
            slot.parameter.data = slot.freed
        self.whole = None

    def store(self) -> None:
        """The values of the parameters, which are the same at all ranks, become those of the owned parts."""
        if self._own is not None:
            assert self.whole is not None
            self._own.copy_(self.whole[self.first : self.first + self.part])

    def has(self, tensor: torch.Tensor) -> bool:
        """Does the tensor lie in the memory of the whole values?"""
        if self.whole is None:
            return False
        begin = self.whole.data_ptr()
        return begin <= tensor.data_ptr() < begin + self.count * _FLOAT

    # --- gradients ---

    def place(self, slot: Slot) -> None:
        """Moves a complete gradient into the flat vector; no gradient counts as zeros."""
        if self.gradient is None:
            self.gradient = self._whole_gradient()
        place = slot.of(self.gradient)
        if slot.parameter.grad is None:
            place.zero_()
        else:
            place.copy_(slot.parameter.grad)
            slot.parameter.grad = None

    def _whole_gradient(self) -> torch.Tensor:
        if self.stage > 1:
            return memory_of(self.group, self.count, Purpose.COMMUNICATION)
        for gap in self._gaps():
            self._kept[gap].zero_()  # others' parts are undefined after a reduce-scatter
        # A gradient that was not cleared lies in this rank's part: it is added again.
        for segment in self.segments:
            before = segment.parameter.grad
            if before is not None:
                before = memory_of(self.group, before.numel(), Purpose.COMMUNICATION).copy_(before)
            self._before.append(before)
        return self._kept

    def _gaps(self) -> Iterator[slice]:
        at = 0
        for slot in self.slots:
            yield slice(at, slot.begin)
            at = slot.end
        yield slice(at, self.count)

    def begin_reduce(self) -> None:
        """Begins the reduce-scatter of the gradient, of which all places are filled."""
        assert self.gradient is not None
        at = self.gradient.data_ptr()
        self.predicted = self.predicted.plus(self.reduce_bytes)
        self.reducing = self.group.reduce_scatter_at(at, self.count, None, Type.F32, Op.MEAN, self.gradient)

    def absorb(self) -> None:
        """Waits for the mean, adds it to the gradients of the segments, and frees the whole gradient."""
        assert self.reducing is not None and self.gradient is not None
        self.reducing.wait()
        self.reducing = None
        part = self.gradient[self.first : self.first + self.part]
        for index, segment in enumerate(self.segments):
            mean = part[segment.begin : segment.end]
            if self.stage == 1:
                self._absorb_in_place(segment, mean, self._before[index])
            elif segment.parameter.grad is None:
                segment.parameter.grad = self._kept[segment.begin : segment.end]
                segment.parameter.grad.copy_(mean)
            else:
                segment.parameter.grad.add_(mean)
        self.gradient = None
        self._before = []

    @staticmethod
    def _absorb_in_place(segment: Segment, mean: torch.Tensor, before: torch.Tensor | None) -> None:
        if before is not None:
            mean.add_(before)
        segment.parameter.grad = mean
