"""The failure of a rank, and its cause: what the first thing to look at is, without torch."""

from enum import StrEnum

from trainhall.training.link.base import LinkModel


class Cause(StrEnum):
    """Why an attempt failed, as far as its evidence goes (`cluster.agent.shim.failure_cause`)."""

    USER_ERROR = "user_error"
    """The code, data or parameters that the user gave raised an exception or left with a code."""
    OUT_OF_MEMORY = "out_of_memory"
    """The device's or the host's memory was not enough."""
    DEVICE_FAULT = "device_fault"
    """A GPU or its driver is broken: a fault of the node."""
    NODE_LOST = "node_lost"
    """The node was unreachable, or lost what it had of the attempt."""
    NETWORK = "network"
    """Ranks could not reach each other."""
    STORAGE = "storage"
    """A file system was full, away or damaged."""
    HANG = "hang"
    """Ranks took no step any more; those that were left were ended."""
    CRASH = "crash"
    """A process ended by a fault of native code, such as SIGSEGV."""
    KILLED = "killed"
    """A signal ended a process that Trainhall had not sent."""
    BAD_CHECKPOINT = "bad_checkpoint"
    """No checkpoint to start from is whole, for whichever host: no fault of a node."""
    NOT_STARTED = "not_started"
    """The host could not start the ranks, or not in time."""
    PREEMPTED = "preempted"
    """The attempt was taken off its devices: for another job, for a drain, with its agent."""
    RESIZED = "resized"
    """The attempt saved, and the next one has another size: a user resized it, or it grew."""
    UNKNOWN = "unknown"

    @property
    def is_move(self) -> bool:
        """True if nothing failed: the attempt left its devices as decided."""
        return self in {Cause.PREEMPTED, Cause.RESIZED}

    @property
    def label(self) -> str:
        """In words."""
        return self.value.replace("_", " ")


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
