"""The states of jobs, attempts and nodes, and which transitions exist."""

from enum import StrEnum
from typing import Literal

Goal = Literal["run", "pause", "stop"]


class JobState(StrEnum):
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"
    RECOVERING = "recovering"
    COMPLETED = "completed"
    FAILED = "failed"


class AttemptState(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    COMPLETED = "completed"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    FAILED = "failed"
    LOST = "lost"


class JobKind(StrEnum):
    JOB = "job"
    RUN = "run"
    """Job that runs elsewhere, and whose client logs here: no host, queue or attempt."""


FINAL_STATES = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED})


WAITING_STATES = frozenset({JobState.QUEUED, JobState.RECOVERING})
"""In the queue: no device is held, and the scheduler must give a reason."""


ACTIVE_STATES = frozenset(
    {JobState.STARTING, JobState.RUNNING, JobState.PAUSING, JobState.CANCELLING}
)
"""An attempt of it is active."""


ACTIVE_ATTEMPT_STATES = frozenset(
    {AttemptState.STARTING, AttemptState.RUNNING, AttemptState.STOPPING}
)


JOB_EDGES: dict[tuple[JobState, JobState], str] = {
    (JobState.QUEUED, JobState.STARTING): "b",
    (JobState.STARTING, JobState.RUNNING): "c",
    (JobState.RUNNING, JobState.COMPLETED): "d",
    (JobState.STARTING, JobState.RECOVERING): "e",
    (JobState.RUNNING, JobState.RECOVERING): "e",
    (JobState.RECOVERING, JobState.STARTING): "f",
    (JobState.STARTING, JobState.FAILED): "g",
    (JobState.RUNNING, JobState.FAILED): "g",
    (JobState.STARTING, JobState.PAUSING): "h",
    (JobState.RUNNING, JobState.PAUSING): "h",
    (JobState.PAUSING, JobState.PAUSED): "i",
    (JobState.PAUSING, JobState.COMPLETED): "j",
    (JobState.RUNNING, JobState.PAUSED): "q",
    (JobState.QUEUED, JobState.PAUSED): "k",
    (JobState.RECOVERING, JobState.PAUSED): "k",
    (JobState.PAUSED, JobState.QUEUED): "l",
    (JobState.QUEUED, JobState.CANCELLED): "m",
    (JobState.RECOVERING, JobState.CANCELLED): "m",
    (JobState.PAUSED, JobState.CANCELLED): "m",
    (JobState.STARTING, JobState.CANCELLING): "n",
    (JobState.RUNNING, JobState.CANCELLING): "n",
    (JobState.PAUSING, JobState.CANCELLING): "n",
    (JobState.CANCELLING, JobState.CANCELLED): "o",
    (JobState.COMPLETED, JobState.QUEUED): "p",
    (JobState.FAILED, JobState.QUEUED): "p",
    (JobState.CANCELLED, JobState.QUEUED): "p",
}


_ENDS = (
    AttemptState.COMPLETED,
    AttemptState.PAUSED,
    AttemptState.CANCELLED,
    AttemptState.FAILED,
)


ATTEMPT_EDGES: dict[tuple[AttemptState, AttemptState], str] = {
    (AttemptState.STARTING, AttemptState.RUNNING): "B",
    (AttemptState.STARTING, AttemptState.STOPPING): "C",
    (AttemptState.RUNNING, AttemptState.STOPPING): "C",
    **{(start, end): "D" for start in ACTIVE_ATTEMPT_STATES for end in _ENDS},
    **{(start, AttemptState.LOST): "E" for start in ACTIVE_ATTEMPT_STATES},
}


class NodeState(StrEnum):
    PENDING = "pending"
    """Registered; it has not reported yet."""
    READY = "ready"
    SUSPECT = "suspect"
    """Without a heartbeat for a while: no new work."""
    LOST = "lost"
    """Unreachable for long: its attempts are revoked and replaced."""
    DRAINING = "draining"
    """No new work; its attempts are being moved elsewhere."""
    DRAINED = "drained"
    """Nothing runs on it, and it gets no new work until a user takes the drain back."""


class ExperimentState(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


EXPERIMENT_EDGES = frozenset(
    {
        (ExperimentState.RUNNING, ExperimentState.PAUSED),
        (ExperimentState.PAUSED, ExperimentState.RUNNING),
        *(
            (start, end)
            for start in (ExperimentState.RUNNING, ExperimentState.PAUSED)
            for end in (
                ExperimentState.COMPLETED,
                ExperimentState.FAILED,
                ExperimentState.CANCELLED,
            )
        ),
    }
)


class TrialState(StrEnum):
    """State of one run of an experiment; once it is started, its job has the details."""

    PENDING = "pending"
    STARTED = "started"
    WAITING = "waiting"
    """Its job is paused at a rung of early stopping, until it is promoted or stopped."""
    STOPPED = "stopped"
    """Early, at a rung or before its start."""
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


UNFINISHED_TRIALS = (TrialState.STARTED, TrialState.WAITING)
"""Trials whose jobs have not ended."""
