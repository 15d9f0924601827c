"""Conditions that last: jobs that wait too long, disks that fill up, quotas that are reached.

Nothing happens when one begins to hold, so they are looked for now and then. What was reported is
stored until it no longer holds: it is reported once, by whichever coordinator.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, and_, case, func, select

from trainhall.cluster.access.owners import WHOLE_CLUSTER, projects_seen
from trainhall.cluster.durations import format_duration
from trainhall.cluster.lifecycle.alerts import Condition, Subject
from trainhall.cluster.lifecycle.nodes import UNREACHABLE_STATES
from trainhall.cluster.lifecycle.reasons import job_label
from trainhall.cluster.lifecycle.states import WAITING_STATES, JobState
from trainhall.cluster.quotas import Quotas
from trainhall.db.alerts import Alert, AlertFiring
from trainhall.db.models import Attempt, Grant, Job, Node

LASTING = frozenset({Condition.JOB_WAITING, Condition.DISK_FILLING, Condition.QUOTA_REACHED})
SETTLED_PERCENT = 2.0
"""A disk has to be so much emptier than the limit before it is reported again."""
COORDINATOR = Subject("coordinator", "coordinator", "the coordinator")


@dataclass(frozen=True)
class DiskUse:
    used: int
    total: int

    @property
    def percent(self) -> float:
        return 100.0 * self.used / self.total if self.total else 0.0


@dataclass(frozen=True)
class Holding:
    """Something of which a condition holds."""

    subject: Subject
    text: str
    project: str
    """Project that it belongs to, or `WHOLE_CLUSTER`."""

    @property
    def key(self) -> str:
        subject = self.subject
        return f"{subject.kind}:{subject.name}" if subject.id == "" else subject.id


@dataclass(frozen=True)
class Change:
    """Beginnings and ends of one condition, for an alert that reports it."""

    alert_id: str
    condition: Condition
    begun: Sequence[Holding]
    ended: frozenset[str]
    """Keys."""
    project: str = WHOLE_CLUSTER
    """Project of all that began."""

    @property
    def text(self) -> str:
        """The message about what began."""
        first = [holding.text for holding in self.begun[:3]]
        more = len(self.begun) - len(first)
        return "; ".join([*first, *([f"and {more} more"] if more else [])])


Finder = Callable[[Row[Any], set[str]], list[Holding]]
"""Return what a condition holds of, for an alert and the keys that it has reported."""


def find_changes(
    connection: Connection, now: datetime, quotas: Quotas, own_disk: DiskUse | None
) -> list[Change]:
    """Compare what holds now with what was reported, for each enabled alert, as far as its owner
    sees that: a change for each project."""
    table = Alert.__table__
    alerts = connection.execute(
        select(table).where(table.c.enabled.is_(True)).order_by(table.c.number)
    ).all()
    asked = {Condition(each) for alert in alerts for each in alert.on} & LASTING
    if not asked:
        return []
    reported = _reported(connection)
    seen = projects_seen(connection, {alert.user for alert in alerts})
    changes = []
    for condition, find in _finders(connection, asked, now, quotas, own_disk).items():
        for alert in alerts:
            if condition not in alert.on:
                continue
            known = reported[alert.id, condition]
            projects = seen[alert.user]
            holding = [each for each in find(alert, known) if _is_seen(projects, each, alert)]
            ended = known - {each.key for each in holding}
            if ended:
                changes.append(Change(alert.id, condition, [], frozenset(ended)))
            begun: dict[str, list[Holding]] = {}
            for each in holding:
                if each.key not in known:
                    begun.setdefault(each.project, []).append(each)
            changes += [
                Change(alert.id, condition, of_project, frozenset(), project)
                for project, of_project in begun.items()
            ]
    return changes


def _is_seen(projects: Set[str] | None, holding: Holding, alert: Row[Any]) -> bool:
    """Return whether the owner of an alert may see this."""
    subject = holding.subject
    is_own = subject.kind == "user" and subject.name == alert.user
    return projects is None or is_own or holding.project in projects


def _finders(
    connection: Connection,
    asked: Collection[Condition],
    now: datetime,
    quotas: Quotas,
    own_disk: DiskUse | None,
) -> dict[Condition, Finder]:
    """Read what the conditions depend on, once for all alerts."""
    finders: dict[Condition, Finder] = {}
    if Condition.JOB_WAITING in asked:
        waiting = connection.execute(_WAITING).all()
        finders[Condition.JOB_WAITING] = lambda alert, _: _waiting_too_long(alert, waiting, now)
    if Condition.DISK_FILLING in asked:
        disks = _disks(connection, own_disk)
        finders[Condition.DISK_FILLING] = lambda alert, known: _full_disks(alert, disks, known)
    if Condition.QUOTA_REACHED in asked:
        held = _devices_held(connection)
        finders[Condition.QUOTA_REACHED] = lambda alert, _: _reached_quotas(alert, quotas, held)
    return finders


def _reported(connection: Connection) -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    rows = connection.execute(
        select(AlertFiring.alert_id, AlertFiring.condition, AlertFiring.subject)
    )
    for alert_id, condition, subject in rows:
        found[alert_id, condition].add(subject)
    return found


_SINCE = case(
    (Job.state == JobState.QUEUED.value, Job.queued_at),
    else_=func.coalesce(Attempt.finished_at, Job.queued_at),
)
"""A job that recovers waits since its last attempt ended."""
_WAITING = (
    select(Job.id, Job.name, Job.project, Job.user, Job.reason, _SINCE.label("since"))
    .outerjoin(Attempt, and_(Attempt.job_id == Job.id, Attempt.number == Job.attempt))
    .where(Job.state.in_([state.value for state in WAITING_STATES]))
    .order_by(Job.number)
)


def _waiting_too_long(alert: Row[Any], waiting: Iterable[Row[Any]], now: datetime) -> list[Holding]:
    limit = now - timedelta(seconds=alert.waiting_seconds)
    return [
        Holding(
            Subject("job", job.id, job.name),
            f"{job_label(job.id, job.name)} has waited for "
            f"{format_duration((now - job.since).total_seconds())}: {job.reason}",
            job.project,
        )
        for job in waiting
        if job.since <= limit and _is_in_scope(alert, job)
    ]


def _is_in_scope(alert: Row[Any], job: Row[Any]) -> bool:
    of_job = {"job": job.id, "project": job.project, "user": job.user}
    return bool(alert.scope_kind == "cluster" or alert.scope_value == of_job[alert.scope_kind])


def _disks(connection: Connection, own: DiskUse | None) -> list[tuple[Subject, DiskUse]]:
    rows = connection.execute(
        select(Node.id, Node.name, Node.host_use)
        .where(Node.state.not_in([state.value for state in UNREACHABLE_STATES]))
        .order_by(Node.name)
    )
    disks = [
        (Subject("node", node_id, name), DiskUse(use["disk_used"], use["disk_total"]))
        for node_id, name, use in rows
        if use.get("disk_total")
    ]
    return [*([(COORDINATOR, own)] if own else []), *disks]


def _full_disks(
    alert: Row[Any], disks: Iterable[tuple[Subject, DiskUse]], known: set[str]
) -> list[Holding]:
    found = []
    for subject, use in disks:
        limit = alert.disk_percent - (SETTLED_PERCENT if subject.id in known else 0.0)
        if use.percent >= limit:
            where = subject.name if subject is COORDINATOR else f"node {subject.name}"
            free = f"{(use.total - use.used) / 2**30:,.1f} GiB free"
            text = f"the disk of {where} is {use.percent:.0f} % full; {free}"
            found.append(Holding(subject, text, WHOLE_CLUSTER))
    return found


def _devices_held(connection: Connection) -> Counter[tuple[str, str]]:
    """Count the devices that each project and user holds."""
    held: Counter[tuple[str, str]] = Counter()
    # Grouped by job first: SQLite would go through all jobs in the order of their projects.
    granted = select(Grant.job_id, func.count().label("count")).group_by(Grant.job_id).subquery()
    rows = connection.execute(
        select(Job.project, Job.user, granted.c.count).join(granted, granted.c.job_id == Job.id)
    )
    for project, user, count in rows:
        held["project", project or ""] += count
        held["user", user or ""] += count
    return held


def _reached_quotas(
    alert: Row[Any], quotas: Quotas, held: Counter[tuple[str, str]]
) -> list[Holding]:
    found = []
    for (kind, name), count in sorted(held.items()):
        limit = quotas.limit(kind, name) if name else None
        if limit is None or count < limit:
            continue
        if alert.scope_kind == "cluster" or (alert.scope_kind, alert.scope_value) == (kind, name):
            subject = Subject("project" if kind == "project" else "user", "", name)
            text = f"{kind} {name} has reached its quota: {count} of {limit} devices"
            found.append(Holding(subject, text, name if kind == "project" else WHOLE_CLUSTER))
    return found
