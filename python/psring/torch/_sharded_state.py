"""States of a Sharded module and its optimizer: whole, as PyTorch has them without sharding."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any, Callable

import torch
from torch import nn

from .._job import Group
from .._library import UsageError
from ._flat import Slot
from ._hooks import Hook
from ._passes import put_values
from ._shards import Segment, Shards
from ._vector import Vector
from ._wrapper import refuse_assigned


class ShardedState:
    """Makes `state_dict` and `load_state_dict` of module and optimizer take and return whole tensors in PyTorch's own
    layout, so that a state can be loaded with another number of workers, or without psring. All workers call them."""

    def __init__(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        shards: Sequence[Shards],
        group: Group,
        synchronize: Callable[[], None],
    ) -> None:
        self._module = module
        self._optimizer = optimizer
        self._shards = shards
        self._units = [each.unit for each in shards]
        self._group = group
        self._synchronize = synchronize
        self._slots = {id(slot.parameter): slot for unit in self._units for slot in unit.slots}
        # The parameters of each of the optimizer's groups, in the order that a state numbers them.
        self._numbers: list[list[int]] = []
        self._at: dict[int, int] = {}  # number by id of a parameter
        for parameters in optimizer.param_groups:
            numbers = [self._at.setdefault(id(p), len(self._at)) for p in parameters["params"]]
            self._numbers.append(numbers)
        self._take_over()
        module._register_state_dict_hook(Hook(self._fill))
        module._register_load_state_dict_pre_hook(Hook(self._before_load))
        module.register_load_state_dict_post_hook(Hook(self._after_load))

    # --- the module ---

    def _fill(self, _module: nn.Module, state: dict[str, Any], prefix: str, _metadata: Any) -> None:
        """After a state was collected: in stage 3 its parameters have no values yet."""
        if self._shards[0].keeps:
            self._synchronize()
        else:
            put_values(self._units, state, prefix)

    def _before_load(self, *arguments: Any) -> None:
        refuse_assigned(*arguments)
        for unit in self._units:
            unit.gather()

    def _after_load(self, *_arguments: Any) -> None:
        for shards in self._shards:
            shards.store()
            shards.unit.free()

    # --- the optimizer ---

    def _take_over(self) -> None:
        """The optimizer updates the segments in place of the parameters, with the state that it has."""
        optimizer = self._optimizer
        before = {self._at[id(p)]: state for p, state in optimizer.state.items()}
        self.segments: list[list[Segment]] = [[] for _ in optimizer.param_groups]
        for shards in self._shards:
            for segment in shards.segments:
                self.segments[segment.number].append(segment)
        for group, segments in zip(optimizer.param_groups, self.segments):
            group["params"] = [segment.parameter for segment in segments]
        optimizer.state.clear()
        self._collect, self._load = optimizer.state_dict, optimizer.load_state_dict
        if before:
            self._load(self._cut(before, self._collect()["param_groups"]))
        optimizer.state_dict = types.MethodType(  # type: ignore[method-assign]
            lambda _optimizer: self.state_dict(), optimizer
        )
        optimizer.add_param_group = self._refuse_group  # type: ignore[method-assign]
        optimizer.load_state_dict = types.MethodType(  # type: ignore[method-assign]
            lambda _optimizer, state: self.load_state_dict(state), optimizer
        )

    @staticmethod
    def _refuse_group(param_group: Any) -> None:
        raise UsageError("psring: add_param_group() after the optimizer's parameters were sharded: add it before")

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's state, as its `state_dict` is without sharding."""
        own = self._collect()
        whole: dict[int, dict[str, Any]] = {}
        for segments in self.segments:
            for segment in segments:
                for key, value in self._optimizer.state.get(segment.parameter, {}).items():
                    self._gather(segment, key, value, whole)
        groups = [{**group, "params": list(numbers)} for group, numbers in zip(own["param_groups"], self._numbers)]
        return {**own, "state": {number: whole[number] for number in sorted(whole)}, "param_groups": groups}

    def _gather(self, segment: Segment, key: str, value: Any, whole: dict[int, dict[str, Any]]) -> None:
        """Adds one entry of a segment's state to the states of its parameters."""
        slots = segment.slots()
        if not isinstance(value, torch.Tensor) or value.dim() == 0:
            for slot in slots:
                copy = value.clone() if isinstance(value, torch.Tensor) else value
                whole.setdefault(self._at[id(slot.parameter)], {})[key] = copy
            return
        shards = segment.shards
        flat = torch.zeros(shards.unit.count, dtype=value.dtype)
        flat[shards.first + segment.begin : shards.first + segment.end].copy_(value)
        vector = Vector(flat, moves_only=True)
        self._group.all_gather_at(vector.at, vector.count, None, vector.kind, vector).wait()
        for slot in slots:
            whole.setdefault(self._at[id(slot.parameter)], {})[key] = slot.of(flat).clone()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes a state of all parameters, as an optimizer's `state_dict` is without sharding."""
        groups = state["param_groups"]
        if [len(group["params"]) for group in groups] != [len(numbers) for numbers in self._numbers]:
            raise UsageError(
                "psring: the optimizer's state has groups of other sizes: "
                f"{[len(group['params']) for group in groups]}; expected {[len(numbers) for numbers in self._numbers]}"
            )
        renamed = {
            number: state["state"][theirs]
            for group, numbers in zip(groups, self._numbers)
            for theirs, number in zip(group["params"], numbers)
            if theirs in state["state"]
        }
        own = self._collect()["param_groups"]
        self._load(self._cut(renamed, [{**theirs, "params": mine["params"]} for theirs, mine in zip(groups, own)]))

    def _cut(self, state: dict[int, dict[str, Any]], groups: list[dict[str, Any]]) -> dict[str, Any]:
        """The state of this worker's segments, of that of all parameters."""
        cut: dict[int, dict[str, Any]] = {}
        for segments, group in zip(self.segments, groups):
            for segment, number in zip(segments, group["params"]):
                own = self._segment_state(segment, state)
                if own:
                    cut[number] = own
        return {"state": cut, "param_groups": groups}

    def _segment_state(self, segment: Segment, state: dict[int, dict[str, Any]]) -> dict[str, Any]:
        slots = segment.slots()
        states = [state.get(self._at[id(slot.parameter)], {}) for slot in slots]
        keys = [key for each in states for key in each]
        own: dict[str, Any] = {}
        for key in dict.fromkeys(keys):
            entries = [(slot, each.get(key)) for slot, each in zip(slots, states)]
            first = next((value for _, value in entries if isinstance(value, torch.Tensor)), None)
            if (
                first is None
                or first.dim() == 0
                or any(value is not None and value.shape != slot.shape for slot, value in entries)
            ):
                own[key] = self._common(segment, key, entries)
                continue
            flat = torch.zeros(segment.shards.unit.count, dtype=first.dtype)
            for slot, value in entries:
                if value is not None:
                    slot.of(flat).copy_(value)
            begin = segment.shards.first
            own[key] = flat[begin + segment.begin : begin + segment.end].clone()
        return own

    @staticmethod
    def _common(segment: Segment, key: str, entries: list[tuple[Slot, Any]]) -> Any:
        """An entry that is one value for a parameter, such as the number of its steps: for a segment there is only one."""
        slot, value = entries[0]
        for other, theirs in entries[1:]:
            if (value is None) != (theirs is None) or (value is not None and bool(theirs != value)):
                raise UsageError(
                    f"psring: the optimizer's {key} of '{slot.name}' is {value}, of '{other.name}' {theirs}: a unit "
                    f"('{segment.shards.unit.name}') has only one; an auto_wrap_policy can put them into different units"
                )
        return value
