"""Starts the processes of a PyTorch program on this host, with torchrun's flags and environment:

python -m psring.run --nproc 4 train.py --epochs 3
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any, Callable, Sequence

# After a process has failed, the others have so long to end by themselves: twice the default heartbeat timeout, after which
# their errors name it, and some.
_GRACE = 25.0
_AFTER_SIGNAL = 4.0  # from a signal to the end of the processes
_SAME = 1.0  # signals within a second of the first are one request: a terminal that closes sends SIGHUP twice
_LOOK = 0.05
_PR_SET_PDEATHSIG = 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m psring.run", description="Starts the processes of a PyTorch program, as torchrun does."
    )
    add = parser.add_argument
    add("--nproc", "--nproc-per-node", "--nproc_per_node", type=int, default=1, help="processes on this host (1)")
    add("--nnodes", "--nodes", type=int, default=1, help="hosts (1); start this program on each of them")
    add("--node-rank", "--node_rank", type=int, help="number of this host, from 0; SLURM_NODEID under Slurm")
    add("--servers", type=int, help="servers of each ParameterServer of the program, if it does not say (1)")
    add(
        "--max-restarts",
        "--max_restarts",
        type=int,
        default=0,
        help="how often all processes are started again after one has failed, on one host (0); the program continues from "
        "its checkpoint, and TORCHELASTIC_RESTART_COUNT says how often it was started before",
    )
    add("--master-addr", "--master_addr", help="address of host 0 (127.0.0.1)")
    add("--master-port", "--master_port", type=int, help="port of torch's store at host 0 (any free port on one host)")
    add("--standalone", action="store_true", help="as without it: one host, and any free port")
    add("-m", "--module", action="store_true", help="the program is a module")
    add("--no-python", "--no_python", action="store_true", help="the program is not for Python")
    add("program", help="the script, module or program")
    add("arguments", nargs=argparse.REMAINDER, help="its arguments")
    return parser


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _command(options: argparse.Namespace) -> list[str]:
    if options.no_python:
        return [options.program, *options.arguments]
    return [sys.executable, "-u", *(["-m"] if options.module else []), options.program, *options.arguments]


def _environment(options: argparse.Namespace, local_rank: int, restarts: int, port: int) -> dict[str, str]:
    node = options.node_rank
    environment = dict(os.environ)
    environment.update(
        RANK=str(node * options.nproc + local_rank),
        LOCAL_RANK=str(local_rank),
        GROUP_RANK=str(node),
        WORLD_SIZE=str(options.nnodes * options.nproc),
        LOCAL_WORLD_SIZE=str(options.nproc),
        MASTER_ADDR=options.master_addr,
        MASTER_PORT=str(port),
        TORCHELASTIC_RESTART_COUNT=str(restarts),
        TORCHELASTIC_MAX_RESTARTS=str(options.max_restarts),
    )
    if options.servers is not None:
        environment["PSRING_SERVERS"] = str(options.servers)
    if options.nproc > 1:
        environment.setdefault("OMP_NUM_THREADS", "1")
    return environment


def _die_with_parent() -> Callable[[], None]:
    """What a child calls before it begins: it gets a signal when this process ends, however that is."""
    libc: Any = ctypes.CDLL(None)
    return lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class _Stopped(Exception):
    def __init__(self, how: int) -> None:
        super().__init__(how)
        self.how = how


class _Signals:
    """The signals that ask this program to end. Their handler only keeps them: it runs between any two instructions, also
    inside Popen.poll, which holds a lock."""

    def __init__(self) -> None:
        self._come: list[tuple[int, float]] = []
        for how in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            if signal.getsignal(how) is not signal.SIG_IGN:
                signal.signal(how, lambda how, _frame: self._come.append((how, time.monotonic())))

    def check(self) -> None:
        """Raises _Stopped if a signal has come."""
        if self._come:
            raise _Stopped(self._come[0][0])

    def insist(self) -> bool:
        """A second request has come: SIGQUIT, or a signal more than a second after the first."""
        return any(how == signal.SIGQUIT or when - self._come[0][1] >= _SAME for how, when in self._come)


def _say(line: str) -> None:
    """Prints a line on standard error; it is lost if that is closed, as with its terminal."""
    with contextlib.suppress(OSError):
        os.write(2, f"psring.run: {line}\n".encode(errors="replace"))


def _end(processes: Sequence[subprocess.Popen[bytes]], how: int, signals: _Signals) -> None:
    """Sends a signal to the processes that still run, waits, and kills those that remain; at a second request at once."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(how)
    until = time.monotonic() + _AFTER_SIGNAL
    while any(process.poll() is None for process in processes) and time.monotonic() < until and not signals.insist():
        time.sleep(_LOOK)
    for process in processes:
        if process.poll() is None:
            process.kill()
    for process in processes:
        process.wait()


def _watch(processes: Sequence[subprocess.Popen[bytes]], ranks: Sequence[int], signals: _Signals) -> int:
    """Waits for all; returns the status of the first that failed, or 0. Raises _Stopped at a signal."""
    failed = 0
    until: float | None = None
    running = True
    while running:
        signals.check()
        statuses = [process.poll() for process in processes]
        running = None in statuses
        for rank, status in zip(ranks, statuses):
            if status and not failed:
                failed = status
                until = time.monotonic() + _GRACE
                how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
                _say(f"rank {rank} ended with {how}")
        if running and until is not None and time.monotonic() > until:
            _end(processes, signal.SIGTERM, signals)
        elif running:
            time.sleep(_LOOK)
    return 128 - failed if failed < 0 else failed


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Refuses what has no meaning, and fills in what depends on the environment."""
    if options.nproc < 1 or options.nnodes < 1:
        parser.error("--nproc and --nnodes are at least 1")
    if options.servers is not None and options.servers < 1:
        parser.error("--servers is at least 1")
    if options.max_restarts < 0:
        parser.error("--max-restarts is at least 0")
    if options.max_restarts > 0 and options.nnodes > 1:
        parser.error("--max-restarts starts the processes of one host again: leave it out with --nnodes")
    if options.node_rank is None:
        options.node_rank = int(os.environ.get("SLURM_NODEID", 0)) if options.nnodes > 1 else 0
    if not 0 <= options.node_rank < options.nnodes:
        parser.error(f"--node-rank {options.node_rank} of {options.nnodes} hosts")
    if options.nnodes > 1 and (options.master_addr is None or options.master_port is None):
        parser.error("with several hosts, give --master-addr and --master-port")
    options.master_addr = options.master_addr or "127.0.0.1"


def _run_once(
    options: argparse.Namespace, restarts: int, processes: list[subprocess.Popen[bytes]], signals: _Signals
) -> int:
    """Starts all processes, appends them to the list, and waits for them; returns the status of the first that failed."""
    port = options.master_port or _free_port()
    for local_rank in range(options.nproc):
        signals.check()
        environment = _environment(options, local_rank, restarts, port)
        processes.append(subprocess.Popen(_command(options), env=environment, preexec_fn=_die_with_parent()))
    return _watch(processes, [options.node_rank * options.nproc + r for r in range(options.nproc)], signals)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    _check(parser, options)
    processes: list[subprocess.Popen[bytes]] = []
    signals = _Signals()
    try:
        for restarts in range(options.max_restarts + 1):
            processes.clear()
            status = _run_once(options, restarts, processes, signals)
            if status == 0:
                break
            if restarts < options.max_restarts:
                _say(f"restart {restarts + 1} of {options.max_restarts}")
        return status
    except _Stopped as stopped:
        _end(processes, signal.SIGKILL if stopped.how == signal.SIGQUIT else stopped.how, signals)
        return 128 + stopped.how
    except OSError as error:
        _end(processes, signal.SIGTERM, signals)
        _say(f"cannot start {error.filename}: {error.strerror}")
        return 2


if __name__ == "__main__":
    sys.exit(main())
