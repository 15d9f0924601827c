"""The count of connections by address, and which of them are closed for others."""

import asyncio
import resource
from collections.abc import Iterator

import pytest

from trainhall.api.host.connection_table import ConnectionLimits, ConnectionTable


@pytest.fixture(autouse=True)
def few_files() -> Iterator[None]:
    """A process that may have 1,024 files open, of which 1,024 - 64 - 2 * 64 are connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Connection:
    """A connection that is idle for so long, or not at all."""

    def __init__(self, since: int | None, kind: int = 1) -> None:
        self.since = since
        self.kind = kind
        self.closed = False
        self.checked: list[int] = []

    def check_time(self, now: int) -> None:
        self.checked.append(now)

    def idle_since(self, now: int) -> tuple[int, int] | None:
        return None if self.since is None else (self.kind, self.since)

    def close_idle(self) -> None:
        self.closed = True


def table(per_address: int) -> ConnectionTable:
    return ConnectionTable(ConnectionLimits(per_address=per_address))


def test_address_has_at_most_half_of_all_descriptors() -> None:
    assert table(5).per_address == 5
    assert table(1000).per_address == 416


def test_addresses_are_counted_apart() -> None:
    counted = table(2)
    assert [counted.connections.enter("10.0.0.1") for _ in range(3)] == [True, True, False]
    assert counted.connections.enter("10.0.0.2")
    counted.connections.leave("10.0.0.1")
    assert counted.connections.enter("10.0.0.1")
    assert all(counted.connections.enter(None) for _ in range(5)), "a Unix socket has no address"


def test_network_of_ipv6_counts_as_one_address() -> None:
    counted = table(2)
    assert counted.connections.enter("2001:db8::1")
    assert counted.connections.enter("2001:db8::ffff:2")
    assert not counted.connections.enter("2001:db8:0:0:3::9")
    assert counted.connections.enter("2001:db8:0:1::1")
    assert counted.connections.enter("::ffff:10.0.0.1")
    assert counted.connections.enter("10.0.0.1")
    assert not counted.connections.enter("::ffff:10.0.0.1")
    assert counted.connections.enter("fe80::1%eth0")


def test_idle_connections_are_closed_for_new_ones() -> None:
    counted = table(1000)
    assert counted.has_room(831)
    assert not counted.has_room(832), "nothing is idle"
    busy, fresh, silent = Connection(None), Connection(99), Connection(7, kind=0)
    old = [Connection(since) for since in range(15)]
    counted.waiting.update((busy, fresh, silent, *old))
    assert counted.has_room(832)
    assert silent.closed, "first those that never asked anything"
    assert [each.closed for each in old] == [True] * 15
    assert not busy.closed
    assert sum(each.closed for each in (fresh, silent, *old)) == 16


async def test_clock_counts_while_it_is_needed() -> None:
    counted = ConnectionTable(tick_seconds=0.001)
    waiting = Connection(None)
    counted.watch(waiting, asyncio.get_running_loop())
    async with asyncio.timeout(10):
        while len(waiting.checked) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert waiting.checked[:3] == [1, 2, 3]
    counted.waiting.clear()
    async with asyncio.timeout(10):
        while counted._ticking:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
