"""API tokens of attempts: whom they speak for, how far, and how long."""

from typing import Any

import pytest
from sqlalchemy import select, update
from support.storage.frames import add_job, revoke

from trainhall.cluster.access.principal import Principal
from trainhall.cluster.access.roles import Role
from trainhall.cluster.accounts.attempt_tokens import AttemptTokens
from trainhall.cluster.accounts.secrets import is_token, sha256
from trainhall.cluster.accounts.service import AccountService
from trainhall.cluster.errors import ConflictError, ForbiddenError, NotFoundError
from trainhall.cluster.service import ServiceContext
from trainhall.db.accounts import ApiToken, AuditEntry, Member, Project, User
from trainhall.db.database import Database
from trainhall.db.models import Attempt, Job

NODE = "node1"


@pytest.fixture
def tokens(context: ServiceContext) -> AttemptTokens:
    return AttemptTokens(context)


@pytest.fixture
async def job(database: Database, context: ServiceContext, maria: Principal) -> str:
    """A running job of otto's in the project vision, where he is a member."""
    await add_job(database)
    now = context.clock.now()
    async with database.transaction() as session:
        session.add(User(id="u-otto", name="otto", is_admin=False, created_at=now))
        session.add_all(
            [Project(name=name, limits={}, created_at=now) for name in ("vision", "speech")]
        )
        await session.flush()
        session.add_all(
            Member(id=f"m-{name}", project=name, user_id="u-otto", role="member")
            for name in ("vision", "speech")
        )
    await change(database, user="otto", project="vision", spec={"api_token": "member"})
    return "job"


async def change(database: Database, **columns: Any) -> None:
    async with database.transaction() as session:
        await session.execute(update(Job).where(Job.id == "job").values(**columns))


async def test_token_speaks_for_owner_in_project(
    tokens: AttemptTokens, accounts: AccountService, job: str
) -> None:
    token = await tokens.issue(NODE, job, 1)
    assert is_token(token)
    found = await accounts.of_token(token)
    assert found is not None
    assert (found.user, found.is_admin, dict(found.roles)) == (
        "otto", False, {"vision": Role.MEMBER}
    )  # fmt: skip
    assert found.credential == "attempt 1 of job job"
    with pytest.raises(ForbiddenError, match="narrowed token"):
        await accounts.limited_to(found).create_token("another")


async def test_token_is_stored_as_hash_and_audited(
    tokens: AttemptTokens, database: Database, job: str
) -> None:
    first = await tokens.issue(NODE, job, 1)
    again = await tokens.issue(NODE, job, 1)
    async with database.session() as session:
        rows = (await session.scalars(select(ApiToken))).all()
        audited = (await session.scalars(select(AuditEntry))).all()
    assert [row.sha256 for row in rows] == [sha256(again)]
    (row,) = audited
    assert (row.user, row.how, row.credential) == ("otto", "node", NODE)
    assert (row.action, row.object, row.project) == ("token.create", rows[0].id, "vision")
    for secret in (first, again):
        assert secret not in str([vars(each) for each in (*rows, *audited)])


async def test_repeated_request_voids_the_first_token(
    tokens: AttemptTokens, accounts: AccountService, job: str
) -> None:
    first = await tokens.issue(NODE, job, 1)
    other = await tokens.issue("node2", job, 1)
    again = await tokens.issue(NODE, job, 1)
    assert await accounts.of_token(first) is None
    assert await accounts.of_token(again) is not None
    assert await accounts.of_token(other) is not None


@pytest.mark.parametrize("ending", ["revoked", "over", "user removed"])
async def test_token_ends_with_attempt_at_once(
    tokens: AttemptTokens, accounts: AccountService, database: Database, job: str, ending: str
) -> None:
    token = await tokens.issue(NODE, job, 1)
    assert await accounts.of_token(token) is not None
    if ending == "revoked":
        await revoke(database)
    async with database.transaction() as session:
        if ending == "over":
            await session.execute(update(Attempt).values(state="completed"))
        if ending == "user removed":
            user = (await session.scalars(select(User).where(User.name == "otto"))).one()
            user.removed_at = user.created_at
    assert await accounts.of_token(token) is None
    with pytest.raises(ConflictError, match=r"is over|has no account"):
        await tokens.issue(NODE, job, 1)
    await tokens.sweep()
    async with database.session() as session:
        left = (await session.scalars(select(ApiToken))).all()
    assert bool(left) == (ending == "user removed")


async def test_viewer_token_has_less_than_its_user(
    tokens: AttemptTokens, accounts: AccountService, database: Database, job: str
) -> None:
    await change(database, spec={"api_token": "viewer"})
    found = await accounts.of_token(await tokens.issue(NODE, job, 1))
    assert found is not None
    assert dict(found.roles) == {"vision": Role.VIEWER}


async def test_token_loses_role_with_its_user(
    tokens: AttemptTokens, accounts: AccountService, database: Database, job: str
) -> None:
    token = await tokens.issue(NODE, job, 1)
    async with database.transaction() as session:
        await session.execute(update(Member).values(role="viewer"))
    found = await accounts.of_token(token)
    assert found is not None
    assert dict(found.roles) == {"vision": Role.VIEWER}


async def test_token_of_admins_job_is_no_admins(
    tokens: AttemptTokens, accounts: AccountService, database: Database, job: str
) -> None:
    await change(database, user="maria")
    found = await accounts.of_token(await tokens.issue(NODE, job, 1))
    assert found is not None
    assert (found.user, found.is_admin) == ("maria", False)
    assert dict(found.roles) == {"vision": Role.MEMBER}


async def test_tokens_are_for_jobs_that_ask(
    tokens: AttemptTokens, database: Database, job: str
) -> None:
    await change(database, spec={})
    with pytest.raises(ConflictError, match="has no api_token"):
        await tokens.issue(NODE, job, 1)
    await change(database, spec={"api_token": "member"}, user="nobody-known")
    with pytest.raises(ConflictError, match=r"nobody-known.* has no account"):
        await tokens.issue(NODE, job, 1)
    for job_id, attempt in ((job, 2), ("nosuchjob", 1)):
        with pytest.raises(NotFoundError):
            await tokens.issue(NODE, job_id, attempt)


async def test_tokens_of_attempts_are_not_the_users_own(
    tokens: AttemptTokens, accounts: AccountService, job: str
) -> None:
    await tokens.issue(NODE, job, 1)
    otto = Principal("otto", False, "session", "u-otto")
    assert (await accounts.limited_to(otto).tokens()).items == []
    await accounts.limited_to(otto).create_token("attempt 1 of job job")
