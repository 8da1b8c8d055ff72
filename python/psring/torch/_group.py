"""The process group: torch.distributed's collectives over a group of psring."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Callable

import torch
from torch import distributed as dist

from .._job import Group, Job, Work
from .._library import UsageError
from ._sparse import sparse_sum
from ._vector import Tensors, Vector, check, copies, distinct, inner, lists, on_host, one, option, stores
from ._work import Completer, GroupWork, KeptWorks


class ProcessGroup(dist.ProcessGroup):
    """A group of torch.distributed over a group of psring."""

    def __init__(
        self,
        job: Job,
        group: Group,
        timeout: timedelta,
        completer: Completer | None = None,
        end: Callable[[], Any] | None = None,
    ) -> None:
        """`end`: leaves the job, if the group is the job's world."""
        super().__init__(group.rank, group.size)  # type: ignore[call-arg,no-untyped-call]
        self._names = ["", ""]  # the group's name, and its description
        self.job = job
        self.group = group
        group.waits.timeout = timeout.total_seconds()
        self.numbers: dist.Store | None = None  # of the default group: the store that numbers other groups
        self.completer = completer or Completer()
        self._end = end
        self._kept = KeptWorks()

    # torch asks for names in several ways, from Python and from C++, which keeps a group's name only with its own backends.
    def getBackendName(self) -> str:
        return "psring"

    _get_backend_name = name = getBackendName

    def getGroupName(self) -> str:
        return self._names[0]

    def setGroupName(self, name: str) -> None:
        self._names[0] = name

    def getGroupDesc(self) -> str:
        return self._names[1]

    def setGroupDesc(self, description: str) -> None:
        self._names[1] = description

    _set_group_name, _set_group_desc = setGroupName, setGroupDesc
    group_name, group_desc = property(getGroupName), property(getGroupDesc)

    # This group is its own backend for every device. It has no calls that gather several operations in one.
    supports_coalescing = supports_splitting = supports_time_estimate = False

    def _get_backend(self, _device: torch.device) -> ProcessGroup:
        return self

    def shutdown(self) -> None:
        """Leaves the job, with all ranks."""
        if self._end is not None:
            self._end()
            self.completer.stop()

    def abort(self) -> None:
        """Ends the job at all ranks."""
        self.job.abort("a rank aborted the process group")

    def _work(
        self,
        works: list[Work],
        result: list[torch.Tensor],
        after: Callable[[], None] | None = None,
        source: Callable[[], int] | None = None,
    ) -> GroupWork:
        return self._kept.add(GroupWork(works, result, self.completer, after, source))

    def _vector_work(self, work: Work, vector: Vector) -> GroupWork:
        return self._work([work], [vector.tensor], vector.after)

    def allreduce(  # type: ignore[override]
        self, tensors: Tensors | torch.Tensor, opts: Any = None, *, op: Any = None
    ) -> GroupWork:
        tensor = one(tensors)
        how = option(opts, "reduceOp", dist.ReduceOp.SUM, op)
        if tensor.layout == torch.sparse_coo:
            works, take = sparse_sum(self.group, tensor, how)
            return self._work(works, [tensor], take)
        vector = Vector(tensor)
        how = vector.op(how, self.group.size)
        work = self.group.all_reduce_at(vector.at, vector.count, vector.kind, how, vector)
        return self._vector_work(work, vector)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> GroupWork:
        vectors = distinct(tensors)
        op = option(opts, "reduceOp", dist.ReduceOp.SUM)
        works = [self.group.all_reduce_at(v.at, v.count, v.kind, v.op(op, self.group.size), v) for v in vectors]
        return self._work(works, list(tensors), stores(vectors))

    def broadcast(  # type: ignore[override]
        self, tensors: Tensors | torch.Tensor, opts: Any = None, *, root: int | None = None
    ) -> GroupWork:
        source = self._root(opts, root)
        is_root = self.group.rank == source
        vector = Vector(one(tensors), moves_only=True, writes=not is_root)
        work = self.group.broadcast_at(vector.at, vector.count, vector.kind, source, vector)
        return self._work([work], [vector.tensor], None if is_root else vector.after)

    def reduce(  # type: ignore[override]
        self, tensors: Tensors | torch.Tensor, opts: Any = None, op: Any = dist.ReduceOp.SUM, *, root: int | None = None
    ) -> GroupWork:
        """Only the root's tensor changes. The short form gives the root in place of options, and the reduction after it."""
        tensor = one(tensors)
        is_root = self.group.rank == self._root(opts, root)
        vector = Vector(tensor if is_root else tensor.detach().clone())
        op = vector.op(getattr(opts, "reduceOp", op), self.group.size)
        work = self.group.all_reduce_at(vector.at, vector.count, vector.kind, op, vector)
        return self._work([work], [tensor], vector.after if is_root else None)

    def barrier(self, opts: Any = None) -> GroupWork:
        return self._work([self.group.barrier_start()], [])

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> GroupWork:
        out, tensor = lists(outputs, inputs)
        return self._all_gather([(out, tensor)])

    def allgather_coalesced(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> GroupWork:
        """outputs[r][i] becomes rank r's inputs[i]."""
        return self._all_gather([([out[i] for out in outputs], tensor) for i, tensor in enumerate(inputs)])

    def _all_gather(self, calls: list[tuple[Tensors, torch.Tensor]]) -> GroupWork:
        for out, tensor in calls:
            self._check_parts("all_gather", out, tensor)
        buffers = [torch.empty((self.group.size, tensor.numel()), dtype=tensor.dtype, device="cpu") for _, tensor in calls]
        works = [self._gather_into(buffer, tensor) for buffer, (_, tensor) in zip(buffers, calls)]
        outs = [each for out, _ in calls for each in out]
        return self._work(works, outs, copies([row for buffer in buffers for row in buffer], outs))

    def _gather_into(self, buffer: torch.Tensor, tensor: torch.Tensor, keeps: Any = None) -> Work:
        """Gathers all ranks' tensors in `buffer`, which is contiguous, in the host's memory, and has a row for each."""
        buffer.view(self.group.size, -1)[self.group.rank].copy_(tensor.detach().reshape(-1))
        vector = Vector(buffer, moves_only=True)
        return self.group.all_gather_at(vector.at, vector.count, None, vector.kind, keeps or vector)

    def _allgather_base(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> GroupWork:
        if output.numel() != tensor.numel() * self.group.size or output.dtype != tensor.dtype:
            raise UsageError(
                f"psring: all_gather of {tensor.numel()} {tensor.dtype} at each of {self.group.size} ranks into "
                f"{output.numel()} {output.dtype}"
            )
        vector = Vector(output, moves_only=True, reads=False)
        check(tensor)
        if vector.host.numel() > 0:
            vector.host.view(self.group.size, -1)[self.group.rank].copy_(tensor.detach().reshape(-1))
        work = self.group.all_gather_at(vector.at, vector.count, None, vector.kind, vector)
        return self._vector_work(work, vector)

    def allgather_into_tensor_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> GroupWork:
        return self._joined([self._allgather_base(out, tensor) for out, tensor in zip(outputs, inputs)])

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None, *, op: Any = None) -> GroupWork:
        """`outputs`: one tensor; `inputs`: a list with a tensor of its shape for each rank, or such a list in a list."""
        parts, tensor = lists(inputs, outputs)
        self._check_parts("reduce_scatter", parts, tensor)
        flat = torch.cat([on_host(part.detach().reshape(-1)) for part in parts])
        return self._reduce_scatter(tensor, flat, opts, op)

    def _reduce_scatter_base(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> GroupWork:
        if tensor.numel() != output.numel() * self.group.size or output.dtype != tensor.dtype:
            raise UsageError(
                f"psring: reduce_scatter of {tensor.numel()} {tensor.dtype} at {self.group.size} ranks into "
                f"{output.numel()} {output.dtype}"
            )
        return self._reduce_scatter(output, on_host(tensor.detach().reshape(-1).clone()), opts)

    def reduce_scatter_tensor_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> GroupWork:
        return self._joined([self._reduce_scatter_base(out, tensor, opts) for out, tensor in zip(outputs, inputs)])

    def _reduce_scatter(self, output: torch.Tensor, flat: torch.Tensor, opts: Any, op: Any = None) -> GroupWork:
        """`flat`: a copy of all parts, which is overwritten."""
        check(output)
        vector = Vector(flat)
        how = vector.op(option(opts, "reduceOp", dist.ReduceOp.SUM, op), self.group.size)

        def take() -> None:
            vector.store()
            with torch.no_grad():
                part = flat[self.group.rank * output.numel() : (self.group.rank + 1) * output.numel()]
                output.copy_(part.view(output.shape))

        work = self.group.reduce_scatter_at(vector.at, vector.count, None, vector.kind, how, vector)
        return self._work([work], [output], take)

    def gather(  # type: ignore[override]
        self, outputs: Any, inputs: Any, opts: Any = None, *, root: int | None = None
    ) -> GroupWork:
        root = self._root(opts, root)
        tensor = one(inputs)
        size, rank = self.group.size, self.group.rank
        out = inner(outputs) if rank == root else []
        if rank == root:
            self._check_parts("gather", out, tensor)
        elif len(inner(outputs)) > 0:
            raise UsageError(f"psring: gather into tensors at rank {rank}; the root is rank {root}")
        sent = Vector(tensor, moves_only=True, writes=False)
        received = torch.empty((len(out), tensor.numel()), dtype=tensor.dtype, device="cpu")
        into = Vector(received, moves_only=True)
        work = self.group.all_to_all_at(
            sent.at,
            [sent.count if r == root else 0 for r in range(size)],
            into.at,
            [sent.count if rank == root else 0] * size,
            sent.kind,
            (sent, into),
        )
        return self._work([work], list(out), copies(list(received), out))

    def scatter(  # type: ignore[override]
        self, outputs: Any, inputs: Any, opts: Any = None, *, root: int | None = None
    ) -> GroupWork:
        root = self._root(opts, root)
        tensor = one(outputs)
        size, rank = self.group.size, self.group.rank
        parts = inner(inputs) if rank == root else []
        if rank == root:
            self._check_parts("scatter", parts, tensor)
        elif len(inner(inputs)) > 0:
            raise UsageError(f"psring: scatter of tensors at rank {rank}; the root is rank {root}")
        into = Vector(tensor, moves_only=True, reads=False)
        flat = torch.cat([on_host(part.detach().reshape(-1)) for part in parts]) if parts else tensor.new_empty(0)
        sent = Vector(flat, moves_only=True)
        work = self.group.all_to_all_at(
            sent.at,
            [into.count if rank == root else 0] * size,
            into.at,
            [into.count if r == root else 0 for r in range(size)],
            into.kind,
            (sent, into),
        )
        return self._work([work], [tensor], into.after)

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> GroupWork:
        size = self.group.size
        if len(outputs) != size or len(inputs) != size:
            raise UsageError(f"psring: all_to_all of {len(inputs)} into {len(outputs)} tensors at {size} ranks")
        if len({tensor.dtype for tensor in (*inputs, *outputs)}) != 1:
            raise UsageError("psring: all_to_all of tensors of different types")
        for tensor in (*inputs, *outputs):
            check(tensor)
        flat = torch.cat([on_host(tensor.detach().reshape(-1)) for tensor in inputs])
        received = torch.empty(sum(tensor.numel() for tensor in outputs), dtype=flat.dtype, device="cpu")
        counts = [t.numel() for t in outputs]
        work = self._exchange(flat, [t.numel() for t in inputs], received, counts)
        return self._work([work], list(outputs), copies(received.split(counts), outputs))

    def alltoall_base(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_splits: Sequence[int] = (),
        input_splits: Sequence[int] = (),
        opts: Any = None,
    ) -> GroupWork:
        """Splits are rows of the first dimension; none: equal parts."""
        check(tensor)
        check(output)
        if output.dtype != tensor.dtype:
            raise UsageError(f"psring: all_to_all of {tensor.dtype} into {output.dtype}")
        flat = on_host(tensor.detach().reshape(-1))
        received = torch.empty(output.numel(), dtype=output.dtype, device="cpu")
        work = self._exchange(flat, self._counts(tensor, input_splits), received, self._counts(output, output_splits))
        return self._work([work], [output], copies([received], [output]))

    def _counts(self, tensor: torch.Tensor, splits: Sequence[int]) -> list[int]:
        """The elements of each rank's part."""
        rows = tensor.size(0) if tensor.dim() > 0 else 1
        size = self.group.size
        if not splits:
            if rows % size != 0:
                raise UsageError(f"psring: {rows} rows are not {size} equal parts")
            return [tensor.numel() // size] * size
        if len(splits) != size or sum(splits) != rows:
            raise UsageError(f"psring: splits {list(splits)} of {rows} rows at {size} ranks")
        return [split * (tensor.numel() // rows if rows else 0) for split in splits]

    def _exchange(self, flat: torch.Tensor, sends: list[int], received: torch.Tensor, receives: list[int]) -> Work:
        sent, into = Vector(flat, moves_only=True), Vector(received, moves_only=True)
        scale = 1 if flat.numel() == 0 else sent.count // flat.numel()
        if received.numel() > 0:
            scale = into.count // received.numel()
        return self.group.all_to_all_at(
            sent.at, [n * scale for n in sends], into.at, [n * scale for n in receives], sent.kind, (flat, sent, into)
        )

    def send(self, tensors: Tensors | torch.Tensor, to: int, tag: int = 0) -> GroupWork:
        vector = Vector(one(tensors), moves_only=True, writes=False)
        work = self.group.send_at(vector.at, vector.count, vector.kind, to, tag, vector)
        return self._work([work], [vector.tensor])

    def recv(self, tensors: Tensors | torch.Tensor, source: int, tag: int = 0) -> GroupWork:
        return self._recv(tensors, source, tag)

    def recv_anysource(self, tensors: Tensors | torch.Tensor, tag: int = 0) -> GroupWork:
        return self._recv(tensors, None, tag)

    def _recv(self, tensors: Tensors | torch.Tensor, source: int | None, tag: int) -> GroupWork:
        vector = Vector(one(tensors), moves_only=True, reads=False)
        work = self.group.recv_at(vector.at, vector.count, vector.kind, source, tag, vector)

        def rank() -> int:
            return work.source if source is None else source

        return self._work([work], [vector.tensor], vector.after, rank)

    def _root(self, opts: Any, given: int | None = None) -> int:
        root: int = option(opts, "rootRank", 0, given)
        if not 0 <= root < self.group.size:
            raise UsageError(f"psring: the root is rank {root} of {self.group.size} ranks")
        if getattr(opts, "rootTensor", 0) != 0:  # only some of torch's options have it
            raise UsageError("psring: a rank takes part with one tensor: rootTensor is 0")
        return root

    def _joined(self, parts: list[GroupWork]) -> GroupWork:
        """One work of several."""

        def finish() -> None:
            for part in parts:
                part.wait()

        works = [work for part in parts for work in part.works()]
        return self._work(works, [tensor for part in parts for tensor in part.result()], finish)

    def _check_parts(self, call: str, parts: Tensors, tensor: torch.Tensor) -> None:
        """One part for each rank, with the tensor's elements and type."""
        if len(parts) != self.group.size:
            raise UsageError(f"psring: {call} with {len(parts)} tensors at {self.group.size} ranks")
        check(tensor)
        for part in parts:
            check(part)
            if part.numel() != tensor.numel() or part.dtype != tensor.dtype:
                raise UsageError(
                    f"psring: {call} of a tensor {tuple(tensor.shape)} {tensor.dtype} with a tensor "
                    f"{tuple(part.shape)} {part.dtype}"
                )

    # As PyTorch names them from 2.14 on.
    all_gather_single, all_gather_single_coalesced = _allgather_base, allgather_into_tensor_coalesced
    reduce_scatter_single, reduce_scatter_single_coalesced = _reduce_scatter_base, reduce_scatter_tensor_coalesced
    all_to_all_single = alltoall_base

    # Sequence numbers are gloo's and NCCL's way to find ranks that call different operations; psring compares the calls.
    def _set_sequence_number_for_group(self) -> None:
        pass

    def _get_sequence_number_for_group(self) -> int:
        return 0
