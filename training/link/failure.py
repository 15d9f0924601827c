"""The failure of a rank."""

from trainhall.training.link.base import LinkModel
from trainhall.training.link.failure_cause import Cause


class Failure(LinkModel):
    """Why an attempt failed on a host: its first failing rank."""

    rank: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    message: str
    """One line for people."""
    without_message: bool = False
    """True if its rank left no error message: whether two such failures are the same is unknown."""
    final: bool = False
    """Another attempt would end in the same way."""
    log_tail: str = ""
    """The last lines of the rank's stderr, at most 4 KiB."""
    cause: Cause = Cause.UNKNOWN
    evidence: str = ""
    """The words, signal or exit code that the cause follows from."""
    node: str | None = None
    """Name of the rank's node; the coordinator sets it."""
    step: int | None = None
    """The newest step that a rank of the host had finished."""
    time: float | None = None
    """When it happened by the host's clock, seconds since the epoch: the rank's end was seen, or
    the last step was taken before a hang."""
