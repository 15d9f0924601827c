"""Credentials: whose they are, how long they count, and what is stored of them."""

import asyncio
from datetime import timedelta

import pytest
from sqlalchemy import delete, select
from support.nodes.clock import SimulatedClock

from trainhall.cluster.access.principal import Principal
from trainhall.cluster.accounts import lookup, service, sessions
from trainhall.cluster.accounts.secrets import is_token, token_of
from trainhall.cluster.accounts.service import AccountService
from trainhall.cluster.errors import ConflictError, NotAllowedError, NotFoundError
from trainhall.db.accounts import ApiToken, LoginCode, LoginSession, User
from trainhall.db.database import Database


async def test_first_admin_is_made_once(accounts: AccountService, database: Database) -> None:
    first = await accounts.ensure_admin("maria")
    assert (first.user, first.is_admin) == ("maria", True)
    assert await accounts.ensure_admin("otto") == first
    async with database.session() as session:
        assert (await session.scalars(select(User.name))).all() == ["maria"]


async def test_token_is_stored_as_hash_alone(
    accounts: AccountService, database: Database, maria: Principal
) -> None:
    made = await accounts.limited_to(maria).create_token("ci")
    assert is_token(made.token)
    found = await accounts.of_token(made.token)
    assert found == Principal("maria", True, "token", maria.user_id, made.id, "ci")
    async with database.session() as session:
        row = (await session.execute(select(ApiToken.__table__))).one()
    assert made.token not in str(row)
    assert made.token[3:46] not in str(row)


async def test_text_without_checksum_is_no_token(accounts: AccountService) -> None:
    good = token_of("a" * 43)
    assert is_token(good)
    for text in ("", "th_", good[:-1] + "x", good + "0", good.replace("a", "b", 1), f" {good}"):
        assert not is_token(text)
        assert await accounts.of_token(text) is None
    assert await accounts.of_token(good) is None  # nobody has it


async def test_token_ends_when_it_expires(
    accounts: AccountService, clock: SimulatedClock, maria: Principal
) -> None:
    end = clock.now() + timedelta(seconds=3)
    short = await accounts.limited_to(maria).create_token("short", end)
    long = await accounts.limited_to(maria).create_token("long")
    assert await accounts.of_token(short.token) is not None
    clock.advance(3)  # also of one that was just looked up
    assert await accounts.of_token(short.token) is None
    clock.advance(service.TOKEN_LIFE.total_seconds() - 4)
    assert await accounts.of_token(long.token) is not None
    clock.advance(1)
    assert await accounts.of_token(long.token) is None


async def test_revoked_token_ends_at_once(accounts: AccountService, maria: Principal) -> None:
    made = await accounts.limited_to(maria).create_token("ci")
    assert await accounts.of_token(made.token) is not None
    await accounts.limited_to(maria).revoke_token(made.id)
    assert await accounts.of_token(made.token) is None
    with pytest.raises(NotFoundError):
        await accounts.limited_to(maria).revoke_token(made.id)


async def test_users_end_only_their_own_credentials(
    accounts: AccountService, database: Database, clock: SimulatedClock, maria: Principal
) -> None:
    async with database.transaction() as session:
        session.add(User(id="other", name="otto", is_admin=False, created_at=clock.now()))
    otto = Principal("otto", False, "token", "other")
    made = await accounts.limited_to(maria).create_token("ci")
    secret = await accounts.log_in((await accounts.limited_to(maria).new_code()).code, "")
    mine = await accounts.of_session(secret)
    assert mine is not None
    with pytest.raises(NotFoundError):
        await accounts.limited_to(otto).revoke_token(made.id)
    with pytest.raises(NotFoundError):
        await accounts.limited_to(otto).end_session(mine.credential_id)
    assert (await accounts.limited_to(otto).tokens()).items == []
    assert (await accounts.limited_to(otto).sessions()).items == []
    assert await accounts.of_token(made.token) is not None


async def test_credential_revoked_elsewhere_ends_in_seconds(
    accounts: AccountService, database: Database, clock: SimulatedClock, maria: Principal
) -> None:
    """As by another coordinator of the same database."""
    made = await accounts.limited_to(maria).create_token("ci")
    assert await accounts.of_token(made.token) is not None
    async with database.transaction() as session:
        await session.execute(delete(ApiToken))
    assert await accounts.of_token(made.token) is not None
    clock.advance(lookup.CACHE_SECONDS)
    assert await accounts.of_token(made.token) is None


async def test_names_of_tokens_are_unique(accounts: AccountService, maria: Principal) -> None:
    await accounts.limited_to(maria).create_token("ci")
    with pytest.raises(ConflictError, match="'ci' already"):
        await accounts.limited_to(maria).create_token("ci")


async def test_replaced_token_is_void(accounts: AccountService, maria: Principal) -> None:
    first = await accounts.limited_to(maria).replace_token("admin.token")
    second = await accounts.limited_to(maria).replace_token("admin.token")
    assert await accounts.of_token(first) is None
    assert await accounts.of_token(second) is not None
    assert len((await accounts.limited_to(maria).tokens()).items) == 1


async def test_last_use_is_stored_once_a_minute(
    accounts: AccountService, database: Database, clock: SimulatedClock, maria: Principal
) -> None:
    made = await accounts.limited_to(maria).create_token("ci")

    async def last_use() -> object:
        await accounts.of_token(made.token)
        await accounts.stop()
        async with database.session() as session:
            return await session.scalar(select(ApiToken.used_at))

    first = clock.now()
    assert await last_use() == first
    clock.advance(lookup.USE_SECONDS - 1)
    assert await last_use() == first
    clock.advance(1 + lookup.CACHE_SECONDS)
    assert await last_use() == clock.now()


async def test_code_logs_in_once(accounts: AccountService, maria: Principal) -> None:
    link = await accounts.limited_to(maria).new_code()
    secret = await accounts.log_in(link.code, "Firefox\0")
    found = await accounts.of_session(secret)
    assert found is not None
    assert (found.user, found.how) == ("maria", "session")
    for code in (link.code, "unknown"):
        with pytest.raises(NotAllowedError, match="trainhall open"):
            await accounts.log_in(code, "")
    (listed,) = (await accounts.limited_to(found).sessions()).items
    assert (listed.id, listed.current, listed.client[:7]) == (found.credential_id, True, "Firefox")
    assert "\0" not in listed.client
    await accounts.limited_to(found).end_session(listed.id)
    assert await accounts.of_session(secret) is None


@pytest.mark.side_by_side
async def test_code_used_by_two_logs_one_in(accounts: AccountService, maria: Principal) -> None:
    link = await accounts.limited_to(maria).new_code()
    tries = (accounts.log_in(link.code, "") for _ in range(4))
    results = await asyncio.gather(*tries, return_exceptions=True)
    assert [type(r) for r in results].count(str) == 1
    assert [type(r) for r in results].count(NotAllowedError) == 3


async def test_code_and_session_expire(
    accounts: AccountService, database: Database, clock: SimulatedClock, maria: Principal
) -> None:
    late = await accounts.limited_to(maria).new_code()
    clock.advance(service.CODE_SECONDS)
    with pytest.raises(NotAllowedError):
        await accounts.log_in(late.code, "")
    await accounts.limited_to(maria).new_code()
    secret = await accounts.log_in((await accounts.limited_to(maria).new_code()).code, "")
    async with database.session() as session:
        assert len((await session.scalars(select(LoginCode.sha256))).all()) == 1
    clock.advance(sessions.SESSION_LIFE.total_seconds() - 1)
    assert await accounts.of_session(secret) is not None
    clock.advance(1)
    assert await accounts.of_session(secret) is None
    # The next login removes it.
    await accounts.log_in((await accounts.limited_to(maria).new_code()).code, "")
    async with database.session() as session:
        assert len((await session.scalars(select(LoginSession.id))).all()) == 1


async def test_session_is_no_token(accounts: AccountService, maria: Principal) -> None:
    secret = await accounts.log_in((await accounts.limited_to(maria).new_code()).code, "")
    made = await accounts.limited_to(maria).create_token("ci")
    assert await accounts.of_token(secret) is None
    assert await accounts.of_token(token_of(secret)) is None
    assert await accounts.of_session(made.token) is None
