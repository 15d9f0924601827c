"""Responses about checkpoints that only the API has."""

from trainhall.cluster.checkpoints.views import Retention
from trainhall.db.views import View


class CheckpointProblem(View):
    """One thing that is wrong with a checkpoint's files."""

    path: str
    """The file within the checkpoint's folder; `.` is the folder itself."""
    expected: str
    found: str


class Verification(View):
    """Result of comparing a checkpoint's files with its manifest."""

    good: bool
    problems: list[CheckpointProblem]


class CheckpointFile(View):
    path: str
    """Relative to the checkpoint's folder, with `/` between parts."""
    size: int
    """Bytes."""
    sha256: str


class CheckpointFiles(View):
    """Every file of a checkpoint."""

    items: list[CheckpointFile]
    """The manifest comes last: whoever copies them in this order ends with a whole checkpoint."""


class RetentionList(View):
    items: list[Retention]
    """The newest first."""
