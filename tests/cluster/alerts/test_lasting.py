"""Conditions that last, and losses, as the monitor finds them."""

import math
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import update
from sqlalchemy.exc import OperationalError
from support.alerts import add_alert, deliveries
from support.cluster.simulated import SimulatedCluster
from support.database import on_sqlite
from support.storage.frames import frame, table

from trainhall.cluster.alerts import monitor
from trainhall.cluster.alerts.lasting import COORDINATOR, Change, Holding
from trainhall.cluster.alerts.service import Scope
from trainhall.cluster.lifecycle.alerts import Condition
from trainhall.cluster.quotas import Quotas
from trainhall.cluster.runs.groups import DEFAULT_ID
from trainhall.cluster.runs.service import NewRun
from trainhall.cluster.wire.mlflow import Point
from trainhall.db.models import Node

URL = "http://127.0.0.1:1"


async def texts(cluster: SimulatedCluster, alert_id: str) -> list[str]:
    """Check, and return the messages so far, the oldest first."""
    await cluster.coordinator.alert_monitor.check()
    return [each.text for each in reversed(await deliveries(cluster, alert_id))]


async def test_job_that_waits_too_long_is_reported_once(cluster: SimulatedCluster) -> None:
    alert = await add_alert(cluster, URL, Condition.JOB_WAITING, waiting_seconds=600.0)
    job_id = await cluster.submit(1)
    assert await texts(cluster, alert.id) == []
    cluster.clock.advance(4000.0)
    found = await texts(cluster, alert.id)
    assert len(found) == 1
    assert found[0].startswith(f"“test” ({job_id}) has waited for 1 h 7 min: needs 1 CPU slot")
    cluster.clock.advance(4000.0)
    cluster.start_coordinator()
    assert len(await texts(cluster, alert.id)) == 1, "another coordinator knows"


@on_sqlite
async def test_job_that_waits_again_is_reported_again(cluster: SimulatedCluster) -> None:
    alert = await add_alert(cluster, URL, Condition.JOB_WAITING, waiting_seconds=600.0)
    job_id = await cluster.submit(1)
    cluster.clock.advance(601.0)
    assert len(await texts(cluster, alert.id)) == 1
    await cluster.coordinator.jobs.pause(job_id)
    assert len(await texts(cluster, alert.id)) == 1
    await cluster.coordinator.jobs.resume(job_id)
    assert len(await texts(cluster, alert.id)) == 1
    cluster.clock.advance(601.0)
    assert len(await texts(cluster, alert.id)) == 2


@on_sqlite
async def test_many_waiting_jobs_share_a_message(cluster: SimulatedCluster) -> None:
    alert = await add_alert(cluster, URL, Condition.JOB_WAITING, waiting_seconds=0.0)
    for _ in range(5):
        await cluster.submit(1)
    found = await texts(cluster, alert.id)
    assert len(found) == 1
    assert found[0].endswith("; and 2 more")
    assert (await deliveries(cluster, alert.id))[0].subject_count == 5


@on_sqlite
async def test_waiting_is_reported_of_jobs_in_scope(cluster: SimulatedCluster) -> None:
    scopes = (Scope("user", "maria"), Scope("project", "vision"))
    alerts = [
        await add_alert(cluster, URL, Condition.JOB_WAITING, waiting_seconds=0.0, scope=scope)
        for scope in scopes
    ]
    await cluster.submit(1, user="maria", name="hers")
    await cluster.submit(1, name="nobody's")
    assert [len(await texts(cluster, alert.id)) for alert in alerts] == [1, 0]


async def test_full_disks_are_reported_until_they_are_emptier(cluster: SimulatedCluster) -> None:
    node = await cluster.add_node("gpu-1")
    cluster.coordinator.alert_monitor._data_dir = None
    alert = await add_alert(cluster, URL, Condition.DISK_FILLING)

    async def use(percent: int) -> int:
        host: dict[str, Any] = {"disk_used": percent << 30, "disk_total": 100 << 30}
        async with cluster.db.transaction() as session:
            await session.execute(update(Node).where(Node.name == node.name).values(host_use=host))
        return len(await texts(cluster, alert.id))

    assert [await use(percent) for percent in (80, 90, 89, 91, 87, 95)] == [0, 1, 1, 1, 1, 2]
    first = (await texts(cluster, alert.id))[0]
    assert first == "the disk of node gpu-1 is 90 % full; 10.0 GiB free"


@on_sqlite
async def test_own_disk_is_watched(cluster: SimulatedCluster) -> None:
    alert = await add_alert(cluster, URL, Condition.DISK_FILLING, disk_percent=0.001)
    cluster.folder.mkdir(parents=True, exist_ok=True)
    (found,) = await texts(cluster, alert.id)
    assert found.startswith("the disk of the coordinator is ")


async def test_reached_quota_is_reported(cluster: SimulatedCluster) -> None:
    cluster.options = replace(cluster.options, quotas=Quotas(projects={"vision": 2}))
    cluster.start_coordinator()
    await cluster.add_node("host", slots=4)
    alert = await add_alert(cluster, URL, Condition.QUOTA_REACHED)
    others = await add_alert(
        cluster, URL, Condition.QUOTA_REACHED, scope=Scope("project", "speech")
    )
    jobs = [await cluster.submit(1, project="vision") for _ in range(2)]
    assert await texts(cluster, alert.id) == [
        "project vision has reached its quota: 2 of 2 devices"
    ]
    await cluster.run_until(jobs[0], "running")
    await cluster.finish(jobs[0])
    assert len(await texts(cluster, alert.id)) == 1
    await cluster.submit(1, project="vision")
    assert len(await texts(cluster, alert.id)) == 2
    assert await texts(cluster, others.id) == []


@on_sqlite
async def test_condition_of_enabled_alert_is_reported_again(cluster: SimulatedCluster) -> None:
    alert = await add_alert(cluster, URL, Condition.JOB_WAITING, waiting_seconds=0.0)
    await cluster.submit(1)
    assert len(await texts(cluster, alert.id)) == 1
    for enabled in (False, True):
        await cluster.coordinator.alerts.change(alert.id, {"enabled": enabled})
    assert len(await texts(cluster, alert.id)) == 2


async def test_losses_are_reported_with_an_event(cluster: SimulatedCluster) -> None:
    await cluster.add_node("host")
    job_id = await cluster.submit(1)
    await cluster.run_until(job_id, "running")
    on = (Condition.LOSS_SPIKE, Condition.LOSS_NOT_FINITE)
    alert = await add_alert(cluster, URL, *on)
    assert await texts(cluster, alert.id) == []
    losses = [[1.0 - step / 1000] for step in range(1, 31)] + [[9.0], [math.nan]]
    for number, loss in enumerate(losses, start=1):
        body = frame(number, table([number], loss=loss))
        await cluster.coordinator.ingest.metrics(job_id, 1, "0-aaaaaaaa", body)
        await cluster.coordinator.ingest.metrics(job_id, 1, "0-aaaaaaaa", body)
    spike, not_finite = await texts(cluster, alert.id)
    assert "has a spike in its loss: the loss rose to 9 at step 31; its running" in spike
    assert not_finite.endswith("has no finite loss: the loss is nan at step 32")
    events = (await cluster.coordinator.jobs.events(job_id)).items
    assert [each.code for each in events][-2:] == ["loss_spike", "loss_not_finite"]


@pytest.mark.parametrize(("run_id", "reports"), [(None, 1), ("a" * 32, 0)])
async def test_losses_of_imported_runs_are_old(
    cluster: SimulatedCluster, run_id: str | None, reports: int
) -> None:
    alert = await add_alert(cluster, URL, Condition.LOSS_NOT_FINITE)
    assert await texts(cluster, alert.id) == []
    runs = cluster.coordinator.runs
    run = await runs.create(NewRun(DEFAULT_ID, "old", 1000, {}, run_id=run_id))
    await runs.log(run.id, [Point("loss", 1, 1000, math.nan)])
    assert len(await texts(cluster, alert.id)) == reports
    events = (await cluster.coordinator.jobs.events(run.id)).items
    assert events[-1].code == "loss_not_finite"


@on_sqlite
async def test_loss_before_a_restart_is_reported_once(cluster: SimulatedCluster) -> None:
    await cluster.add_node("host")
    job_id = await cluster.submit(1)
    await cluster.run_until(job_id, "running")
    alert = await add_alert(cluster, URL, Condition.LOSS_SPIKE)
    assert await texts(cluster, alert.id) == []
    losses = [1.0 - step / 1000 for step in range(1, 31)] + [9.0]
    body = frame(1, table(list(range(1, 32)), loss=losses))
    await cluster.coordinator.ingest.metrics(job_id, 1, "0-aaaaaaaa", body)
    for _ in range(2):
        cluster.start_coordinator()
        (spike,) = await texts(cluster, alert.id)
        assert "the loss rose to 9 at step 31" in spike


@on_sqlite
async def test_losses_are_kept_while_the_database_is_away(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.add_node("host")
    job_id = await cluster.submit(1)
    await cluster.run_until(job_id, "running")
    alert = await add_alert(cluster, URL, Condition.LOSS_NOT_FINITE)
    assert await texts(cluster, alert.id) == []
    body = frame(1, table([1], loss=[math.nan]))
    await cluster.coordinator.ingest.metrics(job_id, 1, "0-aaaaaaaa", body)

    async def away(*_: object) -> None:
        raise OperationalError("SELECT", {}, Exception("no connection"))

    with monkeypatch.context() as patched:
        patched.setattr(monitor, "report_job", away)
        with pytest.raises(OperationalError):
            await cluster.coordinator.alert_monitor.check()
    assert len(await texts(cluster, alert.id)) == 1


@on_sqlite
async def test_alert_disabled_during_a_check_reports_nothing(cluster: SimulatedCluster) -> None:
    alert = await add_alert(cluster, URL, Condition.JOB_WAITING, waiting_seconds=0.0)
    await cluster.submit(1)
    await cluster.coordinator.alert_monitor.check()
    await cluster.coordinator.alerts.change(alert.id, {"enabled": False})
    change = Change(alert.id, Condition.JOB_WAITING, [Holding(COORDINATOR, "x", "")], frozenset())
    await cluster.coordinator.alert_monitor._store(change)
    assert len(await deliveries(cluster, alert.id)) == 1
    await cluster.coordinator.alerts.delete(alert.id)
    await cluster.coordinator.alert_monitor._store(change)


@on_sqlite
async def test_losses_are_not_watched_without_an_alert(cluster: SimulatedCluster) -> None:
    alert = await add_alert(cluster, URL, Condition.LOSS_SPIKE)
    await cluster.coordinator.alert_monitor.check()
    assert cluster.coordinator.alert_monitor.losses.wanted
    await cluster.coordinator.alerts.delete(alert.id)
    assert not await cluster.coordinator.alert_monitor.check()
    assert not cluster.coordinator.alert_monitor.losses.wanted
