"""Clocks of simulated machines: advanced by hand, catching up with the host's, or by the loop's."""

import asyncio
from datetime import UTC, datetime, timedelta

from trainhall.cluster.ports import SystemClock

_START = datetime(2026, 1, 1, tzinfo=UTC)


class SimulatedClock:
    def __init__(self, start: datetime = _START) -> None:
        self._now = start
        self._monotonic = 1000.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds


class CatchingUpClock(SimulatedClock):
    """Begins in the past and is advanced by hand; from `go_live` on it is the host's clock."""

    def __init__(self, start: datetime) -> None:
        super().__init__(start)
        self._system = SystemClock()
        self._live_since: float | None = None

    def go_live(self) -> None:
        """Continue the monotonic time from where it is; the time of day is the host's."""
        self._live_since = self._system.monotonic()

    def now(self) -> datetime:
        return super().now() if self._live_since is None else self._system.now()

    def monotonic(self) -> float:
        if self._live_since is None:
            return super().monotonic()
        return super().monotonic() + self._system.monotonic() - self._live_since


class WorldClock:
    """One machine's clock. Its time of day may jump, and it may sleep while the others continue."""

    def __init__(self) -> None:
        self.offset = 0.0
        """Offset of the time of day, seconds."""
        self.leapt = 0.0
        """Seconds that its processes did not see."""

    def now(self) -> datetime:
        return _START + timedelta(seconds=self._passed() + self.offset)

    def monotonic(self) -> float:
        return 1000.0 + self._passed()

    def _passed(self) -> float:
        return asyncio.get_running_loop().time() + self.leapt
