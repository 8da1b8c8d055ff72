"""A GradScaler over a Sharded: all workers leave a step out, or none."""

from __future__ import annotations

import functools
from typing import Any

import torch

from .._job import Group, Op, Type


def share_infinities(optimizer: torch.optim.Optimizer, group: Group) -> None:
    """From now on, a GradScaler that finds an infinity in one worker's part of the optimizer's gradients finds it on all
    workers of the group, which all call it."""
    optimizer._psring_group = group  # type: ignore[attr-defined]
    scaler: Any = getattr(torch.amp, "GradScaler", None)  # PyTorch 1's is for GPUs only
    if scaler is None or hasattr(scaler._unscale_grads_, "_psring"):
        return
    plain = scaler._unscale_grads_

    @functools.wraps(plain)
    def unscale(self: Any, optimizer: torch.optim.Optimizer, *arguments: Any, **keywords: Any) -> Any:
        found = plain(self, optimizer, *arguments, **keywords)
        group: Any = getattr(optimizer, "_psring_group", None)
        for each in found.values() if group is not None else ():
            group.all_reduce_at(each.data_ptr(), each.numel(), Type.F32, Op.MAX, each).wait()
        return found

    unscale._psring = True  # type: ignore[attr-defined]
    scaler._unscale_grads_ = unscale
