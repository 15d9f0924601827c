"""Clocks of simulated machines, by the time of the loop that runs them."""

import asyncio
from datetime import UTC, datetime, timedelta

from trainhall.cluster.ports import SystemClock

_START = datetime(2026, 1, 1, tzinfo=UTC)


class WorldClock:
    """One machine's clock. Its time of day may jump, and it may sleep while the others continue."""

    def __init__(self, start: datetime = _START) -> None:
        self._start = start
        self.offset = 0.0
        """Offset of the time of day, seconds."""
        self.leapt = 0.0
        """Seconds that its processes did not see."""

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._passed() + self.offset)

    def time_of_day(self) -> float:
        """Return the seconds since the epoch."""
        return self.now().timestamp()

    def monotonic(self) -> float:
        return 1000.0 + self._passed()

    def _passed(self) -> float:
        return asyncio.get_running_loop().time() + self.leapt


class CatchingUpClock(WorldClock):
    """Begins in the past and passes by a virtual loop; from `go_live` on it is the host's clock."""

    def __init__(self, start: datetime) -> None:
        super().__init__(start)
        self._system = SystemClock()
        self._is_live = False

    def go_live(self, passed: float) -> None:
        """Continue the monotonic time from where it is; the time of day is the host's.

        Args:
            passed: seconds of the virtual loop.
        """
        self._is_live = True
        self.leapt = passed - self._system.monotonic()

    def now(self) -> datetime:
        return self._system.now() if self._is_live else super().now()

    def _passed(self) -> float:
        return self._system.monotonic() + self.leapt if self._is_live else super()._passed()
