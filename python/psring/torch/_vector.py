"""Tensors as vectors, and the arguments of torch.distributed's calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import torch
from torch import distributed as dist

from .._job import Group, Op, Type
from .._library import UsageError

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

_PARTS = {4: Type.F16, 8: Type.F32, 16: Type.F64}  # of a complex number, by its bytes

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


def is_sum(op: Any) -> bool:
    return _op_of(op) is Op.SUM


def one(tensors: Tensors | torch.Tensor) -> torch.Tensor:
    if isinstance(tensors, torch.Tensor):
        return tensors
    if len(tensors) != 1:
        raise UsageError(f"psring: {len(tensors)} tensors; a rank takes part with one tensor")
    return tensors[0]


def check(tensor: torch.Tensor) -> None:
    if tensor.layout != torch.strided:
        raise NotImplementedError(f"psring: a tensor with the layout {tensor.layout}; it moves strided tensors only")
    if tensor.is_quantized:
        raise NotImplementedError("psring: a quantized tensor")
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:  # its memory need not be its values
        raise NotImplementedError(
            f"psring: a tensor of the class {type(tensor).__name__}, which handles its own operations: give its plain tensor"
        )


def _host_memory(like: torch.Tensor) -> torch.Tensor:
    """Memory on the host for a tensor's elements: pinned for those of a GPU, which then copies several times as fast."""
    return torch.empty(like.shape, dtype=like.dtype, device="cpu", pin_memory=like.is_cuda)


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself, if it is in the host's memory, or a copy."""
    return tensor if tensor.device.type == "cpu" else _host_memory(tensor).copy_(tensor)


def _let_finish(tensor: torch.Tensor) -> None:
    """Waits for what this thread has asked the tensor's GPU to do."""
    if tensor.is_cuda:
        torch.cuda.current_stream(tensor.device).synchronize()


class Vector:
    """A tensor as a vector in the host's memory: the tensor's own memory, or a copy that `store` copies back. `kind` is for
    reductions; for moving only, any type of elements will do."""

    __slots__ = ("tensor", "host", "kind", "count", "divisor")

    def __init__(
        self, tensor: torch.Tensor, moves_only: bool = False, reads: bool = True, copies: bool = False, writes: bool = True
    ) -> None:
        check(tensor)
        if writes and any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride())):
            raise UsageError("psring: elements of the tensor share memory, as expand() makes them: give a copy to be written")
        self.tensor = tensor
        self.divisor = 1  # of a sum that is to be a mean
        host = tensor.detach()
        # A conjugate or negative view is contiguous, but its memory has other values.
        if copies or host.device.type != "cpu" or not host.is_contiguous() or host.is_conj() or host.is_neg():
            if reads:
                host = on_host(host).contiguous().resolve_conj().resolve_neg()
            else:
                _let_finish(host)  # `store` may come in another thread, which has another stream
                host = _host_memory(host)
            if host.data_ptr() == tensor.data_ptr():
                host = host.clone(memory_format=torch.contiguous_format)
        self.host = host
        kind = _TYPES.get(tensor.dtype)
        self.count = host.numel()
        if kind is None and tensor.is_complex():
            kind = _PARTS[host.element_size()]
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

    @property
    def after(self) -> Callable[[], None] | None:
        """What is left to do for the tensor once the operation is complete."""
        return self.store if self.is_copy or self.divisor > 1 else None

    def store(self) -> None:
        with torch.no_grad():
            if self.divisor > 1:
                self.host.div_(self.divisor, rounding_mode="trunc")
            if self.is_copy:
                self.tensor.copy_(self.host)

    def op(self, op: Any, ranks: int) -> Op:
        """The reduction at so many ranks. A mean of integers is their sum, which `store` divides towards zero, as NCCL does."""
        known = _op_of(op)
        if known is Op.MEAN and self.tensor.dtype == torch.bool:
            raise NotImplementedError("psring: the mean of truth values")
        if known is Op.MEAN and not self.tensor.is_floating_point() and not self.tensor.is_complex():
            known, self.divisor = Op.SUM, ranks
        if self.tensor.dtype == torch.bool:
            return _BOOL_OPS.get(known, known)
        if self.tensor.is_complex() and known not in (Op.SUM, Op.MEAN):
            raise NotImplementedError(f"psring: the reduction {op} of complex numbers")
        return known


def option(opts: Any, name: str, standard: Any, named: Any = None) -> Any:
    """An option of a call: a member of torch's options, or the option itself, as the short forms of calls pass it, also by
    name."""
    if named is not None:
        if opts is not None:
            raise UsageError(f"psring: {name} is given twice: in the options, and by name")
        return named
    if opts is None:
        return standard
    return getattr(opts, name, opts)


def inner(lists: Any) -> Tensors:
    """The list of tensors, which torch passes in a list."""
    if len(lists) == 0 or isinstance(lists[0], torch.Tensor):
        tensors: Tensors = lists
        return tensors
    if len(lists) > 1:
        raise UsageError(f"psring: {len(lists)} lists of tensors; a rank takes part with one")
    return inner(lists[0])


def lists(many: Any, single: Any) -> tuple[Tensors, torch.Tensor]:
    return inner(many), one(single)


def broadcast(group: Group, tensors: Sequence[torch.Tensor]) -> None:
    """All ranks get rank 0's values."""
    for tensor in tensors:
        bytes_ = tensor.detach().contiguous()
        group.broadcast_at(bytes_.data_ptr(), bytes_.numel() * bytes_.element_size(), Type.U8, 0, bytes_).wait()
        if bytes_.data_ptr() != tensor.data_ptr():
            with torch.no_grad():
                tensor.copy_(bytes_)


def distinct(tensors: Sequence[torch.Tensor]) -> list[Vector]:
    """Vectors of tensors that are reduced in place, one after another: a tensor that is given again is not reduced twice."""
    seen: set[int] = set()
    vectors = []
    for tensor in tensors:
        vectors.append(Vector(tensor, copies=tensor.data_ptr() in seen))
        seen.add(tensor.data_ptr())
    return vectors


def copies(parts: Sequence[torch.Tensor], tensors: Tensors) -> Callable[[], None]:
    """What gives tensors the elements of as many vectors, once an operation has received these."""

    def copy() -> None:
        with torch.no_grad():
            for part, tensor in zip(parts, tensors):
                tensor.copy_(part.view(tensor.shape))

    return copy


def stores(vectors: list[Vector]) -> Callable[[], None] | None:
    copies = [vector for vector in vectors if vector.after is not None]
    if not copies:
        return None

    def store() -> None:
        for vector in copies:
            vector.store()

    return store
