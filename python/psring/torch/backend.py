"""The backend "psring" of torch.distributed: registration, rendezvous, and the memory of tensors."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist

from .._coordinator import Coordinator
from .._ending import Ending, end_job
from .._job import Group, Job
from .._library import Error, UsageError
from ._backward import explain, failure_of
from ._farewells import StoredFarewells
from ._group import ProcessGroup
from ._vector import broadcast

# Tells the ranks of a group how rank 0's rendezvous went, through torch's Store.
_KEY = "psring"


class _Members:
    """The job of the default group, of which other groups are parts, and the numbers of these."""

    def __init__(self) -> None:
        self.world: ProcessGroup | None = None


_members = _Members()


def world_failure() -> Error | None:
    """The error that has ended the job of the default group."""
    world = _members.world
    return failure_of(world.job) if world is not None and world.job.is_member() else None


def empty(*size: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A tensor of zeros in memory that the other ranks of this host reach: collectives on it copy nothing."""
    if _members.world is None:
        raise UsageError("psring.torch.empty: the default process group is not psring's")
    kind = dtype or torch.get_default_dtype()
    count = 1
    for length in size:
        count *= length
    width = torch.empty((), dtype=kind).element_size()
    memory = _members.world.job.allocate(max(1, count) * width)
    return torch.frombuffer(memory.array(), dtype=kind, count=max(1, count))[:count].view(size)


def memory_bytes() -> int:
    """The capacity of the memory for `empty` and Sharded: the host's. What is not allocated costs only addresses, unless the
    host counts these, too."""
    try:
        counts = Path("/proc/sys/vm/overcommit_memory").read_text().strip() == "2"
    except OSError:
        counts = True
    return 1 << 30 if counts else max(1 << 30, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def announce(store: dist.Store, entry: str, coordinator: Coordinator) -> None:
    """Names a job's coordinator in an entry of the store; for rank 0."""
    store.set(entry, f"at\n{coordinator.endpoint}\n{coordinator.key_file}\n{socket.gethostname()}")


def announced(store: dist.Store, entry: str, rank: int) -> tuple[str, str]:
    """The coordinator's endpoint and the file of the job's key, once rank 0 has named them. Raises UsageError if rank 0 could
    not start the job, or this rank has no key."""
    words = store.get(entry).decode().split("\n")
    if words[0] == "error":
        raise UsageError(f"psring: rank 0 cannot start the job: {words[1]}")
    _, endpoint, key_file, host = words
    key = os.environ.get("PSRING_KEY")
    if key is None and host != socket.gethostname():
        raise UsageError(
            f"psring: rank {rank} is on {socket.gethostname()}, rank 0 on {host}: between hosts the job needs a key; set "
            "PSRING_KEY to a copy of one file of `psring keygen` on each host, and PSRING_LISTEN at rank 0 to ADDRESS:0"
        )
    return endpoint, key or key_file


def _join(store: dist.Store, rank: int, size: int, timeout: timedelta) -> tuple[Job, Coordinator | None]:
    """Joins a new job of `size` workers. Rank 0 starts its coordinator, and names it in the store."""
    seconds = timeout.total_seconds()
    coordinator = None
    if rank == 0:
        try:
            coordinator = Coordinator(
                size,
                key_file=os.environ.get("PSRING_KEY"),
                listen=os.environ.get("PSRING_LISTEN", "127.0.0.1:0"),
                options=["--op-timeout", f"{seconds:g}", "--join-timeout", f"{seconds:g}"],
                out=os.environ.get("PSRING_OUT"),
            )
        except Error as error:
            store.set(_KEY, f"error\n{error}")
            raise
        announce(store, _KEY, coordinator)
    endpoint, key_file = announced(store, _KEY, rank)
    try:
        job = Job(endpoint, key_file, rank, join_timeout=seconds, memory_bytes=memory_bytes())
    except BaseException:
        if coordinator is not None:
            coordinator.abandon()
        raise
    if coordinator is not None:
        coordinator.joined()
    return job, coordinator


def create(options: Any, _backend_options: Any) -> ProcessGroup:
    """Makes a group: a part of the default group's job, or a new job."""
    store, rank, size = options.store, options.group_rank, options.group_size
    timeout: timedelta = options.timeout
    world = _members.world
    ranks = list(options.global_ranks_in_group)
    if ranks and world is not None and world is dist.distributed_c10d._get_default_group():
        number = _group_number(store, world, rank)
        return ProcessGroup(world.job, world.group.split(ranks, number), timeout, world.completer)
    job, coordinator = _join(store, rank, size, timeout)
    # Unlike atexit's functions, this also runs at the end of a process of multiprocessing.
    end = Finalize(None, end_job, (job, coordinator, timeout.total_seconds(), Ending()), exitpriority=100)
    job.farewells = StoredFarewells(store, _KEY, rank, size)
    group = ProcessGroup(job, job.world, timeout, end=end)
    if not ranks:
        if world is not None:  # torch's process groups were destroyed, and are made anew
            world.shutdown()
        else:
            explain(lambda: None if _members.world is None else _members.world.job)
        _members.world = group
        group.numbers = store
    return group


def _group_number(store: dist.Store, world: ProcessGroup, rank: int) -> int:
    """Rank 0 of the new group takes a number from the default group's store; the others read it."""
    if rank == 0:
        assert world.numbers is not None
        store.set(_KEY, str(world.numbers.add("psring/groups", 1)))
    return int(store.get(_KEY).decode())


def process_group_of(group: dist.ProcessGroup | None) -> ProcessGroup:
    """psring's own group behind one of torch.distributed's; None: the default group."""
    if group is None:
        if not dist.is_initialized():
            raise UsageError('psring: no process group: call torch.distributed.init_process_group("psring") before')
        group = dist.distributed_c10d._get_default_group()
    if group is dist.GroupMember.NON_GROUP_MEMBER:
        raise UsageError("psring: this rank is not in the process group")
    if not isinstance(group, ProcessGroup) and hasattr(group, "_get_backend"):
        group = group._get_backend(torch.device("cpu"))
    if not isinstance(group, ProcessGroup):
        raise UsageError("psring: the process group is another backend's: give one of the backend 'psring'")
    return group


def split_all(group: ProcessGroup, advice: str) -> Group:
    """A new group of all ranks of `group`, with operations and bytes of its own. `advice`: in the warning of a long wait."""
    number = torch.zeros(1, dtype=torch.int64, device="cpu")
    if group.rank() == 0:
        assert _members.world is not None and _members.world.numbers is not None
        number[0] = _members.world.numbers.add("psring/groups", 1)
    broadcast(group.group, [number])
    split = group.group.split(range(group.size()), int(number))
    split.waits.timeout, split.waits.advice = group.group.waits.timeout, advice
    return split
