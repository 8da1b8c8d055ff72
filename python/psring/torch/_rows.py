"""Rows of tables as tensors: the autograd functions that read them and add up their gradients."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from .._library import Bags, UsageError
from .._tables import Rows, Table

_NOWHERE = 8  # the address of no elements, where the library wants one


def view_at(at: int, kind: Any, dtype: torch.dtype, shape: tuple[int, ...], keeps: Any) -> torch.Tensor:
    """A tensor in memory at an address, which keeps the owner of the memory."""
    count = 1
    for length in shape:
        count *= length
    if count == 0:
        return torch.empty(shape, dtype=dtype, device="cpu")
    memory: Any = (kind * count).from_address(at)
    memory._psring_keeps = keeps
    return torch.frombuffer(memory, dtype=dtype, count=count).view(shape)


def values_of(rows: Rows) -> torch.Tensor:
    return view_at(rows.values, ctypes.c_float, torch.float32, (rows.different, rows.table.width), rows)


def places_of(rows: Rows) -> torch.Tensor:
    return view_at(rows.places, ctypes.c_int64, torch.int64, (rows.count,), rows)


def as_keys(what: str, keys: torch.Tensor) -> torch.Tensor:
    """The keys as a contiguous vector of 64-bit numbers."""
    if not isinstance(keys, torch.Tensor) or keys.dtype not in (torch.int64, torch.int32) or keys.device.type != "cpu":
        got = f"{keys.dtype} on {keys.device}" if isinstance(keys, torch.Tensor) else type(keys).__name__
        raise UsageError(f"psring: {what}: expected keys as a tensor of int64 or int32 on the CPU, got {got}")
    return keys.detach().reshape(-1).to(torch.int64).contiguous()


def fetch(table: Table, keys: torch.Tensor, version: int) -> Rows:
    return table.fetch(keys.data_ptr(), keys.numel(), version)


class Lookups:
    """Lookups of rows, in bags: the place of each, the first lookup of each bag, and weights. `begins`: None: a bag a
    lookup."""

    def __init__(
        self, places: torch.Tensor, begins: torch.Tensor | None, mean: bool = False, weights: torch.Tensor | None = None
    ) -> None:
        self.places = places
        self.begins = begins
        self.weights = weights
        self.bags = places.numel() if begins is None else begins.numel()
        self.mean = mean

    def described(self) -> Bags:
        return Bags(
            size=ctypes.sizeof(Bags),
            places=self.places.data_ptr() or _NOWHERE,  # a null address stands for the fetch's keys
            lookups=self.places.numel(),
            begins=None if self.begins is None else self.begins.data_ptr(),
            bags=self.bags,
            weights=None if self.weights is None else self.weights.data_ptr(),
            mean=int(self.mean),
        )

    def saved(self) -> list[torch.Tensor]:
        """What a backward pass needs. PyTorch refuses it if one was changed in place, which may be the caller's own, and a
        second backward pass."""
        return [each.detach() for each in (self.places, self.begins, self.weights) if each is not None]

    def bag_of(self) -> torch.Tensor:
        """The bag of each lookup."""
        assert self.begins is not None
        ends = torch.cat([self.begins[1:], self.begins.new_tensor([self.places.numel()])])
        return torch.repeat_interleave(torch.arange(self.bags), ends - self.begins)


def pooled(anchor: torch.Tensor, rows: Rows, read: Lookups, trained: Lookups) -> torch.Tensor:
    """The sum or mean of each bag's rows. `trained`: the lookups, in as many bags, that get gradients if the anchor does."""
    out: torch.Tensor = _Pool.apply(anchor, rows, read, trained)
    if read.weights is None or not read.weights.requires_grad:
        return out
    return _Weigh.apply(out, read.weights, rows, read)  # type: ignore[no-any-return]


class _Pool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, _anchor: torch.Tensor, rows: Rows, read: Lookups, trained: Lookups) -> torch.Tensor:
        out = torch.empty((read.bags, rows.table.width), dtype=torch.float32, device="cpu")
        rows.pool(read.described(), out.data_ptr() or _NOWHERE)
        ctx.rows, ctx.trained = rows, trained
        ctx.save_for_backward(*trained.saved())
        return out

    @staticmethod
    @once_differentiable  # type: ignore[misc]
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        _ = ctx.saved_tensors
        gradient = gradient.to(torch.float32).contiguous()
        ctx.rows.add_pooled(ctx.trained.described(), gradient.data_ptr() or _NOWHERE)
        return None, None, None, None


class _Weigh(torch.autograd.Function):
    """The gradients of weights. They have a node of their own, because a backward pass may want them without those of rows."""

    @staticmethod
    def forward(ctx: Any, out: torch.Tensor, _weights: torch.Tensor, rows: Rows, read: Lookups) -> torch.Tensor:
        ctx.rows, ctx.read = rows, read
        ctx.save_for_backward(*read.saved())
        return out.clone()

    @staticmethod
    @once_differentiable  # type: ignore[misc]
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        _ = ctx.saved_tensors
        of_weights = (gradient[ctx.read.bag_of()] * values_of(ctx.rows)[ctx.read.places]).sum(1)
        return gradient, of_weights, None, None


class Values(torch.autograd.Function):
    """The different rows of a batch, as a matrix whose gradient is added to theirs."""

    @staticmethod
    def forward(ctx: Any, _anchor: torch.Tensor, rows: Rows) -> torch.Tensor:
        ctx.rows = rows
        return values_of(rows)

    @staticmethod
    @once_differentiable  # type: ignore[misc]
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        gradient = gradient.to_dense() if gradient.is_sparse else gradient
        gradient = gradient.to(torch.float32).contiguous()
        ctx.rows.add(gradient.data_ptr() or _NOWHERE)
        return None, None
