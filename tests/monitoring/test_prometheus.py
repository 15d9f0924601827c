"""The metrics for Prometheus, in its own text format."""

from datetime import timedelta

from prometheus_client.parser import text_string_to_metric_families
from support.storage.frames import NOW, add_job, commit_checkpoints, frame, table

from trainhall.cluster.lifecycle.alerts import TEST, new_delivery
from trainhall.db.alerts import Alert
from trainhall.db.database import Database
from trainhall.db.models import Device, Grant, Job, Node
from trainhall.monitoring.ingest import Ingest
from trainhall.monitoring.prometheus import exposition


async def figures(database: Database) -> dict[tuple[str, tuple[str, ...]], float]:
    text = (await exposition(database, NOW + timedelta(seconds=90))).decode()
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_prometheus_reports_cluster_and_counters(database: Database) -> None:
    await add_job(database)
    async with database.transaction() as session:
        session.add(
            Node(id="n1", name="alpha", state="ready", reason="", created_at=NOW, state_at=NOW)
        )
        await session.flush()
        for index in (0, 1):
            session.add(
                Device(
                    node_id="n1", index=index, kind="cuda", name="a GPU", memory_total=80,
                    utilization=12.5 if index else None,
                )
            )  # fmt: skip
        await session.flush()
        session.add(Grant(node_id="n1", device_index=1, job_id="job", attempt=1))
    before = await figures(database)
    assert before["trainhall_jobs", ("running",)] == 1
    assert before["trainhall_nodes", ("ready",)] == 1
    assert before["trainhall_devices", ("cuda",)] == 2
    assert before["trainhall_devices_busy", ()] == 1
    assert before["trainhall_device_utilization", ("1", "alpha")] == 12.5
    assert ("trainhall_device_utilization", ("0", "alpha")) not in before
    ingest = Ingest(database, lambda: NOW, lambda _: None)
    body = frame(1, table([1, 2], loss=[1.0, 1.0], accuracy=[0.5, 0.5]))
    for _ in range(2):
        await ingest.metrics("job", 1, "w", body)
        await ingest.logs("job", 1, 0, "stdout", 0, b"hello\n")
    after = await figures(database)
    points, output = ("trainhall_metric_points_total", ()), ("trainhall_log_bytes_total", ())
    assert after[points] - before[points] == 4
    assert after[output] - before[output] == 6


async def test_prometheus_reports_waits_reasons_and_backlogs(database: Database) -> None:
    await add_job(database)
    await commit_checkpoints(database, [10, 20])
    await add_job(database, "waits")
    async with database.transaction() as session:
        waits = await session.get(Job, "waits")
        assert waits is not None
        waits.state, waits.queued_at = "queued", NOW - timedelta(seconds=10)
        session.add(
            Node(
                id="n1", name="alpha", state="drained", reason="", reason_code="draining",
                created_at=NOW, state_at=NOW, host_use={"backlog": 4096},
            )
        )  # fmt: skip
        alert = Alert(
            id="a", number=1, name="a", on=[], scope_kind="cluster", waiting_seconds=0,
            disk_percent=90, target_kind="browser", enabled=True, reason="", failing_since=NOW,
            created_at=NOW,
        )  # fmt: skip
        session.add(alert)
        await session.flush()
        session.add(new_delivery("a", TEST, "x", [], NOW))
    body = frame(1, table([1], loss=[1.0]))
    await Ingest(database, lambda: NOW, lambda _: None).metrics("job", 1, "w", body)
    found = await figures(database)
    assert found["trainhall_queue_longest_wait_seconds", ()] == 100
    assert found["trainhall_node_states", ("draining", "drained")] == 1
    assert found["trainhall_checkpoint_age_seconds", ("a job", "job")] == 90
    assert found["trainhall_node_backlog_bytes", ("alpha",)] == 4096
    assert found["trainhall_metric_frames_unpacked", ()] == 1
    assert found["trainhall_alert_deliveries_pending", ()] == 1
    assert found["trainhall_alerts_failing", ()] == 1


async def test_prometheus_reports_zero_without_queue(database: Database) -> None:
    found = await figures(database)
    assert found["trainhall_queue_longest_wait_seconds", ()] == 0
    assert not [name for name, _ in found if name == "trainhall_checkpoint_age_seconds"]
