"""Tables: embeddings whose rows live at psring's servers."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Mapping
from typing import Any, Callable, NoReturn

import torch

from .._accounts import Booked, Moved, booked_by_purpose
from .._library import UsageError, whole
from .._tables import Rows, Table
from .._tables import Tables as Job
from ._embeddings import Embedding, EmbeddingBag
from ._row_optimizers import RowOptimizer, RowSteps, row_optimizer
from ._rows import as_keys, fetch, places_of, values_of
from ._served_job import ServedJob, options_of, servers_of
from .backend import memory_bytes


class Tables:
    """Tables of rows by 64-bit keys, for modules that stand for nn.EmbeddingBag and nn.Embedding. A forward pass pulls the
    rows of its keys, a backward pass adds up the gradients of rows, and the end of a step pushes them to the servers, which
    update the rows with the mean of all workers. A row appears when it is trained for the first time.

    tables = psring.torch.Tables(optimizer=psring.torch.RowWiseAdagrad(lr=0.05))
    self.ads = tables.EmbeddingBag("ads", 16, mode="sum")     # in a module, as nn.EmbeddingBag
    tables.attach(optimizer)                                  # optimizer.step() ends a step of the tables, too

    All workers make the same tables, in the same order, before the first pass, and end the same steps. With
    options=("--consistency", "asp") each worker's step updates rows at once, by its own gradients, and nobody waits.

    servers: the number of server processes, which rank 0 starts on its host; None: that of `psring.run --servers`, or 1.
    optimizer: the servers' rule: "sgd", "adagrad", "rowwise-adagrad", "adam" or "ftrl", with options as in "adagrad:eps=1e-8",
        or RowWiseAdagrad(lr). It is `tables.optimizer`, whose learning rate a torch.optim.lr_scheduler may change. None: sgd.
    lr: the learning rate; None: that of the optimizer to which the tables are attached, at each step.
    """

    def __init__(
        self,
        *,
        servers: int | None = None,
        optimizer: RowOptimizer | str | None = None,
        lr: float | None = None,
        out: str | None = None,
        timeout: float = 60.0,
        options: tuple[str, ...] = (),
    ) -> None:
        self._follows = optimizer is None and lr is None  # all that an attached optimizer does
        self.optimizer = row_optimizer("sgd" if optimizer is None else optimizer, lr)
        self.optimizer.owner = RowSteps(self._end_step, self._drop)
        servers = servers_of(servers)
        self._served = ServedJob(
            servers,
            ["--table-optimizer", self.optimizer.spec, *options],
            agreed=[f"servers={servers}", f"optimizer={self.optimizer.spec}", *options_of(options)],
            strategy="ps",
            steps=1,
            out=out,
            memory_bytes=memory_bytes(),
            timeout=timeout,
        )
        self.job = self._served.job
        self._tables = Job(self.job)
        self._started = False
        self._attached: torch.optim.Optimizer | None = None
        self._sizes: dict[str, int] = {}  # the rows of tables that stand for a matrix
        self._initial: dict[str, torch.Tensor] = {}  # first values, until the start
        self._prefetched: dict[str, list[tuple[int, torch.Tensor, Rows]]] = {}
        self._served.before_leaving = self._flush

    # --- tables ---

    def EmbeddingBag(
        self,
        name: str,
        embedding_dim: int,
        *,
        mode: str = "mean",
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        dtype: torch.dtype = torch.float32,
        init: str = "uniform:0.05",
        most_keys: int | None = None,
    ) -> EmbeddingBag:
        """A module as nn.EmbeddingBag(mode=mode), for any int64 as index. dtype: torch.bfloat16 halves the bytes that travel.
        init: the rows' first values, by key: "uniform:A", "normal:A" or "constant:A". most_keys: different keys in one batch,
        or with gradients in one step, at most (65,536)."""
        if mode not in ("sum", "mean", "max"):
            raise UsageError(f"psring: table '{name}': mode={mode!r}: expected 'sum', 'mean' or 'max'")
        padding_idx = _index(name, padding_idx)
        table = self._open(name, embedding_dim, dtype, init, most_keys)
        return EmbeddingBag(self, table, mode, include_last_offset, padding_idx)

    def Embedding(
        self,
        name: str,
        embedding_dim: int,
        *,
        padding_idx: int | None = None,
        dtype: torch.dtype = torch.float32,
        init: str = "uniform:0.05",
        most_keys: int | None = None,
    ) -> Embedding:
        """A module as nn.Embedding, for any int64 as index. The row of padding_idx is zeros, and has no gradient."""
        padding_idx = _index(name, padding_idx)
        return Embedding(self, self._open(name, embedding_dim, dtype, init, most_keys), padding_idx)

    def _open(self, name: str, width: int, dtype: torch.dtype, init: str, most_keys: int | None) -> Table:
        if self._started:
            raise UsageError(f"psring: the tables have started: make table '{name}' before the first pass")
        width = whole(f"table {name!r}: embedding_dim", width)
        if not 1 <= width <= 8192:
            raise UsageError(f"psring: table '{name}': embedding_dim={width}: expected 1 to 8,192")
        if dtype not in (torch.float32, torch.bfloat16):
            raise UsageError(f"psring: table '{name}': dtype={dtype}: rows travel as torch.float32 or torch.bfloat16")
        return self._tables.open(name, width, bf16=dtype == torch.bfloat16, init=init, most_keys=most_keys)

    def _open_matrix(self, name: str, weight: torch.Tensor, most_keys: int | None) -> Table:
        """A table that begins with the rows of a matrix, at most one call for each."""
        table = self._open(name, weight.size(1), torch.float32, "uniform:0.05", most_keys)
        self._sizes[name] = weight.size(0)
        self._initial[name] = weight.detach()
        return table

    def rows_of(self, name: str) -> int | None:
        """The number of rows of a table that `convert` has made of a matrix; None: any key is valid."""
        return self._sizes.get(name)

    def check_indices(self, name: str, keys: torch.Tensor) -> None:
        """Refuses keys that a table of a matrix has not, as the matrix would."""
        size = self._sizes.get(name)
        if size is not None and keys.numel() > 0 and not 0 <= int(keys.min()) <= int(keys.max()) < size:
            wrong = int(keys[(keys < 0) | (keys >= size)][0])
            raise IndexError(f"psring: table '{name}' stands for a matrix of {size} rows: index {wrong} is out of range")

    def _start(self) -> None:
        self._tables.refuse_closed()
        if not self.job.is_member():
            raise UsageError("psring: this process was forked from a worker, and is none: the tables belong to the worker")
        if self._started:
            return
        self._tables.start()
        self._started = True
        if self._initial:
            self._load({name: (torch.arange(len(rows)), rows) for name, rows in self._initial.items()})
            self._initial = {}

    # --- a step ---

    @property
    def steps(self) -> int:
        """The steps that this worker has ended."""
        return self._tables.step

    def attach(self, optimizer: torch.optim.Optimizer) -> None:
        """From now on optimizer.step() ends a step of the tables as well, and optimizer.zero_grad() drops gradients of rows."""
        if not isinstance(optimizer, torch.optim.Optimizer) or isinstance(optimizer, RowOptimizer):
            raise UsageError(f"psring: attach({type(optimizer).__name__}): expected the optimizer of the other parameters")
        if self._attached is not None:
            raise UsageError("psring: the tables are attached to an optimizer already: one step of it ends theirs")
        check = functools.partial(self._check_attached, optimizer)
        check()
        self._attached = optimizer
        optimizer._psring_tables = True  # type: ignore[attr-defined]
        optimizer.step = types.MethodType(  # type: ignore[method-assign]
            _between(check, optimizer.step, self.step), optimizer
        )
        optimizer.zero_grad = types.MethodType(  # type: ignore[method-assign]
            _between(None, optimizer.zero_grad, self._drop), optimizer
        )

    def _check_attached(self, optimizer: torch.optim.Optimizer) -> None:
        """Refuses a step of which the rows could not be a part, before it updates anything: a scheduler, or the program, may
        have changed the groups since the last one."""
        self._tables.refuse_closed()
        if self._follows:
            _refuse_other_rule(optimizer)
        self._rate(optimizer)

    def step(self) -> None:
        """Ends a step: begins to push the gradients of rows, with the learning rate of this moment. A worker without a gradient
        takes part, too. `attach` makes optimizer.step() call it."""
        self.optimizer.step()

    def _end_step(self) -> None:
        self._start()
        lr = self._rate(self._attached)
        if lr is None:
            raise UsageError("psring: the tables have no learning rate: give Tables(lr=), or attach(optimizer) for that one's")
        self._tables.wait()
        self._tables.end_step(lr)
        for waiting in self._prefetched.values():
            waiting[:] = [each for each in waiting if each[0] >= self.steps]

    def _rate(self, attached: torch.optim.Optimizer | None) -> float | None:
        """The learning rate of this moment."""
        lr = self.optimizer.rate()
        if lr is not None or attached is None:
            return lr
        rates = [float(group["lr"]) for group in attached.param_groups]
        if min(rates) != max(rates):
            raise UsageError(f"psring: the attached optimizer's groups have the learning rates {rates}: give Tables(lr=)")
        return rates[0]

    def _drop(self) -> None:
        if self._started and not self._tables.closed:
            self._tables.drop()

    def prefetch(self, keys: Mapping[str, torch.Tensor] | None = None, **more: torch.Tensor) -> None:
        """Begins to pull the rows of the next step's keys, by table: they come as soon as all workers have ended this step.
        The next step's pass gets them if it has the same keys, in the same order; otherwise it pulls its own."""
        self._start()
        for name, each in {**(keys or {}), **more}.items():
            table = self._tables.all.get(name)
            if table is None:
                raise UsageError(f"psring: prefetch: no table is named '{name}'")
            flat = as_keys(f"prefetch of '{name}'", each).clone()
            self.check_indices(name, flat)
            waiting = self._prefetched.setdefault(name, [])
            waiting.append((self.steps + 1, flat, fetch(table, flat, self.steps + 1)))

    def rows(self, table: Table, keys: torch.Tensor) -> Rows:
        """The rows of a vector of keys, as the steps so far have left them."""
        self._start()
        waiting = self._prefetched.get(table.name, [])
        found = (i for i, (step, known, _) in enumerate(waiting) if step == self.steps and torch.equal(known, keys))
        index = next(found, None)
        rows = fetch(table, keys, self.steps) if index is None else waiting.pop(index)[2]
        rows.wait()
        return rows

    # --- the user's side ---

    def _synchronize(self) -> None:
        """Waits until the servers have the rows of this step: all workers have ended the steps before."""
        nothing = torch.empty(0, dtype=torch.int64)
        for table in self._tables.all.values():
            fetch(table, nothing, self.steps).wait()
        self._tables.wait()

    def state_dict(self, most_rows: int = 1 << 20) -> dict[str, torch.Tensor]:
        """The values of all rows: NAME.weight of a table that `convert` has made of a matrix, otherwise NAME.keys and
        NAME.values of the rows that were trained, by key. Between two steps; each worker by itself. Refuses tables of more
        rows than most_rows. The optimizer's state is not in it."""
        self._start()
        self._synchronize()
        state: dict[str, torch.Tensor] = {}
        for name, table in self._tables.all.items():
            size = self._sizes.get(name)
            if size is not None:
                _refuse_many(name, size, most_rows)
                state[f"{name}.weight"] = self.matrix(table)
                continue
            keys, values, total = [], [], 0
            for some_keys, some_values, count in table.listed():
                total += count
                _refuse_many(name, total, most_rows)
                keys.append(torch.frombuffer(some_keys, dtype=torch.int64, count=count).clone())
                values.append(torch.frombuffer(some_values, dtype=torch.float32, count=count * table.width).clone())
            all_keys = torch.cat(keys) if keys else torch.empty(0, dtype=torch.int64)
            order = all_keys.argsort()
            state[f"{name}.keys"] = all_keys[order]
            state[f"{name}.values"] = (torch.cat(values) if values else torch.empty(0)).view(-1, table.width)[order]
        return state

    def matrix(self, table: Table) -> torch.Tensor:
        """The values of a table that `convert` has made of a matrix; before the first pass, those of this worker."""
        if not self._started and table.name in self._initial:
            return self._initial[table.name]
        self._start()
        self._synchronize()
        size = self._sizes[table.name]
        parts = [
            _values_of_all(table, torch.arange(first, min(first + table.most_keys, size)), self.steps)
            for first in range(0, size, table.most_keys)
        ]
        return torch.cat(parts) if parts else torch.empty(0, table.width)

    def load_matrix(self, table: Table, values: torch.Tensor) -> None:
        """Gives such a table other values, rank 0's. All workers call it, between two steps or before the first pass."""
        values = values.detach().to("cpu", torch.float32, copy=True)
        if not self._started:
            self._initial[table.name] = values
            return
        self._load({table.name: (torch.arange(len(values)), values)})

    def load_state_dict(self, state: Mapping[str, torch.Tensor], strict: bool = True) -> None:
        """Gives rows the values of a state_dict(), or of a module's: NAME.weight stands for the keys 0, 1, 2, ... Rows that are
        not in it stay. All workers call it between two steps, and rank 0's state counts. The rows' optimizer state is new."""
        given: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
        for name, table in self._tables.all.items():
            found = [part for part in ("weight", "keys", "values") if f"{name}.{part}" in state]
            if found == ["weight"]:
                values = state[f"{name}.weight"]
                keys = torch.arange(len(values))
            elif found == ["keys", "values"]:
                keys, values = as_keys(f"{name}.keys", state[f"{name}.keys"]), state[f"{name}.values"]
            elif found or strict:
                raise UsageError(
                    f"psring: the state has {found or 'nothing'} of table '{name}': expected weight, or keys and values"
                )
            else:
                continue
            if not isinstance(values, torch.Tensor):
                raise UsageError(f"psring: table '{name}': the state has a {type(values).__name__}: expected tensors")
            if values.dim() != 2 or values.shape != (keys.numel(), table.width):
                raise UsageError(
                    f"psring: table '{name}' has rows of {table.width}: the state has {keys.numel()} keys, and values of shape "
                    f"{tuple(values.shape)}"
                )
            size = self._sizes.get(name)
            if size is not None and found == ["weight"] and size != len(values):
                raise UsageError(
                    f"psring: table '{name}' stands for a matrix of {size} rows: the state has a matrix of {len(values)}"
                )
            self.check_indices(name, keys)
            given[name] = keys, values.detach().to("cpu", torch.float32)
        for name in given:
            if f"{name}.weight" in state:  # all rows: the first ones need not be sent
                self._initial.pop(name, None)
        self._start()
        self._load(given)

    def _load(self, given: Mapping[str, tuple[torch.Tensor, torch.Tensor]]) -> None:
        self._synchronize()
        if self.job.rank == 0:
            for name, (keys, values) in given.items():
                table = self._tables.all[name]
                for some_keys, some in zip(keys.split(table.most_keys), values.split(table.most_keys)):
                    contiguous = some_keys.contiguous(), some.contiguous()
                    table.assign(contiguous[0].data_ptr(), contiguous[0].numel(), contiguous[1].data_ptr())
                    self._tables.wait()
        self.job.barrier()

    def traffic(self) -> tuple[Moved, Moved]:
        """The bytes of keys, gradients and rows that this worker has sent and received, and those that the formula gives for
        its pulls and pushes: see step_bytes. Between two steps."""
        self._start()
        self._tables.wait()
        return self._tables.moved(), self._tables.predicted()

    def step_bytes(self, different: Mapping[str, int] | None = None, **more: int) -> Moved:
        """The bytes of a step whose batch has so many different keys by table: 8 for each, and its row back; then key and row
        gradient."""
        total = Moved(0, 0)
        for name, count in {**(different or {}), **more}.items():
            if name not in self._tables.all:
                raise UsageError(f"psring: step_bytes: no table is named '{name}'")
            row_bytes = self._tables.all[name].row_bytes
            total = total.plus(Moved(count * (16 + row_bytes), count * row_bytes))
        return total

    def memory(self) -> dict[str, Booked]:
        """The bytes that this worker's job has booked by purpose: now, and at their peak."""
        return booked_by_purpose(self.job)

    def _flush(self) -> None:
        """The other workers may still wait for this one's gradients, which have to leave before it does."""
        if self._started:
            self._tables.wait()

    def close(self) -> None:
        """Leaves the job; all workers do. At the interpreter's end it happens by itself."""
        self._tables.closed = True
        self._served.close()

    def __deepcopy__(self, _memo: Any) -> Tables:
        return self  # a copy of a module has the same tables

    def __reduce__(self) -> NoReturn:
        raise UsageError("psring: the rows of tables are at the servers: save tables.state_dict(), or a converted module's")


def _index(name: str, padding_idx: int | None) -> int | None:
    return None if padding_idx is None else whole(f"table {name!r}: padding_idx", padding_idx)


def _values_of_all(table: Table, keys: torch.Tensor, step: int) -> torch.Tensor:
    """The rows of different keys."""
    rows = fetch(table, keys.contiguous(), step)
    rows.wait()
    return values_of(rows)[places_of(rows)]


def _refuse_many(name: str, rows: int, most_rows: int) -> None:
    if rows > most_rows:
        raise UsageError(f"psring: table '{name}' has {rows} rows or more, most_rows={most_rows}: give a larger one")


def _refuse_other_rule(optimizer: torch.optim.Optimizer) -> None:
    """Refuses an optimizer that would update sparse embeddings in another way than plain sgd."""
    keys = ("momentum", "weight_decay", "maximize")
    more = [f"{key}={group[key]}" for group in optimizer.param_groups for key in keys if group.get(key)]
    own_step = inspect.unwrap(type(optimizer).step) is not inspect.unwrap(torch.optim.SGD.step)
    if not isinstance(optimizer, torch.optim.SGD) or own_step or more:
        kind = f"{type(optimizer).__name__}{' with ' + more[0] if more else ''}"
        raise UsageError(
            f"psring: attach: the servers have no {kind} for rows: choose their rule, as by Tables(optimizer='sgd')"
        )


def _between(before: Callable[[], None] | None, own: Callable[..., Any], then: Callable[[], None]) -> Callable[..., Any]:
    """A method of an optimizer that calls `before` and `then` around what it does."""

    @functools.wraps(own)
    def method(_optimizer: Any, *arguments: Any, **keywords: Any) -> Any:
        if before is not None:
            before()
        result = own(*arguments, **keywords)
        then()
        return result

    return method
