"""The job of a ParameterServer: its coordinator, its servers, and this process as a worker."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Callable

from torch import distributed as dist

from .._coordinator import Coordinator
from .._ending import Ending, fail_at_end, line_of
from .._job import Job
from .._library import DataError, Error, PeerLostError, TimeoutError, UsageError, whole
from .._servers import Servers
from ._farewells import StoredFarewells
from .backend import announce, announced, world_failure

_KEY = "psring/servers"
_LOOK = 5.0  # seconds of silence of the coordinator, after which a worker looks whether the job has failed
_PATIENCE = 5.0  # seconds that a worker which handles an exception waits for the others

# Each process keeps what rendezvous gave it, by environment. The stores of all jobs have one port: if rank 0's ended once a
# job has begun, a worker that is ahead could reach that store for the next job, and lose it.
_met: dict[tuple[object, ...], tuple[dist.Store, int, int]] = {}


def _store(seconds: float) -> tuple[dist.Store, int, int]:
    """torch's Store that all workers reach, and this process's rank and their number: the default group's, or that of the
    environment (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT); without both the process is the only worker."""
    if dist.is_initialized():
        store = dist.distributed_c10d._get_default_store()
        return store, dist.get_rank(), dist.get_world_size()
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 and "MASTER_PORT" not in os.environ:
        return dist.HashStore(), 0, 1
    where = (os.getpid(), *map(os.environ.get, ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")))
    if where not in _met:
        _met[where] = next(dist.rendezvous("env://", timeout=timedelta(seconds=seconds)))
    _met[where][0].set_timeout(timedelta(seconds=seconds))
    return _met[where]


def _failure(store: dist.Store, failed: str) -> str | None:
    """Why rank 0 has given up; None: it has not."""
    try:
        return store.get(f"{failed}/why").decode() if store.add(failed, 0) > 0 else None
    except RuntimeError:  # the store is rank 0's
        return "rank 0 has ended"


@contextlib.contextmanager
def _watching(coordinator: Coordinator | None, failure: Callable[[], str | None]) -> Iterator[None]:
    """Inside, ends the coordinator if `failure` says why the job does not begin."""
    if coordinator is None:
        yield
        return
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.5):
            if failure() is not None:
                return coordinator.stop()

    thread = threading.Thread(target=watch, name="psring start", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def options_of(words: Sequence[str]) -> list[str]:
    """An option of a job and its value for each line."""
    if isinstance(words, str):
        raise UsageError(f"psring: options={words!r}: expected a tuple of words, as in options=('--seed', '3')")
    return [f"--{option.strip()}" for option in " ".join(words).split("--")[1:]]


def servers_of(asked: int | None) -> int:
    """The number of servers: `asked`, that of `psring.run --servers`, or 1. Refuses two that differ."""
    given = os.environ.get("PSRING_SERVERS")
    if given is not None and not (given.isdecimal() and int(given) > 0):
        raise UsageError(f"psring: PSRING_SERVERS={given}: expected a number of servers")
    asked = None if asked is None else whole("servers", asked)
    if asked is not None and given is not None and asked != int(given):
        raise UsageError(f"psring: the program asks for servers={asked}, psring.run --servers for {given}: leave out one")
    servers = asked if asked is not None else int(given or 1)
    if servers < 1:
        raise UsageError(f"psring: servers={servers}: expected at least 1")
    return servers


def newest_of(checkpoint_dir: str | None) -> str | None:
    """The folder, if it has a complete checkpoint to resume from."""
    if checkpoint_dir is None:
        raise UsageError("psring: resume='auto' needs checkpoint_dir=")
    complete = [path for path in Path(checkpoint_dir).glob("step-*") if path.name[len("step-") :].isdecimal()]
    return checkpoint_dir if complete else None


class ServedJob:
    """Joins a new job with servers as a worker. Rank 0 starts coordinator and servers on its host, and names the
    coordinator in the store."""

    _made = 0  # jobs that this process has joined: all workers join them in the same order

    def __init__(
        self,
        servers: int,
        options: Sequence[str],
        *,
        strategy: str,
        steps: int,
        out: str | None,
        memory_bytes: int,
        timeout: float,
        agreed: Sequence[str] = (),
    ) -> None:
        """`agreed`: what the program asks for, which all workers have to ask for alike."""
        store, rank, size = _store(timeout)
        entry = f"{_KEY}/{ServedJob._made}"
        ServedJob._made += 1
        self.coordinator: Coordinator | None = None
        self.servers: Servers | None = None
        if rank == 0:
            try:
                self.coordinator = Coordinator(
                    size,
                    key_file=os.environ.get("PSRING_KEY"),
                    listen=os.environ.get("PSRING_LISTEN", "127.0.0.1:0"),
                    strategy=strategy,
                    steps=steps,
                    options=["--servers", str(servers), "--join-timeout", f"{timeout:g}", *options],
                    out=out or os.environ.get("PSRING_OUT"),
                )
                self.servers = Servers(
                    servers, self.coordinator.endpoint, self.coordinator.key_file, died=self.coordinator.stop
                )
            except Error as error:
                self._abandon()
                store.set(entry, f"error\n{error}")
                raise
            store.set(f"{entry}/agreed", "\n".join(agreed))
            announce(store, entry, self.coordinator)
        endpoint, key_file = announced(store, entry, rank)
        failed = f"{entry}/failed"
        first = store.get(f"{entry}/agreed").decode()
        if first != "\n".join(agreed):
            pairs = itertools.zip_longest("\n".join(agreed).split("\n"), first.split("\n"))
            own, other = next(pair for pair in pairs if pair[0] != pair[1])
            differs = (
                f"rank {rank} has {own or 'nothing more'}, rank 0 has {other or 'nothing more'}: all ranks ask for the same"
            )
            store.set(f"{failed}/why", differs)
            store.add(failed, 1)
            raise UsageError(f"psring: {differs}")
        until = time.monotonic() + timeout

        def failure() -> str | None:
            """Why another worker has raised before it came here, or has given up."""
            return line_of(world_failure()) or _failure(store, failed)

        try:
            while True:
                left = max(until - time.monotonic(), 0.1)
                try:
                    seconds = min(left, _LOOK)
                    with _watching(self.coordinator, failure):
                        self.job = Job(endpoint, key_file, rank, join_timeout=seconds, memory_bytes=memory_bytes)
                    break
                except Error as error:  # perhaps the coordinator has ended, because the job failed
                    why = failure()
                    if why is not None:
                        raise PeerLostError(f"psring: the job did not begin: {why}") from error
                    died = self.servers is not None and self.servers.death() is not None
                    if died or left <= _LOOK or not isinstance(error, TimeoutError):
                        raise
        except BaseException as error:
            # Servers also end where another worker has failed: then that is the reason.
            death = self.servers.death() if self.servers is not None and failure() is None else None
            if rank == 0:
                store.set(f"{failed}/why", f"rank 0: {death or line_of(error)}")
                store.add(failed, 1)
            self._abandon()
            if death is not None and isinstance(error, Error):
                raise DataError(f"psring: the job did not begin: {death}") from error
            raise
        if self.coordinator is not None:
            self.coordinator.joined()
        if self.servers is not None:
            self.servers.joined()
        self.job.farewells = StoredFarewells(store, entry, rank, size)
        self.before_leaving: Callable[[], None] = lambda: None
        self._ended = self._at_process_end = False
        self._ending = Ending()
        # Before the default group's end. Unlike atexit's functions, this also runs at the end of a process of multiprocessing.
        self._at_end = Finalize(None, self._end_process, exitpriority=200)

    def _leave(self, reason: str | None) -> None:
        """`reason`: with which the job is aborted if the others do not come; None: they will."""
        try:
            if reason is None and self.job.is_member():
                self.before_leaving()
        except Error as error:  # leaving would wait for the same
            self.job.abort(line_of(error) or "")
            if self._at_process_end:
                fail_at_end()
            raise
        try:
            self.job.leave(None if reason is None else _PATIENCE)
        except TimeoutError:
            self.job.abort(reason or "")

    def _abandon(self) -> None:
        """Ends what rank 0 has started for a job that did not begin."""
        if self.coordinator is not None:
            self.coordinator.abandon()
        if self.servers is not None:
            self.servers.close()

    def close(self) -> None:
        """Leaves the job, at the end of the process at the latest; all workers do. While an exception is handled, the others
        may have ended for the same reason, or wait for this worker: the job is aborted if they do not come within a few
        seconds."""
        handled = line_of(sys.exc_info()[1])
        error = self._end(None, handled)
        if error is not None and handled is None:
            raise error
        if error is not None:
            print(f"psring: {error}", file=sys.stderr)

    def _end_process(self) -> None:
        """After an uncaught exception the job is aborted."""
        self._at_process_end = True
        error = self._end(self._ending.failure(self.job.error), None)
        if error is not None:
            print(f"psring: {error}", file=sys.stderr)

    def _end(self, uncaught: str | None, handled: str | None) -> Error | None:
        """Returns the error with which the job ended."""
        if self._ended:
            return None
        self._ended = True
        self._at_end.cancel()
        ended: Error | None = None
        try:
            if uncaught is not None:
                self.job.abort(uncaught)
            else:
                self._leave(handled)
        except KeyboardInterrupt:
            pass
        except Error as error:
            ended = error
        if not self.job.is_member():
            return ended
        # After Ctrl-C each worker gets SIGINT twice: from the terminal, and from psring.run. The second skips no part.
        for part in (self.coordinator, self.servers):
            with contextlib.suppress(Error, KeyboardInterrupt):
                if part is not None:
                    part.close()
        return ended
