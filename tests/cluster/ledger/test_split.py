"""The division of device-seconds, and the energy of what was held."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainhall.cluster.ledger.spans import Reading, Span, energy_of, held_seconds, spans_of
from trainhall.cluster.ledger.split import Split, Steps, split
from trainhall.db.documents import Allocation, GenerationRecord, NodeAllocation, RankPlacement
from trainhall.monitoring.points import Points

START = datetime(2026, 11, 20, 12, tzinfo=UTC)
ONE = [Span(0.0, 100.0, frozenset({("a", 0)}))]


def points(steps: Sequence[int], seconds: float | Sequence[float] = 1.0) -> Points:
    values = np.broadcast_to(np.asarray(seconds, np.float64), len(steps))
    return Points(np.asarray(steps, np.int64), np.asarray(steps, np.float64), values)


def allocation(devices: int) -> Allocation:
    ranks = tuple(RankPlacement(n, n, "cuda", n) for n in range(devices))
    return Allocation((NodeAllocation("a", "alpha", 0, ranks),))


def test_steps_before_a_restart_count() -> None:
    found = split(100.0, ONE, Steps(points(range(1, 11)), points(range(1, 11), 0.25)), 8)
    assert found == Split(useful=5.25, redone=3.0, data=1.75, idle=90.0, last_step=7)


def test_steps_taken_again_within_an_attempt_count_once() -> None:
    found = split(20.0, ONE, Steps(points([1, 2, 3, 4, 3, 4, 5])))
    assert found == Split(useful=5.0, redone=2.0, data=None, idle=13.0, last_step=5)


def test_waiting_for_data_of_few_steps_is_not_measured() -> None:
    found = split(20.0, ONE, Steps(points(range(1, 11)), points([5, 10], 0.25)))
    assert (found.useful, found.data) == (10.0, None)


def test_superseded_steps_are_redone() -> None:
    found = split(20.0, ONE, Steps(points([1, 2]), None, points([3, 4, 5])))
    assert (found.useful, found.redone, found.last_step) == (2.0, 3.0, 2)


def test_attempt_without_steps_is_idle() -> None:
    found = split(20.0, ONE, Steps(Points.empty(), Points.empty()))
    assert found == Split(useful=0.0, redone=0.0, data=0.0, idle=20.0, last_step=None)


def test_steps_weigh_the_devices_of_their_time() -> None:
    spans = [
        Span(0.0, 10.0, frozenset({("a", 0), ("a", 1)})),
        Span(10.0, 20.0, frozenset({("a", 0)})),
    ]
    assert split(30.0, spans, Steps(points([5, 15]))).useful == 3.0


@given(
    held=st.floats(0, 1e6),
    steps=st.lists(st.integers(1, 50), max_size=60),
    superseded=st.lists(st.integers(1, 50), max_size=9),
    seconds=st.floats(0, 1e4) | st.just(float("nan")),
    waiting=st.none() | st.floats(0, 1e4),
    redone_from=st.none() | st.integers(0, 60),
)
def test_parts_add_up_to_what_was_held(
    held: float,
    steps: list[int],
    superseded: list[int],
    seconds: float,
    waiting: float | None,
    redone_from: int | None,
) -> None:
    data = None if waiting is None else points(steps, waiting)
    measured = Steps(points(steps, seconds), data, points(superseded, seconds))
    found = split(held, ONE, measured, redone_from)
    parts = (found.useful, found.redone, found.data or 0.0, found.idle)
    assert min(parts) >= -1e-6 * held
    assert sum(parts) == pytest.approx(held, rel=1e-9, abs=1e-6)
    if redone_from is not None and found.last_step is not None:
        assert found.last_step < redone_from


def test_regrouped_attempt_has_a_span_for_each_generation() -> None:
    later = START + timedelta(seconds=60)
    generations = [
        GenerationRecord(1, START, "", 2, allocation(2)),
        GenerationRecord(2, later, "", 1, allocation(1)),
    ]
    end = START + timedelta(seconds=100)
    spans = spans_of(START, end, allocation(1), generations)
    start = START.timestamp()
    assert held_seconds(spans, start, start + 1000) == 2 * 60 + 40
    assert held_seconds(spans, start + 50, start + 70) == 2 * 10 + 10
    assert held_seconds(spans_of(end, START, allocation(2), None), start, start + 99) == 0.0


def test_energy_is_of_held_and_measured_seconds() -> None:
    spans = [Span(10.0, 50.0, frozenset({("a", 0), ("a", 1), ("b", 0)}))]
    readings = {
        "a": [Reading(0.0, 30.0, {0: 100.0, 1: 200.0}), Reading(30.0, 60.0, {0: 300.0})],
        "c": [Reading(0.0, 60.0, {0: 999.0})],
    }
    assert energy_of(spans, readings) == (20 * 300.0 + 20 * 300.0, 60.0)
    assert energy_of(spans, readings, after=30.0) == (20 * 300.0, 20.0)
