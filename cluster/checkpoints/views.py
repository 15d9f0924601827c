"""Views of checkpoints, as the REST API returns them."""

from pydantic import Field

from trainhall.cluster.checkpoints.commands import CheckpointCommand, refused_commands
from trainhall.cluster.checkpoints.lineage import STORE
from trainhall.db import models
from trainhall.db.views import MetricValue, Page, Time, View


class Checkpoint(View):
    """Committed, verified snapshot of a job at a step."""

    id: str
    job_id: str
    attempt: int
    step: int
    created_at: Time
    size: int
    """Bytes."""
    state: str = Field(json_schema_extra={"enum": ["committed", "corrupt", "deleting", "deleted"]})
    """`committed`: jobs may start from it. `corrupt`: its files are not what was saved, and no job
    starts from it. `deleting`: its files are removed as soon as a host that holds them is
    reachable. `deleted`: its files are gone; lists leave it out."""
    pinned: bool
    """Retention never deletes it."""
    metrics: dict[str, MetricValue]
    """Job-wide values at its step. NaN and infinities are strings."""
    location: str
    """Its folder: on shared storage or, when relative, below the coordinator's data folder."""
    refused_commands: dict[CheckpointCommand, str]
    """Commands that would have no effect now, each with the reason as a sentence. Its job may also
    refuse `restore`."""


class CheckpointPage(Page[Checkpoint]):
    """Checkpoints of a job, the newest first."""


class Retention(View):
    """Decision of a job's retention about one checkpoint."""

    checkpoint: Checkpoint
    keep: bool
    reason: str
    """Reason why it is kept or deleted."""


def checkpoint_view(row: models.Checkpoint, denied: str | None = None) -> Checkpoint:
    """Build the view.

    Args:
        denied: why its reader may give it no commands, as a clause.
    """
    stored = row.location.startswith(STORE)
    location = f"checkpoints/{row.job_id}/{row.name}" if stored else row.location
    return Checkpoint.of(row, location=location, refused_commands=refused_commands(row, denied))
