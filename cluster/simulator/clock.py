"""The clocks of simulated machines: all of them follow the loop's time, each in its own way."""

import asyncio
from datetime import UTC, datetime, timedelta

_START = datetime(2026, 1, 1, tzinfo=UTC)


class WorldClock:
    """One machine's clock. Its time of day may jump, and it may sleep while the others go on."""

    def __init__(self) -> None:
        self.offset = 0.0
        """Of the time of day, seconds."""
        self.leapt = 0.0
        """Seconds that its processes did not see."""

    def now(self) -> datetime:
        return _START + timedelta(seconds=self._passed() + self.offset)

    def monotonic(self) -> float:
        return 1000.0 + self._passed()

    def _passed(self) -> float:
        return asyncio.get_running_loop().time() + self.leapt
