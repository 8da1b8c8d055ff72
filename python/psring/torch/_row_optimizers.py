"""The rules by which servers update rows of tables."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

import torch

from .._library import UsageError

_KEYS: dict[str, tuple[str, ...]] = {
    "sgd": (),
    "adagrad": ("eps",),
    "rowwise-adagrad": ("eps",),
    "adam": ("beta1", "beta2", "eps"),
    "ftrl": ("beta", "l1", "l2"),
}


class RowSteps(NamedTuple):
    """What a rule does with the tables to which it belongs."""

    end_step: Callable[[], None]
    drop: Callable[[], None]


class _Group(dict):  # type: ignore[type-arg]
    """The group of a rule without a learning rate of its own. A scheduler reads the rate before it changes it, and some read
    it only later."""

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        if key == "lr" and value is None and "initial_lr" not in self:  # OneCycleLR brings a rate
            raise UsageError(
                "psring: the rule of rows has no learning rate that a scheduler could change: give it one, as by Tables(lr=), "
                "or schedule the attached optimizer"
            )
        return value


def _at_least_0(value: Any) -> bool:
    try:
        return bool(value >= 0)
    except TypeError:  # no number
        return False


class RowOptimizer(torch.optim.Optimizer):
    """A rule of the servers: "sgd", "adagrad", "rowwise-adagrad", "adam" or "ftrl", with its options, such as eps=1e-8. As it
    is an optimizer, schedulers of torch.optim.lr_scheduler change its learning rate, which each step takes along.

    lr: None: that of the optimizer to which the tables are attached, at each step."""

    def __init__(self, rule: str, lr: float | None = None, **options: float) -> None:
        if rule not in _KEYS:
            raise UsageError(f"psring: rows have no rule {rule!r}: they have {', '.join(_KEYS)}")
        for key, value in options.items():
            if key not in _KEYS[rule]:
                raise UsageError(f"psring: the rule {rule} of rows has no option {key!r}: it has {_KEYS[rule] or 'none'}")
            if not _at_least_0(value) or (key in ("beta1", "beta2") and value >= 1):
                below = ", below 1" if key in ("beta1", "beta2") else ""
                raise UsageError(f"psring: {rule}: {key}={value!r}: expected a number of at least 0{below}")
        if lr is not None and not _at_least_0(lr):
            raise UsageError(f"psring: {rule}: lr={lr!r}: expected a number of at least 0")
        self.spec = rule + "".join(f"{',' if i else ':'}{key}={value!r}" for i, (key, value) in enumerate(options.items()))
        self.owner: RowSteps | None = None  # the tables to which it belongs
        super().__init__([torch.nn.Parameter(torch.empty(0))], {"lr": lr})
        self.param_groups = [_Group(group) for group in self.param_groups]

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.param_groups = [_Group(group) for group in self.param_groups]

    def __repr__(self) -> str:
        return f"{type(self).__name__}('{self.spec}', lr={self.rate()})"

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Ends a step of the tables, as Tables.step does. Calls the closure before, and returns its loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._owner().end_step()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients of rows since the last step."""
        self._owner().drop()

    def _owner(self) -> RowSteps:
        if self.owner is None:
            raise UsageError("psring: this rule of rows belongs to no Tables: give it to Tables(optimizer=)")
        return self.owner

    def rate(self) -> float | None:
        lr = self.param_groups[0].get("lr")
        return None if lr is None else float(lr)


class RowWiseAdagrad(RowOptimizer):
    """Adagrad with one state for a row: s += mean(g²); w -= lr g / (sqrt(s) + eps). FBGEMM's rule."""

    def __init__(self, lr: float | None = None, eps: float = 1e-8) -> None:
        super().__init__("rowwise-adagrad", lr, eps=eps)


def row_optimizer(given: RowOptimizer | str, lr: float | None) -> RowOptimizer:
    """`given`, or the rule of a text such as "adagrad:eps=1e-8"."""
    if isinstance(given, RowOptimizer):
        if lr is not None:
            raise UsageError("psring: Tables: lr= is given twice: the optimizer has one")
        if given.owner is not None:
            raise UsageError("psring: Tables: the optimizer belongs to other tables")
        return given
    if not isinstance(given, str):
        raise UsageError(f"psring: Tables: optimizer={given!r}: expected a name of {', '.join(_KEYS)}, or RowWiseAdagrad(lr)")
    rule, colon, rest = given.partition(":")
    options: dict[str, float] = {}
    for part in rest.split(",") if colon else ():
        key, _, text = part.partition("=")
        if key in options or key == "lr":
            other = "the learning rate is that of Tables(lr=)" if key == "lr" else f"{key} stands twice"
            raise UsageError(f"psring: Tables: optimizer={given!r}: {other}")
        try:
            options[key] = float(text)
        except ValueError:
            raise UsageError(f"psring: Tables: optimizer={given!r}: expected {key or 'KEY'}=NUMBER") from None
    return RowOptimizer(rule, lr, **options)
