"""One coordinator at a time uses a database."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from sqlalchemy import delete, select, text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.ext.asyncio import AsyncSession
from support.cluster.agent_process import until

from trainhall.db import lease as leases
from trainhall.db.database import Database, is_read_only
from trainhall.db.lease import CoordinatorLease, Lease, LeaseLostError

real_sleep = asyncio.sleep


def never() -> bool:
    return False


class Hours:
    """The time that leases see. It passes only where one sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.meanwhile: Callable[[], Awaitable[None]] | None = None
        """Done in each sleep of `take`, at its end."""

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        await real_sleep(0.001)
        if seconds != leases.POLL_SECONDS:  # of `keep`
            return
        self.now += seconds
        if self.meanwhile is not None:
            await self.meanwhile()


@pytest.fixture(autouse=True)
def hours(monkeypatch: pytest.MonkeyPatch) -> Hours:
    made = Hours()
    monkeypatch.setattr(leases, "time", made)
    monkeypatch.setattr(
        leases, "asyncio", SimpleNamespace(sleep=made.sleep, timeout=asyncio.timeout)
    )
    monkeypatch.setattr(leases, "POLL_SECONDS", 0.5)
    return made


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch) -> None:
    """None expires."""
    monkeypatch.setattr(leases, "EXPIRE_SECONDS", float("inf"))


async def holders(database: Database) -> list[str]:
    async with database.session() as session:
        return list(await session.scalars(select(CoordinatorLease.holder)))


async def renewals(database: Database) -> int | None:
    async with database.session() as session:
        return await session.scalar(select(CoordinatorLease.renewals))


async def renewed(database: Database) -> None:
    """Wait until it has been renewed."""
    async with asyncio.timeout(30):
        before, now = await renewals(database), None
        while now is None or now == before:
            now = await renewals(database)


async def lost(lease: Lease, reason: str) -> None:
    """Wait until its coordinator must end."""
    with pytest.raises(LeaseLostError, match=reason):
        async with asyncio.timeout(30):
            await lease.keep()


@asynccontextmanager
async def away() -> AsyncIterator[AsyncSession]:
    """Instead of a transaction, or of a session for reading."""
    raise OperationalError(None, None, OSError("away"))
    yield


@asynccontextmanager
async def hangs() -> AsyncIterator[None]:
    """Instead of a transaction, too."""
    await asyncio.Event().wait()
    yield


@asynccontextmanager
async def tried(database: Database, instead: Callable[[], object]) -> AsyncIterator[None]:
    """Transactions go so, and one was tried again."""
    with pytest.MonkeyPatch.context() as patch:
        transaction = Mock(side_effect=instead)
        patch.setattr(database, "transaction", transaction)
        await until("it to be tried again", lambda: transaction.call_count > 2)
        yield


@asynccontextmanager
async def read_only(database: Database) -> AsyncIterator[None]:
    """Its connections refuse to write."""
    sqlite = database.dialect == "sqlite"
    setting = "PRAGMA query_only" if sqlite else "SET default_transaction_read_only"
    async with database.transaction() as session:
        await session.execute(text(f"{setting} = on"))
    yield
    if sqlite:  # it does not even begin to
        await database._writer.dispose()
        return
    async with database.transaction() as session:
        await session.execute(text(f"{setting} = off"))


@asynccontextmanager
async def kept(lease: Lease) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(lease.keep())
    yield task
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.mark.usefixtures("long")
async def test_another_one_is_refused_while_it_is_renewed(database: Database) -> None:
    first, second = Lease(database, "a", "on host a"), Lease(database, "b", "on host b")
    assert await first.take(0, never) is None
    async with kept(first):
        assert await second.take(0, never) == "on host a"
        assert await second.take(3600, lambda: True) == "on host a", "asked to end"
    assert await holders(database) == ["a"]


@pytest.mark.usefixtures("long")
async def test_lease_is_free_after_a_clean_end(database: Database) -> None:
    first, second = Lease(database, "a", "a"), Lease(database, "b", "b")
    assert await first.take(0, never) is None
    async with kept(first):
        waiting = asyncio.create_task(second.take(3600, never))
        await renewed(database)
        assert not waiting.done()
    await first.release()
    assert await waiting is None
    await first.release()
    assert await holders(database) == ["b"], "another's is not released"


@pytest.mark.parametrize("every", [5, 20.5])
async def test_renewed_lease_is_kept(database: Database, hours: Hours, every: float) -> None:
    """Even at the last moment: after the look by which it had expired, before the next one."""
    first, second = Lease(database, "a", "a"), Lease(database, "b", "b")
    assert await first.take(0, never) is None

    async def renew() -> None:
        if hours.now % every == 0:
            assert await first._renewed() is None

    hours.meanwhile = renew
    assert await second.take(3600, lambda: hours.now >= 100) == "a"
    assert await renewals(database) == 100 // every


async def test_lease_expires_without_renewal(database: Database, hours: Hours) -> None:
    first, second = Lease(database, "a", "a"), Lease(database, "b", "b")
    assert await first.take(0, never) is None
    assert await second.take(0, never) is None
    assert hours.now == leases.EXPIRE_SECONDS + leases.POLL_SECONDS
    assert await holders(database) == ["b"]
    # The first one was asleep.
    await lost(first, r"database now, or an older copy of it .*: b$")
    assert await holders(database) == ["b"]


async def test_lease_expires_after_a_crash(database: Database, hours: Hours) -> None:
    first, second = Lease(database, "a", "a"), Lease(database, "b", "b")
    assert await first.take(0, never) is None

    async def renew() -> None:
        if hours.now == 1:
            await first._renewed()

    hours.meanwhile = renew
    assert await second.take(2 * leases.RENEW_SECONDS + 1, never) is None
    assert hours.now == 1 + leases.EXPIRE_SECONDS + leases.POLL_SECONDS


async def test_silence_counts_only_while_it_is_watched(database: Database, hours: Hours) -> None:
    first, second = Lease(database, "a", "a"), Lease(database, "b", "b")
    assert await first.take(0, never) is None

    async def be_asleep() -> None:
        if hours.now == 10:
            hours.now = 1000

    hours.meanwhile = be_asleep
    assert await second.take(0, never) is None
    assert hours.now == 1000 + leases.EXPIRE_SECONDS + leases.POLL_SECONDS


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.usefixtures("long")
async def test_lease_passes_to_same_data_folder(database: Database, copies: int) -> None:
    earlier = Lease(database, "a", "a")
    assert await earlier.take(0, never) is None
    for _ in range(copies):
        assert await Lease(database, "a", "a").take(0, never) is None
    # Should it live all the same, on a copy of the folder, it ends.
    await lost(earlier, ": a$")


@pytest.mark.usefixtures("long")
async def test_lease_goes_to_one_of_many(database: Database) -> None:
    candidates = [Lease(database, str(i), str(i)) for i in range(8)]
    over = [False]
    takes = [asyncio.create_task(each.take(0, lambda: over[0])) for each in candidates]
    await until("one to have it", lambda: any(take.done() for take in takes))
    over[0] = True
    (holder,) = await holders(database)
    taken = await asyncio.gather(*takes)
    assert [i for i, other in enumerate(taken) if other is None] == [int(holder)]
    assert {other for other in taken if other is not None} == {holder}


async def test_lease_survives_a_database_outage(database: Database) -> None:
    lease = Lease(database, "a", "a")
    assert await lease.take(0, never) is None
    async with kept(lease) as keeping:
        async with tried(database, away):
            await lease.release()
        await renewed(database)
        # A copy of the database, say, from before the lease.
        async with database.transaction() as session:
            await session.execute(delete(CoordinatorLease))
        await renewed(database)
        assert not keeping.done()


async def test_lease_renewal_is_retried_after_hang(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = Lease(database, "a", "a")
    assert await lease.take(0, never) is None
    async with kept(lease):
        with monkeypatch.context() as patch:
            patch.setattr(leases, "RENEW_SECONDS", 0.01)
            async with tried(database, hangs):
                pass
        await renewed(database)


@pytest.mark.parametrize("known", [False, True])
async def test_unwritable_lease_is_written_later(
    database: Database, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """As on a full disk, whether or not a process of the data folder was there before."""
    if known:
        assert await Lease(database, "a", "a").take(0, never) is None
    lease = Lease(database, "a", "a")
    with monkeypatch.context() as patch:
        patch.setattr(database, "transaction", away)
        assert await lease.take(0, never) is None
        assert await holders(database) == ["a"] * known
    async with kept(lease):
        await renewed(database)
        assert await holders(database) == ["a"]
    # From now on anyone who takes it keeps it, even under its own folder's name.
    assert await Lease(database, "a", "a copy").take(0, never) is None
    await lost(lease, ": a copy$")


async def test_lease_is_not_ours_when_unknown(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = Lease(database, "b", "b")
    with monkeypatch.context() as patch:
        patch.setattr(database, "transaction", away)
        patch.setattr(database, "session", away)
        with pytest.raises(OperationalError):
            await lease.take(0, never)
    assert await Lease(database, "a", "a").take(0, never) is None
    monkeypatch.setattr(database, "transaction", away)
    with pytest.raises(OperationalError):
        await lease.take(0, never)


async def test_lease_of_a_read_only_database_is_refused(database: Database) -> None:
    """On a full disk a coordinator starts and waits; here nothing will ever be written."""
    async with read_only(database):
        with pytest.raises(DBAPIError) as caught:
            await Lease(database, "a", "a").take(0, never)
        assert is_read_only(caught.value)
        with pytest.raises(DBAPIError, match=r"read-only|readonly"):
            await database.check()
    await database.check()
    assert await Lease(database, "a", "a").take(0, never) is None
