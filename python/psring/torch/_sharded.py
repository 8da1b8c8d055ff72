"""Sharded: a module whose parameters, gradients and optimizer state are sharded among the workers (ZeRO, FSDP)."""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable

import torch
from torch import distributed as dist
from torch import nn

from .._accounts import Moved, Purpose, book, moved
from .._job import Op, Type
from .._library import UsageError
from ._absent import Absent
from ._flat import Departures, Slot, without_gradient
from ._optimizer import check_optimizer, require_elementwise, set_step
from ._passes import Passes, whole
from ._scaling import share_infinities
from ._sharded_state import ShardedState
from ._shards import Shards
from ._units import Policy, check_parameters, make_units, sort_by_calls
from ._vector import broadcast
from ._wrapper import Untrained, Wrapper
from .backend import process_group_of, split_all

_ADVICE = (
    "all ranks have to make the forward and backward passes of a Sharded (an evaluation's, too), and call state_dict(), "
    "gathered() and clip_grad_norm_() together"
)


class Sharded(Wrapper):
    """Trains `module` with data parallelism. Each worker owns the n-th part of the optimizer's state (stage 1), also of the
    gradients (stage 2), also of the parameters (stage 3: FSDP).

    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
    model = psring.torch.Sharded(module, optimizer, stage=3)
    loss(model(x), y).backward(); optimizer.step()      # the loop stays as it was

    optimizer: a torch.optim optimizer of the module's parameters, which then updates the part that this worker owns: flat
        vectors. So its rule has to treat each element by itself.
    stage: 1, 2 or 3.
    auto_wrap_policy: which modules are units, with the signature of FSDP's policies. A unit moves as a whole.
    process_group: the workers; None: the default group, whose backend is "psring".
    find_unused_parameters: a parameter without gradient in a backward pass counts as zeros; False: it is an error.
    broadcast_buffers: a forward pass in training begins with rank 0's buffers.
    prefetch: stage 3: units that are gathered ahead of the one that a pass needs.
    elementwise: True: an optimizer that psring does not know treats each element by itself.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        stage: int = 3,
        auto_wrap_policy: Policy | None = None,
        process_group: dist.ProcessGroup | None = None,
        find_unused_parameters: bool = False,
        broadcast_buffers: bool = True,
        prefetch: int = 1,
        elementwise: bool = False,
    ) -> None:
        super().__init__(module)
        if stage not in (1, 2, 3):
            raise UsageError(f"psring: stage={stage!r}: expected 1, 2 or 3")
        if prefetch not in (0, 1, 2):
            raise UsageError(f"psring: prefetch={prefetch!r}: expected 0, 1 or 2")
        check_parameters(module, False)
        check_optimizer(module, optimizer)
        require_elementwise(optimizer, elementwise)
        self.stage = stage
        self._group = process_group_of(process_group)
        self._world = self._group.group  # for everything but the units' values and gradients
        self.job = self._group.job
        units = make_units(module, auto_wrap_policy)
        if not units:
            raise UsageError("psring: the module has no parameter to train")
        broadcast(self._world, [p.data for unit in units for p in unit.parameters.values() if p.numel() > 0])
        self._untrained = Untrained(module, self._world, broadcast_buffers)
        group_of = {id(p): n for n, group in enumerate(optimizer.param_groups) for p in group["params"]}
        sort_by_calls(units, module)
        traffic = split_all(self._group, _ADVICE)
        self._shards = [
            Shards(index, unit, {name: group_of[id(p)] for name, p in unit.parameters.items()}, traffic, stage)
            for index, unit in enumerate(units)
        ]
        self._units = [shards.unit for shards in self._shards]
        self._optimizer = optimizer
        self._optimizer_bytes = 0
        self._unused = find_unused_parameters
        # A stand-in takes the place of a gradient that was reduced; a program clears it, and so the gradient.
        self._stand_ins = {
            slot: Absent.of(
                slot.shape,
                f"psring: the gradient of '{slot.name}' is sharded: clip_grad_norm_() of the Sharded takes all parts, and the "
                "optimizer's param_groups have this worker's",
                clear=functools.partial(setattr, slot.parameter, "grad", None),
            )
            for unit in self._units
            for slot in unit.slots
        }
        self._reduced: set[Shards] = set()  # since their gradients were cleared
        self._next = len(self._units)  # units from here on are being reduced in this backward pass
        self._departures = Departures(bounded=stage > 1)
        self._passes = Passes(self._units, prefetch, self._end_backward)
        self._state = ShardedState(module, optimizer, self._shards, self._world, self.synchronize)
        self._hook()

    def _hook(self) -> None:
        for unit in self._units:
            for slot in unit.slots:
                slot.handle = slot.node.register_hook(lambda *_gradients, slot=slot: self._passes.run(self._accumulated, slot))
                slot.parameter.register_hook(lambda _gradient, slot=slot: self._make_room(slot))
        self._optimizer._psring = True  # type: ignore[attr-defined]
        share_infinities(self._optimizer, self._world)
        set_step(self._optimizer, _update(self, self._optimizer.step))
        clear = _clear(self, self._optimizer.zero_grad)
        self._optimizer.zero_grad = types.MethodType(clear, self._optimizer)  # type: ignore[method-assign]
        self._book_state()

    # --- forward ---

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        self._refuse_forked()
        self._untrained.begin_pass(self.training and self._syncs)
        self._begin_gathers()
        return self._passes.forward(self.module, inputs, keywords)

    # --- backward ---

    def _make_room(self, slot: Slot) -> None:
        """Before backward accumulates a gradient, also in a pass that has failed: nothing can be added to a stand-in."""
        self._passes.run(self._about_to_accumulate, slot)
        if slot.parameter.grad is self._stand_ins[slot]:
            slot.parameter.grad = None

    def _about_to_accumulate(self, slot: Slot) -> None:
        """Before backward accumulates the first gradient of a unit: whole gradients are added up on their own."""
        shards = self._shards[slot.unit.index]
        if shards in self._reduced:
            self._take_clearing_over(shards)
            self._reduced.discard(shards)
            for each in shards.unit.slots:
                if each.parameter.grad is self._stand_ins[each]:
                    each.parameter.grad = None

    def _take_clearing_over(self, shards: Shards) -> None:
        """A program clears gradients by the optimizer, the Sharded, or the module, which has the stand-ins only."""
        stands = [slot.parameter.grad is self._stand_ins[slot] for slot in shards.unit.slots]
        if all(stands):
            return
        if any(stands) or any(slot.parameter.grad is not None for slot in shards.unit.slots):
            slot = shards.unit.slots[stands.index(False)]
            raise UsageError(
                f"psring: the gradient of '{slot.name}' was taken away or replaced, others of its unit '{shards.unit.name}' "
                "were not: clear all of them, or none"
            )
        for segment in shards.segments:
            segment.parameter.grad = None
        self._reduced.discard(shards)

    def _place(self, slot: Slot) -> None:
        slot.unit.place(slot)
        slot.parameter.grad = self._stand_ins[slot]

    def _depart_next(self) -> None:
        """Begins to reduce the next unit, whose gradients are in their places."""
        self._next -= 1
        self._departures.begin(self._units[self._next])
        self._reduced.add(self._shards[self._next])

    def _accumulated(self, slot: Slot) -> None:
        """After backward has accumulated the parameter's gradient."""
        self._passes.arrived(slot)
        if not self._syncs:
            return
        self._place(slot)
        # All ranks reduce in one order, whatever the order in which their gradients are complete.
        while self._next > 0 and self._units[self._next - 1].missing == 0:
            self._depart_next()

    def _end_backward(self, failed: bool) -> None:
        begun = any(slot.ready for unit in self._units for slot in unit.slots)
        lacking = [slot for unit in self._units for slot in unit.slots if not slot.ready]
        try:
            if begun and self._syncs and not failed:
                self._reduce_rest(lacking)
        finally:
            self._next = len(self._units)
            self._departures.forget()  # those of a pass that has failed
            for unit in self._units:
                unit.gradient = None

    def _reduce_rest(self, lacking: list[Slot]) -> None:
        """Reduces the units that backward has not completed, and waits for all."""
        without = [s for s in lacking if s.parameter.grad is None or s.parameter.grad is self._stand_ins[s]]
        if without and not self._unused:
            raise without_gradient(without, "backward pass")
        for slot in lacking:
            if slot.parameter.grad is self._stand_ins[slot]:
                self._about_to_accumulate(slot)
            self._place(slot)
        while self._next > 0:
            self._depart_next()
        self._departures.wait()

    # --- the update ---

    def _refuse_own_gradients(self) -> None:
        """The optimizer updates with reduced gradients, and would not see those of this worker alone."""
        for slot in (slot for unit in self._units for slot in unit.slots):
            if slot.parameter.grad is not None and slot.parameter.grad is not self._stand_ins[slot]:
                raise UsageError(
                    f"psring: optimizer.step(): the gradient of '{slot.name}' is this worker's own, and was not reduced: the "
                    "last backward pass of a step runs outside of no_sync(), through the Sharded"
                )

    def _begin_gathers(self) -> None:
        """Stages 1 and 2: begins to gather the units that the optimizer has updated."""
        if self.stage < 3:
            for unit in self._units:
                unit.begin_gather()

    def _book_state(self) -> None:
        """Books the optimizer's state, which is PyTorch's memory."""
        size = sum(
            value.numel() * value.element_size()
            for state in self._optimizer.state.values()
            for value in state.values()
            if isinstance(value, torch.Tensor) and value.dim() > 0
        )
        book(self.job, Purpose.OPTIMIZER, size - self._optimizer_bytes)
        self._optimizer_bytes = size

    # --- the user's side ---

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients, as the optimizer's `zero_grad` does."""
        self._optimizer.zero_grad(set_to_none=set_to_none)

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False) -> torch.Tensor:
        """Scales the gradients so that their norm over all parameters is at most `max_norm`; returns the norm before. All
        workers call it, between backward and the update. As torch.nn.utils.clip_grad_norm_ with a norm that is not finite."""
        gradients = [s.parameter.grad for each in self._shards for s in each.segments if s.parameter.grad is not None]
        gradients = [gradient for gradient in gradients if gradient.numel() > 0]
        norm_type = float(norm_type)
        if norm_type == float("inf"):
            most = torch.stack([g.abs().max() for g in gradients] or [torch.zeros(())]).max().double()
            none = most.isnan()  # a rank's maximum may pass over what is no number
            total, how = torch.stack([most.nan_to_num(0.0, float("inf")), none.double()]), Op.MAX
        else:
            powers = [(g.double().abs() ** norm_type).sum() for g in gradients]
            total, how = torch.stack(powers or [torch.zeros((), dtype=torch.float64)]).sum().reshape(1), Op.SUM
        self._world.all_reduce_at(total.data_ptr(), total.numel(), Type.F64, how, total).wait()
        norm = total[0] ** (1.0 / norm_type) if how is Op.SUM else total[0].where(total[1] == 0, total.new_tensor(math.nan))
        if error_if_nonfinite and not math.isfinite(norm):
            raise RuntimeError(f"psring: the gradients' norm is {float(norm)}: no gradient was scaled")
        factor = float(max_norm) / (float(norm) + 1e-6)
        if not factor >= 1:  # not a number, too: gradients are then none either
            for gradient in gradients:
                gradient.mul_(factor)
        return norm.float()

    def synchronize(self) -> None:
        """Stages 1 and 2: waits until all parameters have the values of the last update. optimizer.step(), forward passes and
        state_dict() do it by themselves."""
        if self.stage < 3:
            for unit in self._units:
                unit.gather()

    @contextmanager
    def gathered(self, write: bool = False) -> Iterator[None]:
        """Inside, all parameters have their values. All workers call it. write: the values may be changed, and all workers get
        rank 0's."""
        try:
            with whole(self._units, self._world if write else None):
                yield
            for shards in self._shards if write else ():
                shards.store()
        finally:
            for shards in self._shards:
                shards.unit.free()

    def traffic(self) -> tuple[Moved, Moved]:
        """The bytes that this worker has moved for values and gradients, and those that the formulas give for these
        calls. All workers call it."""
        self.synchronize()
        self._world.barrier()
        predicted = Moved(0, 0)
        for shards in self._shards:
            predicted = predicted.plus(shards.predicted)
        return moved(self._shards[0].group), predicted

    def step_bytes(self, accumulate: int = 1) -> Moved:
        """The bytes of a step with so many forward and backward passes, each of them reduced. Stage 3 gathers for a backward
        pass the units whose values it has read in the last one."""
        total = Moved(0, 0)
        for shards in self._shards:
            passes = accumulate * (1 + shards.unit.read) if self.stage == 3 else 1
            for part in (*[shards.gather_bytes] * passes, *[shards.reduce_bytes] * accumulate):
                total = total.plus(part)
        return total


def _update(sharded: Sharded, own: Callable[..., Any]) -> Callable[..., Any]:
    def step(_optimizer: Any, *arguments: Any, **keywords: Any) -> Any:
        """Updates the part that this worker owns."""
        sharded._refuse_unsynced_step()
        for shards in list(sharded._reduced):
            sharded._take_clearing_over(shards)
        for unit in sharded._units:
            unit.adopt()
        sharded._refuse_own_gradients()
        result = own(*arguments, **keywords)
        sharded._begin_gathers()
        sharded.synchronize()  # a program may read the parameters now
        sharded._book_state()
        return result

    return step


def _clear(sharded: Sharded, own: Callable[..., Any]) -> Callable[..., Any]:
    def zero_grad(_optimizer: Any, *arguments: Any, **keywords: Any) -> None:
        """Clears this worker's part of the gradients, and what the parameters have: stand-ins, or what no_sync() has added
        up."""
        for shards in sharded._shards:
            shards.settle()
        own(*arguments, **keywords)
        for slot in (slot for unit in sharded._units for slot in unit.slots):
            slot.parameter.grad = None
        sharded._reduced.clear()

    return zero_grad
