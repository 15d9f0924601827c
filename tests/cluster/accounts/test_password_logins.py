"""Logins by password: whom failed attempts keep out."""

from collections.abc import AsyncIterator

import pytest
from support.login.accounts import cheap_passwords

from trainhall.cluster.access.principal import Principal
from trainhall.cluster.accounts import passwords, pauses
from trainhall.cluster.accounts.service import AccountService
from trainhall.cluster.accounts.users import UserService
from trainhall.cluster.errors import NotAllowedError, TooManyError
from trainhall.cluster.service import ServiceContext

PASSWORD = "correct horse battery"
HOME, ELSEWHERE = "192.0.2.7", "203.0.113.9"


@pytest.fixture(autouse=True)
async def otto(
    context: ServiceContext, accounts: AccountService, maria: Principal
) -> AsyncIterator[None]:
    """A person with a password."""
    with cheap_passwords():
        await UserService(context, accounts).create("otto", password=PASSWORD)
        yield


async def fails(accounts: AccountService, name: str, address: str) -> bool:
    """Return whether a wrong password was looked at; False: the next attempt has to wait."""
    try:
        await accounts.log_in_by_password(name, "a wrong password", address, "")
    except NotAllowedError:
        return True
    except TooManyError:
        return False
    raise AssertionError("it was right")


async def test_others_lock_no_user_out(accounts: AccountService) -> None:
    await accounts.log_in_by_password("otto", PASSWORD, HOME, "")
    while await fails(accounts, "Otto", ELSEWHERE):
        pass
    assert not await fails(accounts, "otto", "198.51.100.1")
    await accounts.log_in_by_password("otto", PASSWORD, HOME, "")
    tries = [await fails(accounts, "otto", HOME) for _ in range(pauses.FREE_FAILURES + 2)]
    assert tries == [True] * (pauses.FREE_FAILURES + 1) + [False]


async def test_network_of_ipv6_waits_as_one_address(accounts: AccountService) -> None:
    for number in range(pauses.FREE_FAILURES + 1):
        assert await fails(accounts, f"name {number}", f"2001:db8::{number}")
    assert not await fails(accounts, "another name", "2001:db8::ffff")
    assert await fails(accounts, "another name", "2001:db8:0:1::1")


async def test_attempt_without_a_turn_is_no_failure(
    accounts: AccountService, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(passwords, "MAX_WAITING", 0)
        for _ in range(pauses.FREE_FAILURES + 2):
            with pytest.raises(TooManyError, match="being checked"):
                await accounts.log_in_by_password("otto", PASSWORD, HOME, "")
    await accounts.log_in_by_password("otto", PASSWORD, HOME, "")
