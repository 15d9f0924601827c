"""Sums of two terms, fitted to measured values with the least relative errors."""

from collections.abc import Sequence
from typing import NamedTuple

from trainhall.arrays import np


class Terms(NamedTuple):
    """Factors of a sum `first · x + second · y`; none is negative."""

    first: float
    second: float

    def at(self, x: float, y: float) -> float:
        return self.first * x + self.second * y


def fit(
    rows: Sequence[tuple[float, float]], values: Sequence[float], scales: Sequence[float]
) -> Terms:
    """Fit a sum of two terms; the second alone where the rows cannot tell them apart.

    Args:
        rows: x and y of each value.
        scales: what the error of each value is compared with, above 0.
    """
    weights = 1 / np.asarray(scales)
    terms = np.asarray(rows, np.float64) * weights[:, np.newaxis]
    goal = np.asarray(values) * weights
    alone = [
        Terms(*(float(max(0.0, column @ goal) / (column @ column)) * unit))
        for column, unit in zip(terms.T, np.eye(2), strict=True)
        if column.any()
    ]
    if np.linalg.matrix_rank(terms) < 2:
        return alone[-1] if alone else Terms(0.0, 0.0)
    both = Terms(*map(float, np.linalg.lstsq(terms, goal, rcond=None)[0]))
    if min(both) >= 0:
        return both
    # The best without negative factors is then one of a single term.
    return min(alone, key=lambda each: float(np.sum((terms @ each - goal) ** 2)))
