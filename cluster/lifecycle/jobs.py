"""The life of a job and of an attempt. Nothing else writes a `state` column.

The letters of the edges appear in the diagram of the documentation. A job:

    a  · → queued             submitted
    b  queued → starting      placed on devices
    c  starting → running     every host runs its ranks
    d  running → completed    every rank ended well
    e  starting, running → recovering     the attempt failed, was lost or moves: another follows
    f  recovering → starting  placed again
    g  starting, running → failed         no restarts left
    h  starting, running → pausing        a user's pause: stop at an agreed step and save
    i  pausing → paused       saved and ended
    j  pausing → completed    it reached its end before the pause
    k  queued, recovering → paused        a user's pause of what holds no device: out of the queue
    l  paused → queued        a user's resume
    m  queued, recovering, paused → cancelled        a user's cancel of what holds no device
    n  starting, running, pausing → cancelling   a user's cancel: stop now
    o  cancelling → cancelled every process is gone
    p  paused, completed, failed, cancelled → queued   a user restores a checkpoint
    q  running → paused       its ranks saved and ended at a step of `training.pause_at`

`completed`, `failed` and `cancelled` are final: nothing that the cluster does by itself leaves
them. Edge p is the one way out, taken only when a user asks for a checkpoint to be restored.

A run, which is a job that runs elsewhere, begins and ends as its client says (`create_run`,
`move_run`), or is cancelled by a user. It alone may leave a final state otherwise: a client resumes
it.

An attempt:

    A  · → starting           devices were granted
    B  starting → running     every host runs its ranks
    C  starting, running → stopping       asked to pause or to stop
    D  starting, running, stopping → completed, paused, cancelled, failed    its last process ended
    E  starting, running, stopping → lost     revoked: a host of it is gone
"""

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, CursorResult, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.lifecycle.alerts import Condition, report_job
from trainhall.cluster.lifecycle.reasons import Reason
from trainhall.cluster.lifecycle.states import (
    ACTIVE_ATTEMPT_STATES,
    ATTEMPT_EDGES,
    FINAL_STATES,
    JOB_EDGES,
    AttemptState,
    Goal,
    JobKind,
    JobState,
)
from trainhall.db.events import record_event
from trainhall.db.experiments import Experiment, Trial
from trainhall.db.ledger import LedgerEntry
from trainhall.db.models import Attempt, Job, JobProgress, Node
from trainhall.training.fencing import FencingToken

_REPORTED = {
    JobState.COMPLETED: Condition.JOB_COMPLETED,
    JobState.FAILED: Condition.JOB_FAILED,
}


class IllegalTransitionError(Exception):
    """A transition that is not in the table was asked for: an error in the caller."""

    def __init__(self, what: str, start: str, end: str) -> None:
        super().__init__(f"{what} may not go from {start} to {end}")


def reason_columns(reason: Reason) -> dict[str, str]:
    """Return the columns of a job, an attempt or a node that say why."""
    return {"reason": reason.text, "reason_code": reason.code.value}


def set_reason(row: Job | Attempt | Node | Experiment | Trial, reason: Reason) -> None:
    """Set both columns that say why; the flush stores them."""
    row.reason, row.reason_code = reason.text, reason.code.value


def has_token(token: FencingToken) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions under which an attempt may be changed in the name of a token."""
    return (
        Attempt.job_id == token.job_id,
        Attempt.number == token.attempt,
        Attempt.generation == token.generation,
        Attempt.revoked.is_(False),
    )


async def record_reason(
    session: AsyncSession,
    job_id: str,
    kind: str,
    reason: Reason,
    now: datetime,
    *,
    text: str | None = None,
    attempt: int | None = None,
    data: dict[str, Any] | None = None,
) -> None:
    """Record an event of a job with the code of a reason, and its text unless another is given.

    Its data has the user who asked for it, if there is one.
    """
    user = reason.params.get("user")
    await record_event(
        session, job_id, time=now, kind=kind, code=reason.code, reason=text or reason.text,
        attempt=attempt, data={**({"user": user} if user else {}), **(data or {})},
    )  # fmt: skip


async def lock_job(session: AsyncSession, job_id: str) -> JobProgress | None:
    """Hold a job's progress row until the commit.

    A writer takes this lock first, then that of the job's attempt: in another order two writers
    could wait for each other.
    """
    return await session.get(JobProgress, job_id, with_for_update=True)


async def create_job(session: AsyncSession, job: Job, *, now: datetime) -> None:
    """Edge a. Store a new job as queued, with its progress row and its first event."""
    job.state = JobState.QUEUED
    job.queued_at = job.created_at = now
    session.add(job)
    await session.flush()
    session.add(JobProgress(job_id=job.id, metrics={}))
    await session.flush()
    reason = Reason.stored(job.reason_code, job.reason, user=job.asked_by)
    await record_reason(session, job.id, "state", reason, now, data={"state": job.state})


async def create_run(session: AsyncSession, job: Job, state: JobState, *, now: datetime) -> None:
    """Store a new run, with its progress row and its first event.

    Args:
        job: with its times.
    """
    job.state = state
    session.add(job)
    await session.flush()
    session.add(JobProgress(job_id=job.id, metrics={}))
    await session.flush()
    reason = Reason.stored(job.reason_code, job.reason, user=job.asked_by)
    await record_reason(session, job.id, "state", reason, now, data={"state": job.state})


async def move_run(
    session: AsyncSession,
    job: Job,
    end: JobState,
    *,
    reason: Reason,
    now: datetime,
    finished_at: datetime | None = None,
    is_reported: bool = True,
) -> None:
    """Move a run, whose lock is held, to a state as its client or a user says.

    Args:
        finished_at: None: now.
        is_reported: whether alerts tell of it.
    """
    assert job.kind == JobKind.RUN
    job.state = end
    job.finished_at = (finished_at or now) if end in FINAL_STATES else None
    set_reason(job, reason)
    await session.flush()
    await record_reason(session, job.id, "state", reason, now, data={"state": end.value})
    if is_reported and (condition := _REPORTED.get(end)):
        await report_job(session, job.id, condition, reason.text, now)


async def move_job(
    session: AsyncSession,
    job_id: str,
    start: JobState,
    end: JobState,
    *,
    reason: Reason,
    now: datetime,
    attempt: int,
    changes: dict[str, Any] | None = None,
) -> bool:
    """Take one edge of the table, if the job still is in `start` and `attempt` still is its newest.

    The guard is in the database; False means that another change came first, and nothing
    was changed. `changes` are other columns to write with it.

    Raises:
        IllegalTransitionError: for an edge that is not in the table.
    """
    if (start, end) not in JOB_EDGES:
        raise IllegalTransitionError("a job", start, end)
    values: dict[str, Any] = {"state": end.value, **reason_columns(reason), **(changes or {})}
    if end in FINAL_STATES:
        values["finished_at"] = now
    if end is JobState.QUEUED:
        values.update(queued_at=now, finished_at=None)
    moved = await session.execute(
        update(Job)
        .where(Job.id == job_id, Job.state == start.value, Job.attempt == attempt)
        .values(**values)
    )
    assert isinstance(moved, CursorResult)
    if moved.rowcount != 1:
        return False
    current = values.get("attempt", attempt)
    data = {"state": end.value}
    await record_reason(session, job_id, "state", reason, now, attempt=current or None, data=data)
    if condition := _REPORTED.get(end):
        await report_job(session, job_id, condition, reason.text, now)
    return True


async def create_attempt(session: AsyncSession, job: Job, attempt: Attempt) -> None:
    """Edge A. Store a new attempt of a job as starting, with its entry in the ledger."""
    attempt.state = AttemptState.STARTING
    session.add(attempt)
    session.add(
        LedgerEntry(
            job_id=job.id, attempt=attempt.number, name=job.name, user=job.user,
            project=job.project, device=attempt.allocation.device_kind,
            counted_until=attempt.started_at,
        )
    )  # fmt: skip
    await session.flush()


async def move_attempt(
    session: AsyncSession,
    token: FencingToken,
    start: AttemptState,
    end: AttemptState,
    *,
    reason: Reason,
    now: datetime,
    changes: dict[str, Any] | None = None,
) -> bool:
    """Take one edge of an attempt's table, guarded by its token.

    False means that the token was revoked or the attempt moved on; nothing was changed.

    Raises:
        IllegalTransitionError: for an edge that is not in the table.
    """
    if (start, end) not in ATTEMPT_EDGES:
        raise IllegalTransitionError("an attempt", start, end)
    values: dict[str, Any] = {"state": end.value, **reason_columns(reason), **(changes or {})}
    if end is AttemptState.RUNNING:
        values["running_at"] = now
    elif end is AttemptState.STOPPING:
        values["stopping_at"] = now
    else:
        values["finished_at"] = now
    if end is AttemptState.LOST:
        values["revoked"] = True
    moved = await session.execute(
        update(Attempt).where(*has_token(token), Attempt.state == start.value).values(**values)
    )
    assert isinstance(moved, CursorResult)
    return moved.rowcount == 1


_STRENGTH: dict[str, int] = {"run": 0, "pause": 1, "stop": 2}


async def request_stop(
    session: AsyncSession,
    token: FencingToken,
    goal: Goal,
    *,
    reason: Reason,
    now: datetime,
    failure: dict[str, Any] | None = None,
) -> bool:
    """Edge C: have the attempt's hosts pause or stop it. A weaker goal than now changes nothing.

    False means that the token was revoked or the attempt is over.
    """
    row = await session.execute(
        select(Attempt.state, Attempt.goal).where(*has_token(token)).with_for_update()
    )
    found = row.one_or_none()
    if found is None or found.state not in ACTIVE_ATTEMPT_STATES:
        return False
    if _STRENGTH[found.goal] >= _STRENGTH[goal]:
        return True
    changes: dict[str, Any] = {"goal": goal}
    if failure is not None:
        changes["failure"] = failure
    state = AttemptState(found.state)
    if state is not AttemptState.STOPPING:
        return await move_attempt(
            session, token, state, AttemptState.STOPPING, reason=reason, now=now, changes=changes
        )
    await session.execute(
        update(Attempt)
        .where(Attempt.job_id == token.job_id, Attempt.number == token.attempt)
        .values(**reason_columns(reason), **changes)
    )
    return True
