"""Losses that are not finite, and spikes."""

import math
import random

import numpy as np

from trainhall.cluster.alerts.loss_watch import LossWatch, replay
from trainhall.cluster.lifecycle.alerts import Condition
from trainhall.monitoring.points import Points


def watched(losses: list[float], watch: LossWatch | None = None) -> list[tuple[Condition, int]]:
    watch = watch or LossWatch(lambda: None)
    watch.wanted = True
    watch.record("job", 1, list(range(1, len(losses) + 1)), losses)
    return [(finding.condition, finding.step) for finding in watch.take()]


def falling(steps: int, seed: int = 0) -> list[float]:
    noise = random.Random(seed)
    return [0.2 + 2.0 * math.exp(-n / 60) + noise.gauss(0.0, 0.05) for n in range(steps)]


def test_ordinary_curve_has_no_spike() -> None:
    for seed in range(20):
        assert watched(falling(500, seed)) == []


def test_spike_is_reported_once() -> None:
    losses = falling(200)
    losses[150:153] = [9.0, 9.5, 9.0]
    assert watched(losses) == [(Condition.LOSS_SPIKE, 151)]


def test_second_spike_is_reported_again() -> None:
    losses = falling(900)
    losses[150] = losses[800] = 9.0
    assert [step for _, step in watched(losses)] == [151, 801]


def test_first_steps_are_no_spike() -> None:
    assert watched([0.1, 50.0, *falling(30)]) == []


def test_constant_loss_has_no_spike_by_rounding() -> None:
    assert watched([1.0] * 100 + [1.0000001] * 5) == []


def test_loss_that_is_not_finite_is_reported_once() -> None:
    losses = [*falling(3), math.nan, math.nan, math.inf, 0.5, math.nan]
    not_finite = Condition.LOSS_NOT_FINITE
    assert watched(losses) == [(not_finite, 4), (not_finite, 8)]


def test_curves_of_earlier_attempts_are_forgotten() -> None:
    watch = LossWatch(lambda: None)
    assert watched(falling(100), watch) == []
    watch.record("job", 2, [1], [50.0])
    assert watch.take() == []
    watched(falling(100), watch)
    watch.forget_all_but([])
    watch.record("job", 1, [101], [50.0])
    assert watch.take() == []


def test_losses_that_come_during_a_replay_follow_it() -> None:
    """After a restart new losses come in while the stored ones are read."""
    watch = LossWatch(lambda: None)
    watch.wanted = True
    losses = falling(100)
    watch.hold()
    watch.record("j", 1, range(90, 101), [*losses[90:], 50.0])
    assert watch.take() == []
    watch.adopt(replay("j", 1, Points(np.arange(95), np.arange(95.0), np.array(losses[:95]))))
    watch.release()
    assert [(each.condition, each.step) for each in watch.take()] == [(Condition.LOSS_SPIKE, 100)]
    watch.record("j", 1, [101], [losses[-1]])
    assert watch.take() == []


def test_late_losses_of_an_earlier_attempt_are_ignored() -> None:
    watch = LossWatch(lambda: None)
    watch.wanted = True
    losses = falling(40)
    watch.record("j", 2, range(40), losses)
    watch.record("j", 1, [7], [losses[7]])
    watch.record("j", 2, [40], [50.0])
    assert [each.step for each in watch.take()] == [40]


def test_losses_cost_nothing_unless_wanted() -> None:
    watch = LossWatch(lambda: None)
    watch.record("job", 1, [1], [math.nan])
    assert watch.take() == []
