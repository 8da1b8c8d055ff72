"""Waits for the library. Each is made of slices, tells of itself when it is long, and ends with a line that names what it
has waited for."""

from __future__ import annotations

import functools
import math
import os
import sys
import time
from typing import Callable

from ._library import PENDING, TimeoutError, UsageError

# A signal's handler runs between two calls of the library.
_SLICE = 0.1
_LOOK = 2.0  # seconds between two looks


@functools.cache
def warning_time() -> float:
    """The seconds after which a wait tells of itself: PSRING_WAIT_WARNING; 0: never. Refuses what is no number."""
    text = os.environ.get("PSRING_WAIT_WARNING", "30")
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not (seconds >= 0 and math.isfinite(seconds)):
        raise UsageError(f"psring: PSRING_WAIT_WARNING={text}: expected a number of seconds; 0: no warning")
    return seconds or math.inf


def wait(
    function: Callable[[float], int],
    timeout: float | None,
    awaited: Callable[[], str],
    advice: str = "",
    look: Callable[[], None] = lambda: None,
) -> int:
    """Calls `function`, which waits for at most so many seconds, until it no longer returns PENDING. Returns its status.
    Raises TimeoutError after `timeout` seconds. `awaited`: what the last call has waited for; `advice`: what to do; `look`: is
    called from time to time, and may raise an error, which ends the wait."""
    start = time.monotonic()
    warn_at = start + warning_time()
    until = math.inf if timeout is None else start + timeout
    look_at = start + _LOOK
    while (status := function(min(_SLICE, max(0.0, until - time.monotonic())))) == PENDING:
        now = time.monotonic()
        if now >= until:
            raise TimeoutError(f"{awaited()}: the timeout of {timeout:g} s has passed")
        if now >= look_at:
            look_at = now + _LOOK
            look()
        if now >= warn_at:
            warn_at = math.inf
            print(f"psring: has waited for {now - start:.0f} s: {awaited()}{advice and '; '}{advice}", file=sys.stderr)
    return status
