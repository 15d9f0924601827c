"""Every connection of the coordinator: how many an address has, and how long each has waited.

A descriptor's number is the lowest free one, so a connection that gets a high one shows that all
below are in use. So much is left free for the database, for files and for the agents' uploads.
"""

import asyncio
import fcntl
import sys
import termios
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Protocol

from trainhall.api.host.descriptors import open_files_limit
from trainhall.api.host.listening import BACKLOG
from trainhall.cluster.access.networks import network_of

RESERVE = 64
"""Descriptors that connections leave free."""
_CLOSED_TOGETHER = 16
"""Idle connections that are closed together, so that a flood does not cause a search for each."""


@dataclass(frozen=True, kw_only=True)
class ConnectionLimits:
    """Limits of a connection before any of the application's own."""

    head_bytes: int = 64 * 1024
    """Size of a request's line and headers."""
    head_seconds: float = 10.0
    """Time from a request's first byte, or from the connection's beginning, to the end of its
    headers."""
    body_seconds: float = 30.0
    """Time without a byte of a body that is waited for, or without a byte of a response that the
    other side reads."""
    per_address: int = 1000
    """Connections of one address at once; of IPv6 one network of 64 bits."""


class Waiting(Protocol):
    """A connection that speaks HTTP."""

    def check_time(self, now: int) -> None:
        """End it, if it is overdue."""

    def idle_since(self, now: int) -> tuple[int, int] | None:
        """Return a key by which idle connections are sorted, those to close first at the front;
        None where a request is under way."""

    def close_idle(self) -> None:
        """Close it, in favour of others."""


class AddressCounter:
    """Limit of what each address has at once; None, of a Unix socket, has no limit."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._counts: Counter[str] = Counter()

    def enter(self, address: str | None) -> bool:
        """Count one of an address; False: it has as many as it may."""
        if address is None:
            return True
        key = network_of(address)
        if self._counts[key] >= self.most:
            return False
        self._counts[key] += 1
        return True

    def leave(self, address: str | None) -> None:
        """Count it no more."""
        if address is None:
            return
        key = network_of(address)
        self._counts[key] -= 1
        if self._counts[key] <= 0:
            del self._counts[key]


class UnreadOutput:
    """Time for which the other side has read nothing of what waits to be sent to it."""

    def __init__(self, now: int) -> None:
        self._bytes = 0
        self._since = now

    def ticks(self, transport: Any, now: int) -> int:
        """Return the ticks without progress."""
        size: int = transport.get_write_buffer_size()
        if size:
            size += _unacknowledged(transport)
        if size == 0 or size < self._bytes:
            self._since = now
        self._bytes = size
        return now - self._since


def _unacknowledged(transport: Any) -> int:
    """Return the bytes that the system itself keeps of a connection: up to megabytes, of which it
    lets a program see only large steps. 0 where it does not say."""
    opened = transport.get_extra_info("socket")
    try:
        reply = fcntl.ioctl(opened.fileno(), termios.TIOCOUTQ, bytes(4))
    except (OSError, AttributeError):
        return 0
    return int.from_bytes(reply, sys.byteorder)


@dataclass(eq=False)
class ConnectionTable:
    """Connections of one server, and a clock for their time limits.

    The clock ticks once a second of the loop's *running* time: what a busy or a stopped process did
    not read was not sent late.
    """

    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    tick_seconds: float = 1.0
    now: int = 0
    """Ticks so far."""
    waiting: set[Waiting] = field(default_factory=set)
    _ticking: bool = False

    def __post_init__(self) -> None:
        files = open_files_limit()
        # All that wait are accepted together, before one of them is looked at, and those that are
        # refused are closed only after the next that wait.
        self.backlog = min(BACKLOG, max(files // 16, 1))
        self._ceiling = max(files - RESERVE - 2 * self.backlog, files // 2)
        # However few descriptors there are, one address never has all of them.
        self.per_address = min(self.limits.per_address, max(self._ceiling // 2, 1))
        self.connections = AddressCounter(self.per_address)
        # Counted apart, so that an address that has all its connections still gets the refusal.
        self.handshakes = AddressCounter(max(self.per_address // 4, 1))
        self.head_ticks = self._ticks(self.limits.head_seconds)
        self.body_ticks = self._ticks(self.limits.body_seconds)

    def _ticks(self, seconds: float) -> int:
        return max(int(seconds / self.tick_seconds), 1) + 1

    def has_room(self, descriptor: int) -> bool:
        """Return whether a connection may stay; idle ones are closed for it."""
        if descriptor < self._ceiling:
            return True
        keyed = (
            (key, connection)
            for connection in self.waiting
            if (key := connection.idle_since(self.now)) is not None
        )
        oldest = sorted(keyed, key=lambda pair: pair[0])[:_CLOSED_TOGETHER]
        for _, connection in oldest:
            connection.close_idle()
        return bool(oldest)

    def watch(self, connection: Waiting, loop: asyncio.AbstractEventLoop) -> None:
        """Check a connection's time from now on."""
        self.waiting.add(connection)
        if not self._ticking:
            self._ticking = True
            loop.call_later(self.tick_seconds, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self.now += 1
        for connection in list(self.waiting):
            connection.check_time(self.now)
        self._ticking = bool(self.waiting)
        if self._ticking:
            loop.call_later(self.tick_seconds, self._tick, loop)
