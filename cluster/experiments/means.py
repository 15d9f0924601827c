"""The mean that rates a configuration, and the one at a rung of early stopping."""

from collections.abc import Iterable, Sequence
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


def mean_at_rung(results: Iterable[Sequence[float | None]]) -> tuple[int, float] | None:
    """Return the number of rungs that all runs of a configuration have reached, and the mean of
    their results at the last of them; None: they share none, or one has no value there.

    Args:
        results: of each run, by rung.
    """
    shared = list(zip(*results, strict=False))
    values = [value for value in shared[-1] if value is not None] if shared else []
    if not values or len(values) < len(shared[-1]):
        return None
    return len(shared), mean_of_repeats(values)
