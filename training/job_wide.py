"""What is told of the job as a whole: rank 0 tells it, and the others know it too."""

from collections.abc import Sequence
from typing import Any

from trainhall.training.link import EventSpool, MetricSpool, MetricTable

_MISSED = ("stepped", "gradients")
"""Events that nothing makes up for: an incident ends with the one, a request with the other."""


class JobWide:
    """Writes tables and events of the whole job, as rank 0.

    Every rank is given the same ones. Those that do not write keep the newest, which rank 0 may
    not have come to write when it dies, so that ranks that go on without it can tell them.

    Args:
        metrics, events: this rank's own.
    """

    def __init__(self, rank: int, metrics: MetricSpool, events: EventSpool) -> None:
        self._is_first = rank == 0
        self._metrics = metrics
        self._events = events
        self._tables: list[MetricTable] = []
        self._told: list[tuple[str, dict[str, Any]]] = []

    def append(self, tables: Sequence[MetricTable]) -> None:
        if self._is_first:
            self._metrics.append(tables)
        else:
            self._tables += tables

    def tell(self, kind: str, data: dict[str, Any]) -> None:
        if self._is_first:
            self._events.append(kind, data)
        elif kind in _MISSED:
            self._told.append((kind, data))

    def forget(self) -> None:
        """Rank 0 has come further, and so has written all that came before."""
        self._tables, self._told = [], []

    def tell_again(self) -> None:
        """Write, in place of rank 0, what it may not have come to write."""
        if self._tables:
            self._metrics.append(self._tables)
        for kind, data in self._told:
            self._events.append(kind, data)
        self.forget()
