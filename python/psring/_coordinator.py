"""Starts the coordinator of a job, the program psring, on this host."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import shlex
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from ._library import DataError, Error, TimeoutError, UsageError, folder_of_programs

_KINDS: dict[int, type[Error]] = {2: UsageError, 3: DataError, 127: DataError}  # 127: the loader lacks a library


def _drain(stream: IO[bytes]) -> None:
    """Reads what the coordinator prints, so that it never waits for a full pipe."""
    with stream:
        while stream.read(1 << 16):
            pass


_named: set[str] = set()  # run folders that jobs of this process were to have


def _run_folder(out: str) -> str:
    """`out`, which must not hold a run; OUT-2, OUT-3, ... for the second job of a program, and for one that psring.run has
    started again."""
    again = out in _named or os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    _named.add(out)
    if not again or not os.path.exists(out):
        return out
    return next(name for number in itertools.count(2) if not os.path.exists(name := f"{out}-{number}"))


def _options_of(given: Sequence[str]) -> list[str]:
    """The program's options, and those of the environment. Refuses those with which the coordinator would wait for processes
    that a program does not start."""
    options = [*given, *shlex.split(os.environ.get("PSRING_OPTIONS", ""))]
    for option in options:
        flag = option.partition("=")[0]
        if flag in ("--replicas", "--nodes"):
            raise UsageError(f"psring: {flag}: has no effect on a program that trains by itself")
    return options


class Coordinator:
    """A coordinator for `workers` workers: a process of its own, so that it outlives each worker and can name the one that
    was lost. It ends with the job. Its run folder is temporary unless `out` names one."""

    def __init__(
        self,
        workers: int,
        *,
        key_file: str | None = None,
        listen: str = "127.0.0.1:0",
        strategy: str = "ddp",
        steps: int = 1,
        options: Sequence[str] = (),
        out: str | None = None,
    ) -> None:
        words = _options_of(options)
        launcher = os.environ.get("PSRING_TEMPORARY", "")  # psring.run's folder, which it removes at its end
        self._folder = Path(tempfile.mkdtemp(prefix="psring-", dir=launcher if os.path.isdir(launcher) else None))
        self._own_key = key_file is None
        self.key_file = key_file or str(self._folder / "job.key")
        if key_file is None:
            descriptor = os.open(self.key_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "w") as file:
                file.write(secrets.token_hex(32) + "\n")
        command = [
            str(folder_of_programs() / "psring"),
            "coordinator",
            *("--strategy", strategy, "--steps", str(steps)),
            *("--workers", str(workers), "--global-batch", str(workers)),
            *("--key", self.key_file),
            *("--listen", listen),
            *("--out", _run_folder(out) if out else str(self._folder / "run")),
            *words,
        ]
        log = self._folder / "errors"
        try:
            with open(log, "wb") as errors:
                # A group of its own: Ctrl-C reaches the workers, and the job ends with them.
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    start_new_session=True,
                )
        except OSError as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise DataError(f"cannot start {command[0]}: {error.strerror}; PSRING_BIN can name its folder") from error
        (self._folder / "pid").write_text(str(self._process.pid))  # psring.run waits for its end
        assert self._process.stdout is not None
        first = "other"
        while first and not first.startswith("coordinator at "):  # other lines may come before
            first = self._process.stdout.readline().decode()
        if not first:
            status = self._process.wait()
            line = log.read_text(errors="replace").strip() or f"the coordinator ended with status {status}"
            shutil.rmtree(self._folder, ignore_errors=True)
            raise _KINDS.get(status, Error)(line.splitlines()[-1].removeprefix("psring: "))
        self.endpoint = first.split()[2].rstrip(":")
        threading.Thread(target=_drain, args=(self._process.stdout,), name="psring coordinator", daemon=True).start()

    def joined(self) -> None:
        """All workers have joined: nobody needs the key's file any more, if it is the coordinator's own."""
        if self._own_key:
            Path(self.key_file).unlink(missing_ok=True)

    def stop(self) -> None:
        """Ends the coordinator, and the job with it."""
        self._process.terminate()

    def abandon(self) -> None:
        """Ends the coordinator of a job that has not begun, and removes its temporary folder with the key."""
        self.stop()
        with contextlib.suppress(TimeoutError):
            self.close()

    def close(self, timeout: float = 10.0) -> None:
        """Waits for the end of the coordinator, after the job's end, and removes its temporary folder."""
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            self._process.kill()
            self._process.wait()
            raise TimeoutError(f"the coordinator has not ended after {timeout:g} s") from error
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
