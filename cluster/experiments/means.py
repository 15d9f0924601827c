"""The mean that rates a configuration."""

from collections.abc import Iterable
from statistics import fmean

_SCALE = 2.0**-7


def mean_of_repeats(values: Iterable[float]) -> float:
    """Return a mean, also of values whose sum is too large for a float."""
    known = list(values)
    try:
        return fmean(known)
    except OverflowError:
        # A power of two changes no digit of numbers that large; tiny ones it would round to 0.
        return fmean(value * _SCALE for value in known) / _SCALE
