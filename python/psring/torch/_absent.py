"""Tensors that are not here: they have a shape, and refuse to be read or changed, so that no program takes them for values."""

from __future__ import annotations

from typing import Any, Callable, NoReturn

import torch
from torch import nn

from .._library import UsageError

# A program may ask for these. PyTorch asks __torch_function__ for all others, too, which are refused.
_GETTERS = (
    "shape dtype device layout requires_grad grad ndim is_cuda is_meta is_sparse is_quantized is_mkldnn is_nested is_xpu "
    "is_mps is_ipu is_hpu is_vulkan is_ort is_maia is_sparse_csr itemsize nbytes names _backward_hooks output_nr _version "
    "is_cpu grad_fn"
).split()
_METHODS = (
    "size numel dim ndimension nelement element_size stride is_contiguous is_floating_point is_complex is_signed data_ptr "
    "storage_offset register_hook __hash__ __len__ get_device new_zeros new_ones new_full new_empty new_tensor "
    "requires_grad_"
).split()


def _property(name: str) -> Any:
    """A property of tensors, which PyTorch's stubs declare as its value."""
    return getattr(torch.Tensor, name)


_ASKED: set[Any] = {_property(name).__get__ for name in _GETTERS if hasattr(torch.Tensor, name)}
_ASKED |= {getattr(torch.Tensor, name) for name in _METHODS if hasattr(torch.Tensor, name)}
_ASKED |= {_property("requires_grad").__set__, _property("grad").__set__, _property("grad").__delete__}
_ASKED |= {torch.is_floating_point, torch.is_complex, torch.numel}
_ASKED |= {torch.zeros_like, torch.ones_like, torch.empty_like, torch.full_like, torch.rand_like, torch.randn_like}
# Another tensor takes its type from one that is not here.
_CONVERSIONS = {torch.Tensor.to, torch.Tensor.type_as}


def _is_asked(function: Any, arguments: Any) -> bool:
    return function in _ASKED or (function in _CONVERSIONS and not isinstance(arguments[0], (Absent, AbsentParameter)))


def _refuse(arguments: Any, keywords: Any) -> NoReturn:
    given = [*arguments, *(keywords or {}).values()]
    flat = [part for each in given for part in (each if isinstance(each, (list, tuple)) else (each,))]
    lines = [line for part in flat if isinstance(part, torch.Tensor) for line in [part.__dict__.get("_psring_line")] if line]
    raise UsageError(lines[0] if lines else "psring: a tensor that is not here was used")


class Absent(torch.Tensor):
    """Stands for a tensor that has gone, such as a gradient that was pushed. Takes no memory."""

    _psring_line: str  # with which it refuses
    _psring_clear: Callable[[], None] | None

    @staticmethod
    def of(shape: torch.Size, line: str, clear: Callable[[], None] | None = None) -> Absent:
        """`line`: with which it refuses. `clear`: what `zero_`, which nn.Module.zero_grad() calls, does; None: refuse."""
        stand_in = torch.full((), float("nan"), dtype=torch.float32, device="cpu").expand(shape).as_subclass(Absent)
        stand_in._psring_line = line
        stand_in._psring_clear = clear
        return stand_in

    def __repr__(self, **_keywords: Any) -> str:  # type: ignore[override]
        return f"<{self.__dict__['_psring_line']}>"

    @classmethod
    def __torch_function__(cls, function: Any, _types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        if function is torch.Tensor.zero_ and arguments[0].__dict__.get("_psring_clear") is not None:
            arguments[0].__dict__["_psring_clear"]()
            return arguments[0]
        if not _is_asked(function, arguments):
            _refuse(arguments, keywords)
        with torch._C.DisableTorchFunction():
            return function(*arguments, **(keywords or {}))


class AbsentParameter(nn.Parameter):
    """A parameter while its values are not here: the class is changed, the object and its place in modules stay. Only a
    detached one can be had, as state_dict() takes it: its values are filled in later."""

    def __repr__(self, **_keywords: Any) -> str:  # type: ignore[override]
        return f"<{self.__dict__['_psring_line']}>"

    @classmethod
    def __torch_function__(cls, function: Any, _types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        if function is torch.Tensor.detach:
            with torch._C.DisableTorchFunction():
                stand_in: Any = arguments[0].detach().as_subclass(Absent)
                stand_in._psring_line = arguments[0].__dict__["_psring_line"]
            return stand_in
        if not _is_asked(function, arguments):
            if function == _property("is_leaf").__get__:
                raise UsageError(arguments[0].__dict__["_psring_line"] + "; an optimizer is made before the module is wrapped")
            _refuse(arguments, keywords)
        with torch._C.DisableTorchFunction():
            return function(*arguments, **(keywords or {}))


def leave(parameter: nn.Parameter, line: str) -> None:
    """From now on the parameter refuses to be used."""
    if type(parameter) is nn.Parameter:
        parameter.__dict__["_psring_line"] = line
        parameter.__class__ = AbsentParameter


def come_back(parameter: nn.Parameter) -> None:
    kind = type(parameter)
    if kind is AbsentParameter:
        parameter.__class__ = nn.Parameter
