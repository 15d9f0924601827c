"""From rows to views."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from trainhall.cluster import plans
from trainhall.cluster.incidents import incidents_of
from trainhall.cluster.resume import STORE
from trainhall.cluster.run_time import RunTime
from trainhall.cluster.views import (
    AttemptView,
    CheckpointView,
    DeviceView,
    EventView,
    JobView,
    NodeView,
)
from trainhall.db.models import Attempt, Checkpoint, Device, Event, Job, JobProgress, Node
from trainhall.monitoring.health import Straggler


def job_view(
    job: Job,
    progress: JobProgress,
    ran: RunTime,
    straggler: Straggler | None = None,
    warnings: Sequence[str] = (),
) -> JobView:
    return JobView(
        id=job.id,
        name=job.name,
        state=job.state,
        reason=job.reason,
        attempt=job.attempt,
        generation=job.generation,
        step=progress.step,
        total_steps=progress.total_steps,
        world_size=job.world_size,
        priority=job.priority,
        created_at=job.created_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        ran_seconds=ran.seconds,
        running_since=ran.since,
        spec=job.spec,
        metrics=progress.metrics,
        straggler=straggler,
        warnings=warnings,
        plan={**job.plan, "error": plans.errors(job.plan)} if job.plan is not None else None,
    )


def attempt_view(attempt: Attempt, following: Attempt | None) -> AttemptView:
    """
    Args:
        following: the job's next attempt.
    """
    return AttemptView(
        attempt=attempt.number,
        generation=attempt.generation,
        state=attempt.state,
        reason=attempt.reason,
        world_size=attempt.world_size,
        allocation=attempt.allocation,
        generations=attempt.generations,
        started_at=attempt.started_at,
        finished_at=attempt.finished_at,
        failure=attempt.failure,
        timeline=incidents_of(attempt, following),
    )


def event_view(event: Event) -> EventView:
    return EventView(
        seq=event.seq,
        time=event.time,
        kind=event.kind,
        reason=event.reason,
        attempt=event.attempt,
        data=event.data,
    )


def checkpoint_view(checkpoint: Checkpoint) -> CheckpointView:
    return CheckpointView(
        id=checkpoint.id,
        job_id=checkpoint.job_id,
        attempt=checkpoint.attempt,
        step=checkpoint.step,
        created_at=checkpoint.created_at,
        size=checkpoint.size,
        state=checkpoint.state,
        pinned=checkpoint.pinned,
        metrics=checkpoint.metrics,
        location=location_of(checkpoint),
    )


def location_of(checkpoint: Checkpoint) -> str:
    """Where a checkpoint's files lie: an absolute folder, or one below the coordinator's own."""
    if checkpoint.location.startswith(STORE):
        return f"checkpoints/{checkpoint.job_id}/{checkpoint.name}"
    return checkpoint.location


def checkpoint_json(checkpoint: Checkpoint) -> dict[str, Any]:
    """The REST object, as the live stream carries it."""
    return {
        "id": checkpoint.id,
        "job_id": checkpoint.job_id,
        "attempt": checkpoint.attempt,
        "step": checkpoint.step,
        "created_at": rfc3339(checkpoint.created_at),
        "size": checkpoint.size,
        "state": checkpoint.state,
        "pinned": checkpoint.pinned,
        "metrics": checkpoint.metrics,
        "location": location_of(checkpoint),
    }


def device_view(device: Device, job_id: str | None) -> DeviceView:
    return DeviceView(
        node_id=device.node_id,
        index=device.index,
        kind=device.kind,
        name=device.name,
        memory_total=device.memory_total,
        memory_used=device.memory_used,
        utilization=device.utilization,
        temperature=device.temperature,
        power=device.power,
        job_id=job_id,
        gone=device.gone,
    )


def node_view(node: Node, devices: list[DeviceView]) -> NodeView:
    return NodeView(
        id=node.id,
        name=node.name,
        state=node.state,
        reason=node.reason,
        agent_version=node.agent_version,
        last_seen_at=node.last_seen_at,
        labels=node.labels,
        devices=devices,
        state_at=node.state_at,
        drain_reason=node.drain_reason,
        address=node.address,
        host=node.host_use,
    )


def rfc3339(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")
