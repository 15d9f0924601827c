"""Nodes and devices as the services hand them out, with the fields of the REST contract."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from trainhall.db.models import Device, Node


@dataclass(frozen=True)
class DeviceView:
    node_id: str
    index: int
    kind: str
    """cpu or cuda."""
    name: str
    memory_total: int
    memory_used: int | None
    utilization: float | None
    temperature: float | None
    power: float | None
    job_id: str | None
    """The job that holds it."""
    job_name: str | None
    gone: bool
    """True if its host does not have it any more. It is granted to nobody else, and leaves the
    list once the job has released it."""


@dataclass(frozen=True)
class NodeView:
    id: str
    name: str
    state: str
    reason: str
    reason_code: str
    agent_version: str | None
    last_seen_at: datetime | None
    labels: dict[str, Any]
    devices: list[DeviceView]
    state_at: datetime
    """Since when it is in its state."""
    drain_reason: str | None
    """Why it is to be drained; None: it is not."""
    address: str = ""
    host: dict[str, Any] = field(default_factory=dict)
    """`HostUse` as last reported: cpu, memory_used, memory_total, disk_used, disk_total."""


@dataclass(frozen=True)
class NodeEventView:
    time: datetime
    state: str
    reason: str


@dataclass(frozen=True)
class Announcement:
    """A node that may join, once, with this token."""

    id: str
    name: str
    join_token: str
    expires_at: datetime


@dataclass(frozen=True)
class SummaryView:
    nodes: int
    devices: int
    devices_busy: int
    jobs: dict[str, int]
    """Number of jobs by state."""
    utilization: float | None
    """Mean over the devices that report it, 0 to 100."""
    memory_used: int
    memory_total: int
    power: float | None
    """Watts over all devices that report it."""


def device_view(device: Device, job_id: str | None, job_name: str | None) -> DeviceView:
    return DeviceView(
        node_id=device.node_id,
        index=device.index,
        kind=device.kind,
        name=device.name,
        memory_total=device.memory_total,
        memory_used=device.memory_used,
        utilization=device.utilization,
        temperature=device.temperature,
        power=device.power,
        job_id=job_id,
        job_name=job_name,
        gone=device.gone,
    )


def node_view(node: Node, devices: list[DeviceView]) -> NodeView:
    return NodeView(
        id=node.id,
        name=node.name,
        state=node.state,
        reason=node.reason,
        reason_code=node.reason_code,
        agent_version=node.agent_version,
        last_seen_at=node.last_seen_at,
        labels=node.labels,
        devices=devices,
        state_at=node.state_at,
        drain_reason=node.drain_reason,
        address=node.address,
        host=node.host_use,
    )
