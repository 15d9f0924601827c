"""The ledger of simulated jobs, on both databases."""

import csv
import io
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from sqlalchemy import insert
from support.cluster.simulated import SimulatedCluster, failure
from support.storage.frames import frame, table

from trainhall.cluster.errors import InvalidCursorError
from trainhall.cluster.jobs.deletion import delete_record
from trainhall.cluster.ledger.service import LedgerQuery
from trainhall.cluster.ledger.views import Account, LedgerRow
from trainhall.cluster.options import Prices
from trainhall.db.models import DeviceReading
from trainhall.training.link.status import Outcome

HOUR = 3600.0


async def take_steps(cluster: SimulatedCluster, job_id: str, steps: range) -> None:
    """Take steps of two seconds each, half a second of which they wait for data."""
    job = await cluster.job(job_id)
    count = len(steps)
    body = frame(1, table(steps, step_seconds=[2.0] * count, data_seconds=[0.5] * count))
    await cluster.coordinator.ingest.metrics(job_id, job.attempt, f"{job.attempt}-a", body)


async def measure(cluster: SimulatedCluster, watts: float, seconds: int) -> None:
    """Let the time pass, with a device reading each half minute."""
    for _ in range(seconds // 30):
        await cluster.heartbeat(30.0)
        now, (node_id,) = cluster.clock.now(), cluster.nodes
        row = {"node_id": node_id, "time": now, "devices": [[0, 50.0, 1, 40.0, watts]]}
        async with cluster.db.transaction() as session:
            await session.execute(insert(DeviceReading), [row])


async def keep(cluster: SimulatedCluster) -> datetime:
    """Return when what has ended was counted."""
    await cluster.coordinator.ledger_keeper.keep()
    await cluster.heartbeat(100.0)
    await cluster.coordinator.ledger_keeper.keep()
    return cluster.clock.now()


async def lines(
    cluster: SimulatedCluster, by: Account = Account.JOB, **query: object
) -> list[LedgerRow]:
    found = await cluster.coordinator.ledger.read(LedgerQuery(by=by, **query), 100)  # type: ignore[arg-type]
    return found.items


async def test_ended_job_is_divided_and_its_energy_measured(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 1, "cuda")
    job_id = await cluster.submit(user="maria", device="cuda")
    await cluster.run_until(job_id, "running")
    await take_steps(cluster, job_id, range(1, 11))
    await measure(cluster, 360.0, 180)
    await cluster.coordinator.ledger_keeper.keep()
    (running,) = await lines(cluster)
    assert running.useful_hours == pytest.approx(15 / HOUR)
    assert (running.not_measured_hours, running.gpu_hours) == (0.0, running.device_hours)
    await measure(cluster, 360.0, 30)
    await cluster.coordinator.ledger_keeper.keep()
    (later,) = await lines(cluster)
    assert later.not_measured_hours == pytest.approx(later.device_hours - running.device_hours)
    await cluster.finish(job_id)
    await keep(cluster)

    (row,) = await lines(cluster)
    assert (row.name, row.user, row.job_id, row.jobs) == ("test", "maria", job_id, 1)
    assert row.useful_hours == pytest.approx(15 / HOUR)
    assert row.data_hours == pytest.approx(5 / HOUR)
    assert (row.redone_hours, row.not_measured_hours) == (0.0, 0.0)
    assert row.idle_hours == pytest.approx(row.device_hours - 20 / HOUR)
    ran = (await cluster.job(job_id)).ran_seconds
    assert row.device_hours == pytest.approx(ran / HOUR)
    assert row.metered_hours == pytest.approx(210 / HOUR, rel=0.1)
    assert row.energy_kwh == pytest.approx(0.36 * row.metered_hours)
    assert row.cost is None


async def test_steps_of_a_failed_attempt_are_redone(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 1)
    job_id = await cluster.submit()
    await cluster.run_until(job_id, "running")
    await take_steps(cluster, job_id, range(1, 11))
    await cluster.heartbeat(60.0)
    await cluster.finish(job_id, Outcome.FAILED, failure())
    await keep(cluster)
    (row,) = await lines(cluster)
    assert row.useful_hours == pytest.approx(15 / HOUR)
    await cluster.run_until(job_id, "running")
    await take_steps(cluster, job_id, range(5, 9))
    await keep(cluster)
    (row,) = await lines(cluster)
    assert row.redone_hours == pytest.approx(12 / HOUR)
    assert row.useful_hours == pytest.approx(12 / HOUR)
    assert row.data_hours == pytest.approx(4 / HOUR)
    await cluster.finish(job_id)
    await keep(cluster)
    (row,) = await lines(cluster)
    assert row.useful_hours == pytest.approx(12 / HOUR)
    assert (row.not_measured_hours, row.energy_kwh, row.metered_hours) == (0.0, None, 0.0)


async def test_script_without_step_times_is_not_measured(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 2)
    script = {"path": "/train.py", "args": [], "env": {}}
    job_id = await cluster.submit(task=None, script=script, training={}, project="vision")
    await cluster.run_until(job_id, "running")
    await cluster.heartbeat(60.0)
    await cluster.finish(job_id)
    await keep(cluster)
    (row,) = await lines(cluster, Account.PROJECT)
    assert row.name == "vision"
    assert row.device_hours == row.not_measured_hours > 0
    assert (row.useful_hours, row.idle_hours, row.data_hours) == (None, None, None)


async def test_lines_are_summed_paged_and_priced(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 1)
    begun = cluster.clock.now()
    for user, seconds in (("=maria", 60), ("adam", 20), ("adam", 10)):
        job_id = await cluster.submit(user=user)
        await cluster.run_until(job_id, "running")
        await cluster.heartbeat(float(seconds))
        await cluster.finish(job_id)
    ended = await keep(cluster)
    prices = Prices(currency="CHF", cpu_hour=2.0, kwh=0.3)
    cluster.options = replace(cluster.options, prices=prices)
    await cluster.stop_coordinator()
    cluster.start_coordinator()
    ledger = cluster.coordinator.ledger
    query = LedgerQuery()
    first = await ledger.read(query, 1)
    assert first.next_cursor is not None
    second = await ledger.read(query, 1, first.next_cursor)
    assert second.next_cursor is None
    assert [row.name for row in (*first.items, *second.items)] == ["=maria", "adam"]
    assert (first.currency, first.total.jobs, first.total) == ("CHF", 3, second.total)
    assert first.total.cost == pytest.approx(2 * first.total.device_hours)
    assert sum(row.device_hours for row in (*first.items, *second.items)) == pytest.approx(
        first.total.device_hours
    )
    rows = list(csv.DictReader(io.StringIO(await ledger.csv(query))))
    assert [(row["user"], row["jobs"], row["currency"]) for row in rows] == [
        ("'=maria", "1", "CHF"),
        ("adam", "2", "CHF"),
    ]
    assert rows[0]["energy_kwh"] == ""
    assert await lines(cluster, until=begun) == []
    assert await lines(cluster, since=ended, until=ended + timedelta(days=1)) == []
    assert len(await lines(cluster, job_id=job_id)) == 1
    async with cluster.db.transaction() as session:
        await delete_record(session, job_id, cluster.clock.now())
    await keep(cluster)
    assert (await ledger.read(query, 1)).total == first.total
    with pytest.raises(InvalidCursorError):
        await ledger.read(query, 1, "x")
