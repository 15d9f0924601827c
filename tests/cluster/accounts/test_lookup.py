"""Look-ups of one credential at the same time: one session of the database serves all."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.access.principal import Principal
from trainhall.cluster.accounts.service import AccountService
from trainhall.db.database import Database


@dataclass
class Readers:
    """Sessions of the database that wait until they may begin."""

    count: int = 0
    begun: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    may_begin: asyncio.Event = field(default_factory=asyncio.Event)
    fail: bool = False


@pytest.fixture
def readers(database: Database, monkeypatch: pytest.MonkeyPatch) -> Readers:
    made, begin = Readers(), database.session

    @asynccontextmanager
    async def session() -> AsyncIterator[AsyncSession]:
        made.count += 1
        made.begun.release()
        await made.may_begin.wait()
        if made.fail:
            raise OperationalError("SELECT 1", {}, OSError("the database is away"))
        async with begin() as opened:
            yield opened

    monkeypatch.setattr(database, "session", session)
    return made


@pytest.fixture
async def token(accounts: AccountService, maria: Principal) -> str:
    return (await accounts.limited_to(maria).create_token("ci")).token


async def test_requests_share_one_lookup(
    accounts: AccountService, token: str, readers: Readers
) -> None:
    asked = [asyncio.create_task(accounts.of_token(token)) for _ in range(200)]
    await readers.begun.acquire()
    readers.may_begin.set()
    found = await asyncio.gather(*asked)
    assert {each and each.user for each in found} == {"maria"}
    assert readers.count == 1


async def test_lookup_outlives_request_that_began_it(
    accounts: AccountService, token: str, readers: Readers
) -> None:
    first = asyncio.create_task(accounts.of_token(token))
    await readers.begun.acquire()
    second = asyncio.create_task(accounts.of_token(token))
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    readers.may_begin.set()
    found = await second
    assert found is not None
    assert found.user == "maria"
    assert readers.count == 1


async def test_revoked_credential_joins_no_earlier_lookup(
    accounts: AccountService, token: str, readers: Readers
) -> None:
    before = asyncio.create_task(accounts.of_token(token))
    await readers.begun.acquire()
    accounts.forget_known()
    after = asyncio.create_task(accounts.of_token(token))
    await readers.begun.acquire()
    readers.may_begin.set()
    await asyncio.gather(before, after)
    assert readers.count == 2


async def test_failed_lookup_fails_all_and_is_repeated(
    accounts: AccountService, token: str, readers: Readers
) -> None:
    readers.fail = True
    readers.may_begin.set()
    asked = [asyncio.create_task(accounts.of_token(token)) for _ in range(3)]
    failed = await asyncio.gather(*asked, return_exceptions=True)
    assert [isinstance(each, DBAPIError) for each in failed] == [True] * 3
    assert readers.count == 1
    readers.fail = False
    assert await accounts.of_token(token) is not None


async def test_end_waits_for_lookups_left_alone(
    accounts: AccountService, token: str, readers: Readers
) -> None:
    asked = asyncio.create_task(accounts.of_token(token))
    await readers.begun.acquire()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    ending = asyncio.create_task(accounts.stop())
    await asyncio.sleep(0)
    assert not ending.done()
    readers.may_begin.set()
    await ending
