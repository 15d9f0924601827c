"""Bootstrap intervals of means over repeats (Efron 1979), widened for the few repeats there are.

A percentile interval of three values is far too narrow. The deviations of the resampled means are
therefore multiplied by sqrt(n / (n - 1)) and by the ratio of Student's to the normal quantile
(Hesterberg 2015, "What Teachers Should Know About the Bootstrap").

An interval has only values that are possible. That of a quantity that is always positive, such as a
speed, is computed on a logarithmic scale, as percentile intervals may be on any monotone one
(DiCiccio & Efron 1996, "Bootstrap Confidence Intervals"). One that has two bounds, such as an
accuracy, is cut off at them: what is left contains the true value as often (Mandelkern 2002,
"Setting Confidence Intervals for Bounded Parameters").
"""

import math
import sys
from collections.abc import Sequence

from trainhall.arrays import Floats, RandomGenerator, np

Interval = tuple[float, float]

LEVEL_PERCENT = 95
UNBOUNDED: Interval = (-math.inf, math.inf)
POSITIVE: Interval = (0.0, math.inf)
SHARE: Interval = (0.0, 1.0)
_PERCENTAGE: Interval = (0.0, 100.0)
_POSITIVE_ENDS = (
    "_per_second", "_seconds", "_bytes", "_per_sample", "_utilization", "loss", "perplexity",
)  # fmt: skip
"""Ends of the names of metrics that are not negative: a loss may be, and then has no bound."""
_RESAMPLES = 2000
_SEED = 0
_TAILS = (0.025, 0.975)
_NORMAL = 1.960
_STUDENT = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
)  # fmt: skip
"""Student's quantile 0.975, by degrees of freedom from 1."""
_LARGEST = sys.float_info.max
_MOST_LOG = math.log(_LARGEST) - 1


def bounds_of(metric: str, values: Sequence[float]) -> Interval:
    """Return the least and the greatest value that a metric may have, by its name and its values.

    Args:
        values: not empty.
    """
    candidates = [UNBOUNDED]
    if metric.endswith("accuracy"):
        candidates = [SHARE, _PERCENTAGE, POSITIVE, UNBOUNDED]
    elif metric.endswith(_POSITIVE_ENDS):
        candidates = [POSITIVE, UNBOUNDED]
    least, greatest = min(values), max(values)
    return next(each for each in candidates if each[0] <= least and greatest <= each[1])


def mean_interval(values: Sequence[float], bounds: Interval = UNBOUNDED) -> Interval | None:
    """Return an interval of the mean; None of a single value, whose spread is not known.

    Args:
        bounds: of what the values may be.
    """
    if len(values) < 2:
        return None
    scale = _scale(values)
    sample = np.sort(np.asarray(values) / scale)
    means = _resampled_means(sample, np.random.default_rng(_SEED))
    center, widening = float(sample.mean()), _widening(len(values))
    if bounds == POSITIVE and sample[0] > 0:
        low, high = _interval(math.log(center), np.log(means) - math.log(center), widening, 1.0)
        low, high = (math.exp(min(end, _MOST_LOG)) * scale for end in (low, high))
        # Exact where all values are the same.
        mean = center * scale
        return min(low, mean), min(max(high, mean), _LARGEST)
    return _within(_interval(center, means - center, widening, scale), bounds)


def difference_interval(
    left: Sequence[float], right: Sequence[float], bounds: Interval = UNBOUNDED
) -> Interval | None:
    """Return an interval of the difference of the means, left minus right; None where one of them
    is a single value.

    Of quantities that are always positive it is that of their ratio, as a difference from the mean
    on the right: so it agrees with `mean_interval` and `ratio_interval`.

    Args:
        bounds: of what the values may be.
    """
    if min(len(left), len(right)) < 2:
        return None
    if bounds == POSITIVE and (ratio := ratio_interval(left, right)) is not None:
        scale = _scale(right)
        mean = float((np.asarray(right) / scale).mean())
        low, high = (max(-_LARGEST, min(_LARGEST, (end - 1) * mean * scale)) for end in ratio)
        return low, high
    scale = _scale([*left, *right])
    random = np.random.default_rng(_SEED)
    samples = [np.sort(np.asarray(values) / scale) for values in (left, right)]
    means = [_resampled_means(sample, random) for sample in samples]
    center = float(samples[0].mean() - samples[1].mean())
    widening = _widening(min(len(left), len(right)))
    interval = _interval(center, means[0] - means[1] - center, widening, scale)
    return _within(interval, (bounds[0] - bounds[1], bounds[1] - bounds[0]))


def ratio_interval(left: Sequence[float], right: Sequence[float]) -> Interval | None:
    """Return an interval of the ratio of the means, left over right; None where one of them is a
    single value, or a value is not positive, or next to nothing beside the others."""
    if min(len(left), len(right)) < 2 or min(*left, *right) <= 0:
        return None
    random = np.random.default_rng(_SEED)
    scales = [_scale(values) for values in (left, right)]
    samples = [
        np.sort(np.asarray(values) / scale)
        for values, scale in zip((left, right), scales, strict=True)
    ]
    if min(sample[0] for sample in samples) == 0:
        return None
    logs = [math.log(scale) for scale in scales]
    means = [
        np.log(_resampled_means(sample, random)) + log
        for sample, log in zip(samples, logs, strict=True)
    ]
    centers = [math.log(s.mean()) + log for s, log in zip(samples, logs, strict=True)]
    center = centers[0] - centers[1]
    widening = _widening(min(len(left), len(right)))
    low, high = _interval(center, means[0] - means[1] - center, widening, 1.0)
    return math.exp(min(low, _MOST_LOG)), math.exp(min(high, _MOST_LOG))


def _resampled_means(sample: Floats, random: RandomGenerator) -> Floats:
    drawn = random.integers(0, len(sample), (_RESAMPLES, len(sample)))
    return np.asarray(sample[drawn].mean(axis=1))


def _interval(center: float, deviations: Floats, widening: float, scale: float) -> Interval:
    low, high = np.quantile(deviations, _TAILS) * widening
    ends = (center + min(low, 0.0), center + max(high, 0.0))
    low, high = (float(max(-_LARGEST, min(_LARGEST, float(end) * scale))) for end in ends)
    return low, high


def _within(interval: Interval, bounds: Interval) -> Interval:
    return max(interval[0], bounds[0]), min(interval[1], bounds[1])


def _widening(count: int) -> float:
    freedom = count - 1
    student = _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else _NORMAL + 2.5 / freedom
    return math.sqrt(count / freedom) * student / _NORMAL


def _scale(values: Sequence[float]) -> float:
    """Return a divisor with which sums and differences do not overflow."""
    return max(map(abs, values)) or 1.0
