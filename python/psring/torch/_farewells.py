"""How a rank that ends its program tells the others, which may wait for it: through torch's store."""

from __future__ import annotations

import contextlib
import json
import threading
from multiprocessing.util import Finalize
from typing import Any

from torch import distributed as dist

_NONE = "-"
_LAST = 1.0  # seconds that the end of a process waits for an answer


class StoredFarewells:
    """See `Farewells`. A rank leaves a job only with all others, so that rank 0, whose process has the store, lives on."""

    def __init__(self, store: dist.Store, name: str, rank: int, size: int) -> None:
        """`name`: of the job, in the store."""
        self.name = name
        self._store = store
        self._names = {other: f"{name}/left/{other}" for other in range(size)}
        self._rank = rank
        self._heard: dict[int, dict[str, Any]] = {}
        self._asking: threading.Thread | None = None

    def say(self, progress: dict[str, Any]) -> None:
        with contextlib.suppress(RuntimeError):  # rank 0 has ended
            self._store.set(self._names[self._rank], json.dumps(progress))  # waits for no answer

    def heard(self) -> dict[int, dict[str, Any]]:
        """What the last call has asked for: the answer takes for ever where rank 0's process has been stopped."""
        if self._asking is None:
            Finalize(None, self._wait, exitpriority=0)
        if self._asking is None or not self._asking.is_alive():
            self._asking = threading.Thread(target=self._ask, name="psring farewells", daemon=True)
            self._asking.start()
        return self._heard

    def _wait(self) -> None:
        """A thread that came out of torch's C++ after the interpreter's end would abort the process."""
        assert self._asking is not None
        self._asking.join(_LAST)

    def _ask(self) -> None:
        with contextlib.suppress(RuntimeError):
            said = {rank: self._value(name) for rank, name in self._names.items() if rank != self._rank}
            self._heard = {rank: json.loads(text) for rank, text in said.items() if text != _NONE}

    def _value(self, name: str) -> str:
        """What the store has under a name; unlike `get` it does not wait for it."""
        value: bytes = self._store.compare_set(name, _NONE, _NONE)
        return value.decode()
