"""Nodes, devices, the queue and the summary as the API shows them."""

from typing import Annotated

from pydantic import AfterValidator, Field, field_validator

from trainhall.api.schemas.base import Body, JsonObject, ListPage, Schema, Time


class Device(Schema):
    """A GPU or a CPU slot of a node."""

    node_id: str
    index: int
    kind: str = Field(json_schema_extra={"enum": ["cpu", "cuda"]})
    name: str
    memory_total: int
    """Bytes."""
    memory_used: int | None
    """Bytes; null where the host cannot measure it."""
    utilization: float | None
    """0 to 100."""
    temperature: float | None
    """Degrees Celsius."""
    power: float | None
    """Watts."""
    job_id: str | None
    """The job that holds it."""
    job_name: str | None
    """The name of that job."""
    gone: bool
    """True if its host does not have it any more. It is granted to nobody else, and leaves the
    list once the job has released it."""


class DevicePage(ListPage[Device]):
    """Devices of all nodes."""


class Host(Schema):
    """Use of a node's host, as last reported."""

    cpu: float = 0.0
    """0 to 100 over all cores."""
    memory_used: int = 0
    """Bytes."""
    memory_total: int = 0
    """Bytes."""
    disk_used: int = 0
    """Bytes on the file system of the agent's data folder."""
    disk_total: int = 0
    """Bytes."""


class Node(Schema):
    """A host that runs an agent, or one that may join."""

    id: str
    name: str
    state: str
    """`pending` (has not joined), `ready`, `suspect`, `lost`, `draining` or `drained`."""
    reason: str
    reason_code: str
    """The same for programs, as in `unreachable` or `drained`."""
    state_at: Time
    """Since when it is in its state."""
    drain_reason: str | None
    """Why it is to be drained; null: it is not."""
    agent_version: str | None
    last_seen_at: Time | None
    labels: JsonObject
    devices: list[Device]
    address: str
    """Address at which other nodes reach it."""
    host: Host


class NodePage(ListPage[Node]):
    """Nodes of the cluster."""


def _plain(value: str) -> str:
    if not value.isprintable():
        raise ValueError("may not hold control characters or line breaks")
    return value


Label = Annotated[str, Field(max_length=256), AfterValidator(_plain)]
LabelKey = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_plain)]


class NewNode(Body):
    """A host that shall join."""

    name: Annotated[str, Field(min_length=1, max_length=128), AfterValidator(_plain)] | None = None
    """For people; unique. Chosen when it is left out."""
    labels: dict[LabelKey, Label] = Field(default_factory=dict)
    """At most 64."""

    @field_validator("labels")
    @classmethod
    def _few(cls, labels: dict[str, str]) -> dict[str, str]:
        if len(labels) > 64:
            raise ValueError(f"at most 64 labels, not {len(labels)}")
        return labels


class Drain(Body):
    """Why a node is drained."""

    reason: Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_plain)] | None = (
        None
    )
    """Shown with the node, and in the jobs that move."""


class NodeChange(Body):
    """Changes to a node."""

    labels: dict[LabelKey, Label | None]
    """Labels to set; null takes one away. The others stay."""


class NodeEvent(Schema):
    """Something that became of a node."""

    time: Time
    state: str
    reason: str


class NodeEvents(Schema):
    """Events of a node."""

    items: list[NodeEvent]
    """The oldest first; the last 100 are kept."""


class AnnouncedNode(Schema):
    """A node that may join once with this token."""

    id: str
    name: str
    join_token: str
    """Works once."""
    command: str
    """Run this on the host."""
    note: str | None
    """Limitation of the command; null when it works on any host."""
    expires_at: Time
    """When the token ends."""


class DevicePoint(Schema):
    """Use of a device in the interval up to `time`."""

    time: Time
    utilization: float | None
    """Mean, 0 to 100."""
    memory_used: int | None
    """Largest, bytes."""
    temperature: float | None
    """Largest, degrees Celsius."""
    power: float | None
    """Mean, watts."""


class DeviceHistory(Schema):
    """Past use of one device of a node."""

    index: int
    points: list[DevicePoint]
    """The oldest first."""


class NodeHistory(Schema):
    """Past use of the devices of a node."""

    items: list[DeviceHistory]


class Needs(Schema):
    """Needs of a waiting job."""

    device: str = Field(json_schema_extra={"enum": ["cpu", "cuda"]})
    count: int


class QueueEntry(Schema):
    """A job that waits, and for what."""

    job_id: str
    name: str
    priority: int
    """Higher runs first; a day of waiting counts as much as one level, unless configured."""
    queued_at: Time
    position: int
    """1 is next."""
    reason: str
    """Reason for waiting, and condition for its start."""
    reason_code: str
    """The same for programs, as in `waiting_for_devices` or `quota_exceeded`."""
    needs: Needs
    earliest_start: Time | None
    """When it is expected to start, or may at the earliest; null when that is unknown."""
    can_start: bool
    """False when the cluster as it is could never run it; `reason` says why."""


class QueuePage(ListPage[QueueEntry]):
    """Waiting jobs, the next one first."""

    total: int
    """Number of waiting jobs, on all pages together."""


class Quota(Schema):
    """Device limit and present use of a project or a user."""

    kind: str = Field(json_schema_extra={"enum": ["project", "user"]})
    name: str
    limit: int | None
    """Devices at once; null when no quota holds for it."""
    used: int
    """Devices that its jobs hold."""
    waiting: int
    """Number of its jobs in the queue, for any reason."""


class QuotaOfOthers(Schema):
    """Device limit of each one without a quota of its own; null: unlimited."""

    project: int | None
    user: int | None


class QuotaPage(ListPage[Quota]):
    """Every project and user that holds devices, waits for some or has a quota of its own."""

    others: QuotaOfOthers


class Summary(Schema):
    """The cluster at a glance."""

    nodes: int
    devices: int
    devices_busy: int
    jobs: dict[str, int]
    """Number of jobs by state."""
    utilization: float | None
    """Mean over the devices that report it, 0 to 100."""
    memory_used: int
    """Bytes."""
    memory_total: int
    """Bytes."""
    power: float | None
    """Watts over all devices that report it."""
