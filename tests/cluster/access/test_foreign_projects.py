"""What services show and do for members of one project, beside the jobs of another."""

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from sqlalchemy import update
from support.cluster.simulated import SimulatedCluster
from support.experiments import SWEEP

from trainhall.cluster.access.principal import Principal
from trainhall.cluster.access.roles import Role
from trainhall.cluster.access.visibility import OwnerFilter
from trainhall.cluster.errors import ConflictError, ForbiddenError, InvalidValueError, NotFoundError
from trainhall.cluster.experiments.report.formats import ReportFormat
from trainhall.cluster.experiments.spec import validate_experiment
from trainhall.cluster.ledger.service import LedgerQuery
from trainhall.cluster.ledger.views import Account
from trainhall.cluster.lifecycle.creation import RequestKey
from trainhall.cluster.lifecycle.reasons import FOREIGN_JOB
from trainhall.cluster.nodes.commands import NodeCommand
from trainhall.cluster.quotas import Quotas
from trainhall.cluster.what_if.change import Change
from trainhall.db.accounts import Project
from trainhall.training.spec.parse import validate_spec

SECRET = "canary"


def member(user: str, role: Role = Role.MEMBER, *projects: str) -> Principal:
    roles = dict.fromkeys(projects or ("vision",), role)
    return Principal(user, False, "token", roles=MappingProxyType(roles))


MARIA = member("maria")
FOREIGNER = member("otto", Role.MAINTAINER, "speech")
ADMIN = Principal("root", True, "token")


@pytest.fixture
async def shared(cluster: SimulatedCluster) -> SimulatedCluster:
    """A cluster of two projects."""
    async with cluster.db.transaction() as session:
        now = cluster.clock.now()
        session.add_all(Project(name=n, limits={}, created_at=now) for n in ("vision", "speech"))
    return cluster


async def create(cluster: SimulatedCluster, caller: Principal, name: str = SECRET) -> str:
    spec = validate_experiment({**SWEEP, "name": name})
    view, _ = await cluster.coordinator.experiments.limited_to(caller).create(spec)
    await cluster.settle()
    assert (view.user, view.project) == (caller.user, next(iter(caller.roles)))
    return view.id


async def test_experiments_of_other_projects_are_not_found(shared: SimulatedCluster) -> None:
    experiment = await create(shared, MARIA)
    own = await create(shared, FOREIGNER, "own")
    services = shared.coordinator
    foreign = services.experiments.limited_to(FOREIGNER)
    assert [each.id for each in (await foreign.list()).items] == [own]
    assert (await foreign.list(of=OwnerFilter(project="vision"))).items == []
    for call in (foreign.get, foreign.trials, foreign.pause, foreign.resume, foreign.cancel):
        with pytest.raises(NotFoundError):
            await call(experiment)
    analyses = services.analyses.limited_to(FOREIGNER)
    with pytest.raises(NotFoundError):
        await analyses.analyze(experiment)
    with pytest.raises(NotFoundError):
        await analyses.report(experiment, ReportFormat.CSV)
    assert len((await services.experiments.limited_to(ADMIN).list()).items) == 2
    spec = validate_experiment({**SWEEP, "job": {**SWEEP["job"], "project": "vision"}})
    with pytest.raises(InvalidValueError, match="there is no project 'vision'; known: speech"):
        await foreign.create(spec)
    with pytest.raises(InvalidValueError, match="there is no project 'vision'; known: speech"):
        await foreign.plan(spec)


async def test_nodes_are_commanded_by_admins(shared: SimulatedCluster) -> None:
    node = await shared.add_node("alpha")
    nodes = shared.coordinator.nodes
    assert set((await nodes.limited_to(ADMIN).get(node.node_id)).refused_commands) == {"undrain"}
    refused = (await nodes.limited_to(MARIA).get(node.node_id)).refused_commands
    assert refused == dict.fromkeys(NodeCommand, "It takes an admin.")


async def test_used_keys_name_no_foreign_job(shared: SimulatedCluster) -> None:
    jobs, spec = shared.coordinator.jobs, validate_spec({**SWEEP["job"], "name": SECRET})
    job, _ = await jobs.limited_to(MARIA).submit(spec, RequestKey("nightly", "a"))
    moved = jobs.limited_to(member("maria", Role.MEMBER, "speech"))
    with pytest.raises(ConflictError, match=f"another body, of {FOREIGN_JOB};") as caught:
        await moved.submit(spec, RequestKey("nightly", "b"))
    assert job.id not in str(caught.value)
    assert SECRET not in str(caught.value)


async def test_experiments_are_commanded_by_owners_and_maintainers(
    shared: SimulatedCluster,
) -> None:
    experiment = await create(shared, MARIA)
    experiments = shared.coordinator.experiments
    for caller in (member("ada"), member("maria", Role.VIEWER)):
        seen = await experiments.limited_to(caller).get(experiment)
        assert seen.allowed_commands == []
        with pytest.raises(ForbiddenError, match="in project vision takes the role"):
            await experiments.limited_to(caller).pause(experiment)
    with pytest.raises(InvalidValueError, match="name the project; you may submit to none yet"):
        await create(shared, member("maria", Role.VIEWER))
    paused = await experiments.limited_to(MARIA).pause(experiment)
    assert paused.allowed_commands == ["resume", "cancel"]
    await experiments.limited_to(member("ada", Role.MAINTAINER)).cancel(experiment)


async def test_reports_belong_to_a_project(shared: SimulatedCluster) -> None:
    reports = shared.coordinator.reports
    report = await reports.limited_to(MARIA).create(SECRET, "text")
    assert (report.user, report.project) == ("maria", "vision")
    foreign = reports.limited_to(FOREIGNER)
    assert (await foreign.list()).items == []
    for call in (foreign.get(report.id), foreign.change(report.id, 1, "x", None)):
        with pytest.raises(NotFoundError):
            await call
    with pytest.raises(NotFoundError):
        await foreign.delete(report.id)
    with pytest.raises(InvalidValueError, match="there is no project 'vision'"):
        await foreign.create("x", "", "vision")
    viewer = reports.limited_to(member("ada", Role.VIEWER))
    assert [each.id for each in (await viewer.list()).items] == [report.id]
    with pytest.raises(ForbiddenError, match="takes the role member; you have viewer"):
        await viewer.change(report.id, 1, "x", None)
    changed = await reports.limited_to(member("ada")).change(report.id, 1, "y", None)
    assert changed.user == "maria"
    with pytest.raises(ForbiddenError, match="to change reports of others"):
        await reports.limited_to(member("ada")).delete(report.id)
    both = member("maria", Role.MEMBER, "vision", "speech")
    moved = await reports.limited_to(both).change(report.id, 2, None, None, "speech")
    assert moved.project == "speech"
    with pytest.raises(NotFoundError):
        await reports.limited_to(MARIA).get(report.id)


async def test_holders_and_queue_rows_of_others_are_anonymous(shared: SimulatedCluster) -> None:
    await shared.add_node("alpha", 2)
    running = await shared.submit(2, name=SECRET, project="vision", user="maria")
    waiting = await shared.submit(2, name=SECRET, project="vision", user="maria")
    own = await shared.submit(1, name="own", project="speech", user="otto")
    services = shared.coordinator
    nodes = (await services.nodes.limited_to(FOREIGNER).list()).items
    devices = [*nodes[0].devices, *await services.nodes.limited_to(FOREIGNER).devices()]
    assert {(d.busy, d.job_id, d.job_name, d.job_user, d.job_project) for d in devices} == {
        (True, None, None, None, None)
    }
    (node,) = (await services.nodes.limited_to(MARIA).list()).items
    assert {(d.job_id, d.job_user) for d in node.devices} == {(running, "maria")}
    page = await services.queue.limited_to(FOREIGNER).list(history=True)
    foreign, mine = page.items
    assert (foreign.job_id, foreign.name, foreign.user, foreign.project) == (None,) * 4
    assert (foreign.position, foreign.needs.count, foreign.reason) == (1, 2, FOREIGN_JOB)
    assert foreign.history is None
    assert (mine.job_id, mine.position, mine.project, page.total) == (own, 2, "speech", 2)
    assert (await services.queue.limited_to(FOREIGNER).list(job_id=waiting)).items == []
    shown = [page, *nodes, *devices, await services.nodes.limited_to(FOREIGNER).summary()]
    for each in shown:
        text = each.model_dump_json()
        assert SECRET not in text
        assert "maria" not in text
        assert "vision" not in text
        assert running not in text
        assert waiting not in text


async def test_quotas_and_ledger_show_own_projects(shared: SimulatedCluster) -> None:
    quotas = Quotas(projects={"vision": 8, "speech": 4}, users={"maria": 3})
    shared.options = replace(shared.options, quotas=quotas)
    shared.start_coordinator()
    await shared.add_node("alpha", 2)
    job = await shared.submit(2, name=SECRET, project="vision", user="maria")
    await shared.run_until(job, "running")
    await shared.heartbeat(3600.0)
    await shared.finish(job)
    await shared.coordinator.ledger_keeper.keep()
    services = shared.coordinator
    shown = (await services.quotas.limited_to(FOREIGNER).list()).items
    assert [(each.kind, each.name) for each in shown] == [("project", "speech")]
    shown = (await services.quotas.limited_to(MARIA).list()).items
    assert [each.name for each in shown] == ["vision", "maria"]
    for by in Account:
        query = LedgerQuery(by=by)
        ledger = await services.ledger.limited_to(FOREIGNER).read(query, 10)
        assert (ledger.items, ledger.total.jobs, ledger.total.device_hours) == ([], 0, 0.0)
        assert SECRET not in await services.ledger.limited_to(FOREIGNER).csv(query)
        assert (await services.ledger.limited_to(MARIA).read(query, 10)).total.jobs == 1
    await _make_again(shared, "vision")
    ledger = await services.ledger.limited_to(MARIA).read(LedgerQuery(), 10)
    assert (ledger.items, ledger.total.jobs) == ([], 0)
    assert (await services.ledger.limited_to(ADMIN).read(LedgerQuery(), 10)).total.jobs == 1


async def _make_again(cluster: SimulatedCluster, project: str) -> None:
    """As if it had been deleted, and later one of the same name was made."""
    cluster.clock.advance(1)
    created = update(Project).where(Project.name == project)
    async with cluster.db.transaction() as session:
        await session.execute(created.values(created_at=cluster.clock.now()))


async def test_nodes_and_what_if_need_an_admin(shared: SimulatedCluster) -> None:
    node = await shared.add_node("alpha", 2)
    nodes = shared.coordinator.nodes.limited_to(FOREIGNER)
    calls: list[Any] = [
        nodes.register("beta"), nodes.drain(node.node_id), nodes.undrain(node.node_id),
        nodes.change(node.node_id, labels={"a": "b"}), nodes.remove(node.node_id),
        shared.coordinator.what_if.limited_to(FOREIGNER).compare(Change(), 1.0),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(ForbiddenError, match="takes an admin"):
            await call
    assert (await nodes.get(node.node_id)).state == "ready"
    await shared.coordinator.nodes.limited_to(ADMIN).drain(node.node_id)


async def test_queue_of_an_owner_has_what_is_visible(shared: SimulatedCluster) -> None:
    async def listed(caller: Principal, of: OwnerFilter) -> list[str | None]:
        page = await shared.coordinator.queue.limited_to(caller).list(of=of)
        assert page.total == len(page.items)
        return [entry.name for entry in page.items]

    await shared.submit(2, name="of maria", project="vision", user="maria")
    await shared.submit(2, name="of otto", project="speech", user="otto")
    await shared.settle()
    assert await listed(MARIA, OwnerFilter(user="maria")) == ["of maria"]
    assert await listed(MARIA, OwnerFilter(user="otto")) == []
    assert await listed(MARIA, OwnerFilter(project="speech")) == []
    assert await listed(ADMIN, OwnerFilter(project="speech")) == ["of otto"]
