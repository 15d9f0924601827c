"""Smallest and largest values of metrics, as batches widen them."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainhall.monitoring.codec import DIGESTS, Table
from trainhall.monitoring.store import MAX_LAST_VALUES, Ranges, widened

VALUES = st.lists(st.floats(), min_size=1, max_size=6)


def table(columns: dict[str, list[float]], rank: int | None = None) -> Table:
    rows = max(map(len, columns.values()), default=0)
    floats = {name: np.array(values, np.float64) for name, values in columns.items()}
    return Table(rank, np.arange(1, rows + 1), np.zeros(rows), floats)


@given(st.lists(VALUES, min_size=1, max_size=4))
def test_ranges_hold_every_finite_value(batches: list[list[float]]) -> None:
    ranges: Ranges = {}
    for values in batches:
        ranges = widened(ranges, [table({"loss": values, "none": [math.nan] * len(values)})])
    finite = [value for values in batches for value in values if math.isfinite(value)]
    assert ranges == ({"loss": [min(finite), max(finite)]} if finite else {})


def test_ranges_leave_out_ranks_and_digests() -> None:
    digest = next(iter(DIGESTS))
    tables = [table({"loss": [1.0]}, 0), table({digest: [1.0, 1.0], "loss": [2.0, -3.0]})]
    before = {"loss": [0.0, 1.0]}
    assert widened(before, tables) == {"loss": [-3.0, 2.0]}
    assert before == {"loss": [0.0, 1.0]}
    assert widened(before, [table({})]) == before


def test_ranges_are_bounded() -> None:
    many = table({f"m{number}": [1.0] for number in range(MAX_LAST_VALUES + 5)})
    ranges = widened({"loss": [0.0, 0.0]}, [many, table({"loss": [4.0]})])
    assert len(ranges) == MAX_LAST_VALUES
    assert ranges["loss"] == [0.0, 4.0]
