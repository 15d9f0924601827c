"""Checkpoints as the API shows them, and what a restore takes."""

from pydantic import Field

from trainhall.api.schemas.base import ListPage, MetricValue, Schema, Time


class Checkpoint(Schema):
    """A committed, verified snapshot of a job at a step."""

    id: str
    job_id: str
    attempt: int
    step: int
    created_at: Time
    size: int
    """Bytes."""
    state: str = Field(json_schema_extra={"enum": ["committed", "corrupt", "deleting", "deleted"]})
    """`committed`: jobs may start from it. `corrupt`: its files differ from what was saved, and
    no job starts from it. `deleting`: its files are removed as soon as a host that holds them
    reports. `deleted`: they are gone; lists leave it out."""
    pinned: bool
    """Kept, whatever retention says."""
    metrics: dict[str, MetricValue]
    """Job-wide values at its step. NaN and infinities are texts."""
    location: str
    """Folder on shared storage, or, when relative, below the coordinator's data folder."""


class CheckpointPage(ListPage[Checkpoint]):
    """Checkpoints of a job, the newest first."""


class CheckpointProblem(Schema):
    """One thing that is wrong with a checkpoint's files."""

    path: str
    """The file within the checkpoint's folder; `.` is the folder itself."""
    expected: str
    found: str


class Verification(Schema):
    """Result of comparing a checkpoint's files with its manifest."""

    good: bool
    problems: list[CheckpointProblem]


class CheckpointFile(Schema):
    path: str
    """Relative to the checkpoint's folder, with `/` between parts."""
    size: int
    """Bytes."""
    sha256: str


class CheckpointFiles(Schema):
    """Every file of a checkpoint."""

    items: list[CheckpointFile]
    """The manifest comes last: whoever copies them in this order ends with a whole checkpoint."""


class Retention(Schema):
    """Retention's verdict on one checkpoint."""

    checkpoint: Checkpoint
    keep: bool
    reason: str
    """Reason why it is kept or deleted."""


class RetentionList(Schema):
    items: list[Retention]
    """The newest first."""
