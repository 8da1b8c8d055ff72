"""Starts the processes of a PyTorch program on this host, with torchrun's flags and environment:

python -m psring.run --nproc 4 train.py --epochs 3
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import errno
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable

# After a process has failed, the others have so long to end by themselves: twice the default heartbeat timeout, after which
# their errors name it, and some.
_GRACE = 25.0
_AFTER_SIGNAL = 4.0  # from a signal to the end of the processes
_SAME = 1.0  # signals within a second of the first are one request: a terminal that closes sends SIGHUP twice
_LOOK = 0.05
_PR_SET_PDEATHSIG = 1


def _processes(text: str) -> int:
    """--nproc-per-node: a number, or that of the processors or GPUs of this host."""
    gpus = len([name for name in os.listdir("/dev") if name.startswith("nvidia") and name[len("nvidia") :].isdecimal()])
    if text == "gpu" and gpus == 0:
        raise argparse.ArgumentTypeError("this host has no GPU")
    if text == "gpu" or (text == "auto" and gpus > 0):
        return gpus
    if text in ("auto", "cpu"):
        return len(os.sched_getaffinity(0))
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is no number, nor auto, cpu or gpu") from None


def _hosts(text: str) -> int:
    """--nnodes: a number, or MIN:MAX with MIN = MAX."""
    least, _, most = text.partition(":")
    try:
        if most and int(most) != int(least):
            raise argparse.ArgumentTypeError(f"'{text}': the number of hosts is fixed: give one number")
        return int(least)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is no number") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m psring.run",
        description="Starts the processes of a PyTorch program, as torchrun does, with its flags.",
        allow_abbrev=False,
    )

    def add(name: str, *others: str, **how: Any) -> None:
        """With the spelling that torchrun had before."""
        names = [name, *others]
        parser.add_argument(*names, *(f"--{each[2:].replace('-', '_')}" for each in names if "-" in each[2:]), **how)

    add("--nproc", "--nproc-per-node", type=_processes, default=1, help="processes on this host, or auto, cpu or gpu (1)")
    add("--nnodes", "--nodes", type=_hosts, default=1, help="hosts (1); start this program on each of them")
    add("--node-rank", type=int, help="number of this host, from 0; SLURM_NODEID under Slurm")
    add("--servers", type=int, help="servers of each ParameterServer of the program, if it does not say (1)")
    add(
        "--max-restarts",
        type=int,
        default=0,
        help="how often all processes are started again after one has failed, on one host (0); the program continues from "
        "its checkpoint, and TORCHELASTIC_RESTART_COUNT says how often it was started before",
    )
    add("--master-addr", help="address of host 0 (127.0.0.1)")
    add("--master-port", type=int, help="port of torch's store at host 0 (any free port on one host)")
    add("--rdzv-endpoint", help="the same two as HOST:PORT")
    add("--rdzv-backend", choices=("static", "c10d"), help="both meet at --master-addr, with --node-rank")
    add("--rdzv-id", default="none", help="a name of the job: TORCHELASTIC_RUN_ID (none)")
    add("--role", default="default", help="a name of the processes: ROLE_NAME (default)")
    add("--standalone", action="store_true", help="one host, and any free port")
    add("--monitor-interval", type=float, default=_LOOK, help=f"seconds between two looks at the processes ({_LOOK})")
    add("--log-dir", help="what processes print goes to files there: attempt_N/RANK/stdout.log and stderr.log")
    parser.add_argument("-m", "--module", action="store_true", help="the program is a module")
    add("--no-python", action="store_true", help="the program is not for Python")
    parser.add_argument("program", help="the script, module or program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    return parser


def _free_port() -> int:
    """A free port below those that the kernel gives to connections: until rank 0 listens there, seconds may pass."""
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        first = 32768
    below = random.SystemRandom().sample(range(1024, first), 100) if first > 2048 else []
    for port in (*below, 0):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("", port))
            return int(probe.getsockname()[1])
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE), "the program")


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
        TORCHELASTIC_RUN_ID=options.rdzv_id,
        TORCHELASTIC_USE_AGENT_STORE="False",  # rank 0 makes the store
        GROUP_WORLD_SIZE=str(options.nnodes),
        ROLE_NAME=options.role,
        ROLE_WORLD_SIZE=str(options.nnodes * options.nproc),
        ROLE_RANK=str(node * options.nproc + local_rank),
        PSRING_TEMPORARY=options.temporary,
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


def _watch(processes: Sequence[subprocess.Popen[bytes]], ranks: Sequence[int], signals: _Signals, interval: float) -> int:
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
            time.sleep(interval)
    return 128 - failed if failed < 0 else failed


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Refuses what has no meaning, and fills in what depends on the environment."""
    if options.rdzv_endpoint is not None:
        if options.master_addr is not None or options.master_port is not None:
            parser.error("--rdzv-endpoint is --master-addr and --master-port: give one of both")
        host, _, port = options.rdzv_endpoint.rpartition(":")
        if not host or not port.isdecimal():
            parser.error(f"--rdzv-endpoint {options.rdzv_endpoint}: expected HOST:PORT")
        # Port 0 is torchrun's way to ask for any, on one host.
        options.master_addr, options.master_port = host, int(port) or None
    if options.standalone and options.nnodes > 1:
        parser.error("--standalone is for one host")
    if options.monitor_interval <= 0:
        parser.error("--monitor-interval is more than 0")
    if options.nproc < 1 or options.nnodes < 1:
        parser.error("--nproc and --nnodes are at least 1")
    if options.servers is not None and options.servers < 1:
        parser.error("--servers is at least 1")
    if options.max_restarts < 0:
        parser.error("--max-restarts is at least 0")
    if options.max_restarts > 0 and options.nnodes > 1:
        parser.error("--max-restarts starts the processes of one host again: leave it out with --nnodes")
    if options.node_rank is None:
        if options.nnodes > 1 and "SLURM_NODEID" not in os.environ:
            parser.error(f"--node-rank is the number of this host, 0 to {options.nnodes - 1}: give it")
        options.node_rank = int(os.environ["SLURM_NODEID"]) if options.nnodes > 1 else 0
    if not 0 <= options.node_rank < options.nnodes:
        parser.error(f"--node-rank {options.node_rank} of {options.nnodes} hosts")
    if options.nnodes > 1 and (options.master_addr is None or options.master_port is None):
        parser.error("with several hosts, give --master-addr and --master-port")
    options.master_addr = options.master_addr or "127.0.0.1"


def _run_once(options: argparse.Namespace, restarts: int, processes: list[subprocess.Popen[bytes]], signals: _Signals) -> int:
    """Starts all processes, appends them to the list, and waits for them; returns the status of the first that failed."""
    port = options.master_port or _free_port()
    for local_rank in range(options.nproc):
        signals.check()
        environment = _environment(options, local_rank, restarts, port)
        with contextlib.ExitStack() as files:
            out, err = _outputs(options, restarts, environment["RANK"], files)
            processes.append(
                subprocess.Popen(_command(options), env=environment, stdout=out, stderr=err, preexec_fn=_die_with_parent())
            )
    ranks = [options.node_rank * options.nproc + r for r in range(options.nproc)]
    return _watch(processes, ranks, signals, options.monitor_interval)


def _outputs(options: argparse.Namespace, restarts: int, rank: str, files: contextlib.ExitStack) -> list[Any]:
    """Where a process writes; None: where this one does."""
    if options.log_dir is None:
        return [None, None]
    folder = os.path.join(options.log_dir, options.rdzv_id, f"attempt_{restarts}", rank)
    os.makedirs(folder, exist_ok=True)
    return [files.enter_context(open(os.path.join(folder, f"{name}.log"), "wb")) for name in ("stdout", "stderr")]


def _remove(temporary: str) -> None:
    """Removes the temporary files of the ranks' jobs, whose coordinators end shortly after the ranks."""
    coordinators = [f"/proc/{path.read_text()}" for path in Path(temporary).glob("*/pid")]
    until = time.monotonic() + _GRACE
    while any(os.path.exists(each) for each in coordinators) and time.monotonic() < until:
        time.sleep(_LOOK)
    shutil.rmtree(temporary, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    _check(parser, options)
    processes: list[subprocess.Popen[bytes]] = []
    signals = _Signals()
    # Here jobs keep their temporary files, which a rank that is ended by a signal leaves.
    options.temporary = tempfile.mkdtemp(prefix="psring-")
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
    finally:
        _remove(options.temporary)


if __name__ == "__main__":
    sys.exit(main())
