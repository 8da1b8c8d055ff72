"""ParameterServer: a module whose parameters live at psring's servers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from torch import nn

from .._accounts import Moved
from .._library import UsageError
from .._vector import Vector
from ._flat import BLOCK, Slot
from ._hooks import Hook
from ._optimizer import check_optimizer, ending_step, job_options, refuse_steps, set_step, the_group, updating_step
from ._passes import Passes, put_values, whole
from ._pushes import Pushes
from ._served import Served, Step, closed
from ._served_job import ServedJob, newest_of, options_of, servers_of
from ._units import Policy, Unit, check_parameters, make_units, sort_by_calls
from ._vector import broadcast
from ._wrapper import Untrained, Wrapper, refuse_assigned


class ParameterServer(Wrapper):
    """Trains `module` through parameter servers. A unit's gradient is pushed during backward, as soon as it is complete;
    a forward pass waits for the unit's new values when it needs them. Parameters and pushed gradients lie in memory that
    servers of this host read and write in place.

    model = psring.torch.ParameterServer(model, optimizer)
    loss(model(x), y).backward(); optimizer.step()      # the loop stays as it was

    optimizer: a torch.optim optimizer of the module's parameters. With updates="server" the servers apply its rule
        (SGD, Adam, AdamW, Adagrad, RMSprop) with its hyperparameters, and `optimizer.step()` only ends the step; with
        updates="mean" the servers average gradients, and the optimizer itself updates the parameters on each worker.
    consistency: "bsp" (all workers in step), "ssp:K" (at most K steps ahead of the slowest), or "asp" (nobody waits).
    servers: the number of server processes, which rank 0 starts on its host; None: that of `psring.run --servers`, or 1.
    compress: compression of gradients: "bf16", "int8", "sign", "top-k:ratio=R" or "random-k:ratio=R".
    zero: what a worker does not hold whole: the optimizer's state (1), also gradients (2: a unit's goes when the servers
        have it), also parameters (3: a unit's come for a pass, and go).
    prefetch: zero=3: units that are fetched ahead of the one that a pass needs: 0, 1 or 2. None: 1.
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
        prefetch: int | None = None,
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
        super().__init__(module)
        if updates not in ("server", "mean"):
            raise UsageError(f"psring: updates={updates!r}: expected 'server' or 'mean'")
        _refuse_zero(zero, prefetch, updates, consistency)
        if schedule != "constant" and steps < 1:
            raise UsageError(f"psring: schedule={schedule!r} needs steps=, the length of the run")
        if resume == "auto":
            resume = newest_of(checkpoint_dir)
        servers = servers_of(servers)
        check_parameters(module, updates == "mean")
        check_optimizer(module, optimizer)
        refuse_steps(optimizer)
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
        sort_by_calls(units, module)  # with zero < 3, too: random-k draws by the number of the unit
        if not units:
            raise UsageError("psring: the module has no parameter to train")
        self._zero = zero
        self._frees = zero == 3
        ahead = 1 if prefetch is None else prefetch
        flags = ["--optimizer-on", "server" if self._at_servers else "worker", "--consistency", consistency]
        flags += ["--prefetch", str(ahead)] if self._frees else []
        flags += job_options(optimizer) if self._at_servers else []
        flags += [
            "--compress",
            compress,
            "--schedule",
            schedule,
            *(["--clip-norm", repr(float(clip_norm))] if clip_norm else []),
        ]
        agreed = [f"updates={updates!r}", f"zero={zero}", f"servers={servers}", *options_of([*flags, *options])]
        agreed += [f"find_unused_parameters={find_unused_parameters}", f"broadcast_buffers={broadcast_buffers}"]
        for name, parameter in module.named_parameters():
            agreed.append(f"parameter '{name}' {tuple(parameter.shape)}{'' if parameter.requires_grad else ', frozen'}")
        if checkpoint_dir:
            flags += ["--checkpoint-every", "1", "--checkpoint-dir", checkpoint_dir]
        if resume:
            flags += ["--resume", resume]
        self._served = ServedJob(
            servers,
            [*flags, *options],
            strategy="ps" if zero == 1 else f"ps-zero{zero}",
            steps=max(1, steps),
            out=out,
            memory_bytes=_memory_bytes(units, servers, zero),
            timeout=timeout,
            agreed=agreed,
        )
        self.job = self._served.job
        optimizer._psring = True  # type: ignore[attr-defined]
        self._step = Step()
        self._alone: Slot | None = None  # has a gradient of a backward pass in no_sync() since the last means
        self._hold(units, servers)
        self._untrained = Untrained(module, self.job.world, broadcast_buffers and self._bsp)
        self._start()
        self._passes = Passes(self._units, ahead, self._end_backward, self._refuse_early_pass)
        self._hook()

    # --- set-up ---

    def _hold(self, units: list[Unit], servers: int) -> None:
        """Moves the parameters into the memory of the job; with zero > 1 `_start` does."""
        described = {unit.name: {name: tuple(p.shape) or (1,) for name, p in unit.parameters.items()} for unit in units}
        self._vector = Vector(self.job, described, holds=self._zero == 1)
        self._vector.in_step = self._bsp
        self._served_units = [
            Served(index, unit, servers, self.job, self._vector, self._step, self._zero) for index, unit in enumerate(units)
        ]
        self._units = [served.unit for served in self._served_units]
        self._pushes = Pushes(self._served_units, self._step, self._zero, self._at_servers)

    def _start(self) -> None:
        if self._zero > 1:
            self._step.index = self._vector.agree()
        else:
            if not self._at_servers:
                with torch.no_grad():
                    broadcast(self.job.world, [slot.parameter.data for unit in self._units for slot in unit.slots])
            self._step.index = self._vector.start()
        with torch.no_grad():
            for served in self._served_units:
                served.start(self._at_servers)
        self._take_values()

    def _hook(self) -> None:
        self._handles: list[Any] = []
        for slot in (slot for unit in self._units for slot in unit.slots):
            slot.handle = slot.node.register_hook(lambda *_gradients, slot=slot: self._passes.run(self._accumulated, slot))
            self._handles.append(slot.handle)
            if self._zero > 1:
                handle: Any = slot.parameter.register_hook(lambda _gradient, slot=slot: self._about_to_accumulate(slot))
                self._handles.append(handle)
        self._handles.append(self.module._register_state_dict_hook(Hook(self._fill)))
        load: Any = self._refuse_load if self._at_servers else refuse_assigned
        self._handles.append(self.module._register_load_state_dict_pre_hook(Hook(load)))
        self._optimizer.add_param_group = self._refuse_group  # type: ignore[method-assign]
        if self._at_servers:
            set_step(self._optimizer, ending_step(self._end_step))
            self._optimizer.state_dict = self._refuse_state  # type: ignore[method-assign]
            self._optimizer.load_state_dict = self._refuse_state  # type: ignore[method-assign]
            group = the_group(self._optimizer).items()
            # A schedule changes a rate that is a tensor in place.
            self._group = {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in group}
        else:
            set_step(self._optimizer, updating_step(self._optimizer.step, self._begin_update))

    def _fill(self, _module: nn.Module, state: dict[str, Any], prefix: str, _metadata: Any) -> None:
        """After a state was collected: its tensors are views of the memory that pulls arrive in, or have no values yet."""
        if self._frees:
            put_values(self._units, state, prefix)
        else:
            self.synchronize()

    @staticmethod
    def _refuse_load(*_arguments: Any) -> NoReturn:
        raise UsageError(
            "psring: the servers own the parameters: load the state before the ParameterServer is made, or give resume="
        )

    @staticmethod
    def _refuse_group(*_arguments: Any, **_keywords: Any) -> NoReturn:
        raise UsageError("psring: add_param_group() after the ParameterServer was made: add it before")

    @staticmethod
    def _refuse_state(*_arguments: Any, **_keywords: Any) -> NoReturn:
        raise UsageError(
            "psring: the servers own the optimizer's state: save_checkpoint() saves it, and resume= continues from it; "
            "updates='mean' keeps the optimizer on the workers"
        )

    # --- a step ---

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        self._refuse_forked()
        if self._step.closed:
            raise closed()
        self._untrained.begin_pass(self.training and self._syncs)
        return self._passes.forward(self.module, inputs, keywords)

    def _refuse_early_pass(self) -> None:
        if self._at_servers and self._pushes.are_begun():
            raise UsageError(
                "psring: a forward pass between backward and optimizer.step(): the servers may have updated already, so that "
                "it would see new values; call optimizer.step() before, run the backward pass in no_sync(), or use "
                "updates='mean'"
            )

    def _about_to_accumulate(self, slot: Slot) -> None:
        self._passes.run(self._pushes.refuse_second, slot)
        self._pushes.clear(slot)

    def _accumulated(self, slot: Slot) -> None:
        """After backward has accumulated the parameter's gradient."""
        if self._frees:
            self._passes.arrived(slot)
        if not self._syncs:
            self._alone = slot
            return
        self._pushes.complete(slot)

    def _push_rest(self) -> None:
        self._refuse_unsynced_step()
        self._pushes.push_rest(self._unused)

    def _end_step(self) -> None:
        """Ends a step whose updates the servers apply."""
        if self._step.closed:
            raise closed()
        group = the_group(self._optimizer)
        for key, value in self._group.items():
            if key != "params" and group.get(key) != value:
                raise UsageError(
                    f"psring: the optimizer's {key} is {group.get(key)!r} now, the servers have {value!r}: give schedule=, "
                    "or updates='mean'"
                )
        self._push_rest()
        self._pushes.drop()
        self._pushes.end_step()
        # A program may read the values now. The next forward pass needs first what was pushed last, so that little is lost.
        self._take_values()

    def _take_values(self) -> None:
        """Waits for the values of a step, which from now on nobody but the servers may change."""
        self.synchronize()
        if self._at_servers and not self._frees:
            for unit in self._units:
                unit.unseen.record()

    def _end_backward(self, failed: bool) -> None:
        """Where the servers average, the gradients are the means when backward returns, as under DDP."""
        if failed:
            self._pushes.restore()
        elif not self._at_servers and (self._pushes.are_complete() or (self._unused and self._pushes.are_begun())):
            self._take_means()

    def _take_means(self) -> None:
        """Ends a step for which the servers average: the gradients of all parameters become the means."""
        self._push_rest()
        self.synchronize()
        self._pushes.end_step()
        self._alone = None

    def _begin_update(self) -> None:
        """The optimizer is about to update with the mean gradients."""
        self._pushes.refuse_others()
        if self._pushes.are_begun():  # some parameters had no gradient
            self._take_means()
        if self._alone is not None and self._alone.parameter.grad is not None:
            raise UsageError(
                f"psring: optimizer.step(): the gradient of '{self._alone.name}' is this worker's own, and no mean: the last "
                "backward pass of a step runs outside of no_sync()"
            )

    # --- the user's side ---

    def synchronize(self) -> None:
        """zero=1 and 2: waits until all parameters have the values of the last step. Forward passes and state_dict() do it
        by themselves."""
        if not self._frees and not self._step.closed:
            for unit in self._units:
                unit.gather()

    @contextmanager
    def gathered(self, write: bool = False) -> Iterator[None]:
        """Inside, all parameters have the values of the last step. write: with updates="mean" they may be changed, and all
        workers get rank 0's; then all workers call it."""
        if write and self._at_servers:
            raise UsageError(
                "psring: gathered(write=True): the servers own the parameters: change them before the ParameterServer is made, "
                "or use updates='mean'"
            )
        try:
            with whole(self._units, self.job.world if write else None):
                yield
        finally:
            for unit in self._units:
                unit.free()

    def traffic(self) -> tuple[Moved, Moved]:
        """The bytes of gradients that this worker has sent and of values that it has received, and those that the formulas
        give for these pushes and pulls. Between two steps."""
        self.synchronize()
        predicted = Moved(0, 0)
        for served in self._served_units:
            predicted = predicted.plus(served.predicted)
        return self._vector.moved(), predicted

    def step_bytes(self, accumulate: int = 1) -> Moved:
        """The bytes of a step with so many forward and backward passes. zero=3 fetches for each forward pass all units, and
        for each backward pass those whose values it has read in the last one."""
        total = Moved(0, 0)
        for served in self._served_units:
            pulls = accumulate * (1 + served.unit.read) if self._frees else 1
            total = total.plus(Moved(served.size.pushed, pulls * served.size.pulled))
        return total

    @property
    def steps(self) -> int:
        """The steps that this worker has made, those before `resume` counted."""
        return self._step.index

    def staleness(self) -> float:
        """Under ssp and asp: the mean number of others' updates between the values that a gradient was computed from and
        its own update, since the last call."""
        return self._vector.staleness()

    def finish(self) -> None:
        """Under ssp and asp, after a worker's last step: waits until all workers have finished, and gets the last values,
        which are the same on all workers. No step follows."""
        self.synchronize()
        if self._step.final or self._bsp:
            return
        self._vector.finish()
        self._step.final = True
        self.synchronize()

    def save_checkpoint(self) -> None:
        """Saves parameters and optimizer state of the servers in checkpoint_dir, after optimizer.step(), on all workers;
        `resume` continues from it. Buffers of the module are not in it."""
        self.synchronize()
        self._vector.save(self._step.index)
        self.job.barrier()

    def close(self) -> None:
        """Leaves the job; all workers do. At the interpreter's end it happens by itself. From then on the module is a plain one
        with the values of the last step; with zero=3 these stay at the servers."""
        self.finish()
        self._step.closed = True
        self._served.close()
        if self._frees:
            return
        self._passes.close()
        for handle in self._handles:
            handle.remove()


def _refuse_zero(zero: int, prefetch: int | None, updates: str, consistency: str) -> None:
    if zero not in (1, 2, 3):
        raise UsageError(f"psring: zero={zero!r}: expected 1, 2 or 3")
    if prefetch is not None and (zero < 3 or prefetch not in (0, 1, 2)):
        raise UsageError(f"psring: prefetch={prefetch!r}: expected 0, 1 or 2, with zero=3")
    if zero > 1 and updates == "mean":
        raise UsageError(
            f"psring: zero={zero} and updates='mean': a worker's own optimizer needs whole gradients, which zero={zero} drops"
        )
    if zero == 3 and consistency != "bsp":
        raise UsageError(
            f"psring: zero=3 and consistency={consistency!r}: a backward pass fetches units again, and would get other "
            "values than the forward pass has used; zero=2 keeps them"
        )


def _memory_bytes(units: list[Unit], servers: int, zero: int) -> int:
    """The capacity of the job's memory: values and gradients, twice if they come and go and leave gaps. Memory that is not
    used costs only addresses."""
    elements = sum(unit.elements() + BLOCK * (len(unit.parameters) + servers + 1) for unit in units)
    return (2 if zero == 1 else 4) * 4 * elements + (1 << 20)
