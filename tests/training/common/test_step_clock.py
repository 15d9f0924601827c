"""The phases of a step's time, and hidden communication."""

import math
from collections.abc import Callable

import pytest

from trainhall.training.common.step_clock import HostClock, Phase, covered, overlap

ClockAt = Callable[..., HostClock]


@pytest.fixture
def clock_at(monkeypatch: pytest.MonkeyPatch) -> ClockAt:
    """Makes a clock that finds one of these moments after the other, and is started."""

    def make(*moments: float) -> HostClock:
        left = iter(moments)
        monkeypatch.setattr("trainhall.training.common.step_clock.perf_counter", lambda: next(left))
        clock = HostClock()
        clock.start()
        return clock

    return make


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [
        ([], 0.0),
        ([(1.0, 3.0)], 2.0),
        ([(1.0, 3.0), (2.0, 4.0)], 3.0),
        ([(2.0, 4.0), (1.0, 5.0)], 4.0),
        ([(1.0, 2.0), (4.0, 5.0)], 2.0),
        ([(8.0, 12.0), (1.0, 2.0)], 3.0),
        ([(10.0, 12.0)], 0.0),
    ],
)
def test_step_clock_covers_time_once(spans: list[tuple[float, float]], seconds: float) -> None:
    assert covered(spans, 10.0) == seconds


def test_step_clock_counts_nested_time_once() -> None:
    spans = [(1.0, 3.0), (2.0, 5.0), (8.0, 12.0)]
    assert overlap(spans, [(0.0, 2.0), (4.0, 9.0), (11.0, 20.0)]) == 1 + (1 + 1) + 1
    assert overlap([], [(0.0, 2.0)]) == overlap(spans, []) == 0


def test_step_clock_excludes_waiting_from_hidden_time(clock_at: ClockAt) -> None:
    clock = clock_at(0.0, 10.0, 20.0, 30.0)
    clock.sent(2.0, 23.0)
    clock.waited(4.0, 5.0)
    clock.mark(Phase.FORWARD)
    clock.waited(12.0, 13.0)
    clock.mark(Phase.COMMUNICATION)
    clock.waited(21.0, 25.0)
    clock.mark(Phase.BACKWARD)
    clock.finish()
    # 2-10 and 20-23, without 4-5 and 21-23.
    assert clock.take().hidden[0] == 8 - 1 + 3 - 2


def test_step_clock_omits_unmeasured_times() -> None:
    clock = HostClock()
    for sending_unmeasured in (False, True, False):
        clock.start()
        if sending_unmeasured:
            clock.sending_unmeasured()
        clock.finish()
    first, second, third = clock.take().hidden
    assert (first, third) == (0.0, 0.0)
    assert math.isnan(second)


def test_step_clock_excludes_sending_after_backward() -> None:
    clock = HostClock()
    for meanwhile in (Phase.BACKWARD, Phase.COMMUNICATION):
        clock.start()
        clock.mark(Phase.BACKWARD)
        begun = clock.now()
        clock.mark(meanwhile)
        clock.sent(begun, clock.now())
        clock.mark(Phase.COMMUNICATION)
        clock.finish()
    phases, (hidden, exposed), _ = clock.take()
    assert 0 < hidden <= phases[0, Phase.BACKWARD]
    assert exposed == 0
    assert len(clock.take().hidden) == 0


def test_step_clock_counts_waits_as_communication(clock_at: ClockAt) -> None:
    clock = clock_at(0.0, 10.0, 16.0, 17.0)
    clock.waited(1.0, 2.0)
    clock.waited(4.0, 6.0)
    clock.mark(Phase.FORWARD)
    clock.waited(11.0, 15.0)
    clock.mark(Phase.BACKWARD)
    clock.mark(Phase.COMMUNICATION)
    clock.waited(18.0, 25.0)  # evaluation, between two steps
    clock.finish()
    phases, hidden, _ = clock.take()
    data, forward, backward, communication, optimizer = phases[0]
    assert (forward, backward, communication) == (7.0, 2.0, 8.0)
    assert (data, optimizer, hidden[0]) == (0.0, 0.0, 0.0)
