"""Waiting for conditions: a test says what it waits for, never for how long things usually take."""

import time
from collections.abc import Callable
from typing import Literal, TypeVar

PATIENCE = 90.0
"""Seconds that anything may take; a bound for a loaded machine, not an expectation."""
SLOW = 60_000
"""The same of a page, in milliseconds."""
T = TypeVar("T")
_LONGEST = 0.5
"""Seconds from one look to the next, however dear."""


class Pauses:
    """Seconds between the looks of one wait."""

    def __init__(self, first: float) -> None:
        self._longest = 5 * first
        self._pause = first
        self._used = time.thread_time()

    def next(self) -> float:
        """The pause after a look, which cost what this thread has used since the last one."""
        used, self._used = time.thread_time() - self._used, time.thread_time()
        pause, self._pause = self._pause, min(1.1 * self._pause, self._longest)
        return max(pause, min(4 * used, _LONGEST))


def eventually(
    what: str,
    check: Callable[[], T | Literal[False] | None],
    *,
    timeout: float = PATIENCE,
    every: float = 0.02,
) -> T:
    """The first truthy value of `check`; after `timeout` seconds, an error with the last one.

    What does not come at once is looked for less and less often, and what is dear to look at too:
    those who wait would else take the processor from what they wait for.
    """
    deadline = time.monotonic() + timeout
    pauses = Pauses(every)
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout:g} s in vain for {what}; last seen: {value!r}")
        time.sleep(pauses.next())
