"""The process group: torch.distributed's collectives over a group of psring."""

from __future__ import annotations

from collections import deque
from datetime import timedelta
from typing import Any, Callable, Sequence

import torch
from torch import distributed as dist

from .._job import Group, Job, Op, Type, Work
from .._library import UsageError
from ._work import Completer, GroupWork

_TYPES: dict[torch.dtype, Type] = {
    torch.float32: Type.F32,
    torch.float64: Type.F64,
    torch.float16: Type.F16,
    torch.bfloat16: Type.BF16,
    torch.int8: Type.I8,
    torch.uint8: Type.U8,
    torch.bool: Type.U8,
    torch.int32: Type.I32,
    torch.int64: Type.I64,
}

_OPS = {
    "SUM": Op.SUM,
    "AVG": Op.MEAN,
    "PRODUCT": Op.PRODUCT,
    "MIN": Op.MIN,
    "MAX": Op.MAX,
    "BAND": Op.BIT_AND,
    "BOR": Op.BIT_OR,
    "BXOR": Op.BIT_XOR,
}

# Truth values are bytes of 0 and 1: a sum is "or", a product is "and".
_BOOL_OPS = {Op.SUM: Op.MAX, Op.PRODUCT: Op.MIN, Op.BIT_AND: Op.MIN, Op.BIT_OR: Op.MAX}

Tensors = Sequence[torch.Tensor]


def _op_of(op: Any) -> Op:
    """The reduction of a torch ReduceOp."""
    for name, known in _OPS.items():
        if op == getattr(dist.ReduceOp, name, None):
            return known
    raise NotImplementedError(f"psring: no reduction {op}; it has {', '.join(_OPS)}")


def _one(tensors: Tensors) -> torch.Tensor:
    if len(tensors) != 1:
        raise UsageError(f"psring: {len(tensors)} tensors; a rank takes part with one tensor")
    return tensors[0]


def _check(tensor: torch.Tensor) -> None:
    if tensor.layout != torch.strided:
        raise NotImplementedError(f"psring: a tensor with the layout {tensor.layout}; it moves strided tensors only")
    if tensor.is_quantized:
        raise NotImplementedError("psring: a quantized tensor")


class _Vector:
    """A tensor as a vector in the host's memory: the tensor's own memory, or a copy that `store` copies back. `kind` is for
    reductions; for moving only, any type of elements will do."""

    __slots__ = ("tensor", "host", "kind", "count")

    def __init__(self, tensor: torch.Tensor, moves_only: bool = False, reads: bool = True) -> None:
        _check(tensor)
        self.tensor = tensor
        host = tensor.detach()
        if host.device.type != "cpu" or not host.is_contiguous():
            host = (
                host.to("cpu").contiguous()
                if reads
                else torch.empty(host.shape, dtype=host.dtype)
            )
            if host.data_ptr() == tensor.data_ptr():
                host = host.clone(memory_format=torch.contiguous_format)
        self.host = host
        kind = _TYPES.get(tensor.dtype)
        self.count = host.numel()
        if kind is None and tensor.is_complex():
            kind = Type.F32 if tensor.dtype == torch.complex64 else Type.F64
            self.count *= 2
        if kind is None:
            if not moves_only:
                raise NotImplementedError(f"psring: reductions of {tensor.dtype}")
            kind = Type.U8
            self.count *= host.element_size()
        self.kind = kind

    @property
    def at(self) -> int:
        return self.host.data_ptr()

    @property
    def is_copy(self) -> bool:
        return self.host.data_ptr() != self.tensor.data_ptr()

    def store(self) -> None:
        if self.is_copy:
            with torch.no_grad():
                self.tensor.copy_(self.host)

    def op(self, op: Any) -> Op:
        known = _op_of(op)
        if self.tensor.dtype == torch.bool:
            return _BOOL_OPS.get(known, known)
        if self.tensor.is_complex() and known not in (Op.SUM, Op.MEAN):
            raise NotImplementedError(f"psring: the reduction {op} of complex numbers")
        return known


class ProcessGroup(dist.ProcessGroup):
    """A group of torch.distributed over a group of psring."""

    def __init__(self, job: Job, group: Group, timeout: timedelta, completer: Completer | None = None) -> None:
        super().__init__(group.rank, group.size)
        self.job = job
        self.group = group
        self.numbers: Any = None  # of the default group: the store that numbers other groups
        self.completer = completer or Completer()
        self._timeout = timeout.total_seconds()
        # C++ holds the C++ half of a work alone: the Python half lives until the work is complete.
        self._alive: deque[GroupWork] = deque()

    # torch asks for the name in several ways.
    def getBackendName(self) -> str:  # noqa: N802
        return "psring"

    def _get_backend_name(self) -> str:
        return "psring"

    def name(self) -> str:
        return "psring"

    def _work(
        self,
        works: list[Work],
        result: list[torch.Tensor],
        after: Callable[[], None] | None = None,
        source: Callable[[], int] | None = None,
    ) -> GroupWork:
        work = GroupWork(works, result, self.completer, self._timeout, after, source)
        alive = self._alive
        while len(alive) > 16 and alive[0].is_completed():
            alive.popleft()
        alive.append(work)
        return work

    def allreduce(self, tensors: Tensors | torch.Tensor, opts: Any = None) -> GroupWork:
        tensor = tensors if isinstance(tensors, torch.Tensor) else _one(tensors)
        vector = _Vector(tensor)
        op = vector.op(getattr(opts, "reduceOp", dist.ReduceOp.SUM if opts is None else opts))
        work = self.group.all_reduce_at(vector.at, vector.count, vector.kind, op, vector)
        return self._work([work], [tensor], vector.store if vector.is_copy else None)

    def broadcast(self, tensors: Tensors | torch.Tensor, opts: Any = None) -> GroupWork:
        tensor = tensors if isinstance(tensors, torch.Tensor) else _one(tensors)
        root = opts if isinstance(opts, int) else opts.rootRank
        vector = _Vector(tensor, moves_only=True)
        work = self.group.broadcast_at(vector.at, vector.count, vector.kind, root, vector)
        return self._work([work], [tensor], vector.store if vector.is_copy else None)

    def barrier(self, opts: Any = None) -> GroupWork:
        return self._work([self.group.barrier_start()], [])

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> GroupWork:
        if isinstance(inputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        out, tensor = outputs[0], _one(inputs)
        if len(outputs) != 1 or len(out) != self.group.size:
            raise UsageError(f"psring: all_gather into {len(out)} tensors at {self.group.size} ranks")
        source = _Vector(tensor, moves_only=True)
        for each in out:
            _check(each)
            if each.numel() != tensor.numel() or each.dtype != tensor.dtype:
                raise UsageError(
                    f"psring: all_gather of {tuple(tensor.shape)} {tensor.dtype} into {tuple(each.shape)} {each.dtype}"
                )
        gathered = torch.empty((self.group.size, tensor.numel()), dtype=tensor.dtype)
        gathered[self.group.rank].copy_(source.host.reshape(-1))
        whole = _Vector(gathered, moves_only=True)

        def unpack() -> None:
            with torch.no_grad():
                for r, each in enumerate(out):
                    each.copy_(gathered[r].view(each.shape))

        work = self.group.all_gather_at(whole.at, whole.count, None, whole.kind, whole)
        return self._work([work], list(out), unpack)
