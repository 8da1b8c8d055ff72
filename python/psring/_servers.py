"""Starts the servers of a job, the program psring-server, on this host."""

from __future__ import annotations

import subprocess
import tempfile
import threading
from typing import IO, Any, Callable

from ._library import DataError, folder_of_programs

_LOOK = 0.05  # seconds between two looks at whether the servers still run


class Servers:
    """`count` processes of psring-server. They end with the job. `died` is called, in a thread, if one of them ends before
    `joined`: whoever waits for it would wait for nothing."""

    def __init__(self, count: int, endpoint: str, key_file: str, died: Callable[[], Any]) -> None:
        program = str(folder_of_programs() / "psring-server")
        self._errors: list[IO[bytes]] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        for rank in range(count):
            command = [program, "--rdzv-endpoint", endpoint, "--key", key_file, "--rank", str(rank)]
            self._errors.append(tempfile.TemporaryFile())  # noqa: SIM115 - close() closes it
            try:
                # A group of its own: Ctrl-C reaches the workers, and the job ends with them.
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=self._errors[-1],
                    start_new_session=True,
                )
            except OSError as error:
                self.close(0)
                raise DataError(f"cannot start {program}: {error.strerror}; PSRING_BIN can name its folder") from error
            self.processes.append(process)
        self._joined = threading.Event()
        self._watcher = threading.Thread(target=self._watch, args=(died,), name="psring servers", daemon=True)
        self._watcher.start()

    def _watch(self, died: Callable[[], Any]) -> None:
        while not self._joined.wait(_LOOK):
            if any(process.poll() is not None for process in self.processes):
                died()
                return

    def joined(self) -> None:
        """All members have joined the job: from now on its coordinator notices losses."""
        self._joined.set()
        self._watcher.join()

    def death(self) -> str | None:
        """Says which server has ended, and its last words; None if all run."""
        for rank, (process, errors) in enumerate(zip(self.processes, self._errors)):
            status = process.poll()
            if status is None:
                continue
            errors.seek(0)
            lines = errors.read().decode(errors="replace").strip().splitlines()
            how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
            return f"server {rank} {how}" + (f": {lines[-1].removeprefix('psring-server: ')}" if lines else "")
        return None

    def close(self, timeout: float = 10.0) -> None:
        """Waits for the servers' end, after the job's end; kills those that have not ended after so many seconds."""
        for process in self.processes:
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for errors in self._errors:
            errors.close()
