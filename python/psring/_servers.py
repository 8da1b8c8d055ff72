"""Starts the servers of a job, the program psring-server, on this host."""

from __future__ import annotations

import subprocess
import tempfile
from typing import IO, Any

from ._library import DataError, folder_of_programs


class Servers:
    """`count` processes of psring-server. They end with the job."""

    def __init__(self, count: int, endpoint: str, key_file: str) -> None:
        program = str(folder_of_programs() / "psring-server")
        self._errors: IO[Any] = tempfile.TemporaryFile()
        self.processes: list[subprocess.Popen[bytes]] = []
        for rank in range(count):
            command = [program, "--rdzv-endpoint", endpoint, "--key", key_file, "--rank", str(rank)]
            try:
                # A group of its own: Ctrl-C reaches the workers, and the job ends with them.
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=self._errors,
                    start_new_session=True,
                )
            except OSError as error:
                self.close(0)
                raise DataError(f"cannot start {program}: {error.strerror}; PSRING_BIN can name its folder") from error
            self.processes.append(process)

    def close(self, timeout: float = 10.0) -> None:
        """Waits for the servers' end, after the job's end; kills those that have not ended after so many seconds."""
        for process in self.processes:
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._errors.close()
