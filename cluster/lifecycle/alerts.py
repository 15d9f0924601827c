"""Conditions of alerts, and the messages that are stored with the event that they report.

A message and its event commit together, so that a coordinator that is killed between the two loses
neither; `trainhall.cluster.alerts` sends it afterwards.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal

from sqlalchemy import and_, bindparam, literal, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.access.owners import WHOLE_CLUSTER, owner_sees
from trainhall.cluster.lifecycle.reasons import describe, job_label
from trainhall.db.alerts import Alert, AlertDelivery
from trainhall.db.models import Job, Node
from trainhall.db.sanitize import sanitize_text
from trainhall.training.link.failure import Cause, Failure

MAX_SUBJECTS = 20
"""A message names so many of the jobs, nodes or quotas that it is about."""


class Condition(StrEnum):
    """Condition or event that an alert reports."""

    JOB_COMPLETED = "job.completed"
    JOB_FAILED = "job.failed"
    JOB_STUCK = "job.stuck"
    JOB_WAITING = "job.waiting"
    LOSS_NOT_FINITE = "loss.not_finite"
    LOSS_SPIKE = "loss.spike"
    NODE_DOWN = "node.down"
    DISK_FILLING = "disk.filling"
    QUOTA_REACHED = "quota.reached"


TEST = "alert.test"
"""In place of a condition, of a message that a user asked for to try out a target."""
DISABLED = "alert.disabled"
"""Likewise: the alert was disabled, since its target failed for too long."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Job, node or quota that a message is about."""

    kind: Literal["job", "node", "coordinator", "project", "user"]
    id: str
    name: str


def new_delivery(
    alert_id: str,
    condition: str,
    text: str,
    subjects: Sequence[Subject],
    now: datetime,
    project: str | None = None,
) -> AlertDelivery:
    """Return a message to be sent at once.

    Args:
        project: of what it is about (`AlertDelivery.project`).
    """
    return AlertDelivery(
        alert_id=alert_id,
        condition=condition,
        text=sanitize_text(text),
        project=project,
        subjects=[asdict(subject) for subject in subjects[:MAX_SUBJECTS]],
        subject_count=len(subjects),
        state="pending",
        created_at=now,
        next_try_at=now,
    )


# The lock keeps an alert from being deleted before its message is stored.
_ALERTS_OF_JOB = (
    select(Alert.id, Alert.on, Job.name, Job.project)
    .join_from(
        Alert,
        Job,
        or_(
            Alert.scope_kind == "cluster",
            and_(Alert.scope_kind == "job", Alert.scope_value == Job.id),
            and_(Alert.scope_kind == "project", Alert.scope_value == Job.project),
            and_(Alert.scope_kind == "user", Alert.scope_value == Job.user),
        ),
    )
    .where(
        Job.id == bindparam("at_job"),
        Alert.enabled.is_(True),
        owner_sees(Alert.user, Job.project),
    )
    .order_by(Alert.number)
    .with_for_update(read=True, key_share=True, of=Alert)
)
_ALERTS_OF_NODE = (
    select(Alert.id, Alert.on, Node.name)
    .join_from(Alert, Node, Alert.scope_kind == "cluster")
    .where(
        Node.id == bindparam("at_node"),
        Alert.enabled.is_(True),
        owner_sees(Alert.user, literal(WHOLE_CLUSTER)),
    )
    .order_by(Alert.number)
    .with_for_update(read=True, key_share=True, of=Alert)
)
_VERBS = {
    Condition.JOB_COMPLETED: "completed",
    Condition.JOB_FAILED: "failed",
    Condition.JOB_STUCK: "was stuck",
    Condition.LOSS_NOT_FINITE: "has no finite loss",
    Condition.LOSS_SPIKE: "has a spike in its loss",
}


async def report_job(
    session: AsyncSession, job_id: str, condition: Condition, why: str, now: datetime
) -> None:
    """Store a message for each alert that reports this of the job.

    Args:
        why: the sentence that the event has.
    """
    for alert_id, on, name, project in await session.execute(_ALERTS_OF_JOB, {"at_job": job_id}):
        if condition in on:
            verb = _VERBS[condition]
            text = f"{job_label(job_id, name)} {verb}" + (f": {why}" if why != verb else "")
            subject = Subject("job", job_id, name)
            session.add(new_delivery(alert_id, condition, text, [subject], now, project))


async def report_if_stuck(
    session: AsyncSession, job_id: str, failure: Failure | None, now: datetime
) -> None:
    """Report a job whose ranks made no progress until they were ended."""
    if failure is not None and failure.cause is Cause.HANG:
        await report_job(session, job_id, Condition.JOB_STUCK, describe(failure), now)


async def report_node_down(session: AsyncSession, node_id: str, why: str, now: datetime) -> None:
    """Store a message for each alert that reports lost nodes."""
    for alert_id, on, name in await session.execute(_ALERTS_OF_NODE, {"at_node": node_id}):
        if Condition.NODE_DOWN in on:
            subject = Subject("node", node_id, name)
            text = f"node {name} is down: {why}"
            down = new_delivery(alert_id, Condition.NODE_DOWN, text, [subject], now, WHOLE_CLUSTER)
            session.add(down)
