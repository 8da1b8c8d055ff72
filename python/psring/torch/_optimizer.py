"""torch.optim optimizers as options of a job, whose servers then apply the same rule."""

from __future__ import annotations

import types
from typing import Any, Callable

import torch
from torch import nn

from .._library import UsageError

# Options that must have the value with which the servers' rule is the same. Those that only choose an implementation
# are free.
_PLAIN: dict[str, Any] = {"maximize": False, "amsgrad": False, "centered": False, "dampening": 0, "lr_decay": 0, "momentum": 0}
_FREE = {"foreach", "fused", "capturable", "differentiable", "decoupled_weight_decay"}
_RULES: dict[type, tuple[str, dict[str, str]]] = {
    torch.optim.Adam: ("adam", {"eps": "eps", "weight_decay": "weight-decay"}),
    torch.optim.AdamW: ("adamw", {"eps": "eps", "weight_decay": "weight-decay"}),
    torch.optim.Adagrad: ("adagrad", {"eps": "eps", "weight_decay": "weight-decay"}),
    torch.optim.RMSprop: ("rmsprop", {"eps": "eps", "weight_decay": "weight-decay", "alpha": "alpha"}),
}


# Their rules treat each element of a parameter by itself.
_ELEMENTWISE = "SGD Adam AdamW Adamax NAdam RAdam Adagrad Adadelta RMSprop Rprop ASGD".split()


def require_elementwise(optimizer: torch.optim.Optimizer, promised: bool) -> None:
    """Refuses an optimizer that may not update a flat part of a parameter as it updates the whole."""
    kind = type(optimizer)
    if any(kind is getattr(torch.optim, name, None) for name in _ELEMENTWISE):
        return
    if kind in (torch.optim.LBFGS, torch.optim.SparseAdam):
        raise UsageError(f"psring: Sharded cannot cut the state of {kind.__name__}: its rule is not elementwise")
    if not promised:
        raise UsageError(
            f"psring: Sharded does not know whether {kind.__name__} treats each element by itself, as "
            f"{', '.join(_ELEMENTWISE)} do; elementwise=True says so. LARS, LAMB, Adafactor, Shampoo and Muon do not"
        )


def the_group(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The one group of parameters. Refuses groups that differ."""
    first, *others = optimizer.param_groups
    for other in others:
        differing = [key for key in first if key != "params" and other.get(key) != first[key]]
        if differing:
            raise UsageError(
                f"psring: the optimizer's groups of parameters differ in {', '.join(differing)}; the servers have one set "
                "of hyperparameters: use updates='mean', which keeps the optimizer on the workers"
            )
    return first


def job_options(optimizer: torch.optim.Optimizer) -> list[str]:
    """The job options with which servers do what `optimizer.step` does."""
    kind = type(optimizer)
    group = dict(the_group(optimizer))
    group.pop("params")
    group.pop("initial_lr", None)
    options = ["--lr", repr(float(group.pop("lr")))]
    if kind is torch.optim.SGD:
        momentum = float(group.pop("momentum"))
        rule, names = ("momentum" if momentum else "sgd"), {"weight_decay": "weight-decay"}
        if momentum:
            options += ["--momentum", repr(momentum)]
        if group.pop("nesterov"):
            options.append("--nesterov")
    elif kind in _RULES:
        rule, names = _RULES[kind]
        if "betas" in group:
            first, second = map(float, group.pop("betas"))
            options += ["--betas", f"{first!r},{second!r}"]
    else:
        raise UsageError(
            f"psring: servers have no {kind.__name__}: they have SGD, Adam, AdamW, Adagrad and RMSprop; updates='mean' "
            "keeps any optimizer on the workers"
        )
    for name, value in group.items():
        if name in names:
            options += [f"--{names[name]}", repr(float(value))]  # 0 is a value, too: psring's default is another one
        elif name in _FREE or (name == "initial_accumulator_value" and value == 0):
            continue
        elif _PLAIN.get(name, value) != value or name not in _PLAIN:
            raise UsageError(
                f"psring: {kind.__name__}({name}={value!r}) has no counterpart at the servers; updates='mean' keeps the "
                "optimizer on the workers"
            )
    return ["--optimizer", rule, *options]


def check_optimizer(module: nn.Module, optimizer: Any) -> None:
    """Refuses what is no optimizer of exactly the module's trainable parameters."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise UsageError(f"psring: optimizer={optimizer!r}: expected a torch.optim optimizer of the module's parameters")
    if getattr(optimizer, "_psring", False):
        raise UsageError("psring: the optimizer belongs to another ParameterServer or Sharded")
    if getattr(optimizer, "_psring_tables", False):
        raise UsageError(
            "psring: tables are attached to the optimizer: attach them after the ParameterServer or Sharded is made"
        )
    has = {id(p) for group in optimizer.param_groups for p in group["params"]}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and id(parameter) not in has:
            raise UsageError(f"psring: the optimizer does not have the parameter '{name}'")
        has.discard(id(parameter))
    if has:
        raise UsageError(f"psring: the optimizer has {len(has)} parameters that are not in the module")


def set_step(optimizer: torch.optim.Optimizer, step: Callable[..., Any]) -> None:
    """Makes a function the optimizer's `step`. A schedule that was made before has wrapped the old one to count its calls, and
    would warn that they are not counted any more."""
    for mark in ("_with_counter", "_wrapped_by_lr_sched"):  # PyTorch 1's and 2's
        if hasattr(optimizer.step, mark):
            setattr(step, mark, True)
    optimizer.step = types.MethodType(step, optimizer)  # type: ignore[method-assign]


def ending_step(end: Callable[[], None]) -> Callable[..., Any]:
    """A `step` of an optimizer whose rule the servers apply."""

    def step(_optimizer: Any, closure: Callable[[], Any] | None = None) -> Any:
        """Ends the step: the servers apply the optimizer's rule."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        end()
        return loss

    # From PyTorch 2 on, an optimizer calls hooks before and after its step.
    hooked: Any = getattr(torch.optim.Optimizer, "profile_hook_step", None)
    return step if hooked is None else hooked(step)


def updating_step(own: Callable[..., Any], begin: Callable[[], None]) -> Callable[..., Any]:
    """A `step` that calls the optimizer's own one, and `begin` before each update. The optimizer evaluates a closure itself,
    some optimizers several times."""

    def evaluated(closure: Any) -> Any:
        def evaluate() -> Any:
            loss = closure()
            begin()
            return loss

        return evaluate if callable(closure) else closure

    def step(_optimizer: Any, *arguments: Any, **keywords: Any) -> Any:
        """Updates the parameters with the mean gradients."""
        begin()
        keywords = {name: evaluated(value) if name == "closure" else value for name, value in keywords.items()}
        return own(*map(evaluated, arguments[:1]), *arguments[1:], **keywords)

    return step


def refuse_steps(optimizer: torch.optim.Optimizer) -> None:
    # Adagrad has its state from the beginning, at step 0.
    if any(float(state.get("step", 1)) > 0 for state in optimizer.state.values()):
        raise UsageError("psring: the optimizer has made steps already: make the ParameterServer before the first")
