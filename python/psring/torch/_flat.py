"""A unit as flat vectors of values and of gradients, which may come and go: the storage of Sharded and ParameterServer.
Where its values live, and where its gradients go, is a part of its own, the unit's `Home`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import torch
from torch import nn

from .._accounts import Purpose
from .._job import Job, Memory
from .._library import UsageError
from ._absent import come_back, leave
from ._units import Unit
from ._unseen import Unseen

# Tensors begin at multiples of so many elements, and the parts of a unit that ranks or servers own do, too.
BLOCK = 256
_FLOAT = 4


def rounded(count: int, to: int) -> int:
    return -(-count // to) * to


def memory_of(job: Job, count: int, purpose: Purpose) -> torch.Tensor:
    """A vector of zeros in memory that the other processes of this host reach without a copy."""
    memory = Memory(job, max(1, count) * _FLOAT, purpose)
    return torch.frombuffer(memory.array(), dtype=torch.float32, count=max(1, count))[:count]


class Slot:
    """A parameter of a unit: its place in the flat vector."""

    __slots__ = ("name", "parameter", "unit", "begin", "shape", "freed", "ready", "node", "handle", "version", "_mark", "_line")

    def __init__(self, name: str, parameter: nn.Parameter, unit: FlatUnit, begin: int) -> None:
        self.name = name
        self.parameter = parameter
        self.unit = unit
        self.begin = begin
        self.shape = parameter.shape
        # The values of a parameter that is freed: not numbers, in the right shape.
        self.freed = torch.full((), float("nan"), dtype=torch.float32, device="cpu").expand(self.shape)
        self.version = parameter._version  # after the last change of its values that was in order
        self._mark = parameter.detach().as_strided((0,), (1,))
        self._line = (
            f"psring: '{name}' has values during a pass only, since its unit is sharded: use it inside gathered(), or put it "
            "into the unit of the module that uses it (auto_wrap_policy)"
        )
        self.ready = False  # its gradient of this backward pass is complete
        # The node that accumulates the gradient. Its hook runs after it; it lives as long as somebody holds it.
        self.node: Any = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
        self.handle: Any = None

    def count_change(self) -> None:
        """Tells autograd that the values change, which it does not see: a backward pass that needs the old ones fails."""
        self._mark.zero_()  # nothing, but counted
        self.version = self.parameter._version

    def take(self, values: torch.Tensor) -> None:
        """The parameter has these values."""
        come_back(self.parameter)
        self.parameter.data = values

    def leave(self) -> None:
        """The parameter has no values, and refuses to be used."""
        come_back(self.parameter)
        self.parameter.data = self.freed
        leave(self.parameter, self._line)

    @property
    def end(self) -> int:
        return self.begin + self.shape.numel()

    def of(self, vector: torch.Tensor) -> torch.Tensor:
        """The parameter's place in a vector of the unit's length."""
        return vector[self.begin : self.end].view(self.shape)


class Home(Protocol):
    """Where a unit's values live, and where its gradients go."""

    keeps: bool  # the whole values always have memory here; otherwise they come for a pass, and go

    def version(self) -> int:
        """The version of the values that a pass wants now; an update changes it."""

    def values_memory(self) -> torch.Tensor:
        """Memory for whole values that come and go."""

    def begin_fetch(self, whole: torch.Tensor, version: int) -> None:
        """Begins to bring a version of the values into `whole`."""

    def wait_fetch(self) -> None:
        """Waits for the values that were begun."""

    def gradient_memory(self) -> torch.Tensor:
        """Memory for a whole gradient."""

    def begin_reduce(self, gradient: torch.Tensor) -> None:
        """Begins to bring a complete gradient to its owners."""

    def absorb(self, gradient: torch.Tensor) -> None:
        """Waits until the owners have it, and takes from it what is to be kept."""


class FlatUnit:
    """A unit's values and gradients. `whole` has the values: always, if its home keeps them; otherwise only while `gather`
    has been called and `free` has not."""

    home: Home

    def __init__(self, index: int, unit: Unit, names: Iterable[str], parts: int) -> None:
        """`names`: of the unit's parameters, in their order in the vector, which can be cut into `parts` equal parts."""
        self.index = index
        self.name = unit.name
        self.modules: list[nn.Module] = unit.modules  # before which the unit has to be here
        self.slots: list[Slot] = []
        at = 0
        for name in names:
            self.slots.append(Slot(name, unit.parameters[name], self, at))
            at += rounded(unit.parameters[name].numel(), BLOCK)
        self.count = rounded(at, BLOCK * parts)
        self.unseen = Unseen(self.slots)
        self._reset_passes()
        self.whole: torch.Tensor | None = None
        self.gathered = -1  # the version of the last values that came, or are on their way
        self.gathering = False
        self.gradient: torch.Tensor | None = None  # of this worker, whole

    def _reset_passes(self) -> None:
        """State of the passes; `Passes` writes it."""
        self.running = 0  # modules
        self.finished: set[int] = set()  # modules, since the unit was gathered
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
        return self._seen != self.home.version()

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

    # --- values ---

    def move_into(self, whole: torch.Tensor) -> None:
        """The parameters become views of `whole`, with the values that they have."""
        for slot in self.slots:
            slot.of(whole).copy_(slot.parameter.data)
            slot.take(slot.of(whole))
            slot.parameter.grad = None
        self.whole = whole

    def arriving(self, version: int) -> None:
        """The values of this version are on their way into `whole` already."""
        self.gathered = version
        self.gathering = True
        if self.home.keeps:
            for slot in self.slots:
                slot.count_change()

    def begin_gather(self, version: int | None = None) -> None:
        """Begins to gather the values of a version, or of the home's, if `whole` does not have them."""
        wanted = self.home.version() if version is None else version
        if self.gathering or (self.whole is not None and self.gathered == wanted):
            return
        if self.whole is None:
            self.whole = self.home.values_memory()
        self.home.begin_fetch(self.whole, wanted)
        self.arriving(wanted)

    def gather(self) -> None:
        """Waits until all parameters have their values."""
        self.begin_gather()
        if not self.gathering:
            return
        self.home.wait_fetch()
        self.gathering = False
        if not self.home.keeps:
            assert self.whole is not None
            for slot in self.slots:
                slot.take(slot.of(self.whole))
                slot.version = slot.parameter._version

    def is_here(self) -> bool:
        return self.whole is not None and not self.gathering

    def free(self) -> None:
        """The parameters have no values until the next `gather`, if the home does not keep them."""
        if self.home.keeps or self.whole is None:
            return
        if self.gathering:
            self.home.wait_fetch()
            self.gathering = False
        for slot in self.slots:
            slot.leave()
        self.whole = None

    def moved(self) -> list[Slot]:
        """The parameters that are not views of `whole` any more: a program has given them other memory, by `data = ` or a
        conversion of the module."""
        if self.whole is None:
            return []
        begin = self.whole.data_ptr()
        return [s for s in self.slots if s.end > s.begin and s.parameter.data_ptr() != begin + s.begin * _FLOAT]

    def adopt(self) -> None:
        """Takes the values of parameters that have other memory. Refuses those that have another type or shape."""
        for slot in self.moved():
            values = slot.parameter.data
            if values.dtype != torch.float32 or values.shape != slot.shape:
                raise converted(slot)
            assert self.whole is not None
            slot.take(slot.of(self.whole).copy_(values))

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
            self.gradient = self.home.gradient_memory()
        place, gradient = slot.of(self.gradient), dense_gradient(slot)
        if gradient is None:
            place.zero_()
        else:
            place.copy_(gradient)
            slot.parameter.grad = None

    def begin_reduce(self) -> None:
        """Begins to bring the gradient, of which all places are filled, to its owners."""
        assert self.gradient is not None
        self.home.begin_reduce(self.gradient)

    def absorb(self) -> None:
        """Waits until the owners have the gradient, and frees it."""
        assert self.gradient is not None
        self.home.absorb(self.gradient)
        self.gradient = None


def dense_gradient(slot: Slot) -> torch.Tensor | None:
    """The parameter's gradient. Refuses a sparse one, as functional.embedding(sparse=True) makes it."""
    gradient = slot.parameter.grad
    if gradient is not None and gradient.layout != torch.strided:
        raise UsageError(f"psring: the gradient of '{slot.name}' is sparse: make the embedding with sparse=False")
    return gradient


def converted(slot: Slot) -> UsageError:
    """The refusal of a parameter that has become another one."""
    values = slot.parameter
    return UsageError(
        f"psring: '{slot.name}' was {tuple(slot.shape)} torch.float32 when the module was wrapped, and is "
        f"{tuple(values.shape)} {values.dtype} now: convert the module before"
    )


def without_gradient(slots: Sequence[Slot], when: str) -> UsageError:
    """The refusal of a backward pass or step without gradients of some parameters."""
    frozen = next((slot for slot in slots if not slot.parameter.requires_grad), None)
    if frozen is not None:
        return UsageError(
            f"psring: '{frozen.name}' was frozen after the module was wrapped: freeze it before; find_unused_parameters=True "
            "takes zeros for its gradient"
        )
    return UsageError(
        f"psring: no gradient of '{slots[0].name}' in this {when}"
        + (f", nor of {len(slots) - 1} others" if len(slots) > 1 else "")
        + ": the loss does not depend on it; find_unused_parameters=True takes zeros, requires_grad=False before the wrapping "
        "freezes it"
    )


class Departures:
    """Whole gradients on their way to their owners. If `bounded`, one is on its way while the next one is computed, so that
    slow owners do not unbound memory."""

    def __init__(self, bounded: bool) -> None:
        self._bounded = bounded
        self._flying: deque[FlatUnit] = deque()

    def begin(self, unit: FlatUnit) -> None:
        if self._bounded and self._flying:
            self._flying.popleft().absorb()
        unit.begin_reduce()
        self._flying.append(unit)

    def wait(self) -> None:
        """Waits for all."""
        while self._flying:
            self._flying.popleft().absorb()

    def forget(self) -> None:
        self._flying.clear()
