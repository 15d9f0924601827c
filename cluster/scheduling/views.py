"""Views of the queue and the quotas, as the REST API returns them."""

from pydantic import Field

from trainhall.cluster.queue.views import QueuePosition
from trainhall.db.views import Page, Time, View


class Needs(View):
    """Devices that a waiting job needs."""

    device: str = Field(json_schema_extra={"enum": ["cpu", "cuda"]})
    """`auto` is resolved for the cluster as it is."""
    count: int


class QueueEntry(View):
    """Waiting job with the reason."""

    job_id: str | None
    """Null, as are name, user and project, for a job of another project, which you may not see."""
    name: str | None
    user: str | None
    """Owner of the job."""
    project: str | None
    priority: int
    """Higher runs first; a day of waiting counts as much as one level, unless configured."""
    queued_at: Time
    position: int
    """1 is next."""
    reason: str
    """Cause of the wait, and what would start the job."""
    reason_code: str
    """The same for programs, as in `waiting_for_devices` or `quota_exceeded`."""
    needs: Needs
    earliest_start: Time | None
    """Expected or earliest possible start (restarts wait longer after each failure); null if
    unknown."""
    can_start: bool
    """False when it could never start with the present nodes (`reason_code` `never_fits`) or quotas
    (`quota_too_small`); `reason` says what to change."""
    history: list[QueuePosition] | None = None
    """Its positions over time, at most 24; null unless asked for."""


class QueuePage(Page[QueueEntry]):
    """Waiting jobs, the next one first."""

    total: int
    """Number of waiting jobs, on all pages together."""


class Quota(View):
    """Quota of a project or a user, and its use."""

    kind: str = Field(json_schema_extra={"enum": ["project", "user"]})
    name: str
    limit: int | None
    """Devices at once; null if unlimited."""
    used: int
    """Devices that its jobs hold."""
    waiting: int
    """Number of its jobs in the queue, whatever they wait for."""


class QuotaOfOthers(View):
    """Limit for each one without a quota of its own; null: unlimited."""

    project: int | None
    user: int | None


class QuotaPage(Page[Quota]):
    """Every project and user that holds devices, waits for some or has a quota of its own, as far
    as you see them: your projects, and yourself."""

    others: QuotaOfOthers


class Outlook(View):
    """Expected start of a job if it were submitted now."""

    when: str = Field(json_schema_extra={"enum": ["now", "later", "never"]})
    """`never`: not while cluster and quotas are as they are."""
    position: int
    """Position in the queue; 1 is next."""
    expected_at: Time | None
    """Estimated from the jobs ahead of it; null if too little is known of them."""
    reason: str
    """Expected place, or the cause of the wait."""
