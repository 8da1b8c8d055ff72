"""ParameterServer: a module whose parameters live at psring's servers."""

from __future__ import annotations

import types
from contextlib import contextmanager
from typing import Any, Callable, Iterator

import torch
from torch import nn

from .._library import UsageError
from .._vector import FINAL, Vector
from ._held import Held, Slot, view_at
from ._optimizer import check_optimizer, job_options, refuse_steps, the_group
from ._served_job import ServedJob, newest_of, servers_of
from ._units import Policy, Unit, check_parameters, make_units
from ._vector import broadcast


class ParameterServer(nn.Module):
    """Trains `module` through parameter servers. A unit's gradient is pushed during backward, as soon as it is complete;
    a forward pass waits for the unit's new values when it needs them. Parameters and pushed gradients are views of memory
    that servers of this host read and write in place.

    model = psring.torch.ParameterServer(model, optimizer)
    loss(model(x), y).backward(); optimizer.step()      # the loop stays as it was

    optimizer: a torch.optim optimizer of the module's parameters. With updates="server" the servers apply its rule
        (SGD, Adam, AdamW, Adagrad, RMSprop) with its hyperparameters, and `optimizer.step()` only ends the step; with
        updates="mean" the servers average gradients, and the optimizer itself updates the parameters on each worker.
    consistency: "bsp" (all workers in step), "ssp:K" (at most K steps ahead of the slowest), or "asp" (nobody waits).
    servers: the number of server processes, which rank 0 starts on its host; None: that of `psring.run --servers`, or 1.
    compress: compression of gradients: "bf16", "int8", "sign", "top-k:ratio=R" or "random-k:ratio=R".
    zero: 1: workers hold no optimizer state, and whole parameters and gradients. Stages 2 and 3 are Sharded's.
    auto_wrap_policy: which modules are units, with the signature of FSDP's policies.
    find_unused_parameters: a parameter without gradient in a step counts as zeros; False: it is an error.
    schedule, steps: a schedule of the servers' learning rate, such as "cosine:warmup=100", and the length of the run.
    checkpoint_dir: where `save_checkpoint` saves. resume: a checkpoint of it to continue from, a folder whose newest one
        is taken, or "auto": the newest one of checkpoint_dir, if it has one.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        updates: str = "server",
        consistency: str = "bsp",
        servers: int | None = None,
        compress: str = "none",
        zero: int = 1,
        auto_wrap_policy: Policy | None = None,
        find_unused_parameters: bool = False,
        broadcast_buffers: bool = True,
        clip_norm: float = 0.0,
        schedule: str = "constant",
        steps: int = 0,
        checkpoint_dir: str | None = None,
        resume: str | None = None,
        out: str | None = None,
        timeout: float = 60.0,
        options: tuple[str, ...] = (),
    ) -> None:
        super().__init__()
        if updates not in ("server", "mean"):
            raise UsageError(f"psring: updates={updates!r}: expected 'server' or 'mean'")
        if zero != 1:
            raise UsageError(
                f"psring: zero={zero!r}: a worker of a ParameterServer holds whole parameters and gradients (zero=1); "
                "psring.torch.Sharded shards them"
            )
        if schedule != "constant" and steps < 1:
            raise UsageError(f"psring: schedule={schedule!r} needs steps=, the length of the run")
        if resume == "auto":
            resume = newest_of(checkpoint_dir)
        servers = servers_of(servers)
        check_parameters(module)
        check_optimizer(module, optimizer)
        refuse_steps(optimizer)
        optimizer._psring = True  # type: ignore[attr-defined]
        self.module = module
        self._at_servers = updates == "server"
        self._bsp = consistency == "bsp"
        if not self._at_servers and (not self._bsp or checkpoint_dir or resume or clip_norm or schedule != "constant"):
            raise UsageError(
                "psring: updates='mean' is bsp, and everything else is the optimizer's own: leave out consistency, "
                "checkpoint_dir, resume, clip_norm and schedule"
            )
        self._unused = find_unused_parameters
        self._optimizer = optimizer
        units = make_units(module, auto_wrap_policy)
        if not units:
            raise UsageError("psring: the module has no parameter to train")
        elements = sum(unit.elements() + 256 * (len(unit.parameters) + servers + 1) for unit in units)
        flags = ["--optimizer-on", "server" if self._at_servers else "worker", "--consistency", consistency]
        flags += job_options(optimizer) if self._at_servers else []
        flags += ["--compress", compress, "--schedule", schedule, *(["--clip-norm", repr(clip_norm)] if clip_norm else [])]
        if checkpoint_dir:
            flags += ["--checkpoint-every", "1", "--checkpoint-dir", checkpoint_dir]
        if resume:
            flags += ["--resume", resume]
        self._served = ServedJob(
            servers,
            [*flags, *options],
            steps=max(1, steps),
            out=out,
            memory_bytes=2 * 4 * elements + (1 << 20),
            timeout=timeout,
        )
        self.job = self._served.job
        self._step = 0
        self._syncs = True
        self._finished = False
        self._hold(units)
        self._buffers = [b for b in module.buffers() if b.numel() > 0] if broadcast_buffers and self._bsp else []
        frozen = [p.data for p in module.parameters() if not p.requires_grad]
        broadcast(self.job.world, [*frozen, *(b for b in module.buffers() if b.numel() > 0)])
        self._start()
        self._hook(units)

    # --- set-up ---

    def _hold(self, units: list[Unit]) -> None:
        """Moves the parameters into the memory of the job."""
        described = {
            unit.name: {name: tuple(p.shape) or (1,) for name, p in unit.parameters.items()} for unit in units
        }
        self._vector = Vector(self.job, described)
        self._units: list[Held] = []
        self._slots: list[Slot] = []
        for index, unit in enumerate(units):
            held = Held(index, unit)
            for name, parameter in unit.parameters.items():
                place = self._vector.place(name)
                values = view_at(place.values, parameter.shape, self.job)
                values.copy_(parameter.data)
                parameter.data = values
                parameter.grad = None
                slot = Slot(name, parameter, held, view_at(place.gradients, parameter.shape, self.job))
                held.slots.append(slot)
                self._slots.append(slot)
            held.missing = len(held.slots)
            self._units.append(held)

    def _start(self) -> None:
        if not self._at_servers:
            with torch.no_grad():
                broadcast(self.job.world, [slot.parameter.data for slot in self._slots])
        self._step = self._vector.start()
        if self._at_servers:
            for held in self._units:
                held.here = False

    def _hook(self, units: list[Unit]) -> None:
        for held, unit in zip(self._units, units):
            for module in unit.modules:
                module.register_forward_pre_hook(lambda _module, _inputs, held=held: self._await(held))
            for slot in held.slots:
                slot.handle = slot.node.register_hook(lambda *_gradients, slot=slot: self._accumulated(slot))
        # Tensors of a state are views of the memory that pulls arrive in.
        self.module._register_state_dict_hook(lambda *_arguments: self.synchronize())
        if self._at_servers:
            self.module._register_load_state_dict_pre_hook(self._refuse_load)
            self._optimizer.step = types.MethodType(_end_step(self), self._optimizer)  # type: ignore[method-assign]
            self._group = dict(the_group(self._optimizer))
        else:
            self._optimizer.step = types.MethodType(  # type: ignore[method-assign]
                _update(self, self._optimizer.step), self._optimizer
            )

    @staticmethod
    def _refuse_load(*_arguments: Any) -> None:
        raise UsageError(
            "psring: the servers own the parameters: load the state before the ParameterServer is made, or give resume="
        )

    # --- a step ---

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        if not self.job.is_member():
            raise UsageError("psring: this process was forked from a worker, and is none: the model belongs to the worker")
        if self._buffers and self.training and self._syncs:
            with torch.no_grad():
                broadcast(self.job.world, self._buffers)
        return self.module(*inputs, **keywords)

    def _await(self, held: Held) -> None:
        """Before a forward pass: the unit's values of this step."""
        if not held.here:
            self._vector.wait(held.index, FINAL if self._finished else self._step)
            held.here = True

    def _accumulated(self, slot: Slot) -> None:
        """After backward has accumulated the parameter's gradient."""
        if not self._syncs:
            return
        held = slot.unit
        if slot.ready:
            raise UsageError(
                f"psring: a second gradient of '{slot.name}' before optimizer.step(): run all backward passes of a step but "
                "the last one in no_sync()"
            )
        if not held.here:
            raise UsageError(
                f"psring: '{slot.name}' was used, but no module of its unit '{held.name}' was called: its values may have "
                "been old; an auto_wrap_policy can put it into the unit of the module that uses it"
            )
        self._place(slot)
        slot.ready = True
        held.missing -= 1
        if held.missing == 0:
            self._push(held)

    def _place(self, slot: Slot) -> None:
        gradient = slot.parameter.grad
        if gradient is None:
            slot.gradient.zero_()
        elif gradient.data_ptr() != slot.gradient.data_ptr() or gradient.stride() != slot.gradient.stride():
            slot.gradient.copy_(gradient)
        slot.parameter.grad = slot.gradient
        slot.gradient_version = slot.gradient._version

    def _push(self, held: Held) -> None:
        for slot in held.slots:
            if slot.parameter._version != slot.version:
                raise UsageError(
                    f"psring: '{slot.name}' was changed on this worker, but the servers own it: exactly one optimizer may "
                    "update it; updates='mean' keeps the optimizer on the workers"
                )
        self._vector.push_pull(held.index, self._step)
        held.pushed = True
        held.here = False

    def _push_rest(self) -> None:
        """Pushes units that backward has not completed."""
        if not self._syncs:
            raise UsageError("psring: optimizer.step() inside no_sync()")
        lacking = [slot for held in self._units if not held.pushed for slot in held.slots if not slot.ready]
        if len(lacking) == len(self._slots) and not self._unused:
            raise UsageError("psring: optimizer.step() without a backward pass of this module before it")
        if lacking and not self._unused:
            raise UsageError(
                f"psring: no gradient of '{lacking[0].name}' in this step"
                + (f", nor of {len(lacking) - 1} others" if len(lacking) > 1 else "")
                + ": the loss does not depend on it; find_unused_parameters=True takes zeros, requires_grad=False freezes it"
            )
        for slot in lacking:
            self._place(slot)
        for held in self._units:
            if not held.pushed:
                self._await(held)
                self._push(held)
        for slot in self._slots:
            if slot.gradient._version != slot.gradient_version:
                raise UsageError(
                    f"psring: the gradient of '{slot.name}' was changed after it was pushed; use clip_norm= or "
                    "updates='mean'"
                )

    def _begin_next(self) -> None:
        self._step += 1
        for held in self._units:
            held.missing = len(held.slots)
            held.pushed = False
        for slot in self._slots:
            slot.ready = False

    def _end_step(self) -> None:
        """Ends a step whose updates the servers apply. Servers may still read the gradients: they are no parameter's any
        more."""
        group = the_group(self._optimizer)
        for key, value in self._group.items():
            if key != "params" and group.get(key) != value:
                raise UsageError(
                    f"psring: the optimizer's {key} is {group.get(key)!r} now, the servers have {value!r}: give schedule=, "
                    "or updates='mean'"
                )
        self._push_rest()
        for slot in self._slots:
            slot.parameter.grad = None
        self._begin_next()

    def _take_means(self) -> None:
        """Ends a step for which the servers average: the gradients of all parameters become the means."""
        self._push_rest()
        self._step += 1
        self.synchronize()
        self._step -= 1
        self._begin_next()

    # --- the user's side ---

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes inside accumulate gradients, and push nothing."""
        before, self._syncs = self._syncs, False
        try:
            yield
        finally:
            self._syncs = before

    def synchronize(self) -> None:
        """Waits until all parameters have the values of the last step. Forward passes and state_dict() do it by
        themselves."""
        for held in self._units:
            self._await(held)

    @property
    def steps(self) -> int:
        """The steps that this worker has made, those before `resume` counted."""
        return self._step

    def staleness(self) -> float:
        """Under ssp and asp: the mean number of others' updates between the values that a gradient was computed from and
        its own update, since the last call."""
        return self._vector.staleness()

    def finish(self) -> None:
        """Under ssp and asp, after a worker's last step: waits until all workers have finished, and gets the last values,
        which are the same on all workers. No step follows."""
        self.synchronize()
        if self._finished or self._bsp:
            return
        self._vector.finish()
        self._finished = True
        for held in self._units:
            self._vector.pull(held.index, FINAL)
            held.here = False
        self.synchronize()

    def save_checkpoint(self) -> None:
        """Saves parameters and optimizer state of the servers in checkpoint_dir, after optimizer.step(), on all workers;
        `resume` continues from it. Buffers of the module are not in it."""
        self.synchronize()
        self._vector.save(self._step)
        self.job.barrier()

    def close(self) -> None:
        """Leaves the job; all workers do. At the interpreter's end it happens by itself."""
        self.finish()
        self._served.close()

    def __deepcopy__(self, _memo: Any) -> ParameterServer:
        raise UsageError("psring: a ParameterServer cannot be copied: copy its module's state_dict()")


def _loss(closure: Callable[[], Any] | None) -> Any:
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


def _end_step(server: ParameterServer) -> Callable[..., Any]:
    def step(_optimizer: Any, closure: Callable[[], Any] | None = None) -> Any:
        """Ends the step: the servers apply the optimizer's rule."""
        loss = _loss(closure)
        server._end_step()
        return loss

    return step


def _update(server: ParameterServer, own: Callable[..., Any]) -> Callable[..., Any]:
    def step(_optimizer: Any, closure: Callable[[], Any] | None = None) -> Any:
        """Waits for the mean gradients, and updates the parameters."""
        loss = _loss(closure)
        server._take_means()
        own()
        for slot in server._slots:
            slot.version = slot.parameter._version
        return loss

    return step
