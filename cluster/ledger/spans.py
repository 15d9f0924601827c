"""Devices that an attempt held, and their energy. Times are seconds since the epoch."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from trainhall.db.documents import Allocation, GenerationRecord

DeviceKey = tuple[str, int]
"""Node id and index."""


@dataclass(frozen=True, slots=True)
class Span:
    """Devices held from `start` to `end`."""

    start: float
    end: float
    devices: frozenset[DeviceKey]

    def seconds_in(self, start: float, end: float) -> float:
        # The time of day may have been set back meanwhile.
        return max(0.0, min(self.end, end) - max(self.start, start))


@dataclass(frozen=True, slots=True)
class Reading:
    """Mean power of a node's devices from `start` to `end`."""

    start: float
    end: float
    watts: Mapping[int, float]
    """By index; devices without measured power are left out."""


def spans_of(
    started_at: datetime,
    end: datetime,
    allocation: Allocation,
    generations: Sequence[GenerationRecord] | None,
) -> tuple[Span, ...]:
    """Return what an attempt held up to `end`, oldest first: a span for each generation.

    Args:
        generations: None, if it had only one.
    """
    if not generations:
        return (Span(started_at.timestamp(), end.timestamp(), allocation.devices),)
    starts = [started_at, *(record.time for record in generations[1:]), end]
    return tuple(
        Span(start.timestamp(), following.timestamp(), record.allocation.devices)
        for start, following, record in zip(starts, starts[1:], generations, strict=False)
    )


def held_seconds(spans: Iterable[Span], start: float, end: float) -> float:
    """Return the device-seconds held between two times."""
    return sum(len(span.devices) * span.seconds_in(start, end) for span in spans)


def energy_of(
    spans: Iterable[Span], readings: Mapping[str, Sequence[Reading]], after: float = 0.0
) -> tuple[float, float]:
    """Return joules, and the device-seconds in which they were measured.

    Args:
        readings: by node id.
        after: readings that ended up to then are counted already.
    """
    joules = metered = 0.0
    for span in spans:
        for node_id, index in span.devices:
            for reading in readings.get(node_id, ()):
                watts = reading.watts.get(index)
                if watts is not None and reading.end > after:
                    seconds = span.seconds_in(reading.start, reading.end)
                    joules += watts * seconds
                    metered += seconds
    return joules, metered
