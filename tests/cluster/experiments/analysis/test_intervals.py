"""Bootstrap intervals: they contain the mean, are the same every time, and are rarely wrong."""

import math
import sys

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trainhall.cluster.experiments.analysis.intervals import difference_interval, mean_interval
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
