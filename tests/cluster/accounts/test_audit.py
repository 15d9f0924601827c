"""The audit log: what a row says and hides, how refusals are bounded, who reads it, how long it is
kept."""

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType

import pytest
from sqlalchemy import select
from support.nodes.clock import SimulatedClock

from trainhall.cluster.access.audit import HIDDEN, record
from trainhall.cluster.access.principal import SYSTEM, Principal
from trainhall.cluster.access.roles import Role
from trainhall.cluster.accounts import audit
from trainhall.cluster.accounts.audit import AuditService, Refusal
from trainhall.cluster.errors import ForbiddenError, NotFoundError
from trainhall.cluster.notifier import Notifier
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.ports import SystemIds
from trainhall.cluster.service import ServiceContext
from trainhall.db.accounts import AuditEntry, Member, Project, User
from trainhall.db.database import Database

MARIA = Principal("maria", False, "token", credential="ci", address="192.0.2.7")
ADMIN = Principal("root", True, "session")


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def service(database: Database, clock: SimulatedClock) -> AuditService:
    return AuditService(ServiceContext(database, clock, SystemIds(), ClusterOptions(), Notifier()))


async def rows_of(database: Database) -> list[AuditEntry]:
    async with database.session() as session:
        return list(await session.scalars(select(AuditEntry).order_by(AuditEntry.id)))


def refusal(address: str = "192.0.2.7", caller: Principal | None = None) -> Refusal:
    return Refusal(caller, address, "job.cancel", "job1", None, "forbidden", "no role")


async def test_row_says_who_did_what(database: Database, clock: SimulatedClock) -> None:
    async with database.transaction() as session:
        record(
            session, MARIA, "job.change", clock.now(), name="job1", project="vision",
            changes={"notes": (None, "Best."), "tags": (["a"], ["a"]), "target_url": ("x", "y")},
        )  # fmt: skip
    (row,) = await rows_of(database)
    assert (row.user, row.how, row.credential, row.address) == ("maria", "token", "ci", "192.0.2.7")
    assert (row.action, row.kind, row.object, row.project) == (
        "job.change", "job", "job1", "vision"
    )  # fmt: skip
    assert row.outcome == "done"
    assert row.fields == {"notes": [None, "Best."], "target_url": [HIDDEN, HIDDEN]}


async def test_work_of_the_coordinator_is_not_kept(
    database: Database, clock: SimulatedClock
) -> None:
    async with database.transaction() as session:
        record(session, SYSTEM, "job.cancel", clock.now(), name="job1")
    assert await rows_of(database) == []


async def test_row_of_undone_change_is_undone(database: Database, clock: SimulatedClock) -> None:
    with suppress(ZeroDivisionError):
        async with database.transaction() as session:
            record(session, MARIA, "job.cancel", clock.now(), name="job1")
            await session.flush()
            raise ZeroDivisionError
    assert await rows_of(database) == []


async def test_flood_of_refusals_is_counted(
    service: AuditService, database: Database, clock: SimulatedClock
) -> None:
    for _ in range(5000):
        service.refused(refusal())
    service.refused(refusal(caller=MARIA))
    await service.flush()
    of_one = audit.REFUSALS_PER_CALLER
    assert [row.user for row in await rows_of(database)] == [None] * of_one + ["maria"]
    clock.advance(audit.MINUTE)
    await service.housekeep()
    row = (await rows_of(database))[-1]
    assert (row.detail, row.address) == ("4990 more refusals within a minute", "192.0.2.7")
    service.refused(refusal())
    await service.flush()
    assert len(await rows_of(database)) == of_one + 3


async def test_refusals_of_many_addresses_are_bounded(
    service: AuditService, database: Database, clock: SimulatedClock
) -> None:
    for number in range(5000):
        service.refused(refusal(f"2001:db8:0:{number:x}::1"))
    clock.advance(audit.MINUTE)
    await service.housekeep()
    rows = await rows_of(database)
    assert len(rows) == audit.REFUSALS + audit.COUNTED_CALLERS + 1
    assert rows[-1].address is None
    assert rows[-1].detail == "3700 more refusals within a minute"


async def test_refusals_of_agents_are_bounded_apart(
    service: AuditService, database: Database, clock: SimulatedClock
) -> None:
    """An agent whose credential has ended tries again, for days."""
    of_agent = replace(refusal(), action="node.connect", is_agent=True)
    for _ in range(300):
        service.refused(of_agent)
        clock.advance(audit.MINUTE)
        await service.housekeep()
    service.refused(refusal())
    await service.stop()
    rows = [row.action for row in await rows_of(database)]
    of_one = audit.REFUSALS_PER_CALLER
    assert rows.count("node.connect") == 5 * of_one
    assert rows.count("refused") == 5
    assert rows.count("job.cancel") == 1


async def test_node_of_a_refusal_is_named(service: AuditService, database: Database) -> None:
    service.refused(replace(refusal(), is_agent=True, node="node1"))
    await service.flush()
    (row,) = await rows_of(database)
    assert (row.user, row.how, row.credential) == (None, "node", "node1")


async def test_floods_without_credential_hide_no_user(
    service: AuditService, database: Database
) -> None:
    for number in range(audit.REFUSALS + 1):
        service.refused(refusal(f"10.0.{number // 250}.{number % 250}"))
    service.refused(refusal(caller=MARIA))
    await service.flush()
    rows = await rows_of(database)
    assert len(rows) == audit.REFUSALS + 1
    assert rows[-1].user == "maria"


async def test_maintainer_reads_no_names_of_foreign_users(
    service: AuditService, database: Database, clock: SimulatedClock
) -> None:
    async with database.transaction() as session:
        session.add(_project("vision", clock))
        session.add_all(
            User(id=name, name=name, is_admin=False, created_at=clock.now())
            for name in ("maria", "anna", "otto")
        )
        await session.flush()
        session.add(Member(id="1", project="vision", user_id="anna", role="viewer"))
        record(session, ADMIN, "job.cancel", clock.now(), name="job1", project="vision")
    for name in ("anna", "otto"):
        caller = Principal(name, False, "token", name, credential="ci")
        service.refused(replace(refusal(caller=caller), project="vision"))
    reader = replace(MARIA, user_id="maria", roles=MappingProxyType({"vision": Role.MAINTAINER}))
    limited = service.limited_to(reader)
    rows = (await limited.list()).items
    assert [(row.user, row.credential, row.address) for row in rows] == [
        ("another user", None, None), ("anna", "ci", "192.0.2.7"), ("root", None, None)
    ]  # fmt: skip
    for name, found in (("otto", 0), ("another user", 0), ("anna", 1), ("root", 1)):
        assert len((await limited.list(user=name)).items) == found, name
    assert [row.user for row in (await service.list()).items] == ["otto", "anna", "root"]


async def test_old_rows_are_deleted(
    service: AuditService, database: Database, clock: SimulatedClock
) -> None:
    for age in (364, 366):
        async with database.transaction() as session:
            record(session, MARIA, "job.cancel", clock.now() - timedelta(days=age), name=str(age))
    await service.housekeep()
    assert [row.object for row in await rows_of(database)] == ["364"]


async def test_maintainers_read_their_projects(
    service: AuditService, database: Database, clock: SimulatedClock
) -> None:
    async with database.transaction() as session:
        session.add_all(_project(name, clock) for name in ("vision", "speech"))
        for project in ("vision", "speech", None):
            record(session, MARIA, "job.cancel", clock.now(), name="job1", project=project)
    roles = {"vision": Role.MAINTAINER, "speech": Role.MEMBER}
    otto = service.limited_to(Principal("otto", False, "session", roles=roles))
    assert [row.project for row in (await otto.list()).items] == ["vision"]
    assert [row.project for row in (await otto.list(project="vision")).items] == ["vision"]
    with pytest.raises(ForbiddenError, match="maintainer in project speech"):
        await otto.list(project="speech")
    with pytest.raises(NotFoundError, match="no project 'secret'"):
        await otto.list(project="secret")
    with pytest.raises(ForbiddenError, match="maintainer in a project"):
        await service.limited_to(Principal("eve", False, "session")).list()
    assert len((await service.limited_to(ADMIN).list()).items) == 3


async def test_new_project_has_no_rows_of_an_old_one(
    service: AuditService, database: Database, clock: SimulatedClock
) -> None:
    async with database.transaction() as session:
        record(session, MARIA, "job.cancel", clock.now(), name="canary", project="vision")
    clock.advance(1)
    async with database.transaction() as session:
        session.add(_project("vision", clock))
        record(session, MARIA, "job.cancel", clock.now(), name="job2", project="vision")
    roles = {"vision": Role.MAINTAINER}
    otto = service.limited_to(Principal("otto", False, "session", roles=roles))
    assert [row.object for row in (await otto.list()).items] == ["job2"]
    assert len((await service.limited_to(ADMIN).list()).items) == 2


def _project(name: str, clock: SimulatedClock) -> Project:
    return Project(name=name, limits={}, created_at=clock.now())
