"""The gradients of a ParameterServer's step: from where autograd accumulates them to the servers."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch

from .._library import UsageError
from ._absent import Absent
from ._flat import Departures, FlatUnit, Slot, converted, dense_gradient, without_gradient
from ._served import Served, Step
from ._unseen import Unseen

_ALONE = sys.getrefcount(torch.empty(0)) + 1  # of a tensor that one variable has


def _pushed(slot: Slot, zero: int) -> str:
    return (
        f"psring: the gradient of '{slot.name}' was pushed to the servers, and is gone with zero={zero}: the servers own it; "
        "use clip_norm=, or zero=1"
    )


def _changed(slot: Slot) -> UsageError:
    return UsageError(
        f"psring: the gradient of '{slot.name}' was changed after it was pushed; use clip_norm= or updates='mean'"
    )


class Pushes:
    """Pushes a unit when the gradients of all its parameters are complete. With zero=1 they stay, as `grad` of the
    parameters; otherwise their memory goes when the servers have them."""

    def __init__(self, served: Sequence[Served], step: Step, zero: int, at_servers: bool) -> None:
        """`at_servers`: the servers update; otherwise they average, and what they send back are gradients."""
        self._units = [each.unit for each in served]
        self._slots = [slot for unit in self._units for slot in unit.slots]
        self._step = step
        self._zero = zero
        self._at_servers = at_servers
        self._departures = Departures(bounded=True)
        # zero=1: the places that gradients are pushed from, and the versions that were pushed.
        self._kept: dict[Slot, torch.Tensor] = {}
        self._pushed: dict[Slot, int] = {}
        for unit in self._units:
            if unit.gradient is not None:
                # `data` counts its changes by itself; views of one tensor would count together.
                self._kept.update({slot: slot.of(unit.gradient).data for slot in unit.slots})
        watched = self._units if zero == 1 and at_servers else []
        self._unseen = {unit: Unseen(unit.slots, lambda slot: self._kept[slot].data) for unit in watched}
        self._stand_ins = {slot: Absent.of(slot.shape, _pushed(slot, zero)) for slot in self._slots} if zero > 1 else {}
        self._begin()

    def _begin(self) -> None:
        self._placed: set[Slot] = set()  # parameters whose gradients of this step are complete
        self._lacking = [len(unit.slots) for unit in self._units]  # those whose are not, by unit

    def refuse_second(self, slot: Slot) -> None:
        if slot in self._placed:
            raise UsageError(
                f"psring: a second gradient of '{slot.name}' before optimizer.step(): run all backward passes of a step but "
                "the last one in no_sync()"
            )

    def clear(self, slot: Slot) -> None:
        """Takes the stand-in of a pushed gradient away: nothing can be added to it."""
        if slot in self._placed:
            slot.parameter.grad = None

    def complete(self, slot: Slot) -> None:
        """The parameter's gradient is complete: pushes the unit if it was the last one."""
        self.refuse_second(slot)
        self._place(slot)
        if self._lacking[slot.unit.index] == 0:
            self._push(slot.unit)

    def _place(self, slot: Slot) -> None:
        """Moves a gradient to where it is pushed from."""
        self._placed.add(slot)
        self._lacking[slot.unit.index] -= 1
        if self._zero > 1:
            slot.unit.place(slot)
            slot.parameter.grad = self._stand_ins[slot]
            return
        gradient, kept = dense_gradient(slot), self._kept.pop(slot)
        if gradient is not kept and sys.getrefcount(kept) > _ALONE:  # a program keeps an earlier gradient, and its values
            own = kept.data
            kept.data = kept.clone()
            kept = own
        self._kept[slot] = kept
        if gradient is None:
            kept.zero_()
        elif gradient.data_ptr() != kept.data_ptr() or gradient.stride() != kept.stride():
            kept.copy_(gradient)
        slot.parameter.grad = kept
        self._pushed[slot] = kept._version

    def _push(self, unit: FlatUnit) -> None:
        for slot in unit.slots:
            if self._at_servers and slot.parameter._version != slot.version:
                raise UsageError(
                    f"psring: '{slot.name}' was changed on this worker, but the servers own it: exactly one optimizer may "
                    "update it; updates='mean' keeps the optimizer on the workers"
                )
        changed = unit.unseen.changed() if unit.home.keeps else None
        if changed is not None:
            self.refuse_others()
            raise UsageError(
                f"psring: '{changed.name}' was changed through its `data`, but the servers own it, and their next values "
                "replace the change: make it before the module is wrapped, or use updates='mean'"
            )
        if unit in self._unseen:
            self._unseen[unit].record()
        if self._zero > 1:
            self._departures.begin(unit)
        else:
            unit.begin_reduce()

    def push_rest(self, unused: bool) -> None:
        """Pushes the units that backward has not completed, and ends the step's pushes. `unused`: a parameter without a
        gradient counts as zeros."""
        lacking = [slot for slot in self._slots if slot not in self._placed]
        self.refuse_others()
        if len(lacking) == len(self._slots) and not unused:
            raise UsageError("psring: optimizer.step() without a backward pass of this module before it")
        if lacking and not unused:
            raise without_gradient(lacking, "step")
        for unit in self._units:
            if self._lacking[unit.index] == 0:
                continue
            for slot in unit.slots:
                if slot not in self._placed:
                    self._place(slot)
            self._bring_up_to_date(unit)
            self._push(unit)
        self._refuse_changes()
        self._departures.wait()

    def refuse_others(self) -> None:
        """Refuses parameters that have become others: nothing brings values or gradients to those."""
        for slot in self._slots:
            if slot.parameter.dtype != torch.float32:
                raise converted(slot)
        moved = [slot for unit in self._units if self._at_servers and unit.home.keeps for slot in unit.moved()]
        if moved:
            raise UsageError(
                f"psring: '{moved[0].name}' has other memory than the servers' values, by an assignment to its `data`: assign "
                "before the module is wrapped, or use updates='mean'"
            )

    def _refuse_changes(self) -> None:
        """The servers have the gradients: what was done to them since would have no effect."""
        for slot in self._slots:
            place = self._kept[slot] if self._zero == 1 else self._stand_ins[slot]
            if slot.parameter.grad is not place:
                raise UsageError(
                    f"psring: the gradient of '{slot.name}' was taken away or replaced after it was pushed to the servers: "
                    "zero_grad() belongs after optimizer.step()"
                )
            if self._zero == 1 and place._version != self._pushed[slot]:
                raise _changed(slot)
        changed = [slot for slot in (each.changed() for each in self._unseen.values()) if slot is not None]
        if changed:
            raise _changed(changed[0])

    def restore(self) -> None:
        """After a backward pass that was refused, and whose gradients count for nothing."""
        if self._zero > 1:
            for slot in self._placed:
                slot.parameter.grad = self._stand_ins[slot]

    def are_complete(self) -> bool:
        """Has backward completed the gradients of all parameters?"""
        return len(self._placed) == len(self._slots)

    def are_begun(self) -> bool:
        return len(self._placed) > 0

    def _bring_up_to_date(self, unit: FlatUnit) -> None:
        """A worker pushes a step's gradient after the step's values were here, for which no module may have asked."""
        if unit.home.keeps:
            unit.gather()
        elif unit.gathered != self._step.index:
            unit.gather()
            unit.free()

    def end_step(self) -> None:
        """The next backward pass belongs to the next step."""
        self._step.index += 1
        self._begin()

    def drop(self) -> None:
        """Servers may still read the gradients: they are no parameter's any more."""
        for slot in self._slots:
            slot.parameter.grad = None
