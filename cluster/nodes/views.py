"""Views of nodes, devices and the cluster, as the REST API returns them."""

from dataclasses import dataclass
from datetime import datetime

from pydantic import Field

from trainhall.cluster.nodes.commands import NodeCommand
from trainhall.cluster.wire.protocol import HostUse
from trainhall.db.views import JsonObject, Page, Time, View


class Device(View):
    """A GPU or a CPU slot of a node."""

    node_id: str
    index: int
    kind: str = Field(json_schema_extra={"enum": ["cpu", "cuda"]})
    name: str
    memory_total: int
    """Bytes."""
    memory_used: int | None
    """Bytes; null where the host does not report it."""
    utilization: float | None
    """0 to 100."""
    temperature: float | None
    """Degrees Celsius."""
    power: float | None
    """Watts."""
    busy: bool
    """A job holds it."""
    job_id: str | None
    """Job that holds it; null, as are its name, user and project, if that is one of another
    project, which you may not see."""
    job_name: str | None
    """Name of that job."""
    job_user: str | None
    """Owner of that job."""
    job_project: str | None
    gone: bool
    """Its host no longer reports it. It is granted to no other job, and leaves the list once the
    job has released it."""

    def name_no_job(self) -> None:
        """Leave out which job holds it."""
        self.job_id = self.job_name = self.job_user = self.job_project = None


class DevicePage(Page[Device]):
    """Devices of all nodes."""


class Host(HostUse):
    """Use of a node's host, as last reported."""


class Node(View):
    """Host that runs an agent, or one that may join."""

    id: str
    name: str
    state: str
    """`pending` (has not joined), `ready`, `suspect`, `lost`, `draining` or `drained`."""
    reason: str
    reason_code: str
    """The same for programs, as in `unreachable` or `drained`."""
    state_at: Time
    """Start of its present state."""
    drain_reason: str | None
    """Reason for draining it; null if it is not drained."""
    agent_version: str | None
    last_seen_at: Time | None
    labels: JsonObject
    projects: list[str] | None
    """The only projects whose jobs it gets, as far as you see them; null: all."""
    devices: list[Device]
    address: str
    """Address at which other nodes reach it."""
    host: Host
    refused_commands: dict[NodeCommand, str]
    """Commands that would have no effect now, or that you may not give, each with the reason as a
    sentence."""


class NodePage(Page[Node]):
    """Nodes of the cluster."""


class NodeEvent(View):
    """Event of a node."""

    time: Time
    state: str
    code: str
    """Event code for programs: a `reason_code`, or as in `labels_changed`."""
    reason: str


class Summary(View):
    """The cluster at a glance."""

    nodes: int
    devices: int
    devices_busy: int
    jobs: dict[str, int]
    """Number of jobs in each state, without archived ones."""
    utilization: float | None
    """Mean over the devices that report it, 0 to 100."""
    memory_used: int
    """Bytes."""
    memory_total: int
    """Bytes."""
    power: float | None
    """Watts over all devices that report it."""


@dataclass(frozen=True)
class Registration:
    """Node that may join, once, with this token."""

    id: str
    name: str
    join_token: str
    expires_at: datetime
    replaced_token: bool
    """A token that it was given before, and that was not used, no longer works."""
