"""The queue and the quotas as the services hand them out, with the fields of the REST contract."""

from dataclasses import dataclass
from datetime import datetime

from trainhall.cluster.pagination import Page


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
    reason_code: str
    needs: Needs
    earliest_start: datetime | None
    """When it is expected to start, or may at the earliest (restarts wait longer after each
    failure); None: unknown."""
    can_start: bool
    """False when the cluster as it is could never run it."""


@dataclass(frozen=True)
class QueuePage(Page[QueueEntryView]):
    total: int
    """Number of waiting jobs."""


@dataclass(frozen=True)
class QuotaView:
    """Limit and present use of a project or a user."""

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
    """Limit of each project and each user without a quota of its own, by kind."""


@dataclass(frozen=True)
class Outlook:
    """When a job would start that was submitted now."""

    when: str
    """now, later or never."""
    position: int
    """In the queue."""
    expected_at: datetime | None
    reason: str
