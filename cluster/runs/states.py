"""States and times of runs, here and in MLflow."""

from datetime import UTC, datetime, timedelta

from trainhall.cluster.errors import InvalidValueError
from trainhall.cluster.lifecycle.states import JobState
from trainhall.db.models import Job
from trainhall.db.tracking.runs import Run

STATES = {
    "RUNNING": JobState.RUNNING,
    "SCHEDULED": JobState.RUNNING,
    "FINISHED": JobState.COMPLETED,
    "FAILED": JobState.FAILED,
    "KILLED": JobState.CANCELLED,
}
_STATUSES = {
    JobState.COMPLETED: "FINISHED",
    JobState.FAILED: "FAILED",
    JobState.CANCELLED: "KILLED",
}


def status_of(job: Job, run: Run) -> str:
    """Return MLflow's status: the reported one, unless a user has cancelled the run since."""
    state = JobState(job.state)
    return run.status if STATES[run.status] is state else _STATUSES.get(state, "RUNNING")


def time_of(milliseconds: int) -> datetime:
    """
    Raises:
        InvalidValueError: it is not in this calendar.
    """
    try:
        return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=milliseconds)
    except OverflowError:
        raise InvalidValueError("time", milliseconds, "must be milliseconds since 1970") from None


def milliseconds(time: datetime) -> int:
    return round(1000 * time.timestamp())
