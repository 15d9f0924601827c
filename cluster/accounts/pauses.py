"""Growing pauses after wrong passwords, by name and by network."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from trainhall.cluster.errors import TooManyError

FREE_FAILURES = 4
"""Failures without a pause; from the next one on it doubles, from a second."""
MAX_PAUSE_SECONDS = 300.0
FORGOTTEN_SECONDS = 900.0
"""Failures are forgotten so long after the last one."""
MAX_KNOWN = 10_000
"""Keys of which failures are remembered; beyond it the oldest are forgotten."""


@dataclass
class _Failures:
    count: int
    last: float

    @property
    def pause(self) -> float:
        over = self.count - FREE_FAILURES
        return min(2.0 ** min(over - 1, 30), MAX_PAUSE_SECONDS) if over > 0 else 0.0


class Pauses:
    """Counts of failed attempts.

    An attempt counts as failed from its start: many at once get no further than one by one.

    Args:
        now: monotonic time in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._failures: dict[str, _Failures] = {}
        self._succeeded: dict[str, None] = {}

    @contextmanager
    def attempt(self, keys: Sequence[str]) -> Iterator[None]:
        """Begin an attempt; one that has no turn, as too many are made, does not count.

        Raises:
            TooManyError: there is still a pause for one of the keys.
        """
        self.start(keys)
        try:
            yield
        except TooManyError:
            for key in keys:
                self.undo(key)
            raise

    def start(self, keys: Sequence[str]) -> None:
        """Begin an attempt.

        Raises:
            TooManyError: there is still a pause for one of the keys.
        """
        wait = max(self._remaining(key) for key in keys)
        if wait > 0:
            seconds = int(wait) + 1
            raise TooManyError(f"too many wrong passwords; try again in {seconds} s", seconds)
        for key in keys:
            known = self._failures.pop(key, _Failures(0, 0.0))
            if len(self._failures) >= MAX_KNOWN:
                del self._failures[next(iter(self._failures))]
            self._failures[key] = _Failures(known.count + 1, self._now())

    def _remaining(self, key: str) -> float:
        known = self._failures.get(key)
        if known is None:
            return 0.0
        passed = self._now() - known.last
        if passed >= FORGOTTEN_SECONDS:
            del self._failures[key]
            return 0.0
        return known.pause - passed

    def forget(self, key: str) -> None:
        """Forget all failures of a key."""
        self._failures.pop(key, None)

    def undo(self, key: str) -> None:
        """Take one failure back: the attempt succeeded, or was not made."""
        known = self._failures.get(key)
        if known is not None:
            known.count -= 1
            if not known.count:
                del self._failures[key]

    def note_success(self, key: str) -> None:
        """Remember that an attempt succeeded, which a restart forgets."""
        self._succeeded.pop(key, None)
        if len(self._succeeded) >= MAX_KNOWN:
            del self._succeeded[next(iter(self._succeeded))]
        self._succeeded[key] = None

    def has_succeeded(self, key: str) -> bool:
        """Return whether an attempt has succeeded."""
        return key in self._succeeded
