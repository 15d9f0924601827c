"""Pauses: between tries of what may work later, and until there is something to do."""

import asyncio
import contextlib
import math
import random


async def wait_until_set(event: asyncio.Event, seconds: float | None) -> None:
    """Wait until the event is set, or so many seconds have passed; None: without a limit."""
    # Not `wait_for`, which on Python 3.11 may swallow a cancellation that races the event.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class Backoff:
    """Exponential back-off; jitter keeps callers that failed together from retrying together.

    Args:
        first: seconds, the longest first pause.
        limit: seconds, the longest pause of all.
        chance: None: every process has its own.
    """

    def __init__(
        self, first: float, limit: float = math.inf, chance: random.Random | None = None
    ) -> None:
        self._first = self._pause = first
        self._limit = limit
        self._chance = chance or random.Random()

    def next(self) -> float:
        """Seconds to wait before the next try."""
        pause = self._pause * self._chance.uniform(0.5, 1.0)
        self._pause = min(2 * self._pause, self._limit)
        return pause

    def reset(self) -> None:
        """Begin with the first pause again: it worked."""
        self._pause = self._first
