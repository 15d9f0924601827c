"""Recurring statements read what is active; their cost does not grow with finished jobs."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, insert
from support.cluster.simulated import SimulatedCluster, failure
from support.storage.finished_jobs import add_finished_jobs
from support.storage.frames import frame, table

from trainhall.cluster.access.principal import SYSTEM
from trainhall.cluster.alerts.service import Definition
from trainhall.cluster.alerts.targets import Target, TargetKind
from trainhall.cluster.ledger.service import LedgerQuery
from trainhall.cluster.lifecycle.alerts import Condition
from trainhall.cluster.nodes.quarantine import quarantine_failing_nodes
from trainhall.db.alerts import AlertDelivery
from trainhall.db.database import Database
from trainhall.monitoring.live import read_frames
from trainhall.monitoring.logs import read_logs
from trainhall.monitoring.metrics import read_metrics
from trainhall.monitoring.prometheus import exposition
from trainhall.training.link.status import Outcome

FINISHED = 5_000
MAX_ROWS = 200
"""The most rows that one statement may read of a growing table: 250 finished jobs failed."""
SMALL = {"nodes", "devices", "grants", "node_events", "device_readings"}
"""Tables that grow with the cluster and not with its past."""
MAX_STEPS = 2_000
"""Of SQLite's virtual machine, which takes about a dozen for each row."""
_STRIDE = 10
COUNTED = "GROUP BY jobs.state"
"""A count by state reads one entry of an index for each job: milliseconds for 100,000."""

Statement = tuple[str, Any]


@contextmanager
def recorded() -> Iterator[list[Statement]]:
    """Statements and parameters that any engine executes."""
    found: list[Statement] = []

    def record(
        _c: Connection, _cursor: Any, statement: str, parameters: Any, _x: Any, many: bool
    ) -> None:
        if statement.split()[0] in ("SELECT", "UPDATE", "DELETE", "WITH"):
            found.append((statement, parameters[0] if many else parameters))

    event.listen(Engine, "before_cursor_execute", record)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", record)


@pytest.fixture
async def busy(cluster: SimulatedCluster) -> dict[str, str]:
    """Jobs that run, restarted, save, wait and are paused, beside many finished ones; their ids."""
    await cluster.add_node("host", slots=4)
    jobs = {"running": await cluster.submit(2), "restarted": await cluster.submit(1)}
    jobs["removing"] = await cluster.submit(1, checkpoint={"keep_latest": 1})
    for job_id in jobs.values():
        await cluster.run_until(job_id, "running")
    await cluster.finish(jobs["restarted"], Outcome.FAILED, failure())
    await cluster.heartbeat(60.0)
    await cluster.run_until(jobs["restarted"], "running")
    for step in (10, 20):
        await cluster.save_checkpoint(jobs["running"], step)
        await cluster.save_checkpoint(jobs["removing"], step)
    jobs["waiting"] = await cluster.submit(4)
    jobs["paused"] = await cluster.submit(4)
    await cluster.coordinator.jobs.pause(jobs["paused"])
    jobs["alert"] = await _add_alert(cluster)
    await add_finished_jobs(cluster.db, FINISHED)
    return jobs


async def _add_alert(cluster: SimulatedCluster) -> str:
    """Add an alert on everything, with many messages that were delivered; return its id."""
    target = Target(TargetKind.BROWSER)
    wanted = Definition(name="all", on=tuple(Condition), target=target, waiting_seconds=0.0)
    alert = await cluster.coordinator.alerts.create(wanted)
    now = cluster.clock.now()
    delivery = {
        "alert_id": alert.id, "condition": "job.failed", "text": "x", "subjects": [],
        "subject_count": 0, "state": "delivered", "tries": 1, "created_at": now,
        "finished_at": now,
    }  # fmt: skip
    rows = [{**delivery, "sequence": number} for number in range(1, FINISHED)]
    async with cluster.db.transaction() as session:
        await session.execute(insert(AlertDelivery), rows)
    return alert.id


async def recurring(cluster: SimulatedCluster, jobs: dict[str, str]) -> None:
    """Do once what a coordinator does all the time, and what open pages ask it for."""
    coordinator, running = cluster.coordinator, jobs["running"]
    await coordinator.reconciler.pass_once()
    coordinator.gateway.wake_all()
    await cluster.heartbeat(1.0)
    await coordinator.gateway.flush_readings()
    for sequence in range(1, 3):
        body = frame(sequence, table([sequence], loss=[0.5]))
        await coordinator.ingest.metrics(running, 1, "0-aaaaaaaa", body)
    await coordinator.ingest.logs(running, 1, 0, "stdout", 0, b"a line\nand a prompt> ")
    await cluster.report_event(running, "note", {"message": "x"})
    await cluster.save_checkpoint(running, 30)
    cluster.clock.advance(2.0)
    coordinator.packer.pack_frames = 1
    await coordinator.packer.pack_once()
    unused = cluster.folder / "code" / ("0" * 64)
    unused.parent.mkdir(parents=True, exist_ok=True)
    unused.touch()
    os.utime(unused, (0, 0))
    await coordinator.housekeep()
    await coordinator.queue_history.sample()
    assert not unused.exists()
    async with cluster.db.transaction() as session:
        await quarantine_failing_nodes(session, cluster.nodes, cluster.clock.now())
    await cluster.submit(4)
    await coordinator.alert_monitor.check()
    await coordinator.alert_dispatcher.deliver_due()
    await coordinator.alerts.housekeep()

    await coordinator.alerts.list()
    await coordinator.alerts.deliveries(jobs["alert"], limit=20)
    newest = await coordinator.alert_feed.newest()
    follow = coordinator.alert_feed.follow(newest - 1, SYSTEM)
    assert (await anext(follow)).condition == "job.waiting"
    await follow.aclose()
    page = await coordinator.jobs.list(limit=20)
    await coordinator.jobs.list(limit=20, cursor=page.next_cursor)
    for states in (["running"], ["completed"], ["completed", "failed"]):
        await coordinator.jobs.list(limit=20, states=states)
        await coordinator.jobs.list(limit=20, states=states, cursor=page.next_cursor)
    await coordinator.jobs.get(running)
    await coordinator.queue.list(history=True)
    await coordinator.queue_history.of_job(jobs["waiting"])
    await coordinator.quotas.list()
    await coordinator.ledger.read(LedgerQuery(), 100)
    await coordinator.nodes.list()
    await coordinator.nodes.devices()
    await coordinator.nodes.summary()
    await coordinator.nodes.events(next(iter(cluster.nodes)))
    await coordinator.checkpoints.list(running)
    await coordinator.jobs.events(running)
    await coordinator.jobs.attempts(running)
    await coordinator.gradients.history(running, 10)
    await read_frames(cluster.db, running, 0)
    await read_metrics(cluster.db, running)
    await read_logs(cluster.db, running, tail=1)
    await exposition(cluster.db, cluster.clock.now())


async def test_recurring_statements_read_nothing_of_finished_jobs(
    cluster: SimulatedCluster, busy: dict[str, str]
) -> None:
    with recorded() as statements:
        await recurring(cluster, busy)
    slow = {}
    for statement, parameters in statements:
        if COUNTED in statement or statement in slow:
            continue
        if found := await _reads_much(cluster.db, statement, parameters):
            slow[statement] = found
    assert not slow, "\n\n".join(f"{sql}\n-- {why}" for sql, why in slow.items())
    assert len({statement for statement, _ in statements}) > 40


async def _reads_much(database: Database, statement: str, parameters: Any) -> str | None:
    """Say why a statement reads finished jobs, or None."""

    def explain(connection: Connection) -> str | None:
        if database.dialect == "postgresql":
            explained = "EXPLAIN (ANALYZE, FORMAT JSON) " + statement
            found = _of_postgres(connection.exec_driver_sql(explained, parameters).scalar_one()[0])
        else:
            found = _of_sqlite(connection, statement, parameters)
        connection.rollback()
        return "\n-- ".join(found) or None

    return await database.write(explain)


def _of_sqlite(connection: Connection, statement: str, parameters: Any) -> list[str]:
    driver: Any = connection.connection.driver_connection
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += _STRIDE

    driver.set_progress_handler(count, _STRIDE)
    result = connection.exec_driver_sql(statement, parameters)
    if result.returns_rows:
        result.all()
    driver.set_progress_handler(None, 0)
    if steps <= MAX_STEPS:
        return []
    plan = connection.exec_driver_sql("EXPLAIN QUERY PLAN " + statement, parameters)
    return [f"{steps} steps of SQLite's machine", *(row.detail for row in plan)]


def _of_postgres(explained: dict[str, Any]) -> list[str]:
    def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield plan
        for each in plan.get("Plans", ()):
            yield from nodes(each)

    wrong = []
    for node in nodes(explained["Plan"]):
        name = node.get("Relation Name")
        rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
        if name is not None and name not in SMALL and node["Actual Loops"] * rows > MAX_ROWS:
            wrong.append(f"{node['Node Type']} reads {rows} rows of {name}")
    return wrong
