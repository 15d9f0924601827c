"""Bootstrap intervals: they contain the mean, are the same every time, and are rarely wrong."""

import math
import sys

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trainhall.cluster.experiments.analysis.intervals import (
    POSITIVE,
    SHARE,
    UNBOUNDED,
    bounds_of,
    difference_interval,
    mean_interval,
    ratio_interval,
)
from trainhall.cluster.experiments.means import mean_of_repeats

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=12)
ANY = st.floats(allow_nan=False, allow_infinity=False)


@given(VALUES)
@example([5e-324, 5e-324])
def test_interval_contains_the_mean_in_any_order(values: list[float]) -> None:
    interval = mean_interval(values)
    assert interval is not None
    low, high = interval
    slack = 1e-9 * max(map(abs, values))
    assert low - slack <= mean_of_repeats(values) <= high + slack
    assert mean_interval(sorted(values, reverse=True)) == interval


@given(VALUES, VALUES)
def test_difference_is_within_its_interval(left: list[float], right: list[float]) -> None:
    interval = difference_interval(left, right)
    assert interval is not None
    slack = 1e-9 * max(map(abs, left + right))
    difference = mean_of_repeats(left) - mean_of_repeats(right)
    assert interval[0] - slack <= difference <= interval[1] + slack
    assert difference_interval(left[::-1], right[::-1]) == interval


@given(st.lists(ANY, min_size=2, max_size=5), st.lists(ANY, min_size=2, max_size=5))
def test_extreme_values_give_finite_intervals(left: list[float], right: list[float]) -> None:
    for interval in (mean_interval(left), difference_interval(left, right)):
        assert interval is not None
        assert all(map(math.isfinite, interval))


POSITIVES = st.lists(st.floats(5e-324, sys.float_info.max), min_size=2, max_size=5)


@given(POSITIVES, POSITIVES)
def test_difference_of_positive_values_agrees_with_ratio(
    left: list[float], right: list[float]
) -> None:
    ratio = ratio_interval(left, right)
    difference = difference_interval(left, right, POSITIVE)
    assert difference is not None
    assert all(map(math.isfinite, difference))
    if ratio is None:  # a value is next to nothing beside the others
        return
    # What underflows shows no difference.
    assert (difference[0] > 0) <= (ratio[0] > 1)
    assert (difference[1] < 0) <= (ratio[1] < 1)


@pytest.mark.parametrize("value", [0.0, 1.0, -sys.float_info.max, 5e-324])
def test_intervals_of_single_and_of_equal_values(value: float) -> None:
    assert mean_interval([value]) is None
    assert difference_interval([value], [value, value]) is None
    assert mean_interval([value, value, value]) == (value, value)


@pytest.mark.parametrize("repeats", [2, 3, 5, 20])
def test_intervals_contain_the_true_mean_nearly_always(repeats: int) -> None:
    random = np.random.default_rng(repeats)
    missed = 0
    for _ in range(300):
        interval = mean_interval(random.normal(10.0, 1.0, repeats).tolist())
        assert interval is not None
        missed += not interval[0] <= 10.0 <= interval[1]
    assert missed / 300 < 0.1


@pytest.mark.parametrize("repeats", [3, 5])
def test_equal_means_rarely_show_a_difference(repeats: int) -> None:
    random = np.random.default_rng(repeats)
    shown = 0
    for _ in range(300):
        interval = difference_interval(
            random.normal(0.0, 1.0, repeats).tolist(), random.normal(0.0, 1.0, repeats).tolist()
        )
        assert interval is not None
        shown += interval[0] > 0 or interval[1] < 0
    assert shown / 300 < 0.07


@given(st.lists(st.floats(5e-324, 1.7e308), min_size=2, max_size=5))
@example([1.0, 1000.0])
@example([1e-323, 5e-324])
def test_interval_of_a_speed_is_positive(values: list[float]) -> None:
    interval = mean_interval(values, POSITIVE)
    assert interval is not None
    assert 0 <= interval[0] <= mean_of_repeats(values) * (1 + 1e-9)
    assert mean_of_repeats(values) * (1 - 1e-9) <= interval[1] < math.inf
    # Beyond that, or next to the smallest number, rounding ends at zero.
    assert interval[0] > 0 or max(values) > 1e9 * min(values) or min(values) < 1e-300


@pytest.mark.parametrize("repeats", [2, 3, 5, 20])
def test_intervals_of_skewed_speeds_contain_the_true_mean(repeats: int) -> None:
    random = np.random.default_rng(repeats)
    missed = 0
    for _ in range(300):
        interval = mean_interval(random.lognormal(0.0, 0.3, repeats).tolist(), POSITIVE)
        assert interval is not None
        missed += not interval[0] <= math.exp(0.045) <= interval[1]
    assert missed / 300 < 0.1


def test_interval_of_an_accuracy_is_a_share() -> None:
    low, high = mean_interval([0.9, 0.97, 1.0], SHARE) or UNBOUNDED
    assert 0 < low < 0.9
    assert high == 1.0
    assert difference_interval([1.0, 0.0, 1.0], [0.0, 0.0, 0.6], SHARE) == (-1.0, 1.0)


@pytest.mark.parametrize(
    ("metric", "values", "bounds"),
    [
        ("samples_per_second", [1.0], POSITIVE),
        ("eval_accuracy", [0.5, 1.0], SHARE),
        ("val/accuracy", [97.5], (0.0, 100.0)),
        ("loss", [0.1], POSITIVE),
        ("loss", [-0.1], UNBOUNDED),
        ("reward", [0.1], UNBOUNDED),
    ],
)
def test_bounds_follow_from_the_name_and_values(
    metric: str, values: list[float], bounds: tuple[float, float]
) -> None:
    assert bounds_of(metric, values) == bounds
