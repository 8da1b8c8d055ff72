"""Reductions of sparse tensors, such as the gradients of nn.Embedding(sparse=True) under DDP."""

from __future__ import annotations

import zlib
from typing import Any, Callable

import torch

from .._job import Group, Type, Work
from .._library import UsageError
from ._vector import Vector, is_sum


def sparse_sum(group: Group, tensor: torch.Tensor, op: Any) -> tuple[list[Work], Callable[[], None]]:
    """All ranks' sparse tensors become their sum, which is coalesced: indices and values of all ranks are gathered, and added
    up in rank order. Waits for the numbers of their elements, which no rank knows before. Returns the works, and what is left
    to do after them."""
    if not is_sum(op):
        raise NotImplementedError("psring: reductions of sparse tensors other than their sum")
    if tensor.device.type != "cpu":
        raise NotImplementedError(f"psring: a sparse tensor on {tensor.device}")
    own = tensor.detach().coalesce()
    shape = tuple(own.shape)
    kind = zlib.crc32(repr((shape, own.dtype)).encode())
    known = torch.zeros(group.size, 3, dtype=torch.int64)
    known[group.rank] = torch.tensor([own._nnz(), own.sparse_dim(), kind])
    group.all_gather_at(known.data_ptr(), known.numel(), None, Type.I64, known).wait()
    counts = known[:, 0].tolist()
    # PyTorch makes a gradient without elements with other dimensions.
    sparse = next((int(known[rank, 1]) for rank in range(group.size) if counts[rank] > 0), own.sparse_dim())
    for rank in range(group.size):
        if int(known[rank, 2]) != kind or (counts[rank] > 0 and int(known[rank, 1]) != sparse):
            raise UsageError(
                f"psring: all_reduce of a sparse tensor of shape {shape}, {own.dtype}, at rank {group.rank}, and of another "
                f"shape or type at rank {rank}"
            )
    if own._nnz() == 0:
        own = torch.sparse_coo_tensor(
            torch.empty(sparse, 0, dtype=torch.int64), torch.empty(0, *shape[sparse:], dtype=own.dtype), shape
        ).coalesce()
    indices, index_work = _gather(group, own.indices().t(), counts)
    values, value_work = _gather(group, own.values(), counts)

    def take() -> None:
        with torch.no_grad():
            summed = torch.sparse_coo_tensor(indices.t(), values, shape).coalesce()
            tensor.copy_(summed)

    return [index_work, value_work], take


def _gather(group: Group, part: torch.Tensor, counts: list[int]) -> tuple[torch.Tensor, Work]:
    """Begins to gather all ranks' rows, of which rank r has counts[r]."""
    out = part.new_empty((sum(counts), *part.shape[1:]))
    first = sum(counts[: group.rank])
    out[first : first + len(part)] = part
    vector = Vector(out, moves_only=True)
    width = vector.count // max(1, len(out))
    return out, group.all_gather_at(vector.at, vector.count, [width * count for count in counts], vector.kind, vector)
