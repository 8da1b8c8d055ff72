"""The passes through a Sharded module: when a unit's values have to be here, and when they may go."""

from __future__ import annotations

import dataclasses
from typing import Any, Iterator, Mapping, Sequence

import torch
from torch import nn

from .._library import UsageError
from ._flat import FlatUnit


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of what a module returns: a tensor, or containers of them."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from tensors_in(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors_in(part)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from tensors_in(getattr(value, field.name))


class Passes:
    """Gathers a unit before the first of its modules runs, and frees it after all of them have run. Autograd saves views of
    a unit's values as their places in the unit, so that the memory can go; a backward pass that needs them gathers the unit
    again. Where a module runs with autograd outside of a forward pass of Sharded, as a checkpoint's recomputation does, the
    values stay until the unit's gradients are complete.

    In stages 1 and 2 all values stay, and a module only waits for them."""

    def __init__(self, units: Sequence[FlatUnit], modules: Sequence[Sequence[nn.Module]], prefetch: int) -> None:
        self._units = units
        self._prefetch = prefetch
        self._frees = units[0].stage == 3
        self._hooks: Any = None
        for index, (unit, parts) in enumerate(zip(units, modules)):
            unit.index = index
            unit.modules = len(parts)
            for number, part in enumerate(parts):
                handle = part.register_forward_pre_hook(lambda _module, _inputs, unit=unit: self._before(unit))
                # Before hooks that read parameters, such as that of weight_norm.
                part._forward_pre_hooks.move_to_end(handle.id, last=False)
                part.register_forward_hook(
                    lambda _module, _inputs, outputs, unit=unit, number=number: self._after(unit, number, outputs)
                )

    def begin(self) -> None:
        """A forward pass begins."""
        for unit in self._units:
            unit.begin_pass()
        if self._frees and torch.is_grad_enabled():
            self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)
            self._hooks.__enter__()

    def end(self) -> None:
        """A forward pass has ended."""
        if self._hooks is not None:
            hooks, self._hooks = self._hooks, None
            hooks.__exit__(None, None, None)
        for unit in self._units:
            unit.end_pass()

    def end_backward(self) -> None:
        for unit in self._units:
            unit.end_backward()

    def _before(self, unit: FlatUnit) -> None:
        unit.running += 1
        with torch.no_grad():
            unit.gather()
            if self._frees:
                self._gather_ahead(range(unit.index + 1, len(self._units)), lambda other: other.expected)
        unit.mark_used()

    def _after(self, unit: FlatUnit, number: int, outputs: Any) -> None:
        if not self._frees:
            return
        unit.running -= 1
        unit.finished.add(number)
        if self._hooks is None and torch.is_grad_enabled():
            return
        if any(unit.has(tensor) for tensor in tensors_in(outputs)):
            raise UsageError(
                f"psring: a module of unit '{unit.name}' returns a parameter, or a view of one: its memory is freed after "
                "the call; return a copy"
            )
        if unit.running == 0 and len(unit.finished) == unit.modules:
            unit.finished.clear()
            unit.free()

    def _gather_ahead(self, candidates: Any, wanted: Any) -> None:
        """Begins to gather the next units that the pass will need, as the last one did."""
        for index in candidates[: self._prefetch]:
            if wanted(self._units[index]):
                self._units[index].begin_gather()

    # --- saved tensors ---

    def _pack(self, tensor: torch.Tensor) -> Any:
        for unit in self._units:
            if unit.has(tensor):
                unit.saved = True
                return unit, tensor.size(), tensor.stride(), tensor.storage_offset()
        return tensor

    def _unpack(self, kept: Any) -> torch.Tensor:
        if isinstance(kept, torch.Tensor):
            return kept
        unit, size, stride, offset = kept
        if not unit.is_here():
            if unit.changed():
                raise UsageError(f"psring: unit '{unit.name}' was updated between its forward and its backward pass")
            unit.gather()
            self._gather_ahead(range(unit.index - 1, -1, -1), lambda other: other.saved and other.missing > 0)
        unit.read = True
        return unit.whole.as_strided(size, stride, offset)
