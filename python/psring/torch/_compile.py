"""What torch.compile must leave alone."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from types import CodeType
from typing import Any, Callable


def _skip() -> Callable[[CodeType], Any] | None:
    """Tells torch.compile to run a function as it is. None: PyTorch 1 has no compiler. Works without an import of
    torch._dynamo, which takes a second."""
    try:
        from torch._C._dynamo import eval_frame as frames  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return None
    if hasattr(frames, "skip_code"):
        return frames.skip_code  # type: ignore[no-any-return,unused-ignore]
    strategy = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.DEFAULT)
    return lambda code: frames.set_code_exec_strategy(code, strategy)


def _functions(owner: Any, module: str) -> Iterator[CodeType]:
    """The code of a module's own functions, and of those of its classes."""
    for value in list(vars(owner).values()):
        if getattr(value, "__module__", None) != module and not isinstance(value, (property, staticmethod, classmethod)):
            continue
        if inspect.isclass(value):
            yield from _functions(value, module)
        for each in (value, *(getattr(value, name, None) for name in ("fget", "fset", "__func__"))):
            if inspect.isfunction(each):
                yield from _with_inner(each.__code__)


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)


def leave_to_python(package: str) -> None:
    """In a compiled model C++ calls functions of this package, for example those of a process group. torch.compile would
    compile them, too, although they hand addresses to a library and wait for threads: they run as they are."""
    skip = _skip()
    if skip is None:
        return
    for name, module in list(sys.modules.items()):
        if name == package or name.startswith(f"{package}."):
            for code in _functions(module, name):
                skip(code)
