"""Assumed durations of jobs that have never run: medians of similar jobs that have completed."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from trainhall.cluster.durations import format_duration

DEFAULT_SECONDS = 3600.0
"""Assumed where no job has completed."""
_SHOWN = 5


class Completed(NamedTuple):
    name: str
    user: str | None
    seconds: float


class Assumed(NamedTuple):
    """Duration of a job that has never run."""

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

    def of(self, name: str, user: str | None) -> Assumed:
        """Return the median of jobs of this name; without any of this user, else of all jobs."""
        found = (self._assumed.get(of) for of in _similar(name, user))
        default = Assumed(DEFAULT_SECONDS, "as no job has completed")
        return next((each for each in found if each is not None), default)


def _similar(name: str, user: str | None) -> list[str]:
    """Describe the groups of jobs that a job belongs to, the most similar first."""
    return [f" named “{name}”", *([f" of user {user}"] if user else []), ""]


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
