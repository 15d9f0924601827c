"""Alerts of users: each is its owner's alone, and reports what the owner may see."""

import asyncio
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from sqlalchemy import delete, update
from support.alerts import deliver
from support.cluster.simulated import SimulatedCluster

from trainhall.cluster.access.principal import Principal
from trainhall.cluster.access.roles import Role
from trainhall.cluster.alerts import service, views
from trainhall.cluster.alerts.dispatcher import WITHHELD
from trainhall.cluster.alerts.service import AlertService, Definition, Scope
from trainhall.cluster.alerts.targets import Target, TargetKind
from trainhall.cluster.errors import (
    ConflictError,
    ForbiddenError,
    InvalidValueError,
    NotFoundError,
)
from trainhall.cluster.lifecycle.alerts import Condition, report_node_down
from trainhall.db.accounts import Member, Project, User


def principal(user: str, *projects: str, admin: bool = False) -> Principal:
    roles = MappingProxyType(dict.fromkeys(projects, Role.VIEWER))
    return Principal(user, admin, "token", user_id=user, roles=roles)


MARIA = principal("maria", "vision")
OTTO = principal("otto", "speech")
ADMIN = principal("root", admin=True)


@pytest.fixture
async def shared(cluster: SimulatedCluster) -> SimulatedCluster:
    """A cluster of two projects, each with a user."""
    now = cluster.clock.now()
    async with cluster.db.transaction() as session:
        session.add_all(Project(name=n, limits={}, created_at=now) for n in ("vision", "speech"))
        for name in ("maria", "otto", "root"):
            session.add(User(id=name, name=name, is_admin=name == "root", created_at=now))
        await session.flush()
        for name, project in (("maria", "vision"), ("otto", "speech")):
            session.add(Member(id=name, project=project, user_id=name, role="viewer"))
    return cluster


def alerts(cluster: SimulatedCluster, caller: Principal) -> AlertService:
    return cluster.coordinator.alerts.limited_to(caller)


async def add(
    cluster: SimulatedCluster, caller: Principal, scope: Scope, *on: Condition, **more: Any
) -> views.Alert:
    wanted = Definition(
        name="a", on=on or (Condition.JOB_COMPLETED,), scope=scope,
        target=Target(TargetKind.BROWSER), **more,
    )  # fmt: skip
    return await alerts(cluster, caller).create(wanted)


async def texts(cluster: SimulatedCluster, caller: Principal, alert: views.Alert) -> list[str]:
    return [d.text for d in (await alerts(cluster, caller).deliveries(alert.id)).items]


async def complete(cluster: SimulatedCluster, **more: object) -> str:
    job_id = await cluster.submit(1, **more)
    await cluster.run_until(job_id, "running")
    await cluster.finish(job_id)
    return job_id


async def test_alerts_are_their_owners_alone(shared: SimulatedCluster) -> None:
    alert = await add(shared, MARIA, Scope("project", "vision"))
    assert alert.user == "maria"
    assert (await alerts(shared, OTTO).list()).items == []
    assert [each.id for each in (await alerts(shared, ADMIN).list()).items] == [alert.id]
    others = alerts(shared, OTTO)
    for call in (
        others.get(alert.id), others.change(alert.id, {"name": "b"}), others.delete(alert.id),
        others.test(alert.id), others.deliveries(alert.id),
    ):  # fmt: skip
        with pytest.raises(NotFoundError):
            await call
    assert (await alerts(shared, MARIA).change(alert.id, {"name": "b"})).name == "b"


async def test_narrowed_token_has_alerts_of_its_project(shared: SimulatedCluster) -> None:
    both = principal("maria", "vision", "speech")
    jobs = [await shared.submit(1, project=each, user="otto") for each in ("vision", "speech")]
    wanted = [Scope("project", "vision"), Scope("job", jobs[0])]
    hidden = [Scope("project", "speech"), Scope("job", jobs[1]), Scope("user", "maria")]
    ids = [(await add(shared, both, scope)).id for scope in (*wanted, *hidden)]
    narrowed = alerts(shared, replace(principal("maria", "vision"), is_narrowed=True))
    assert [each.id for each in (await narrowed.list()).items] == ids[:2]
    assert (await narrowed.get(ids[1])).id == ids[1]
    for alert in ids[2:]:
        with pytest.raises(NotFoundError):
            await narrowed.change(alert, {"name": "b"})


async def test_alerts_of_a_user_are_limited(
    shared: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that nobody has all that the cluster may have."""
    monkeypatch.setattr(service, "MAX_OWN_ALERTS", 1)
    await add(shared, MARIA, Scope("project", "vision"))
    with pytest.raises(ConflictError, match="you have 1 alerts already"):
        await add(shared, MARIA, Scope("project", "vision"))
    await add(shared, OTTO, Scope("project", "speech"))


async def test_scopes_are_within_what_the_user_sees(shared: SimulatedCluster) -> None:
    job = await shared.submit(1, project="vision", user="maria")
    with pytest.raises(ForbiddenError, match="alerts about the whole cluster takes an admin"):
        await add(shared, MARIA, Scope())
    with pytest.raises(InvalidValueError, match="there is no project 'vision' that you see"):
        await add(shared, OTTO, Scope("project", "vision"))
    with pytest.raises(InvalidValueError, match="there is no such job; give its id"):
        await add(shared, OTTO, Scope("job", job))
    narrowed = Principal("maria", False, "token", user_id="maria")
    with pytest.raises(ForbiddenError, match="takes a token that is not narrowed"):
        await add(shared, narrowed, Scope("user", "maria"))
    await add(shared, MARIA, Scope("job", job))
    await add(shared, ADMIN, Scope())


async def test_messages_are_about_visible_jobs_alone(shared: SimulatedCluster) -> None:
    await shared.add_node("alpha", 2)
    on = (Condition.JOB_COMPLETED, Condition.JOB_WAITING)
    found = {
        caller.user: await add(shared, caller, Scope("user", "maria"), *on, waiting_seconds=0.0)
        for caller in (MARIA, OTTO, ADMIN)
    }
    job = await complete(shared, project="vision", user="maria")
    waiting = await shared.submit(9, project="vision", user="maria")
    await shared.coordinator.alert_monitor.check()
    assert await texts(shared, OTTO, found["otto"]) == []
    for caller in (MARIA, ADMIN):
        later, first = await texts(shared, caller, found[caller.user])
        assert job in first
        assert waiting in later


async def test_lost_role_withholds_messages(shared: SimulatedCluster) -> None:
    await shared.add_node("alpha", 2)
    alert = await add(shared, MARIA, Scope("project", "vision"))
    feed = shared.coordinator.alert_feed
    await complete(shared, project="vision")
    await deliver(shared)
    follow = feed.follow(0, MARIA)
    assert (await anext(follow)).alert_id == alert.id
    await follow.aclose()
    await complete(shared, project="vision")
    async with shared.db.transaction() as session:
        await session.execute(delete(Member).where(Member.user_id == "maria"))
    await deliver(shared)
    await complete(shared, project="vision")
    late, sent = (await shared.coordinator.alerts.deliveries(alert.id)).items
    assert (late.state, late.error, sent.state) == ("failed", WITHHELD, "delivered")
    none = principal("maria")
    assert await texts(shared, none, alert) == []
    for reader in (none, OTTO, MARIA):
        follow = feed.follow(0, reader)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(follow), 0.05)
        await follow.aclose()


async def test_former_admin_gets_no_message_of_the_cluster(shared: SimulatedCluster) -> None:
    await shared.add_node("alpha", 2)
    on = (Condition.NODE_DOWN, Condition.JOB_COMPLETED)
    alert = await add(shared, ADMIN, Scope(), *on)
    async with shared.db.transaction() as session:
        await session.execute(update(User).where(User.id == "root").values(is_admin=False))
    await complete(shared, project="vision")
    async with shared.db.transaction() as session:
        (node,) = shared.nodes
        await report_node_down(session, node, "away", shared.clock.now())
    former = principal("root")
    assert await texts(shared, former, alert) == []
    await alerts(shared, former).change(alert.id, {"enabled": False})
    with pytest.raises(ForbiddenError):
        await alerts(shared, former).change(alert.id, {"on": on})
    await alerts(shared, former).delete(alert.id)
