"""The passes through a module of flat units: when a unit's values have to be here, and when they may go."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Callable, NamedTuple

import torch
from torch import nn

from .._job import Group
from .._library import Error, UsageError
from ._flat import FlatUnit, Slot
from ._hooks import Hook
from ._vector import broadcast


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


class _Place(NamedTuple):
    """A saved tensor's place in a unit's values, and how it reads them: view_as_complex and conj are views, too."""

    unit: FlatUnit
    size: torch.Size
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    conjugate: bool
    negative: bool


class Passes:
    """Gathers a unit before the first of its modules runs, and frees it after all of them have run. Autograd saves views of
    a unit's values as their places in the unit, so that the memory can go; a backward pass that needs them gathers the unit
    again. Where a module runs with autograd outside of a forward pass of the whole, as a checkpoint's recomputation does,
    the values stay until the unit's gradients are complete.

    If the units' home keeps all values, a module only waits for them."""

    def __init__(
        self,
        units: Sequence[FlatUnit],
        prefetch: int,
        ended: Callable[[bool], None] = lambda _failed: None,
        begins: Callable[[], None] = lambda: None,
    ) -> None:
        """`ended`: called at the end of a backward pass; a pass that fails is raised after it. `begins`: called before a
        module of a unit runs in a forward pass; may refuse it."""
        self._units = units
        self._prefetch = prefetch
        self._ended = ended
        self._begins = begins
        self._frees = not units[0].home.keeps
        self._hooks: Any = None
        self._in_backward = False
        self._error: BaseException | None = None  # of a hook of this backward pass
        self._handles: list[Any] = []
        for unit in units:
            for number, part in enumerate(unit.modules):
                handle = part.register_forward_pre_hook(Hook(lambda _module, _inputs, unit=unit: self._before(unit)))
                # Before hooks that read parameters, such as that of weight_norm.
                part._forward_pre_hooks.move_to_end(handle.id, last=False)  # type: ignore[attr-defined]
                self._handles.append(handle)
                if self._frees:
                    handle = part.register_forward_hook(
                        Hook(lambda _module, _inputs, outputs, unit=unit, number=number: self._after(unit, number, outputs))
                    )
                    self._handles.append(handle)

    def close(self) -> None:
        """The modules run without passes from now on."""
        for handle in self._handles:
            handle.remove()

    # --- forward ---

    def forward(self, module: nn.Module, inputs: Any, keywords: Any) -> Any:
        """Calls the module, and notices when a backward pass of what it returns begins."""
        self._is_within_backward()
        self._begin()
        try:
            outputs = module(*inputs, **keywords)
        finally:
            self._end()
        for tensor in tensors_in(outputs):
            if tensor.requires_grad:
                tensor.register_hook(self._on_gradient)
        return outputs

    def _begin(self) -> None:
        for unit in self._units:
            unit.begin_pass()
        if self._frees and torch.is_grad_enabled():
            self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)
            self._hooks.__enter__()

    def _end(self) -> None:
        if self._hooks is not None:
            hooks, self._hooks = self._hooks, None
            hooks.__exit__(None, None, None)
        for unit in self._units:
            unit.end_pass()

    def _before(self, unit: FlatUnit) -> None:
        if self._is_within_backward():  # a checkpoint computes again
            self.run(self._bring, unit)
        else:
            self._begins()
            self._bring(unit)
        unit.mark_used()

    def _bring(self, unit: FlatUnit) -> None:
        with torch.no_grad():
            unit.gather()
            if self._frees:
                unit.running += 1
                if unit.running == 1 and not unit.finished:
                    unit.unseen.record()
                self._gather_ahead(range(unit.index + 1, len(self._units)), lambda other: other.expected)

    def _after(self, unit: FlatUnit, number: int, outputs: Any) -> None:
        unit.running -= 1
        unit.finished.add(number)
        if self._hooks is None and torch.is_grad_enabled():
            return
        if any(unit.has(tensor) for tensor in tensors_in(outputs)):
            raise UsageError(
                f"psring: a module of unit '{unit.name}' returns a parameter, or a view of one: its memory is freed after "
                "the call; return a copy"
            )
        ends = unit.running == 0 and len(unit.finished) == len(unit.modules)
        changed = [slot for slot in unit.slots if slot.parameter._version != slot.version] + unit.moved()
        unseen = unit.unseen.changed() if ends else None
        if unseen is not None:
            changed.append(unseen)
        if changed:
            raise UsageError(
                f"psring: '{changed[0].name}' was changed during a pass: its memory is freed after the call, and the change "
                "with it; gathered(write=True) keeps changes"
            )
        if ends:
            unit.finished.clear()
            unit.free()

    def _gather_ahead(self, candidates: range, wanted: Callable[[FlatUnit], bool]) -> None:
        """Begins to gather the next units that the pass will need, as the last one did."""
        for index in candidates[: self._prefetch]:
            if wanted(self._units[index]):
                self._units[index].begin_gather()

    # --- backward ---

    def _on_gradient(self, _gradient: torch.Tensor) -> None:
        self.begin_backward()

    def begin_backward(self) -> bool:
        """A backward pass has begun, or goes on. False: no pass calls this, but a program that looks at a saved tensor."""
        if not self._in_backward:
            try:
                torch.autograd.Variable._execution_engine.queue_callback(self._finish_backward)
            except RuntimeError:
                return False
            self._in_backward = True
        return True

    def _is_within_backward(self) -> bool:
        """Does a backward pass call this? Ends the last pass if it has ended by an exception, which runs no callback."""
        if not self._in_backward:
            return False
        try:
            torch.autograd.Variable._execution_engine.queue_callback(lambda: None)
        except RuntimeError:
            self._end_backward(failed=True)
        return self._in_backward

    def run(self, body: Callable[..., None], *arguments: Any) -> None:
        """Calls `body` from a hook of the backward pass. The pass raises its error at its end, and does nothing more until
        then: PyTorch would keep what is left of a pass that a hook ends by an exception, and hang at the process's end."""
        if not self.begin_backward():
            return body(*arguments)
        if self._error is not None:
            return
        try:
            body(*arguments)
        except BaseException as error:
            self._error = error

    def arrived(self, slot: Slot) -> None:
        """Backward has accumulated the parameter's gradient: the unit's values go with its last one."""
        unit = slot.unit
        if slot.ready:
            raise UsageError(f"psring: two gradients of '{slot.name}' in one backward pass")
        if not unit.used:
            raise UsageError(
                f"psring: '{slot.name}' was used, but no module of its unit '{unit.name}' was called: its values were not "
                "there; an auto_wrap_policy can put it into the unit of the module that uses it"
            )
        slot.ready = True
        unit.missing -= 1
        if unit.missing == 0:
            if unit.changed():
                raise UsageError(f"psring: unit '{unit.name}' was updated between its forward and its backward pass")
            unit.free()

    def _finish_backward(self) -> None:
        error, self._error = self._error, None
        try:
            self._end_backward(failed=error is not None)
        except Error:
            if error is None:
                raise
        if error is not None:
            raise error

    def _end_backward(self, failed: bool) -> None:
        self._in_backward = False
        self._error = None
        try:
            self._ended(failed)
        finally:
            for unit in self._units:
                unit.end_backward()

    # --- saved tensors ---

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor | _Place:
        for unit in self._units:
            if unit.has(tensor):
                unit.saved = True
                place = tensor.size(), tensor.stride(), tensor.storage_offset()
                return _Place(unit, *place, tensor.dtype, tensor.is_conj(), tensor.is_neg())
        return tensor

    def _unpack(self, kept: torch.Tensor | _Place) -> torch.Tensor:
        if isinstance(kept, torch.Tensor):
            return kept
        unit = kept.unit
        self.run(self._bring_again, unit)
        if self._error is not None or unit.whole is None:
            return torch.full((), float("nan"), dtype=kept.dtype, device="cpu").expand(kept.size)
        unit.read = True
        values = unit.whole.view(kept.dtype).as_strided(kept.size, kept.stride, kept.offset)
        values = values.conj() if kept.conjugate else values
        return torch._neg_view(values) if kept.negative else values

    def _bring_again(self, unit: FlatUnit) -> None:
        if unit.is_here():
            return
        if unit.changed():
            raise UsageError(f"psring: unit '{unit.name}' was updated between its forward and its backward pass")
        unit.gather()
        self._gather_ahead(range(unit.index - 1, -1, -1), lambda other: other.saved and other.missing > 0)


@contextmanager
def whole(units: Sequence[FlatUnit], group: Group | None) -> Iterator[None]:
    """Inside, all parameters have their values. `group`: they may be written, and the group's rank 0's become everybody's;
    None: they may not."""
    for unit in units:
        unit.gather()
    parameters = [slot for unit in units for slot in unit.slots]
    before = [slot.parameter._version for slot in parameters]
    moved = [slot for unit in units for slot in unit.moved()]
    if group is None:
        for unit in units:
            unit.unseen.record(always=True)
    yield
    if group is not None:
        for unit in units:
            unit.adopt()
        values = [unit.whole for unit in units if unit.whole is not None]
        if len(values) < len(units):
            raise UsageError("psring: a pass inside gathered(write=True) has freed what was written")
        broadcast(group, values)
        return
    changed = [slot for unit in units for slot in unit.moved() if slot not in moved]
    changed += [slot for slot, version in zip(parameters, before) if slot.parameter._version != version]
    changed += [slot for slot in (unit.unseen.changed() for unit in units if unit.is_here()) if slot is not None]
    if changed:
        raise UsageError(f"psring: '{changed[0].name}' was changed inside gathered(): a change needs gathered(write=True)")


def put_values(units: Iterable[FlatUnit], state: dict[str, Any], prefix: str) -> None:
    """Puts copies of the values into a state that was collected while the units were freed. A unit has memory only while it
    is copied."""
    names: dict[int, list[str]] = {}
    for name, value in state.items():
        if name.startswith(prefix) and isinstance(value, torch.Tensor) and value.numel() > 0:
            names.setdefault(value.data_ptr(), []).append(name)
    with torch.no_grad():
        for unit in units:
            was_here = unit.is_here()
            places = [slot.parameter.data_ptr() for slot in unit.slots]
            unit.gather()
            for slot, place in zip(unit.slots, places):
                value = slot.parameter.detach().clone()
                for name in names.get(place, ()):
                    state[name] = value
            if not was_here:
                unit.free()
