"""Which rank of a job is shown as slow."""

import math
from typing import Any

import pytest

from trainhall.db.documents import Allocation, NodeAllocation, RankPlacement
from trainhall.monitoring.health import Straggler, straggler_of


def node(name: str, *ranks: int) -> NodeAllocation:
    return NodeAllocation(node_name=name, ranks=tuple(map(RankPlacement, ranks)))


ALLOCATION = Allocation([node("a", 0, 1), node("b", 2, 3)])


def test_straggler_is_named_with_its_node() -> None:
    metrics = {"slowest_rank": 2.0, "slowest_rank_ratio": 1.5, "loss": 0.1}
    assert straggler_of(metrics, ALLOCATION) == Straggler(2, 1.5, "b")
    assert straggler_of(metrics, None) == Straggler(2, 1.5, None)


@pytest.mark.parametrize(("rank", "ranks"), [(9, 4), (1, 1), (0, 1)])
def test_straggler_of_earlier_attempt_is_ignored(rank: int, ranks: int) -> None:
    """The series are those of an earlier attempt, with other workers."""
    allocation = ALLOCATION if ranks == 4 else Allocation([node("a", 0)])
    metrics = {"slowest_rank": float(rank), "slowest_rank_ratio": 1.5}
    assert straggler_of(metrics, allocation) is None


@pytest.mark.parametrize(
    "metrics",
    [
        {},
        {"slowest_rank": 1.0},
        {"slowest_rank": 1.0, "slowest_rank_ratio": 1.2},
        {"slowest_rank": 1.0, "slowest_rank_ratio": "NaN"},
        {"slowest_rank": 1.0, "slowest_rank_ratio": math.inf},
    ],
)
def test_the_slowest_of_equals_is_not_slow(metrics: dict[str, Any]) -> None:
    assert straggler_of(metrics, ALLOCATION) is None
