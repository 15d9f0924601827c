"""The decisions about the cluster. `decide` says when, `apply` carries them out.

Each decision is complete in itself and is applied on its own, guarded by what it was decided from;
if the guard fails, another change was first and the next pass decides again. So the order of
decisions, a crash between two of them, or a decision made twice does no harm.
"""

from dataclasses import dataclass

from trainhall.cluster.lifecycle.reasons import Reason
from trainhall.cluster.lifecycle.states import AttemptState, Goal, JobState, NodeState
from trainhall.cluster.scheduling.placement import PlacedNode
from trainhall.cluster.scheduling.scheduler import QueueEntry
from trainhall.training.fencing import FencingToken
from trainhall.training.link.failure import Failure
from trainhall.training.spec.plan import ChosenPlan


@dataclass(frozen=True)
class MoveNode:
    node_id: str
    start: NodeState
    end: NodeState
    reason: Reason
    after_seconds: float = 0.0
    """The node has to be without a heartbeat for so long."""


@dataclass(frozen=True)
class RemoveNode:
    """Nothing runs on it any more, and a user removed it."""

    node_id: str
    reason: Reason


@dataclass(frozen=True)
class Release:
    """Give back what an attempt that is over held on one node."""

    node_id: str
    job_id: str
    attempt: int
    reason: Reason
    device_indices: tuple[int, ...] = ()
    """Devices that a regrouping released; none: all of them."""


@dataclass(frozen=True)
class _OfAttempt:
    token: FencingToken


@dataclass(frozen=True)
class MarkRunning(_OfAttempt):
    """Every host of the attempt runs its ranks."""

    job_state: JobState
    reason: Reason


@dataclass(frozen=True)
class KeepPlan(_OfAttempt):
    """The attempt's first host has planned the job's strategy, and all its hosts run with it; or it
    has predicted the strategy that the job names."""

    plan: ChosenPlan | None
    """None: it cannot be predicted."""
    reason: Reason


@dataclass(frozen=True)
class StopAttempt(_OfAttempt):
    """Have the hosts of an attempt pause or stop, without a user having asked."""

    goal: Goal
    reason: Reason
    failure: Failure | None = None


@dataclass(frozen=True)
class Regroup(_OfAttempt):
    """Attempt that resumes in place, under the next generation and on these devices."""

    placed: tuple[PlacedNode, ...]
    """In the order of node ranks."""
    device: str
    """cpu or cuda."""
    reason: Reason
    restarts: int | None = None
    """None leaves the job's count as it is."""
    restarts_step: int | None = None
    failure: Failure | None = None
    """Failure of the rank or host that is replaced."""


@dataclass(frozen=True)
class EndAttempt(_OfAttempt):
    """The attempt is over; its job goes where `job_path` leads."""

    attempt_start: AttemptState
    attempt_end: AttemptState
    attempt_reason: Reason
    job_start: JobState
    job_path: tuple[JobState, ...]
    reason: Reason
    failure: Failure | None = None
    restarts: int | None = None
    """None leaves the job's count as it is."""
    restarts_step: int | None = None
    pauses_after: int | None = None
    """The step at which the job paused by itself."""
    lost_nodes: tuple[str, ...] = ()
    """Lost or removed hosts of a lost attempt."""


@dataclass(frozen=True)
class StartAttempt:
    """Grant devices and begin the next attempt."""

    entry: QueueEntry
    reason: Reason


@dataclass(frozen=True)
class Explain:
    """Say why a job waits: to be placed, or to end."""

    job_id: str
    state: JobState
    reason: Reason


Change = (
    MoveNode
    | RemoveNode
    | Release
    | MarkRunning
    | KeepPlan
    | StopAttempt
    | Regroup
    | EndAttempt
    | StartAttempt
)
Decision = Change | Explain


def subject(change: Change) -> str:
    """Name what a change concerns, for the log."""
    match change:
        case MoveNode(node_id) | RemoveNode(node_id):
            return f"node {node_id}"
        case Release(node_id, job_id, attempt):
            return f"job {job_id} attempt {attempt} node {node_id}"
        case StartAttempt(entry):
            return f"job {entry.job.id} attempt {entry.job.attempt + 1}"
        case _:
            return f"job {change.token.job_id} attempt {change.token.attempt}"
