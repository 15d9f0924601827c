"""Credentials while the coordinator's clock is set ahead or back."""

import pytest
from sqlalchemy import select
from support.nodes.clock import SimulatedClock

from trainhall.cluster.access.principal import Principal
from trainhall.cluster.accounts.pauses import FREE_FAILURES
from trainhall.cluster.accounts.service import MAX_CODE_LIFE, AccountService
from trainhall.cluster.errors import NotAllowedError, TooManyError
from trainhall.db.accounts import LoginSession, User
from trainhall.db.database import Database

HOUR = 3600.0
BOTH_WAYS = pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["ahead", "back"])


async def session_of(accounts: AccountService, maria: Principal) -> str:
    return await accounts.log_in((await accounts.limited_to(maria).new_code()).code, "Firefox")


@BOTH_WAYS
async def test_sessions_and_tokens_outlast_a_jump(
    accounts: AccountService, clock: SimulatedClock, maria: Principal, jump: float
) -> None:
    token = (await accounts.limited_to(maria).create_token("ci")).token
    secret = await session_of(accounts, maria)
    clock.set_ahead(jump)
    for _ in range(2):
        assert await accounts.of_token(token) is not None
        assert await accounts.of_session(secret) is not None
        accounts.forget_known()
    another = await session_of(accounts, maria)
    assert await accounts.of_session(another) is not None
    assert await accounts.of_session(secret) is not None


@BOTH_WAYS
@pytest.mark.parametrize("seconds", [60.0, MAX_CODE_LIFE.total_seconds()])
async def test_link_lives_no_longer_after_a_jump(
    accounts: AccountService, clock: SimulatedClock, maria: Principal, jump: float, seconds: float
) -> None:
    link = await accounts.limited_to(maria).new_code(seconds)
    clock.set_ahead(jump)
    with pytest.raises(NotAllowedError, match="has expired"):
        await accounts.log_in(link.code, "Firefox")
    assert await session_of(accounts, maria)
    # Those of before are gone with the next one, and do not come back with the clock.
    clock.set_ahead(-jump)
    with pytest.raises(NotAllowedError):
        await accounts.log_in(link.code, "Firefox")


async def test_last_use_follows_a_clock_set_back(
    accounts: AccountService, clock: SimulatedClock, database: Database, maria: Principal
) -> None:
    secret = await session_of(accounts, maria)
    await accounts.of_session(secret)
    clock.set_ahead(-HOUR)
    accounts.forget_known()
    await accounts.of_session(secret)
    await accounts.stop()
    async with database.session() as session:
        assert await session.scalar(select(LoginSession.used_at)) == clock.now()


@BOTH_WAYS
async def test_expired_token_stays_so_by_the_clock(
    accounts: AccountService, clock: SimulatedClock, maria: Principal, jump: float
) -> None:
    """Its end is a date: while the clock is wrong, so is what it says of it."""
    end = clock.now()
    clock.set_ahead(-HOUR / 2)
    token = (await accounts.limited_to(maria).create_token("ci", end)).token
    clock.set_ahead(HOUR / 2 + jump)
    assert (await accounts.of_token(token) is not None) == (jump < 0)
    clock.set_ahead(-jump)
    accounts.forget_known()
    assert await accounts.of_token(token) is None


@BOTH_WAYS
async def test_jump_ends_no_pause_after_wrong_passwords(
    accounts: AccountService, clock: SimulatedClock, database: Database, jump: float
) -> None:
    async with database.transaction() as session:
        hashed = await accounts.passwords.hash("a long password")
        session.add(
            User(id="otto", name="otto", is_admin=False, password=hashed, created_at=clock.now())
        )
    for _ in range(FREE_FAILURES + 1):
        with pytest.raises((NotAllowedError, TooManyError)):
            await accounts.log_in_by_password("otto", "wrong", "192.0.2.7", "")
    clock.set_ahead(jump)
    with pytest.raises(TooManyError):
        await accounts.log_in_by_password("otto", "a long password", "192.0.2.7", "")
