"""Prometheus metrics of the coordinator: counters of its own work, and the state of the cluster."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy import func, select

from trainhall.db.database import Database
from trainhall.db.models import Device, Grant, Job, Node

REGISTRY = CollectorRegistry()
POINTS = Counter("trainhall_metric_points", "Metric points stored.", registry=REGISTRY)
LOG_BYTES = Counter("trainhall_log_bytes", "Bytes of rank output stored.", registry=REGISTRY)
VIEWERS_DROPPED = Counter(
    "trainhall_viewers_dropped", "Live viewers dropped for being slow.", registry=REGISTRY
)


class _Snapshot(Collector):
    def __init__(self, families: list[GaugeMetricFamily]) -> None:
        self._families = families

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield from self._families


async def exposition(database: Database) -> bytes:
    """Export all in Prometheus' text format (`text/plain; version=0.0.4`)."""
    jobs = GaugeMetricFamily("trainhall_jobs", "Jobs by state.", labels=["state"])
    nodes = GaugeMetricFamily("trainhall_nodes", "Nodes by state.", labels=["state"])
    devices = GaugeMetricFamily("trainhall_devices", "Devices by kind.", labels=["kind"])
    busy = GaugeMetricFamily("trainhall_devices_busy", "Devices that an attempt holds.")
    use = GaugeMetricFamily(
        "trainhall_device_utilization",
        "How busy a device is, 0 to 100.",
        labels=["node", "device"],
    )
    async with database.session() as session:
        for family, column in ((jobs, Job.state), (nodes, Node.state), (devices, Device.kind)):
            counts = await session.execute(select(column, func.count()).group_by(column))
            for value, count in counts:
                family.add_metric([value], count)
        busy.add_metric([], await session.scalar(select(func.count()).select_from(Grant)) or 0)
        for node, index, utilization in await session.execute(
            select(Node.name, Device.index, Device.utilization)
            .join(Node, Node.id == Device.node_id)
            .where(Device.utilization.is_not(None))
        ):
            use.add_metric([node, str(index)], float(utilization or 0.0))
    snapshot = CollectorRegistry()
    snapshot.register(_Snapshot([jobs, nodes, devices, busy, use]))
    return generate_latest(REGISTRY) + generate_latest(snapshot)
