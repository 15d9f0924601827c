"""The metrics for Prometheus, in its own text format."""

from prometheus_client.parser import text_string_to_metric_families
from support.storage.frames import NOW, add_job, frame, table

from trainhall.db.database import Database
from trainhall.db.models import Device, Grant, Node
from trainhall.monitoring.ingest import Ingest
from trainhall.monitoring.prometheus import exposition


async def figures(database: Database) -> dict[tuple[str, tuple[str, ...]], float]:
    text = (await exposition(database)).decode()
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
