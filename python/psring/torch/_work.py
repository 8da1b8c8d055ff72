"""Operations in flight, as torch.distributed sees them."""

from __future__ import annotations

import queue
import sys
import threading
from collections import deque
from datetime import timedelta
from multiprocessing.util import Finalize
from typing import TYPE_CHECKING, Any, Callable

import torch
from torch import distributed as dist

from .._job import Work
from .._library import TimeoutError

# Seconds that a call of get_future may wait before it hands the operation to the thread that completes futures.
_SOON = 0.0005
# Seconds that the end of a process waits for what a program's futures call.
_LAST = 10.0

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Work as _BaseWork
else:
    _BaseWork = getattr(dist, "_Work", None) or torch._C._distributed_c10d.Work


class Completer:
    """A thread that completes futures, in the order in which they were asked for. It runs from the first one until `stop`, or
    the end of the process: one that came out of torch's C++ after the interpreter's end would abort the process."""

    def __init__(self) -> None:
        self._works: queue.SimpleQueue[GroupWork | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, work: GroupWork) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="psring futures", daemon=True)
                self._thread.start()
                self._at_end = Finalize(None, self.stop, exitpriority=0)  # after the job's end
        self._works.put(work)

    def stop(self) -> None:
        """Ends the thread, after the futures that were asked for, and waits for it."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is None:
                return
            self._works.put(None)
            self._at_end.cancel()
        if thread is not threading.current_thread():
            thread.join(_LAST)

    def _run(self) -> None:
        while (work := self._works.get()) is not None:
            work.complete_future()
            del work  # and its tensors


def _pop(works: deque[Any]) -> tuple[Any, int]:
    """Takes the first one. Returns it, and how many hold it."""
    first = works.popleft()
    return first, sys.getrefcount(first)


_ALONE = _pop(deque([object()]))[1]  # differs from one Python to another


class KeptWorks:
    """torch.distributed's C++ holds only the C++ half of a work, which needs the Python half to be waited for, also for a
    second time: one work may stand for several tensors. So the Python halves are kept here, those that are over without
    their tensors and no more than the newest. A future keeps its work itself."""

    _MOST_OVER = 1024

    def __init__(self) -> None:
        self._works: dict[GroupWork, None] = {}
        self._waited: deque[GroupWork] = deque()  # waited for since the last operation
        self._over: deque[GroupWork] = deque(maxlen=self._MOST_OVER)

    def add(self, work: GroupWork) -> GroupWork:
        while self._drop_oldest():
            pass
        while self._waited:
            try:
                waited, holders = _pop(self._waited)
            except IndexError:  # another thread has taken it
                break
            if holders == _ALONE:
                waited.give_away()
                self._over.append(waited)
        self._works[work] = None
        work.kept_in = self
        return work

    def was_waited_for(self, work: GroupWork) -> None:
        if self._works.pop(work, work) is None:
            self._waited.append(work)

    def forget(self, work: GroupWork) -> None:
        self._works.pop(work, None)

    def _drop_oldest(self) -> bool:
        try:
            oldest = next(iter(self._works), None)
        except RuntimeError:  # another thread has waited for one in between
            return False
        if oldest is None or not oldest.is_completed():
            return False
        self.was_waited_for(oldest)
        return True


class GroupWork(_BaseWork):
    """A torch.distributed Work: waits for psring's works, and then calls `after`, once."""

    kept_in: KeptWorks | None = None

    def __init__(
        self,
        works: list[Work],
        result: list[torch.Tensor],
        completer: Completer,
        after: Callable[[], None] | None = None,
        source: Callable[[], int] | None = None,
    ) -> None:
        super().__init__()
        self._works = works
        self._result: list[torch.Tensor] | None = result
        self._completer = completer
        self._after = after
        self._source = source
        self._error: BaseException | None = None
        self._future: Any = None
        self._ready: Any = None
        self._lock = threading.Lock()
        self._complete = False

    def _finish(self) -> None:
        with self._lock:
            if self._complete:
                return
            after, self._after = self._after, None
            self._works = []
            try:
                if after is not None:
                    after()
            except Exception as error:  # the tensor cannot be written, for example
                self._error = error
            self._complete = self._error is None
        if self._error is not None:
            raise self._error

    def _wait(self, timeout: float | None) -> None:
        if self._error is not None:
            raise self._error
        try:
            for work in list(self._works):
                work.wait(timeout)
        except TimeoutError:
            raise
        except BaseException as error:
            if isinstance(error, Exception):
                self._error = error
            raise
        self._finish()

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Waits for the operation; without a timeout, for as long as the group's. Raises the operation's error."""
        if not self._complete:
            self._wait(timeout.total_seconds() or None)
        if self.kept_in is not None:
            self.kept_in.was_waited_for(self)
        return True

    def give_away(self) -> None:
        """Nobody but C++ has this work, which is complete: C++ may still wait for it."""
        self._result = None

    def works(self) -> list[Work]:
        """What it waits for."""
        return self._works

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        if self._complete or self._error is not None:
            return True
        try:
            done = all(work.done() for work in list(self._works))
            if done:
                self._finish()
        except Exception as error:
            self._error = error
            return True
        return done

    def is_success(self) -> bool:
        return self.is_completed() and self._error is None

    def exception(self) -> BaseException | None:
        return self._error

    def result(self) -> list[torch.Tensor]:
        if self._result is None:
            raise RuntimeError("psring: the work was dropped, and its tensors with it")
        return self._result

    def source_rank(self) -> int:
        if self._source is None:
            raise RuntimeError("source_rank() is for recv from any rank")
        return self._source()

    _source_rank = source_rank

    def get_future(self) -> Any:
        """A torch.futures.Future of the operation's tensors."""
        if self._future is None:
            # An exception that set_exception stores is a value to C++, which DDP's reducer takes for tensors. One that a
            # callback raises is an error there, too.
            self._ready = torch.futures.Future(devices=self._devices())
            self._future = self._ready.then(self._outcome)
            if self.is_completed() or self._completes_soon():
                self.complete_future()
            else:
                self._completer.add(self)
            if self.kept_in is not None:
                self.kept_in.forget(self)  # the future has its outcome, or the completer has it
        return self._future

    def _devices(self) -> list[int | str | torch.device]:
        """The GPUs of its tensors: a future takes only tensors of the devices that it was told."""
        return list({tensor.device for tensor in self._result or () if tensor.is_cuda})

    def _completes_soon(self) -> bool:
        """Waits for as long as two hops between threads may take: most reductions of small vectors are complete then."""
        try:
            for work in list(self._works):
                if not work.done_within(_SOON):
                    return False
            self._finish()
        except Exception as error:
            self._error = error
        return True

    def complete_future(self) -> None:
        try:
            self.wait()
        except Exception as error:
            self._error = error
        self._ready.set_result(None)

    def _outcome(self, _ready: Any) -> list[torch.Tensor]:
        if self._error is not None:
            raise self._error
        return self.result()
