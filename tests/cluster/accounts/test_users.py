"""Users side by side: the last admin, a name that two add, and credentials that are looked up."""

import asyncio
from dataclasses import replace

import pytest
from sqlalchemy import func, select

from trainhall.cluster.access.principal import Principal
from trainhall.cluster.accounts.secrets import sha256
from trainhall.cluster.accounts.service import AccountService
from trainhall.cluster.accounts.users import UserChanges, UserService
from trainhall.cluster.errors import (
    ConflictError,
    NotAllowedError,
)
from trainhall.cluster.service import ServiceContext
from trainhall.db.accounts import AuditEntry, LoginCode, User
from trainhall.db.database import Database


@pytest.fixture
def users(context: ServiceContext, accounts: AccountService) -> UserService:
    return UserService(context, accounts)


@pytest.mark.side_by_side
async def test_admins_cannot_demote_each_other(
    users: UserService, maria: Principal, database: Database
) -> None:
    names = ["maria", "otto", "anna"]
    for name in names[1:]:
        await users.create(name, admin=True)
    demotions = (users.change(name, UserChanges(admin=False)) for name in names)
    results = await asyncio.gather(*demotions, return_exceptions=True)
    refused = [result for result in results if isinstance(result, Exception)]
    assert [type(error) for error in refused] == [ConflictError]
    async with database.session() as session:
        assert await session.scalar(select(func.count()).where(User.is_admin)) == 1


@pytest.mark.side_by_side
async def test_name_is_given_once(users: UserService, maria: Principal) -> None:
    wished = ("Otto", "otto", "OTTO", "oTTo")
    added = await asyncio.gather(*map(users.create, wished), return_exceptions=True)
    assert [type(each) for each in added].count(ConflictError) == 3


async def test_removed_user_gets_no_credential(
    users: UserService, accounts: AccountService, maria: Principal
) -> None:
    """Whatever began before the removal: a restore would bring it back to life."""
    await users.create("otto", admin=True)
    link = await accounts.limited_to(maria).new_code()
    code = LoginCode(sha256=sha256(link.code), user_id=maria.user_id, expires_at=link.expires_at)
    await users.remove("maria")
    async with users._db.transaction() as session:
        session.add(code)  # as by a transaction that the removal did not see
    with pytest.raises(NotAllowedError):
        await accounts.log_in(link.code, "")
    for given in (
        accounts.limited_to(maria).new_code(),
        accounts.limited_to(maria).create_token("ci"),
    ):
        with pytest.raises(NotAllowedError, match="was removed"):
            await given


async def test_name_of_a_removed_user_is_explained(users: UserService, maria: Principal) -> None:
    await users.create("Otto")
    await users.remove("Otto")
    with pytest.raises(ConflictError, match=r"the user 'Otto', who was removed.*set Otto --rest"):
        await users.create("otto")


async def test_changes_of_nothing_leave_no_row(
    users: UserService, maria: Principal, database: Database
) -> None:
    admin = users.limited_to(replace(maria, how="token"))
    await admin.create("otto")
    for _ in range(2):
        await admin.remove("otto")
        await admin.change("maria", UserChanges(admin=True))
    async with database.session() as session:
        found = await session.scalars(select(AuditEntry.action).order_by(AuditEntry.id))
        assert list(found) == ["user.create", "user.remove"]


async def test_look_up_under_way_is_not_kept(
    users: UserService, accounts: AccountService, maria: Principal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It read what was before the change."""
    await users.create("otto", admin=True)
    made = await accounts.limited_to(maria).create_token("ci")
    reading, changed = asyncio.Event(), asyncio.Event()
    store = accounts._db.session

    class Slow:
        def __init__(self) -> None:
            self._held = store()

        async def __aenter__(self) -> object:
            return await self._held.__aenter__()

        async def __aexit__(self, *error: object) -> None:
            reading.set()
            await changed.wait()
            await self._held.__aexit__(None, None, None)

    with monkeypatch.context() as patched:
        patched.setattr(accounts._db, "session", Slow)
        looking = asyncio.create_task(accounts.of_token(made.token))
        await reading.wait()
    accounts.forget_known()
    changed.set()
    assert await looking is not None
    assert accounts._cache.known == {}
