"""The ledger of simulated jobs, on both databases."""

import csv
import io
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import insert, select, update
from support.cluster.simulated import SimulatedCluster, failure
from support.database import on_sqlite
from support.storage.frames import frame, table

from trainhall.cluster import pagination
from trainhall.cluster.errors import InvalidCursorError
from trainhall.cluster.ledger.service import LedgerQuery
from trainhall.cluster.ledger.views import Account, LedgerRow
from trainhall.cluster.options import Prices
from trainhall.db.ledger import LedgerEntry
from trainhall.db.models import DeviceReading
from trainhall.training.link.status import Outcome

HOUR = 3600.0


async def take_steps(cluster: SimulatedCluster, job_id: str, steps: range) -> None:
    """Take steps of two seconds each, half a second of which they wait for data."""
    job = await cluster.job(job_id)
    count = len(steps)
    body = frame(1, table(steps, step_seconds=[2.0] * count, data_seconds=[0.5] * count))
    await cluster.coordinator.ingest.metrics(job_id, job.attempt, f"{job.attempt}-a", body)


async def measure(cluster: SimulatedCluster, watts: float, seconds: int, every: int = 30) -> None:
    """Let the time pass, with a device reading each half minute."""
    rows, (node_id,) = [], cluster.nodes
    for _ in range(seconds // every):
        cluster.clock.advance(every)
        devices = [[0, 50.0, 1, 40.0, watts]]
        rows.append({"node_id": node_id, "time": cluster.clock.now(), "devices": devices})
    async with cluster.db.transaction() as session:
        await session.execute(insert(DeviceReading), rows)
    await cluster.heartbeat()


async def keep(cluster: SimulatedCluster) -> None:
    """Count what has ended."""
    await cluster.coordinator.ledger_keeper.keep()
    await cluster.heartbeat(100.0)
    await cluster.coordinator.ledger_keeper.keep()


async def lines(
    cluster: SimulatedCluster, by: Account = Account.JOB, **query: Any
) -> list[LedgerRow]:
    found = await cluster.coordinator.ledger.read(LedgerQuery(by=by, **query), 100)
    return found.items


async def test_failed_attempt_is_divided_and_its_energy_measured(
    cluster: SimulatedCluster,
) -> None:
    await cluster.add_node("alpha", 1, "cuda")
    job_id = await cluster.submit(user="maria", device="cuda")
    await cluster.run_until(job_id, "running")
    await take_steps(cluster, job_id, range(1, 11))
    await measure(cluster, 360.0, 180)
    await cluster.coordinator.ledger_keeper.keep()
    (running,) = await lines(cluster)
    assert (running.name, running.user, running.job_id) == ("test", "maria", job_id)
    assert running.useful_hours == pytest.approx(15 / HOUR)
    assert running.data_hours == pytest.approx(5 / HOUR)
    assert (running.redone_hours, running.not_measured_hours) == (0.0, 0.0)
    assert running.idle_hours == pytest.approx(running.device_hours - 20 / HOUR)
    await measure(cluster, 360.0, 30)
    await cluster.coordinator.ledger_keeper.keep()
    (later,) = await lines(cluster)
    assert later.not_measured_hours == pytest.approx(later.device_hours - running.device_hours)

    await cluster.finish(job_id, Outcome.FAILED, failure())
    await keep(cluster)
    await cluster.run_until(job_id, "running")
    await take_steps(cluster, job_id, range(5, 9))
    await keep(cluster)
    (again,) = await lines(cluster)
    assert again.redone_hours == pytest.approx(12 / HOUR)
    assert again.useful_hours == pytest.approx(12 / HOUR)
    await cluster.finish(job_id)
    await keep(cluster)
    (row,) = await lines(cluster)
    parts = (row.useful_hours, row.data_hours, row.redone_hours, row.idle_hours)
    assert sum(part or 0.0 for part in parts) == pytest.approx(row.device_hours)
    assert row.useful_hours == pytest.approx(12 / HOUR)
    assert row.data_hours == pytest.approx(4 / HOUR)
    ran = (await cluster.job(job_id)).ran_seconds
    assert row.gpu_hours == row.device_hours == pytest.approx(ran / HOUR)
    assert row.metered_hours == pytest.approx(210 / HOUR, rel=0.1)
    assert row.energy_kwh == pytest.approx(0.36 * row.metered_hours)
    assert (row.not_measured_hours, row.cost) == (0.0, None)


@on_sqlite
async def test_missing_device_readings_are_not_metered(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 1, "cuda")
    job_id = await cluster.submit(device="cuda")
    await cluster.run_until(job_id, "running")
    await measure(cluster, 360.0, 240, every=120)
    await cluster.coordinator.ledger_keeper.keep()
    (row,) = await lines(cluster)
    assert row.device_hours >= 230 / HOUR
    assert row.metered_hours == pytest.approx(30 / HOUR)


@on_sqlite
@pytest.mark.parametrize("steps", [range(0), range(50, 51), range(50, 151, 50)])
async def test_script_without_all_step_times_is_not_measured(
    cluster: SimulatedCluster, steps: range
) -> None:
    await cluster.add_node("alpha", 2)
    script = {"path": "/train.py", "args": [], "env": {}}
    job_id = await cluster.submit(task=None, script=script, training={}, project="vision")
    await cluster.run_until(job_id, "running")
    if steps:
        await take_steps(cluster, job_id, steps)
    await cluster.heartbeat(60.0)
    await cluster.finish(job_id)
    await keep(cluster)
    (row,) = await lines(cluster, Account.PROJECT)
    assert row.name == "vision"
    assert row.not_measured_hours == pytest.approx(row.device_hours)
    assert (row.useful_hours, row.idle_hours, row.data_hours) == (None, None, None)


@on_sqlite
async def test_script_with_all_step_times_is_divided(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 2)
    script = {"path": "/train.py", "args": [], "env": {}}
    job_id = await cluster.submit(task=None, script=script, training={})
    await cluster.run_until(job_id, "running")
    await take_steps(cluster, job_id, range(1, 11))
    await cluster.heartbeat(60.0)
    await cluster.finish(job_id)
    await keep(cluster)
    (row,) = await lines(cluster)
    assert row.useful_hours == pytest.approx(15 / HOUR)
    assert row.not_measured_hours == 0.0


async def test_late_metrics_are_divided(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 1, "cuda")
    job_id = await cluster.submit(device="cuda")
    await cluster.run_until(job_id, "running")
    await measure(cluster, 360.0, 60)
    await cluster.finish(job_id)
    await keep(cluster)
    (row,) = await lines(cluster)
    assert row.idle_hours == row.device_hours
    await take_steps(cluster, job_id, range(1, 11))
    await cluster.coordinator.ledger_keeper.keep()
    (later,) = await lines(cluster, until=cluster.clock.now())
    assert later.useful_hours == pytest.approx(15 / HOUR)
    assert later.idle_hours == pytest.approx(row.device_hours - 20 / HOUR)
    assert (later.device_hours, later.energy_kwh) == (row.device_hours, row.energy_kwh)


async def test_deleted_job_is_counted_to_its_end(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", 1, "cuda")
    job_id = await cluster.submit(device="cuda")
    await cluster.run_until(job_id, "running")
    await take_steps(cluster, job_id, range(1, 11))
    await measure(cluster, 360.0, 180)
    await cluster.coordinator.ledger_keeper.keep()
    (running,) = await lines(cluster)
    await measure(cluster, 360.0, 30)
    await cluster.finish(job_id)
    ran = (await cluster.job(job_id)).ran_seconds
    await cluster.coordinator.jobs.delete(job_id)
    await keep(cluster)
    (row,) = await lines(cluster)
    assert row.device_hours == pytest.approx(ran / HOUR)
    assert row.device_hours - running.device_hours > 30 / HOUR
    assert row.useful_hours == pytest.approx(15 / HOUR)
    assert row.not_measured_hours == 0.0
    async with cluster.db.session() as session:
        assert not (await session.scalars(select(LedgerEntry).where(LedgerEntry.is_open))).all()


@pytest.mark.parametrize("by", list(Account))
async def test_line_that_grows_between_pages_is_listed(
    cluster: SimulatedCluster, by: Account
) -> None:
    now = cluster.clock.now()
    entries = [
        LedgerEntry(
            job_id=f"job-{number}", attempt=1, name="a", user=f"user-{number}",
            project=f"project-{number}", device="cpu", counted_until=now,
            held_seconds=hours * HOUR, is_open=number > 2,
        )
        for number, hours in enumerate([10, 6, 5, 4, 3], start=1)
    ]  # fmt: skip
    async with cluster.db.transaction() as session:
        session.add_all(entries)
    ledger, query = cluster.coordinator.ledger, LedgerQuery(by=by)
    found, cursor = [], None
    for grown in (None, "job-4", "job-3", None, None):
        page = await ledger.read(query, 1, cursor)
        cursor = page.next_cursor
        found += [line.device_hours for line in page.items]
        # One overtakes the line just read, and one all of them, after it was listed.
        async with cluster.db.transaction() as session:
            await session.execute(
                update(LedgerEntry)
                .where(LedgerEntry.job_id == grown)
                .values(held_seconds=LedgerEntry.held_seconds + 20 * HOUR)
            )
    assert cursor is None
    assert found == [10.0, 6.0, 24.0, 25.0, 3.0]


@on_sqlite
async def test_csv_has_few_digits(cluster: SimulatedCluster) -> None:
    entry = LedgerEntry(
        job_id="job-1", attempt=1, name="a", user="ada", device="cpu",
        counted_until=cluster.clock.now(), held_seconds=HOUR / 3, is_open=False,
    )  # fmt: skip
    async with cluster.db.transaction() as session:
        session.add(entry)
    (row,) = csv.DictReader(io.StringIO(await cluster.coordinator.ledger.csv(LedgerQuery())))
    assert (row["device_hours"], row["useful_hours"]) == ("0.333333", "")


async def test_lines_are_summed_paged_and_priced(cluster: SimulatedCluster) -> None:
    now = cluster.clock.now()
    # The job of the last one was deleted while it was open.
    entries = [
        LedgerEntry(
            job_id=f"job-{number}", attempt=1, name="a", user=user, device="cpu",
            counted_until=now, held_seconds=hours * HOUR, is_open=number == 3,
        )
        for number, (user, hours) in enumerate([("=maria", 6), ("adam", 2), ("adam", 1)], start=1)
    ]  # fmt: skip
    async with cluster.db.transaction() as session:
        session.add_all(entries)
    await cluster.coordinator.ledger_keeper.keep()
    prices = Prices(currency="CHF", cpu_hour=2.0, kwh=0.3)
    cluster.options = replace(cluster.options, prices=prices)
    cluster.start_coordinator()
    ledger, query = cluster.coordinator.ledger, LedgerQuery()
    first = await ledger.read(query, 1)
    assert first.next_cursor is not None
    second = await ledger.read(query, 1, first.next_cursor)
    assert second.next_cursor is None
    (maria,), (adam,) = first.items, second.items
    assert (maria.name, maria.device_hours, maria.cost) == ("=maria", 6.0, 12.0)
    assert (adam.name, adam.jobs, adam.not_measured_hours) == ("adam", 2, 3.0)
    assert (first.currency, first.total) == ("CHF", second.total)
    assert (first.total.jobs, first.total.device_hours, first.total.cost) == (3, 9.0, 18.0)
    rows = list(csv.DictReader(io.StringIO(await ledger.csv(query))))
    assert [(row["user"], row["jobs"], row["energy_kwh"], row["currency"]) for row in rows] == [
        ("'=maria", "1", "", "CHF"),
        ("adam", "2", "", "CHF"),
    ]
    assert await lines(cluster, until=now) == []
    later = now + timedelta(seconds=1)
    assert await lines(cluster, since=later, until=later) == []
    assert [line.job_id for line in await lines(cluster, job_id="job-2")] == ["job-2"]
    with pytest.raises(InvalidCursorError):
        await ledger.read(query, 1, "x")
    new = LedgerEntry(
        job_id="job-4", attempt=1, name="a", user="eve", device="cpu", counted_until=now,
        held_seconds=7 * HOUR, is_open=False,
    )  # fmt: skip
    async with cluster.db.transaction() as session:
        session.add(new)
    after = await ledger.read(query, 1, first.next_cursor)
    assert (after.items, after.next_cursor) == (second.items, None)
    # None of them ended in the 30 days before now; the next page is still of the first one's time.
    cluster.clock.advance(31 * 24 * HOUR)
    assert (await ledger.read(query, 1, first.next_cursor)).items == second.items
    assert (await ledger.read(query, 1)).items == []
    with pytest.raises(InvalidCursorError):
        await ledger.read(query, 1, pagination.encode("ledger", "today", 1, "x", ""))
    async with cluster.db.session() as session:
        assert not (await session.scalars(select(LedgerEntry).where(LedgerEntry.is_open))).all()
