"""Parameters and units, as a worker of a ParameterServer holds them."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import nn

from ._units import Unit


def view_at(at: int, shape: torch.Size, keeps: Any) -> torch.Tensor:
    """The tensor at an address, in memory of the job."""
    count = 1
    for length in shape:
        count *= length
    memory = (ctypes.c_float * max(1, count)).from_address(at)
    memory._psring_job = keeps  # type: ignore[attr-defined]
    return torch.frombuffer(memory, dtype=torch.float32, count=max(1, count))[:count].view(shape)


class Slot:
    """A parameter, and the place of its gradient in the memory that pushes leave from."""

    __slots__ = ("name", "parameter", "unit", "gradient", "ready", "version", "gradient_version", "node", "handle")

    def __init__(self, name: str, parameter: nn.Parameter, unit: Held, gradient: torch.Tensor) -> None:
        self.name = name
        self.parameter = parameter
        self.unit = unit
        self.gradient = gradient
        self.ready = False  # its gradient of this step is complete
        self.version = parameter._version
        self.gradient_version = 0
        # The node that accumulates the gradient. Its hook runs after it; it lives as long as somebody holds it.
        self.node: Any = parameter.expand_as(parameter).grad_fn.next_functions[0][0]  # type: ignore[union-attr]
        self.handle: Any = None


class Held:
    """A unit, as this worker holds it."""

    def __init__(self, index: int, unit: Unit) -> None:
        self.index = index
        self.name = unit.name
        self.slots: list[Slot] = []
        self.missing = 0  # parameters whose gradients of this step are not complete
        self.pushed = False
        self.here = True  # its last pull has arrived
