"""Views of a what-if comparison, as the REST API returns them."""

from trainhall.db.views import View


class Waits(View):
    """Seconds that jobs spent in the queue."""

    mean: float
    median: float
    p95: float
    max: float


class NeverStarted(View):
    """Reason why jobs never start."""

    reason: str
    """Text, with what would let them start."""
    jobs: int


class Replayed(View):
    """Outcome of the recorded jobs on one cluster."""

    devices: dict[str, int]
    """Number of devices by kind."""
    never_started: int
    """Jobs that this cluster and these quotas could never run."""
    causes: list[NeverStarted]
    """Reasons of those jobs, the most frequent first, at most 5."""
    waits: Waits | None
    """Waits of the jobs that start both without and with the changes; null if there are none."""
    first_starts: int
    """Jobs that have never run in fact, and start here."""
    utilization: float
    """Share of the time that devices were held, 0 to 100."""


class AccountWaits(View):
    """Waits of the jobs of one project or user."""

    kind: str
    """project or user."""
    name: str
    jobs: int
    never_started_before: int
    never_started_after: int
    before: Waits | None
    """Waits of those that start both without and with the changes; `after` as well."""
    after: Waits | None


class WhatIf(View):
    """The recorded queue, replayed on the cluster as it is and as it could be."""

    days: float
    jobs: int
    """Jobs submitted in that time, which are counted."""
    warning: str | None
    """Text, if jobs that start on the cluster as it is would never start with the changes."""
    no_longer_started: int
    """Number of those jobs."""
    compared: int
    """Jobs that start both without and with the changes: all waits are theirs."""
    left_out: int
    """Jobs that were cancelled or paused before they ran."""
    never_ran: int
    """Jobs that wait and have never run; `assumptions` has their durations."""
    is_cut: bool
    """True if there were more jobs than are replayed, so that only the newest are."""
    recorded: Waits | None
    """Waits of compared jobs as measured, up to the first start: they tell how far the replay of
    the cluster as it is can be trusted."""
    before: Replayed
    """Outcome on the cluster as it is."""
    after: Replayed
    """Outcome with the changes."""
    accounts: list[AccountWaits]
    """Waits by project and user, most jobs first."""
    assumptions: list[str]
    """Assumptions of the replay."""
