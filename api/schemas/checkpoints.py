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
    """`committed`: jobs may start from it. `corrupt`: its files are not what was saved, and no job
    starts from it. `deleting`: it is given up, and its files go once a host that holds them is
    heard. `deleted`: they are gone; lists leave it out."""
    pinned: bool
    """Kept, whatever retention says."""
    metrics: dict[str, MetricValue]
    """Job-wide values at its step. NaN and infinities are texts."""
    location: str
    """Its folder: on shared storage, or, when relative, below the coordinator's data folder."""


class CheckpointPage(ListPage[Checkpoint]):
    """Checkpoints of a job, the newest first."""


class CheckpointProblem(Schema):
    """One thing that is wrong with a checkpoint's files."""

    path: str
    """The file within the checkpoint's folder; `.` is the folder itself."""
    expected: str
    found: str


class Verification(Schema):
    """Whether a checkpoint's files are what they were when it was committed."""

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
    """What a job's retention says of one checkpoint."""

    checkpoint: Checkpoint
    keep: bool
    reason: str
    """Why it is kept, or given up."""


class RetentionList(Schema):
    items: list[Retention]
    """The newest first."""
