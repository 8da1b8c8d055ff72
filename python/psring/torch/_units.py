"""Units: parameters that move together, chosen by an auto-wrap policy with the signature of FSDP's."""

from __future__ import annotations

import inspect
from typing import Any, Callable

import torch
from torch import nn

from .._library import UsageError
from ._hooks import Hook

# The modules that only hold others: their children are called one by one.
_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
# The modules that are never called: their parameters belong to a unit of the module that has them.
_LISTS = (nn.ParameterList, nn.ParameterDict)
# Neighbouring units of the default policy are merged up to this number of elements (1 MiB).
_LEAST = 256 * 1024
_LONGEST_NAME = 200  # of a unit; servers take up to 256 bytes

Policy = Callable[..., bool]


class Unit:
    """Parameters that move together, and the modules before whose forward pass they have to be here."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.parameters: dict[str, nn.Parameter] = {}
        self.modules: list[nn.Module] = []

    def elements(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters.values())


def _wants(policy: Policy) -> Callable[[nn.Module, bool, int], bool]:
    """The policy as a function of module, recurse and the elements of its parameters that are in no unit yet. Versions of
    PyTorch name the last one differently."""
    names = list(inspect.signature(policy).parameters)
    count = next((name for name in ("nonwrapped_numel", "unwrapped_params") if name in names), None)

    def wants(module: nn.Module, recurse: bool, elements: int) -> bool:
        arguments: dict[str, Any] = {"module": module, "recurse": recurse}
        if count is not None:
            arguments[count] = elements
        return bool(policy(**arguments))

    return wants


def make_units(root: nn.Module, policy: Policy | None) -> list[Unit]:
    """Cuts the trainable parameters of `root` into units, in the order of its modules. A module for which the policy says
    yes is a unit, with the parameters below it that are in no unit of their own; what is left belongs to the root. A
    parameter that several modules share is in the first one's unit, and each of the modules waits for it. Without a policy
    each child is a unit, and Sequential, ModuleList and ModuleDict stand for their children; small neighbours are merged.
    """
    wants = None if policy is None else _wants(policy)
    units: list[Unit] = []
    unit_of: dict[int, Unit] = {}

    def below(module: nn.Module) -> int:
        return sum(p.numel() for p in module.parameters() if p.requires_grad and id(p) not in unit_of)

    def take(module: nn.Module, prefix: str, unit: Unit, nested: set[int]) -> set[int]:
        """The parameters below the module that are in no unit become the unit's; modules of `nested` wait by themselves.
        Returns the modules below, and the nested ones."""
        seen = set(nested)
        for path, part in module.named_modules(prefix=prefix):
            if id(part) in seen:
                continue
            seen.add(id(part))
            for name, parameter in part.named_parameters(prefix=path, recurse=False):
                if not parameter.requires_grad or parameter.numel() == 0:
                    continue
                owner = unit_of.setdefault(id(parameter), unit)
                if owner is unit and not any(known is parameter for known in unit.parameters.values()):
                    unit.parameters[name] = parameter
                if module not in owner.modules:
                    owner.modules.append(module)
        if unit.parameters:
            units.append(unit)
        return seen

    def walk(module: nn.Module, prefix: str) -> set[int]:
        taken: set[int] = set()
        for name, child in module.named_children():
            path = f"{prefix}.{name}" if prefix else name
            if isinstance(child, _LISTS):
                continue
            if wants is None:
                taken |= walk(child, path) if isinstance(child, _CONTAINERS) else take(child, path, Unit(path), set())
            else:
                nested = walk(child, path) if wants(child, True, below(child)) else set()
                taken |= take(child, path, Unit(path), nested) if wants(child, False, below(child)) else nested
        return taken

    take(root, "", Unit("root"), walk(root, ""))
    return _merged(units) if policy is None else units


def _merged(units: list[Unit]) -> list[Unit]:
    merged: list[Unit] = []
    for unit in units:
        last = merged[-1] if merged else None
        if last is None or unit.name == "root" or last.elements() + unit.elements() > _LEAST:
            merged.append(unit)
            continue
        if not last.name.endswith("+..."):
            last.name += "+" + (unit.name if len(last.name) + len(unit.name) < _LONGEST_NAME else "...")
        last.parameters.update(unit.parameters)
        last.modules += [module for module in unit.modules if module not in last.modules]
    return merged


def sort_by_calls(units: list[Unit], root: nn.Module) -> None:
    """Puts a module's unit before those of the modules that it calls, in the order of registration."""
    place = {id(part): number for number, part in enumerate(root.modules())}
    units.sort(key=lambda unit: place[id(unit.modules[0])])


def check_parameters(root: nn.Module, updated_here: bool) -> None:
    """Refuses parameters that psring cannot hold. `updated_here`: this worker updates whole parameters itself."""
    for name, parameter in root.named_parameters():
        if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
            raise _refusal(name, "is not initialised: run one forward pass first")
        if parameter.device.type != "cpu":
            raise _refusal(name, f"is on {parameter.device}: a ParameterServer and Sharded hold modules on the CPU")
        if parameter.requires_grad and parameter.dtype != torch.float32:
            raise _refusal(name, f"is {parameter.dtype}: expected torch.float32")
    for name, module in root.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise UsageError(
                f"psring: {name or 'the module'} is a ScriptModule, whose passes are not seen: wrap it before torch.jit"
            )
        if getattr(module, "sparse", False) is True and isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
            raise _refusal(f"{name}.weight", "has sparse gradients: make the embedding with sparse=False")
        if getattr(module, "max_norm", None) is not None and not updated_here and module.weight.requires_grad:
            raise _refusal(f"{name}.weight", "has max_norm=: a forward pass would change rows that this worker does not own")
        if isinstance(module, nn.parallel.DistributedDataParallel):
            raise UsageError(f"psring: {name or 'the module'} is a DistributedDataParallel: wrap its module instead")
        if any(isinstance(hook, Hook) and hook.lives() for hook in module._forward_pre_hooks.values()):
            raise UsageError(f"psring: {name or 'the module'} belongs to another ParameterServer or Sharded already")
    _refuse_shared_memory(root)


def _refuse_shared_memory(root: nn.Module) -> None:
    """Refuses a parameter whose memory is another one's, too: each would get memory of its own, and train by itself."""
    places = []
    for name, tensor in (*root.named_parameters(), *root.named_buffers()):
        if tensor.layout == torch.strided and tensor.numel() > 0:
            length = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
            begin = tensor.data_ptr()
            places.append((begin, begin + length * tensor.element_size(), name, tensor.requires_grad))
    last = (0, 0, "", False)  # the place that reaches farthest
    for place in sorted(places):
        if place[0] < last[1] and (place[3] or last[3]):
            raise _refusal(place[2], f"has memory of '{last[2]}': share the parameter itself")
        last = max(last, place, key=lambda each: each[1])


def _refusal(name: str, fault: str) -> UsageError:
    return UsageError(f"psring: the parameter '{name}' {fault}")
