"""What a person should look at in jobs that have not ended, though they go on."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import and_, or_, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.allocations import newest_allocations
from trainhall.cluster.facts import NodeState
from trainhall.cluster.lifecycle import ACTIVE_STATES, FINAL_STATES, JobState
from trainhall.db.models import Checkpoint, Event, Job, Node

SAVED = "saved at step"
"""So begins the event of a checkpoint that was saved; what became of it later has other words."""


async def job_warnings(session: AsyncSession, jobs: Iterable[Job]) -> Mapping[str, Sequence[str]]:
    """Sentences by the id of the job; of those alone that have any."""
    going_on = {job.id: JobState(job.state) for job in jobs if job.state not in FINAL_STATES}
    told: dict[str, list[str]] = defaultdict(list)
    for job_id, why in await _unsaved(session, list(going_on)):
        told[job_id].append(why)
    on_hosts = [job_id for job_id, state in going_on.items() if state in ACTIVE_STATES]
    for job_id, why in await _on_suspect_hosts(session, on_hosts):
        told[job_id].append(why)
    return told


async def _unsaved(session: AsyncSession, job_ids: Sequence[str]) -> Sequence[tuple[str, str]]:
    """Jobs that have saved nothing since a save failed."""
    # Each job's events are read from the newest on until one tells of a save, or of a failed one.
    newest = (
        select(Event.seq)
        .where(
            Event.job_id == Job.id,
            or_(
                Event.kind == "not_saved",
                and_(Event.kind == "checkpoint", Event.reason.startswith(SAVED)),
            ),
        )
        .order_by(Event.seq.desc())
        .limit(1)
        .correlate(Job)
        .scalar_subquery()
    )
    failed = await session.scalars(
        select(Event)
        .join(Job, Job.id == Event.job_id)
        .where(Job.id.in_(job_ids), Event.seq == newest, Event.kind == "not_saved")
    )
    return [(e.job_id, e.reason) for e in failed.all() if not await _saved_since(session, e)]


async def _saved_since(session: AsyncSession, failed: Event) -> bool:
    """What hosts tell of their uploads comes in no order."""
    step = failed.data.get("step")
    later = tuple_(Checkpoint.attempt, Checkpoint.step) >= (failed.attempt, step or 0)
    query = select(Checkpoint.id).where(Checkpoint.job_id == failed.job_id, later).limit(1)
    return await session.scalar(query) is not None


async def _on_suspect_hosts(
    session: AsyncSession, job_ids: Sequence[str]
) -> Sequence[tuple[str, str]]:
    """Jobs with ranks on hosts that were not heard for a while, and are not given up yet."""
    suspects = await session.scalars(select(Node).where(Node.state == NodeState.SUSPECT.value))
    told = {
        node.id: f"node {node.name} is suspect since {node.state_at:%H:%M:%S} UTC: {node.reason}"
        for node in suspects
    }
    if not told:
        return []
    allocations = await newest_allocations(session, job_ids)
    return [
        (job_id, told[host["node_id"]])
        for job_id, allocation in allocations.items()
        for host in allocation
        if host["node_id"] in told
    ]
