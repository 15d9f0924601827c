"""What a person should look at in jobs that have not ended, though they go on."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.facts import NodeState
from trainhall.cluster.lifecycle import FINAL_STATES, JobState
from trainhall.db.models import Attempt, Event, Job, Node


async def job_warnings(session: AsyncSession, jobs: Iterable[Job]) -> Mapping[str, Sequence[str]]:
    """Sentences by the id of the job; of those alone that have any."""
    going_on = [job.id for job in jobs if JobState(job.state) not in FINAL_STATES]
    told: dict[str, list[str]] = defaultdict(list)
    if going_on:
        for job_id, why in await _unsaved(session, going_on):
            told[job_id].append(why)
        for job_id, why in await _on_silent_hosts(session, going_on):
            told[job_id].append(why)
    return told


async def _unsaved(session: AsyncSession, job_ids: Sequence[str]) -> Sequence[tuple[str, str]]:
    """Jobs whose newest word of a checkpoint is that it was not saved."""
    # Each job's events are read from the newest on until one is of these kinds.
    newest = (
        select(Event.seq)
        .where(Event.job_id == Job.id, Event.kind.in_(("checkpoint", "not_saved")))
        .order_by(Event.seq.desc())
        .limit(1)
        .correlate(Job)
        .scalar_subquery()
    )
    rows = await session.execute(
        select(Event.job_id, Event.reason)
        .join(Job, Job.id == Event.job_id)
        .where(Job.id.in_(job_ids), Event.seq == newest, Event.kind == "not_saved")
    )
    return [(job_id, reason) for job_id, reason in rows]


async def _on_silent_hosts(
    session: AsyncSession, job_ids: Sequence[str]
) -> Sequence[tuple[str, str]]:
    """Jobs with ranks on hosts that were not heard for a while, and are not given up yet."""
    silent = {
        node_id: f"node {name}: {reason}"
        for node_id, name, reason in await session.execute(
            select(Node.id, Node.name, Node.reason).where(Node.state == NodeState.SUSPECT.value)
        )
    }
    if not silent:
        return []
    newest = select(Job.id, Job.attempt).where(
        Job.id.in_(job_ids), Job.state == JobState.RUNNING.value
    )
    allocations = await session.execute(
        select(Attempt.job_id, Attempt.allocation).where(
            tuple_(Attempt.job_id, Attempt.number).in_(newest)
        )
    )
    return [
        (job_id, silent[host["node_id"]])
        for job_id, allocation in allocations
        for host in allocation
        if host["node_id"] in silent
    ]
