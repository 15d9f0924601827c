"""Where the time of a step goes, hidden communication included."""

import pytest

from trainhall.training.clock import HostClock, Phase, covered


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
def test_time_is_covered_once_and_only_before_the_end(
    spans: list[tuple[float, float]], seconds: float
) -> None:
    assert covered(spans, 10.0) == seconds


def test_what_is_sent_behind_the_backward_pass_is_not_hidden() -> None:
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
