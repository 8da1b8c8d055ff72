"""A job of the processes that psring.run or torchrun has started, without PyTorch."""

from __future__ import annotations

import os
import tempfile
import time
from multiprocessing.util import Finalize
from pathlib import Path

from ._coordinator import Coordinator
from ._ending import Ending, end_job
from ._job import Job
from ._library import TimeoutError, UsageError

_LOOK = 0.02
_LEAVE = 60.0


def _number(name: str, default: str) -> int:
    text = os.environ.get(name, default)
    if not text.isdecimal():
        raise UsageError(f"psring.init: {name}={text}: expected a number")
    return int(text)


class _Notice:
    """A file in which rank 0 of a host's processes tells the others where the job is. They share MASTER_PORT, and the user."""

    def __init__(self) -> None:
        attempt = f"{_number('MASTER_PORT', '0')}-{_number('TORCHELASTIC_RESTART_COUNT', '0')}"
        self._path = Path(tempfile.gettempdir()) / f"psring-{os.getuid()}-{attempt}"

    def write(self, endpoint: str, key_file: str) -> None:
        self.remove()  # of a program that was killed
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w") as file:
            file.write(f"{endpoint}\n{key_file}\n{os.getpid()}\n")

    def read(self, until: float) -> tuple[str, str]:
        """The endpoint and the key's file. Passes over what a rank 0 has left that does not live any more."""
        while time.monotonic() < until:
            try:
                if self._path.stat().st_uid == os.getuid():
                    endpoint, key_file, pid = self._path.read_text().split("\n")[:3]
                    if Path(f"/proc/{pid}").exists() and Path(key_file).exists():
                        return endpoint, key_file
            except (OSError, ValueError):
                pass
            time.sleep(_LOOK)
        raise TimeoutError(f"psring.init: rank 0 has not begun the job in time ({self._path})")

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)


def init(timeout: float = 30.0) -> Job:
    """Joins the job of all processes that psring.run or torchrun has started, and waits until they have joined, as
    torch.distributed.init_process_group() does. They leave it at their ends, or before, by Job.leave. A process that nobody
    has started so is the job's only rank. Between hosts, PSRING_KEY names a copy of one file of `psring keygen` on each, and
    MASTER_ADDR:MASTER_PORT is where rank 0's coordinator listens. Raises TimeoutError, UsageError."""
    rank, size = _number("RANK", "0"), _number("WORLD_SIZE", "1")
    several_hosts = _number("LOCAL_WORLD_SIZE", str(size)) < size
    key = os.environ.get("PSRING_KEY")
    master = f"{os.environ.get('MASTER_ADDR', '127.0.0.1')}:{_number('MASTER_PORT', '0')}"
    if rank >= size:
        raise UsageError(f"psring.init: RANK={rank}, WORLD_SIZE={size}")
    if several_hosts and key is None:
        raise UsageError("psring.init: between hosts set PSRING_KEY to a copy of one file of `psring keygen` on each")
    if several_hosts and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        raise UsageError(f"psring.init: torchrun itself listens at {master}: start processes of several hosts by psring.run")
    until = time.monotonic() + timeout
    coordinator = None
    notice = _Notice()
    if rank == 0:
        coordinator = Coordinator(
            size,
            key_file=key,
            listen=master if several_hosts else "127.0.0.1:0",
            options=["--join-timeout", f"{timeout:g}"],
            out=os.environ.get("PSRING_OUT"),
        )
    try:
        if coordinator is not None:
            endpoint, key_file = coordinator.endpoint, coordinator.key_file
            if size > 1 and not several_hosts:
                notice.write(endpoint, key_file)
        elif several_hosts:
            endpoint, key_file = master, str(key)
        else:
            endpoint, key_file = notice.read(until)
        job = Job(endpoint, key or key_file, rank, join_timeout=max(1.0, until - time.monotonic()))
    except BaseException:
        if coordinator is not None:
            coordinator.abandon()
        raise
    finally:
        if rank == 0:
            notice.remove()
    if coordinator is not None:
        coordinator.joined()
    # Unlike atexit's functions, this also runs at the end of a process of multiprocessing.
    Finalize(None, end_job, (job, coordinator, _LEAVE, Ending()), exitpriority=100)
    return job
