"""People whom an OpenID provider logs in: who they are, and what rules give them."""

import asyncio

import pytest
from sqlalchemy import select, update
from support.nodes.clock import SimulatedClock

from trainhall.cluster.access.names import checked_name
from trainhall.cluster.accounts.provider import Identity, ProviderAccounts, free_name
from trainhall.cluster.accounts.reach import Reach
from trainhall.cluster.accounts.rules import Rule
from trainhall.cluster.accounts.service import AccountService
from trainhall.cluster.errors import ForbiddenError
from trainhall.cluster.ports import SystemIds
from trainhall.cluster.service import ServiceContext
from trainhall.db.accounts import AuditEntry, Group, GroupMember, LoginSession, User
from trainhall.db.database import Database

ADMINS = Rule(group="ops", admin=True)
TEAM = Rule(group="vision", member_of="team")


def accounts(database: Database, *rules: Rule) -> ProviderAccounts:
    return ProviderAccounts(database, SimulatedClock(), SystemIds(), rules, on_change=lambda: None)


def identity(
    subject: str, *groups: str, issuer: str = "https://a", name: str = "maria"
) -> Identity:
    return Identity(issuer, subject, name, frozenset(groups))


async def users(database: Database) -> dict[str, bool]:
    async with database.session() as session:
        found = await session.execute(select(User.name, User.is_admin))
        return {row.name: row.is_admin for row in found}


async def groups(database: Database) -> list[str]:
    async with database.session() as session:
        return list(await session.scalars(select(GroupMember.group).order_by(GroupMember.group)))


async def test_identity_is_issuer_and_subject(database: Database) -> None:
    made = accounts(database)
    for each in (identity("1"), identity("1", name="other"), identity("1", issuer="https://b")):
        await made.log_in(each, "")
    assert await users(database) == {"maria": False, "maria-2": False}


async def test_two_first_logins_make_one_user(database: Database) -> None:
    made = accounts(database)
    await asyncio.gather(*(made.log_in(identity("1"), "") for _ in range(3)))
    assert await users(database) == {"maria": False}
    async with database.session() as session:
        assert len(list(await session.scalars(select(LoginSession.id)))) == 3


@pytest.mark.parametrize("subject", ["", "x" * 256])
async def test_subjects_that_cannot_be_kept_are_refused(database: Database, subject: str) -> None:
    with pytest.raises(ForbiddenError):
        await accounts(database).log_in(identity(subject), "")
    assert await users(database) == {}


async def test_last_admin_stays_admin(database: Database) -> None:
    made = accounts(database, ADMINS)
    await made.log_in(identity("1", "ops"), "")
    await made.log_in(identity("1"), "")
    assert await users(database) == {"maria": True}
    await made.log_in(identity("2", "ops", name="otto"), "")
    await made.log_in(identity("1"), "")
    assert await users(database) == {"maria": False, "otto": True}


@pytest.mark.side_by_side
async def test_admins_who_leave_at_once_leave_one(database: Database) -> None:
    made = accounts(database, ADMINS)
    subjects = ("1", "2", "3")
    for subject in subjects:
        await made.log_in(identity(subject, "ops"), "")
    await asyncio.gather(*(made.log_in(identity(subject), "") for subject in subjects))
    assert sorted((await users(database)).values()) == [False, False, True]


async def test_admin_who_left_has_no_metrics_token(
    database: Database, context: ServiceContext
) -> None:
    made, service = accounts(database, ADMINS), AccountService(context)
    secret = await made.log_in(identity("1", "ops"), "")
    await made.log_in(identity("2", "ops", name="otto"), "")
    maria = await service.of_session(secret)
    assert maria is not None
    token = await service.limited_to(maria).create_token(
        "metrics", reach=Reach(None, None, ["metrics"])
    )
    await made.log_in(identity("1"), "")
    assert await service.of_token(token.token) is None


async def test_changes_of_groups_are_audited(database: Database) -> None:
    made = accounts(database, TEAM)
    for given in (("vision",), ("vision",), ()):
        await made.log_in(identity("1", *given), "")
    query = select(AuditEntry).where(AuditEntry.action == "group.change").order_by(AuditEntry.id)
    async with database.session() as session:
        rows = [(row.user, row.object, row.detail) for row in await session.scalars(query)]
    assert rows == [
        ("maria", "team", "maria was added by an OpenID provider"),
        ("maria", "team", "maria was removed by an OpenID provider"),
    ]


async def test_only_logins_that_change_rights_forget_credentials(database: Database) -> None:
    forgotten: list[str] = []
    made = ProviderAccounts(
        database, SimulatedClock(), SystemIds(), [TEAM], on_change=lambda: forgotten.append("all")
    )
    for given, count in ((("vision",), 1), (("vision",), 1), ((), 2)):
        await made.log_in(identity("1", *given), "")
        assert len(forgotten) == count


async def test_rights_given_by_hand_are_kept(database: Database) -> None:
    made = accounts(database, ADMINS, TEAM)
    await made.log_in(identity("1"), "")
    async with database.transaction() as session:
        await session.execute(update(User).values(is_admin=True))
        user_id = await session.scalar(select(User.id))
        session.add(Group(name="team", created_at=SimulatedClock().now()))
        await session.flush()
        session.add(GroupMember(group="team", user_id=user_id))
    for given in (("ops", "vision"), ()):
        await made.log_in(identity("1", *given), "")
        assert await users(database) == {"maria": True}
        assert await groups(database) == ["team"]


async def test_removed_rules_end_their_rights(database: Database) -> None:
    before = accounts(database, ADMINS, TEAM, Rule(group="vision", member_of="other"))
    await before.log_in(identity("1", "ops", "vision"), "")
    await before.log_in(identity("2", name="admin"), "")
    async with database.transaction() as session:
        await session.execute(update(User).where(User.name == "admin").values(is_admin=True))
    assert await groups(database) == ["other", "team"]
    await accounts(database, TEAM).withdraw()
    assert await groups(database) == ["team"]
    assert await users(database) == {"maria": False, "admin": True}


@pytest.mark.parametrize(
    ("wished", "name"),
    [
        ("maria", "maria"), ("Otto", "Otto-3"), (" o\u202etto\n", "o tto"), ("", "user"),
        ("\ud800\0", "?"), ("e\u0301", "\u00e9"), ("x" * 500, "x" * 96),
        ("me", "me-2"), ("LAB\\maria", "LAB maria"), ("..", "..-2"),
    ],
)  # fmt: skip
def test_names_are_free_and_printable(wished: str, name: str) -> None:
    found = free_name(wished, ["otto", "OTTO-2"])
    assert found == checked_name(found) == name
