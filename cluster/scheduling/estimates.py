"""When what runs is expected to end: by its own pace, or not at all."""

from datetime import datetime, timedelta

from trainhall.cluster.lifecycle.states import ACTIVE_ATTEMPT_STATES, AttemptState
from trainhall.cluster.snapshot.model import AttemptFacts, JobFacts

_FEWEST_STEPS = 2
"""A pace is known from so many steps on: the first of an attempt is like no other."""


def expected_end(now: datetime, job: JobFacts, attempt: AttemptFacts) -> datetime | None:
    """When an attempt releases its devices; None: unknown.

    Its pace is that of the whole attempt so far, with all evaluations and checkpoints. So the end
    of one that hangs moves away with time.
    """
    if attempt.state not in ACTIVE_ATTEMPT_STATES:
        return None
    if attempt.state is AttemptState.STOPPING or attempt.goal != "run":
        return now
    if job.total_steps is None or attempt.running_at is None or attempt.first_step is None:
        return None
    taken = job.step - attempt.first_step + 1
    if taken < _FEWEST_STEPS:
        return None
    pace = (now - attempt.running_at).total_seconds() / taken
    return later(now, pace * max(0, job.total_steps - job.step))


def expected_seconds(job: JobFacts, workers: int) -> float | None:
    """Return how long a waiting job would run with so many workers.

    None: unknown, as of every job that never ran.
    """
    if job.total_steps is None or job.step_seconds is None or workers != job.workers:
        return None
    return job.step_seconds * max(0, job.total_steps - job.step)


def later(time: datetime, seconds: float) -> datetime | None:
    """Add a wait to a time; None: no date is that late."""
    try:
        return time + timedelta(seconds=seconds)
    except OverflowError:
        return None
