"""Pauses between tries of what may work later."""

import math
import random


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
