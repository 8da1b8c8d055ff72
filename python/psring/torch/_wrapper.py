"""ParameterServer and Sharded wrap a module, as DDP does: this is the part of their interface that DDP has, too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable, NoReturn

import torch
from torch import nn

from .._accounts import Booked, booked_by_purpose
from .._job import Group, Job
from .._library import UsageError
from ._vector import broadcast


class Untrained:
    """The frozen parameters and the buffers of a module. All workers have rank 0's values, those of the buffers with each
    forward pass of training if `broadcast_buffers`."""

    def __init__(self, module: nn.Module, world: Group, broadcast_buffers: bool) -> None:
        self._frozen = {name: p for name, p in module.named_parameters() if not p.requires_grad}
        self._world = world
        self._module = module
        buffers = self._buffers()
        broadcast(world, [*(p.data for p in self._frozen.values() if p.numel() > 0), *buffers])
        self._broadcasts = broadcast_buffers and len(buffers) > 0

    def _buffers(self) -> list[torch.Tensor]:
        """The buffers that the module has now: a forward pass may replace them."""
        return [buffer for buffer in self._module.buffers() if buffer.numel() > 0]

    def begin_pass(self, training: bool) -> None:
        """Refuses parameters that need a gradient by now; nothing exchanges them."""
        for name, parameter in self._frozen.items():
            if parameter.requires_grad:
                raise UsageError(
                    f"psring: the parameter '{name}' needs a gradient now, and did not when the module was wrapped: wrap it "
                    "afterwards"
                )
        if training and self._broadcasts:
            with torch.no_grad():
                broadcast(self._world, self._buffers())


def refuse_assigned(_state: Any, _prefix: str, metadata: Any, *_arguments: Any) -> None:
    """Refuses a state whose tensors would become the parameters: the job has those of now."""
    if metadata.get("assign_to_params_buffers"):
        raise UsageError("psring: load_state_dict(assign=True) would replace parameters: load without assign")


class Wrapper(nn.Module):
    """A module that is trained by all workers of `job`, each with its own part of the batch."""

    job: Job

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self._syncs = True

    def _refuse_forked(self) -> None:
        if not self.job.is_member():
            raise UsageError("psring: this process was forked from a worker, and is none: the model belongs to the worker")

    def _refuse_unsynced_step(self) -> None:
        if not self._syncs:
            raise UsageError("psring: optimizer.step() inside no_sync()")

    @property
    def require_backward_grad_sync(self) -> bool:
        """False: backward passes accumulate, as inside no_sync(). DDP's name."""
        return self._syncs

    @require_backward_grad_sync.setter
    def require_backward_grad_sync(self, value: bool) -> None:
        self._syncs = bool(value)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes inside accumulate whole gradients on this worker, and exchange none; the next one outside exchanges
        their sum."""
        before, self._syncs = self._syncs, False
        try:
            yield
        finally:
            self._syncs = before

    def memory(self) -> dict[str, Booked]:
        """The bytes that this worker's job has booked by purpose: now, and at their peak."""
        return booked_by_purpose(self.job)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor]) -> Any:
        """Refuses a function of nn.Module that would replace parameters, such as that of `double()`."""
        probe = torch.zeros(1, dtype=torch.float32, device="cpu")
        place = probe.data_ptr()
        if fn(probe).data_ptr() != place:
            raise UsageError(f"psring: a {type(self).__name__} keeps its parameters where they are: convert the module before")
        return self

    def __reduce_ex__(self, _protocol: Any) -> NoReturn:
        raise UsageError(f"psring: a {type(self).__name__} cannot be copied or saved: copy its module's state_dict()")

    def __deepcopy__(self, memo: Any) -> NoReturn:
        self.__reduce_ex__(memo)
