"""What the services hand out: frozen values with the fields of the REST contract."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from trainhall.cluster.incidents import Incident
from trainhall.monitoring.health import Straggler

T = TypeVar("T")


@dataclass(frozen=True)
class Page(Generic[T]):
    items: list[T]
    next_cursor: str | None
    """Hand it back for the next page; None on the last one."""


@dataclass(frozen=True)
class JobView:
    id: str
    name: str
    state: str
    reason: str
    attempt: int
    """Number of the newest attempt; 0 before the first."""
    generation: int
    step: int
    """Finished optimizer steps."""
    total_steps: int | None
    """None until the first attempt has told it."""
    world_size: int
    priority: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    ran_seconds: float
    """What its attempts that ended took altogether."""
    running_since: datetime | None
    """When the attempt that goes on was started."""
    spec: dict[str, Any]
    metrics: dict[str, Any]
    """Last value of every job-wide series; NaN and infinities as text."""
    straggler: Straggler | None = None
    """The rank that holds up the others, if one does; of a job that runs."""
    warnings: Sequence[str] = ()
    """What a person should look at, though it goes on; of a job that has not ended."""
    plan: dict[str, Any] | None = None
    """Of strategy `auto`, once it is planned: `trainhall.cluster.plans`, with `error`."""


@dataclass(frozen=True)
class AttemptView:
    attempt: int
    generation: int
    state: str
    reason: str
    world_size: int
    allocation: list[dict[str, Any]]
    """`[{node_id, node_name, node_rank, ranks: [{rank, local_rank, device_kind,
    device_index}]}]`."""
    generations: list[dict[str, Any]]
    """Oldest first: `{generation, time, reason, world_size, allocation, failure}`."""
    started_at: datetime
    finished_at: datetime | None
    failure: dict[str, Any] | None
    """A `trainhall.training.link.Failure`, of the first failing rank."""
    timeline: list[Incident] = field(default_factory=list)
    """What failed in it and what became of that, the oldest first."""


@dataclass(frozen=True)
class EventView:
    seq: int
    time: datetime
    kind: str
    reason: str
    attempt: int | None
    data: dict[str, Any]


@dataclass(frozen=True)
class CheckpointView:
    id: str
    job_id: str
    attempt: int
    step: int
    created_at: datetime
    size: int
    """Bytes."""
    state: str
    """committed, corrupt, deleting or deleted."""
    pinned: bool
    metrics: dict[str, Any]
    location: str
    """Its folder on shared storage, or below the coordinator's data folder."""


@dataclass(frozen=True)
class RetentionView:
    """What a job's retention says of one of its checkpoints."""

    checkpoint: CheckpointView
    keep: bool
    reason: str


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
    gone: bool
    """Its host does not have it any more. It is granted to nobody else, and leaves the list once
    the job has given it back."""


@dataclass(frozen=True)
class NodeView:
    id: str
    name: str
    state: str
    reason: str
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
class CodeView:
    """Code that was uploaded."""

    sha256: str
    size: int
    """Bytes of the archive."""


@dataclass(frozen=True)
class Announcement:
    """A node that may join, once, with this token."""

    id: str
    name: str
    join_token: str
    expires_at: datetime


@dataclass(frozen=True)
class Needs:
    device: str
    """cpu or cuda; `auto` was resolved for the cluster as it is."""
    count: int


@dataclass(frozen=True)
class QueueEntryView:
    job_id: str
    name: str
    priority: int
    queued_at: datetime
    position: int
    """1 is next."""
    reason: str
    needs: Needs
    earliest_start: datetime | None
    """When it is expected to start, or may at the earliest (restarts wait longer after each
    failure); None: nobody knows."""


@dataclass(frozen=True)
class QueuePage(Page[QueueEntryView]):
    total: int
    """How many jobs wait."""


@dataclass(frozen=True)
class QuotaView:
    """What a project or a user may hold, and what it does."""

    kind: str
    """project or user."""
    name: str
    limit: int | None
    """Devices at once; None: no quota holds for it."""
    used: int
    """Devices that its jobs hold."""
    waiting: int
    """Jobs of it in the queue, whatever they wait for."""


@dataclass(frozen=True)
class QuotaTable:
    items: list[QuotaView]
    """By kind and name."""
    others: dict[str, int | None]
    """What each project and each user may hold that has no quota of its own, by kind."""


@dataclass(frozen=True)
class Outlook:
    """When a job would start that was submitted now."""

    when: str
    """now, later or never."""
    position: int
    """In the queue."""
    expected_at: datetime | None
    reason: str


@dataclass(frozen=True)
class SummaryView:
    nodes: int
    devices: int
    devices_busy: int
    jobs: dict[str, int]
    """How many jobs are in each state."""
    utilization: float | None
    """Mean over the devices that tell it, 0 to 100."""
    memory_used: int
    memory_total: int
    power: float | None
    """Watts over all devices that tell it."""
