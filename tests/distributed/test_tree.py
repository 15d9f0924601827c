"""The sum over logical shards has the same bits on any ranks."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainhall.distributed.tree import Node, divide, merges, subtrees, total


@st.composite
def shards_and_ranks(draw: st.DrawFn) -> tuple[int, int]:
    shards = draw(st.integers(1, 16))
    return shards, draw(st.integers(1, min(8, shards)))


def add(left: float, right: float) -> float:
    return left + right


@given(shards_and_ranks(), st.data())
def test_tree_sum_is_bit_equal_for_any_division(
    sizes: tuple[int, int], data: st.DataObject
) -> None:
    shards, ranks = sizes
    values = data.draw(
        st.lists(st.floats(-1e6, 1e6, width=32), min_size=shards, max_size=shards), "values"
    )
    alone = total(shards, {Node(i, i + 1): value for i, value in enumerate(values)}, add)
    sums: dict[Node, float] = {}
    for held in divide(shards, ranks):
        stack: list[float] = []
        for shard, completed in zip(held, merges(shards, held), strict=True):
            stack.append(values[shard])
            for _ in range(completed):
                right = stack.pop()
                stack.append(add(stack.pop(), right))
        sums |= zip(subtrees(shards, held), stack, strict=True)
    assert total(shards, sums, add).hex() == alone.hex()
    assert math.isclose(alone, math.fsum(values), rel_tol=1e-9, abs_tol=1e-3)


@given(shards_and_ranks())
def test_tree_shards_are_ordered_and_even(sizes: tuple[int, int]) -> None:
    shards, ranks = sizes
    held = divide(shards, ranks)
    assert [shard for part in held for shard in part] == list(range(shards))
    assert {len(part) for part in held} <= {shards // ranks, -(-shards // ranks)}


def test_tree_adds_left_and_right_halves() -> None:
    leaves = {Node(i, i + 1): str(i) for i in range(5)}
    assert total(5, leaves, lambda left, right: f"({left}+{right})") == "(((0+1)+2)+(3+4))"
    assert [len(part) for part in divide(4, 3)] == [2, 1, 1]
    assert subtrees(8, range(3, 8)) == [Node(3, 4), Node(4, 8)]


def test_more_ranks_than_shards_is_refused() -> None:
    with pytest.raises(ValueError, match="5 ranks cannot hold 4 logical shards"):
        divide(4, 5)


def test_missing_shard_is_named() -> None:
    with pytest.raises(ValueError, match="no part holds shard 1 of 2"):
        total(2, {Node(0, 1): 1.0}, add)
