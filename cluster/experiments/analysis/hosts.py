"""Hosts and software on which the runs of an experiment were, and when."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime

from sqlalchemy import Connection, select

from trainhall.cluster.experiments.analysis.text import listing
from trainhall.db.documents import Allocation
from trainhall.db.models import Attempt, Device, Job, Node, PackageSet
from trainhall.db.views import rfc3339


def load_hosts(connection: Connection, experiment_id: str) -> list[tuple[str, str]]:
    """Return as names and texts the time of the runs, their software, and by node the devices that
    they held and its cores; of a node that was removed only what it was called."""
    attempts = connection.execute(
        select(Attempt.started_at, Attempt.finished_at, Attempt.allocation)
        .join(Job, Job.id == Attempt.job_id)
        .where(Job.experiment_id == experiment_id)
    ).all()
    if not attempts:
        return []
    ends = [attempt.finished_at for attempt in attempts]
    last = "now" if None in ends else _second(max(ends))
    first = _second(min(attempt.started_at for attempt in attempts))
    held = [attempt.allocation for attempt in attempts]
    return [
        ("time of the runs", f"{first} to {last}"),
        *_software(connection, experiment_id),
        *_nodes(connection, held),
    ]


def _software(connection: Connection, experiment_id: str) -> Iterator[tuple[str, str]]:
    """Yield the versions of what decides on speed and figures; several where runs differ."""
    used = select(Attempt.package_set).join(Job, Job.id == Attempt.job_id)
    sets = connection.execute(
        select(PackageSet.os, PackageSet.python, PackageSet.cuda, PackageSet.packages).where(
            PackageSet.sha256.in_(used.where(Job.experiment_id == experiment_id))
        )
    ).all()
    versions = {
        "system": {row.os for row in sets},
        "Python": {row.python for row in sets},
        "torch": {row.packages["torch"] for row in sets if "torch" in row.packages},
        "CUDA": {row.cuda for row in sets if row.cuda is not None},
    }
    for name, found in versions.items():
        if found:
            yield name, listing(sorted(found))


def _nodes(connection: Connection, held: list[Allocation]) -> list[tuple[str, str]]:
    names = {host.node_id: host.node_name for allocation in held for host in allocation}
    used = {device for allocation in held for device in allocation.devices}
    devices: dict[str, Counter[str]] = defaultdict(Counter)
    for node_id, index, name in connection.execute(
        select(Device.node_id, Device.index, Device.name).where(Device.node_id.in_(names))
    ):
        if (node_id, index) in used:
            devices[node_id][name] += 1
    found = connection.execute(select(Node.id, Node.host_use).where(Node.id.in_(names)))
    cores = {row.id: row.host_use.get("cores") for row in found}
    return [
        (f"node {name}", _text(devices[node_id], cores.get(node_id)))
        for node_id, name in sorted(names.items(), key=lambda item: item[1])
    ]


def _text(devices: Counter[str], cores: int | None) -> str:
    parts = [f"{number} × {name}" for name, number in sorted(devices.items())]
    if cores:
        parts.append(f"{cores} cores")
    return listing(parts) if parts else "removed since"


def _second(time: datetime) -> str:
    return f"{rfc3339(time)[:19].replace('T', ' ')} UTC"
