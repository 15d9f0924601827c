"""Checkpoints as the services hand them out, with the fields of the REST contract."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trainhall.cluster.checkpoints.lineage import STORE
from trainhall.cluster.jobs.views import rfc3339
from trainhall.db.models import Checkpoint


@dataclass(frozen=True)
class CheckpointView:
    id: str
    job_id: str
    attempt: int
    step: int
    created_at: datetime
    size: int
    """Bytes."""
    state: str
    """committed, corrupt, deleting or deleted."""
    pinned: bool
    metrics: dict[str, Any]
    location: str
    """Folder on shared storage, or below the coordinator's data folder."""


@dataclass(frozen=True)
class RetentionView:
    """Retention's verdict on one of a job's checkpoints."""

    checkpoint: CheckpointView
    keep: bool
    reason: str


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
    """Return a checkpoint's location: an absolute folder, or one below the coordinator's own."""
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
