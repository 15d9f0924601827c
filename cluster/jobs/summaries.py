"""Figures of many jobs at once: run times, stragglers, warnings, where they run."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import bindparam, exists, or_, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.lifecycle.host_report import idle_since, reports_of
from trainhall.cluster.lifecycle.reasons import EventCode, clock_time
from trainhall.cluster.lifecycle.states import (
    ACTIVE_STATES,
    FINAL_STATES,
    JobKind,
    JobState,
    NodeState,
)
from trainhall.db.documents import Allocation
from trainhall.db.models import Attempt, Checkpoint, Event, Job, JobProgress, Node
from trainhall.monitoring.health import Straggler, straggler_of

# Built once: they are run for every job that is shown, and building takes as long as the answers.
# Each job's events are read from the newest on until one reports a save, or a failed one.
_NEWEST_SAVE = (
    select(Event.seq)
    .where(
        Event.job_id == Job.id,
        or_(
            Event.kind == "not_saved",
            Event.code == EventCode.CHECKPOINT_SAVED,
        ),
    )
    .order_by(Event.seq.desc())
    .limit(1)
    .correlate(Job)
    .scalar_subquery()
)
_FAILED_SAVES = (
    select(Event)
    .join(Job, Job.id == Event.job_id)
    .where(
        Job.id.in_(bindparam("jobs", expanding=True)),
        Event.seq == _NEWEST_SAVE,
        Event.kind == "not_saved",
    )
)
_TIMES = select(
    Attempt.job_id, Attempt.started_at, Attempt.finished_at, Attempt.gpus,
    Attempt.gpus_since, Attempt.gpu_seconds,
).where(Attempt.job_id.in_(bindparam("jobs", expanding=True)))  # fmt: skip


async def job_warnings(
    session: AsyncSession, jobs: Iterable[Job], now: datetime
) -> Mapping[str, Sequence[str]]:
    """Return warnings by job id, of those alone that have any."""
    unfinished = {job.id: JobState(job.state) for job in jobs if job.state not in FINAL_STATES}
    warnings: dict[str, list[str]] = defaultdict(list)
    for job_id, why in await _unsaved(session, list(unfinished)):
        warnings[job_id].append(why)
    on_hosts = [job_id for job_id, state in unfinished.items() if state in ACTIVE_STATES]
    for job_id, why in await _on_suspect_hosts(session, on_hosts, now):
        warnings[job_id].append(why)
    return warnings


async def unrestorable(session: AsyncSession, jobs: Iterable[Job]) -> dict[str, str]:
    """Return why jobs that are not active cannot be restored, by id; without those that can."""
    at_rest = [job.id for job in jobs if job.state not in ACTIVE_STATES]
    if not at_rest:
        return {}
    committed = exists().where(Checkpoint.job_id == Job.id, Checkpoint.state == "committed")
    without = select(Job.id).where(Job.id.in_(at_rest), ~committed)
    return dict.fromkeys(await session.scalars(without), "it has no checkpoint to restore")


def not_finite_losses(job: Job, progress: JobProgress) -> Sequence[str]:
    """Return a warning for each loss that is NaN or infinite. Only tasks fail of one."""
    if job.state in (JobState.FAILED, JobState.CANCELLED):
        return []
    return [
        f"{name} is {value} at step {progress.step}"
        for name, value in progress.metrics.items()
        if "loss" in name.lower() and isinstance(value, str)
    ]


async def _unsaved(session: AsyncSession, job_ids: Sequence[str]) -> Sequence[tuple[str, str]]:
    """Return jobs that have saved nothing since a save failed."""
    failed = await session.scalars(_FAILED_SAVES, {"jobs": job_ids})
    return [(e.job_id, e.reason) for e in failed.all() if not await _saved_since(session, e)]


async def _saved_since(session: AsyncSession, failed: Event) -> bool:
    """Return whether a save succeeded since; hosts report their uploads in no order."""
    step = failed.data.get("step")
    later = tuple_(Checkpoint.attempt, Checkpoint.step) >= (failed.attempt, step or 0)
    query = select(Checkpoint.id).where(Checkpoint.job_id == failed.job_id, later).limit(1)
    return await session.scalar(query) is not None


async def _on_suspect_hosts(
    session: AsyncSession, job_ids: Sequence[str], now: datetime
) -> Sequence[tuple[str, str]]:
    """Return jobs with ranks on suspect hosts: no heartbeat for a while, not lost yet."""
    suspects = await session.scalars(select(Node).where(Node.state == NodeState.SUSPECT.value))
    suspicions = {
        node.id: f"node {node.name} has been suspect since "
        f"{clock_time(node.state_at, now, seconds=True)}: {node.reason}"
        for node in suspects
    }
    if not suspicions:
        return []
    allocations = await newest_allocations(session, job_ids)
    return [
        (job_id, suspicions[host.node_id])
        for job_id, allocation in allocations.items()
        for host in allocation
        if host.node_id in suspicions
    ]


@dataclass(frozen=True)
class RunTime:
    """Time of the attempts that ended, and the start of a running one."""

    seconds: float = 0.0
    since: datetime | None = None
    gpu_seconds: float = 0.0


async def run_times(
    session: AsyncSession, jobs: Iterable[Job], now: datetime
) -> dict[str, RunTime]:
    """Return run times by job id; that of a job without an attempt is zero, but for a run."""
    times = {job.id: _time_of_run(job) for job in jobs}
    found = await session.execute(_TIMES, {"jobs": list(times)})
    for job_id, started_at, finished_at, gpus, gpus_since, gpu_seconds in found:
        held = ((finished_at or now) - (gpus_since or started_at)).total_seconds()
        used = times[job_id].gpu_seconds + gpu_seconds + gpus * max(0.0, held)
        time = replace(times[job_id], gpu_seconds=used)
        if finished_at is None:
            times[job_id] = replace(time, since=started_at)
        else:
            # The time of day may have been set back meanwhile.
            ran = max(0.0, (finished_at - started_at).total_seconds())
            times[job_id] = replace(time, seconds=time.seconds + ran)
    return times


def _time_of_run(job: Job) -> RunTime:
    if job.kind != JobKind.RUN or job.started_at is None:
        return RunTime()
    if job.finished_at is None:
        return RunTime(since=job.started_at)
    return RunTime(max(0.0, (job.finished_at - job.started_at).total_seconds()))


async def stragglers(
    session: AsyncSession, rows: Iterable[tuple[Job, JobProgress]]
) -> dict[str, Straggler]:
    """Return stragglers by job id, of jobs that run alone and have one."""
    found = {
        job.id: progress.metrics
        for job, progress in rows
        if job.state == JobState.RUNNING and straggler_of(progress.metrics, None) is not None
    }
    if not found:
        return {}
    allocations = await newest_allocations(session, found)
    slow = {
        job_id: straggler_of(found[job_id], allocation)
        for job_id, allocation in allocations.items()
    }
    return {job_id: straggler for job_id, straggler in slow.items() if straggler is not None}


async def newest_allocations(
    session: AsyncSession, job_ids: Iterable[str]
) -> Mapping[str, Allocation]:
    """Return `Attempt.allocation` by job id, of jobs that have had an attempt."""
    newest = select(Job.id, Job.attempt).where(Job.id.in_(list(job_ids)))
    rows = await session.execute(
        select(Attempt.job_id, Attempt.allocation).where(
            tuple_(Attempt.job_id, Attempt.number).in_(newest)
        )
    )
    return {row.job_id: row.allocation for row in rows}


async def idle_times(session: AsyncSession, jobs: Iterable[Job]) -> dict[str, datetime]:
    """Return since when interactive jobs that run have had no session, by job id."""
    running = {
        job.id: job.attempt
        for job in jobs
        if job.state == JobState.RUNNING and job.spec.get("interactive") is not None
    }
    if not running:
        return {}
    found = await session.scalars(
        select(Attempt).where(tuple_(Attempt.job_id, Attempt.number).in_(running.items()))
    )
    times = {each.job_id: idle_since(reports_of(each).values()) for each in found}
    return {job_id: at for job_id, at in times.items() if at is not None}
