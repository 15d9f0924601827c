"""Assumed durations of jobs whose own is unknown: medians of similar jobs that have completed."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from sqlalchemy import Connection, select

from trainhall.cluster.durations import format_duration
from trainhall.cluster.lifecycle.states import JobKind, JobState
from trainhall.db.models import Job

DEFAULT_SECONDS = 3600.0
"""Assumed where no job has completed."""
MOST_COMPLETED = 100
"""Jobs that a forecast knows durations from, the newest."""
_SHOWN = 5


class Completed(NamedTuple):
    name: str
    user: str | None
    seconds: float


class Assumed(NamedTuple):
    """Duration of a job whose own is unknown."""

    seconds: float
    basis: str
    """Why so long, for people."""


class Durations:
    def __init__(self, completed: Iterable[Completed]) -> None:
        seconds: dict[str, list[float]] = defaultdict(list)
        for job in completed:
            for of in _similar(job.name, job.user):
                seconds[of].append(job.seconds)
        self._assumed = {
            of: Assumed(
                statistics.median(each),
                f"the median of {len(each)} completed job{'s' if len(each) != 1 else ''}{of}",
            )
            for of, each in seconds.items()
        }

    def like(self, name: str | None, user: str | None) -> Assumed | None:
        """Return the median of jobs of this name, else of this user; None: none has completed."""
        *similar, _ = _similar(name or "", user)
        found = (self._assumed.get(of) for of in similar)
        return next((each for each in found if each is not None), None)

    def of(self, name: str, user: str | None) -> Assumed:
        """Return the median of jobs of this name; without any of this user, else of all jobs."""
        found = (self._assumed.get(of) for of in _similar(name, user))
        default = Assumed(DEFAULT_SECONDS, "as no job has completed")
        return next((each for each in found if each is not None), default)


def _similar(name: str, user: str | None) -> list[str]:
    """Describe the groups of jobs that a job belongs to, the most similar first."""
    return [f" named “{name}”", *([f" of user {user}"] if user else []), ""]


def load_durations(connection: Connection) -> Durations:
    """Load the durations of the newest jobs that have completed, from their first start to their
    end."""
    rows = connection.execute(
        select(Job.name, Job.user, Job.started_at, Job.finished_at)
        .where(
            Job.state == JobState.COMPLETED.value,
            Job.kind == JobKind.JOB.value,
            Job.archived.is_(False),
        )
        .order_by(Job.number.desc())
        .limit(MOST_COMPLETED)
    )
    return Durations(
        Completed(name, user, max(0.0, (finished - started).total_seconds()))
        for name, user, started, finished in rows
        if started is not None and finished is not None
    )


def describe(assumed: Iterable[Assumed]) -> list[str]:
    """Return the assumptions as sentences, the most frequent first."""
    counts = Counter(assumed).most_common()
    texts = [
        f"{number} job{'s' if number != 1 else ''} that never ran: "
        f"{format_duration(each.seconds)}, {each.basis}"
        for each, number in counts[:_SHOWN]
    ]
    if others := sum(number for _, number in counts[_SHOWN:]):
        texts.append(f"{others} more that never ran: medians of jobs like them")
    return texts
