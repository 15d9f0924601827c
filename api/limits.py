"""Limits of one caller: what it may have under way at once, and how often it may guess.

A caller is a user at an address, of IPv6 in a network of 64 bits. Whoever has no credential yet is
the address alone.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from starlette.requests import HTTPConnection

from trainhall.api.problems import RefusalError
from trainhall.api.settings import Settings
from trainhall.cluster.access.networks import network_of
from trainhall.cluster.access.principal import Principal
from trainhall.cluster.errors import NotAllowedError

NODE_UPLOADS = 16
"""Files that one node uploads at once: of each checkpoint up to four."""
TURN_SECONDS = 10.0
"""Time that an upload waits for others of its caller to end."""
FAILED_JOINS = 20
"""Join tokens that an address may guess within `JOIN_SECONDS`."""
JOIN_SECONDS = 60.0
FAILED_LOGINS = 20
"""Logins of a kind (by an OpenID provider, by a link, of commands) that may fail, by address,
within `LOGIN_SECONDS`."""
LOGIN_SECONDS = 60.0
_MAX_KNOWN = 10_000
"""Callers of which failures are remembered; beyond it the oldest are forgotten."""


class Turns:
    """So many of a kind at once for each caller.

    Args:
        setting: the environment variable that sets `most`; None: none does.
    """

    def __init__(self, what: str, most: int, setting: str | None = None) -> None:
        self._what = what
        self._most = most
        self._setting = setting
        self._taken: dict[str, int] = {}
        self._ended = asyncio.Condition()

    @asynccontextmanager
    async def turn(self, caller: str, wait_seconds: float = 0.0) -> AsyncIterator[None]:
        """Hold one of the caller's turns.

        Raises:
            RefusalError: 429, it has all of them, and none ended within `wait_seconds`.
        """
        if self._is_full(caller) and not await self._freed(caller, wait_seconds):
            raise self._refusal(caller)
        self._taken[caller] = self._taken.get(caller, 0) + 1
        try:
            yield
        finally:
            self._taken[caller] -= 1
            if not self._taken[caller]:
                del self._taken[caller]
            async with self._ended:
                self._ended.notify_all()

    def _is_full(self, caller: str) -> bool:
        return self._taken.get(caller, 0) >= self._most

    async def _freed(self, caller: str, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds), self._ended:
                await self._ended.wait_for(lambda: not self._is_full(caller))
        except TimeoutError:
            return False
        return True

    def _refusal(self, caller: str) -> RefusalError:
        remedy = f", or raise {self._setting}" if self._setting else ""
        return too_many(
            f"{caller} has {self._most} {self._what}, and may have no more; try again when one "
            f"has ended{remedy}",
            retry_seconds=5,
        )


class Guesses:
    """Failed attempts of each caller within a time."""

    def __init__(self, most: int, seconds: float, now: Callable[[], float] = time.monotonic):
        self._most = most
        self._seconds = seconds
        self._now = now
        self._failures: dict[str, deque[float]] = {}

    @contextmanager
    def attempt(self, caller: str) -> Iterator[None]:
        """Check a caller first, and count it as a failure if what it shows is refused.

        Raises:
            RefusalError: 429, too many have failed.
        """
        self.check(caller)
        try:
            yield
        except NotAllowedError:
            self.fail(caller)
            raise

    def check(self, caller: str) -> None:
        """
        Raises:
            RefusalError: 429, too many have failed.
        """
        failures = self._failures.get(caller)
        if failures is None:
            return
        now = self._now()
        while failures and failures[0] <= now - self._seconds:
            failures.popleft()
        if not failures:
            del self._failures[caller]
        elif len(failures) >= self._most:
            wait = max(int(failures[0] + self._seconds - now) + 1, 1)
            raise too_many(
                f"{self._most} requests of {caller} failed within {self._seconds:g} s; try again "
                f"in {wait} s",
                retry_seconds=wait,
            )

    def fail(self, caller: str) -> None:
        """Count a failure."""
        if caller not in self._failures and len(self._failures) >= _MAX_KNOWN:
            del self._failures[next(iter(self._failures))]
        self._failures.setdefault(caller, deque(maxlen=self._most)).append(self._now())


@dataclass(frozen=True)
class Limits:
    """Limits of an application's callers."""

    viewers: Turns
    uploads: Turns
    sessions: Turns
    node_uploads: Turns = field(default_factory=lambda: Turns("files on their way", NODE_UPLOADS))
    joins: Guesses = field(default_factory=lambda: Guesses(FAILED_JOINS, JOIN_SECONDS))
    links: Guesses = field(default_factory=lambda: Guesses(FAILED_LOGINS, LOGIN_SECONDS))
    provider_logins: Guesses = field(default_factory=lambda: Guesses(FAILED_LOGINS, LOGIN_SECONDS))

    command_logins: Guesses = field(default_factory=lambda: Guesses(FAILED_LOGINS, LOGIN_SECONDS))

    @classmethod
    def of(cls, settings: Settings) -> "Limits":
        return cls(
            viewers=Turns(
                "live streams open",
                settings.viewers_per_user,
                "TRAINHALL_VIEWERS_PER_USER",
            ),
            sessions=Turns(
                "commands and forwarded ports open",
                settings.exec_per_user,
                "TRAINHALL_EXEC_PER_USER",
            ),
            uploads=Turns(
                "uploads of code on their way",
                settings.uploads_per_user,
                "TRAINHALL_UPLOADS_PER_USER",
            ),
        )


def limits_of(connection: HTTPConnection) -> Limits:
    limits: Limits = connection.app.state.limits
    return limits


def caller_of(connection: HTTPConnection) -> str:
    """Return a request's user and network."""
    principal: Principal | None = connection.scope.get("trainhall.principal")
    network = network_at(connection)
    return f"{principal.user} at {network}" if principal is not None else network


def network_at(connection: HTTPConnection) -> str:
    """Return the network that a request comes from, or the address where that is one's own."""
    return network_of(address_of(connection))


def address_of(connection: HTTPConnection) -> str:
    """Return the address that a request comes from."""
    return connection.client.host if connection.client is not None else "this host"


def too_many(detail: str, *, retry_seconds: int) -> RefusalError:
    """Refuse with 429 until later."""
    return RefusalError(
        429, "too-many-requests", detail, headers={"Retry-After": str(retry_seconds)}
    )
