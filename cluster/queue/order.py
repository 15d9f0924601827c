"""Order of the queue.

`priority_ageing_seconds` of waiting count as much as one level of priority. All jobs age at the
same pace, so a job's place is fixed when it is queued, and time alone changes no order. Of two jobs
whose priorities differ by `d` levels, the lower one waits for the other only if that was queued
within `d` times these seconds after it: every job comes first in the end.
"""

from datetime import datetime
from typing import Protocol

from trainhall.cluster.options import ClusterOptions


class Queued(Protocol):
    """A job, as far as the order of the queue depends on it."""

    @property
    def number(self) -> int: ...
    @property
    def priority(self) -> int: ...
    @property
    def queued_at(self) -> datetime: ...


def queue_order(job: Queued, options: ClusterOptions) -> tuple[float, int, int]:
    """Return a key to sort waiting jobs by; the first starts first.

    It is the time at which a job of priority 0 would have to be queued to stand beside this one.
    """
    queued = job.queued_at.timestamp()
    return (queued - job.priority * options.priority_ageing_seconds, -job.priority, job.number)
