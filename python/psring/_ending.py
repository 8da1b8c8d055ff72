"""How the program of this process ends: what the other members of its job are told."""

from __future__ import annotations

import contextlib
import os
import sys
from multiprocessing import process
from multiprocessing import util as process_util
from types import FrameType

from ._coordinator import Coordinator
from ._job import Job
from ._library import Error, TimeoutError


def line_of(error: BaseException | None) -> str | None:
    """The line of an exception with which a program ends; None: it ends well."""
    if error is None or (isinstance(error, SystemExit) and not error.code):
        return None
    return " ".join(f"{type(error).__name__}: {error}".split())[:400]


class Ending:
    """Made where the program is under way; asked when the interpreter, or a process of multiprocessing, ends."""

    def __init__(self) -> None:
        # From Python 3.13 on multiprocessing has handled a program's exception before it calls what ends the process. Its
        # function knows the status.
        frame: FrameType | None = sys._getframe()
        while frame is not None and frame.f_code is not process.BaseProcess._bootstrap.__code__:  # type: ignore[attr-defined]
            frame = frame.f_back
        self._bootstrap = frame

    def failure(self, last: BaseException | None = None) -> str | None:
        """Why the program ends before its end; None: it does not. `last`: the last error of its job."""
        error: BaseException | None = getattr(sys, "last_value", None) or sys.exc_info()[1]
        line = line_of(error)
        if line is None and self._bootstrap is not None:
            status = self._bootstrap.f_locals.get("exitcode", 0)
            line = f"its program ended with status {status}" if status else None
            if line is not None and last is not None:
                line = f"{line}; its job's last error was {line_of(last)}"
        return line


def fail_at_end() -> None:
    """Called while the process ends: it ends with status 1, though its program has come to its end."""

    def exit_now() -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(1)

    process_util.Finalize(None, exit_now, exitpriority=-1)  # after those that end jobs


def end_job(job: Job, coordinator: Coordinator | None, timeout: float, ending: Ending) -> None:
    """Leaves the job when the process ends: all ranks do. The job is aborted after an uncaught exception, and if a rank does
    not come within so many seconds: after an operation that timed out, the ranks may have left already."""
    reason = ending.failure(job.error)
    try:
        if reason is not None:
            job.abort(reason)
        else:
            job.leave(timeout)
    except TimeoutError as error:
        job.abort(f"rank {job.rank} ends: {error}")
        print(f"psring: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        job.abort("interrupted")
    except Error as error:
        print(f"psring: {error}", file=sys.stderr)
    if coordinator is not None:
        with contextlib.suppress(Error, KeyboardInterrupt):
            coordinator.close()
