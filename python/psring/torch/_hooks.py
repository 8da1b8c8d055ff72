"""The wrappers' hooks in a user's module."""

from __future__ import annotations

from typing import Any, Callable


def _nothing(*_arguments: Any, **_keywords: Any) -> None:
    pass


class Hook:
    """A hook of a wrapped module. A copy of the module, also one through a file, is a plain module: its hooks do nothing."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def lives(self) -> bool:
        """Does it still belong to a wrapper?"""
        return self._call is not _nothing

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._call(*arguments, **keywords)

    def __deepcopy__(self, _memo: Any) -> Hook:
        return Hook(_nothing)

    def __reduce__(self) -> tuple[Any, ...]:
        return Hook, (_nothing,)
