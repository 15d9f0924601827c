"""Tables and events of the job as a whole: rank 0 writes them, and the others keep the newest."""

from collections.abc import Sequence
from typing import Any

from trainhall.training.link.frames import MetricTable
from trainhall.training.link.spool import EventSpool, MetricSpool

_MISSED = ("stepped", "gradients")
"""Events that nothing makes up for: an incident ends with the one, a request with the other."""


class Rank0Log:
    """Writes tables and events of the whole job, as rank 0.

    Every rank is given the same ones. Those that do not write keep the newest, which rank 0 may
    not have come to write when it dies, so that ranks that continue without it can write them.

    Args:
        metrics, events: this rank's own.
    """

    def __init__(self, rank: int, metrics: MetricSpool, events: EventSpool) -> None:
        self._is_first = rank == 0
        self._metrics = metrics
        self._events = events
        self._kept_tables: list[MetricTable] = []
        self._kept_events: list[tuple[str, dict[str, Any]]] = []

    def append_tables(self, tables: Sequence[MetricTable]) -> None:
        if self._is_first:
            self._metrics.append(tables)
        else:
            self._kept_tables += tables

    def append_event(self, kind: str, data: dict[str, Any]) -> None:
        if self._is_first:
            self._events.append(kind, data)
        elif kind in _MISSED:
            self._kept_events.append((kind, data))

    def acknowledge(self) -> None:
        """Rank 0 has come further, and so has written all that came before."""
        self._kept_tables, self._kept_events = [], []

    def replay(self) -> None:
        """Write, in place of rank 0, what it may not have come to write."""
        if self._kept_tables:
            self._metrics.append(self._kept_tables)
        for kind, data in self._kept_events:
            self._events.append(kind, data)
        self.acknowledge()
