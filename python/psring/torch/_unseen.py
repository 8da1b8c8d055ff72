"""Changes of values that autograd does not count: those in place through `data`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Callable

import torch

if TYPE_CHECKING:
    from ._flat import Slot

_FIRST = 3
_EVERY = 64


def _parameter(slot: Slot) -> torch.Tensor:
    return slot.parameter.data


class Unseen:
    """Compares sums of the values' bits, and so notices changes that autograd does not count. Sums are taken in the first three
    steps and in every 64th, which costs next to nothing: a program that changes values in this way mostly does so in each
    step."""

    def __init__(self, slots: Sequence[Slot], of: Callable[[Slot], torch.Tensor] | None = None) -> None:
        """`of`: the values of a slot: by default, the parameter's."""
        self._slots = slots
        self._of = of or _parameter
        self._sums: list[int] = []
        self._times = 0

    def record(self, always: bool = False) -> None:
        """The values are right now."""
        self._times += 1
        due = always or self._times <= _FIRST or self._times % _EVERY == 0
        self._sums = self._sums_now() if due else []

    def changed(self) -> Slot | None:
        """A slot whose values have changed since they were recorded, if they were. Forgets what was recorded."""
        sums, self._sums = self._sums, []
        if not sums:
            return None
        return next((slot for slot, old, now in zip(self._slots, sums, self._sums_now()) if old != now), None)

    def _sums_now(self) -> list[int]:
        values = [self._of(slot) for slot in self._slots]
        return [int(v.contiguous().view(torch.int32).sum()) if v.dtype == torch.float32 else -1 for v in values]
