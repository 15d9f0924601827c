"""Interfaces of the coordinator's logic to the outside world.

Nothing in `cluster` calls the real ones directly, so that tests, mock mode and the simulator run
the same code with their own clock and random numbers.
"""

import secrets
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """Return the time of day, aware, in UTC. It may jump."""

    def monotonic(self) -> float:
        """Seconds since some start. It never goes back."""


class Ids(Protocol):
    def new(self) -> str:
        """Return a fresh id of 12 lower-case hexadecimal digits, unique by its first few."""

    def secret(self) -> str:
        """Return a fresh secret of 32 random bytes in URL-safe text."""


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


class SystemIds:
    def new(self) -> str:
        return secrets.token_hex(6)

    def secret(self) -> str:
        return secrets.token_urlsafe(32)
