"""The mean that rates a configuration."""

from collections.abc import Iterable
from statistics import fmean

_SCALE = 2.0**-7


def mean_of_repeats(values: Iterable[float]) -> float:
    """Return a mean without an overflow: values are scaled by a power of two, which is exact."""
    return fmean(value * _SCALE for value in values) / _SCALE
