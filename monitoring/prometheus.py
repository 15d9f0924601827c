"""Prometheus metrics of the coordinator: counters of its own work, and the state of the cluster."""

from collections.abc import Iterator
from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.db.alerts import Alert, AlertDelivery
from trainhall.db.database import Database
from trainhall.db.models import Checkpoint, Device, Grant, Job, MetricFrame, Node

REGISTRY = CollectorRegistry()
POINTS = Counter("trainhall_metric_points", "Metric points stored.", registry=REGISTRY)
LOG_BYTES = Counter("trainhall_log_bytes", "Bytes of rank output stored.", registry=REGISTRY)
VIEWERS_DROPPED = Counter(
    "trainhall_viewers_dropped", "Live viewers dropped for being slow.", registry=REGISTRY
)
QUEUE_WAIT = Histogram(
    "trainhall_queue_wait_seconds",
    "Time that jobs waited in the queue before they got their devices.",
    buckets=[1, 5, 15, 60, 5 * 60, 15 * 60, 3600, 4 * 3600, 12 * 3600, 24 * 3600, 72 * 3600],
    registry=REGISTRY,
)


class _Snapshot(Collector):
    def __init__(self, families: list[GaugeMetricFamily]) -> None:
        self._families = families

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield from self._families


async def exposition(database: Database, now: datetime) -> bytes:
    """Export all in Prometheus' text format (`text/plain; version=0.0.4`)."""
    async with database.session() as session:
        families = [
            *await _counts(session),
            await _device_utilization(session),
            await _queue_wait(session, now),
            await _nodes_by_reason(session),
            await _checkpoint_ages(session, now),
            *await _backlogs(session),
        ]
    snapshot = CollectorRegistry()
    snapshot.register(_Snapshot(families))
    return generate_latest(REGISTRY) + generate_latest(snapshot)


async def _counts(session: AsyncSession) -> list[GaugeMetricFamily]:
    jobs = GaugeMetricFamily("trainhall_jobs", "Jobs by state.", labels=["state"])
    nodes = GaugeMetricFamily("trainhall_nodes", "Nodes by state.", labels=["state"])
    devices = GaugeMetricFamily("trainhall_devices", "Devices by kind.", labels=["kind"])
    for family, column in ((jobs, Job.state), (nodes, Node.state), (devices, Device.kind)):
        counts = await session.execute(select(column, func.count()).group_by(column))
        for value, count in counts:
            family.add_metric([value], count)
    busy = GaugeMetricFamily("trainhall_devices_busy", "Devices that an attempt holds.")
    busy.add_metric([], await session.scalar(select(func.count()).select_from(Grant)) or 0)
    return [jobs, nodes, devices, busy]


async def _device_utilization(session: AsyncSession) -> GaugeMetricFamily:
    use = GaugeMetricFamily(
        "trainhall_device_utilization",
        "How busy a device is, 0 to 100.",
        labels=["node", "device"],
    )
    for node, index, utilization in await session.execute(
        select(Node.name, Device.index, Device.utilization)
        .join(Node, Node.id == Device.node_id)
        .where(Device.utilization.is_not(None))
    ):
        use.add_metric([node, str(index)], float(utilization or 0.0))
    return use


async def _queue_wait(session: AsyncSession, now: datetime) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "trainhall_queue_longest_wait_seconds",
        "Time for which the queued job that waits longest has waited; 0 without one.",
    )
    first = await session.scalar(select(func.min(Job.queued_at)).where(Job.state == "queued"))
    family.add_metric([], 0.0 if first is None else max((now - first).total_seconds(), 0.0))
    return family


async def _nodes_by_reason(session: AsyncSession) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "trainhall_node_states",
        "Nodes by state and the code of its reason.",
        labels=["state", "reason"],
    )
    counts = await session.execute(
        select(Node.state, Node.reason_code, func.count()).group_by(Node.state, Node.reason_code)
    )
    for state, reason, count in counts:
        family.add_metric([state, reason], count)
    return family


_NEWEST_SAVE = (
    select(Checkpoint.created_at)
    .where(Checkpoint.job_id == Job.id, Checkpoint.state == "committed")
    .order_by(Checkpoint.step.desc())
    .limit(1)
    .correlate(Job)
    .scalar_subquery()
)


async def _checkpoint_ages(session: AsyncSession, now: datetime) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "trainhall_checkpoint_age_seconds",
        "Time since the newest checkpoint of each running job that has one.",
        labels=["job_id", "job"],
    )
    running = select(Job.id, Job.name, _NEWEST_SAVE).where(Job.state == "running")
    for job_id, name, saved_at in await session.execute(running):
        if saved_at is not None:
            family.add_metric([job_id, name], max((now - saved_at).total_seconds(), 0.0))
    return family


async def _backlogs(session: AsyncSession) -> list[GaugeMetricFamily]:
    """Count what has still to be sent, packed or delivered."""
    unsent = GaugeMetricFamily(
        "trainhall_node_backlog_bytes",
        "Output, metrics and events of a node that the coordinator had not stored at its report.",
        labels=["node"],
    )
    for node, use in await session.execute(select(Node.name, Node.host_use)):
        unsent.add_metric([node], use.get("backlog", 0))
    frames = GaugeMetricFamily(
        "trainhall_metric_frames_unpacked", "Stored metric frames that are not packed yet."
    )
    unpacked = select(func.count()).select_from(MetricFrame).where(MetricFrame.packed.is_(False))
    frames.add_metric([], await session.scalar(unpacked) or 0)
    pending = GaugeMetricFamily(
        "trainhall_alert_deliveries_pending", "Messages of alerts that are not delivered yet."
    )
    waiting = select(func.count()).where(AlertDelivery.state == "pending")
    pending.add_metric([], await session.scalar(waiting) or 0)
    failing = GaugeMetricFamily("trainhall_alerts_failing", "Alerts whose target fails.")
    failed = select(func.count()).where(Alert.enabled.is_(True), Alert.failing_since.is_not(None))
    failing.add_metric([], await session.scalar(failed) or 0)
    return [unsent, frames, pending, failing]
