"""One fixed binary tree over logical shards, on whichever ranks; no torch.

Floating-point addition is not associative: a sum has the same bits on any number of ranks only if
the same pairs are added. So the tree is a function of the number of shards alone. The node over
`n` shards has the first ⌈n / 2⌉ of them below its left child. A rank adds up the largest whole
subtrees of the shards that it holds, and what is left of the tree is added across ranks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Node:
    """The shards from `start` up to `stop`, which make a subtree."""

    start: int
    stop: int

    @property
    def children(self) -> "tuple[Node, Node] | None":
        """Left and right; None of a single shard."""
        size = self.stop - self.start
        if size == 1:
            return None
        middle = self.start + (size + 1) // 2
        return Node(self.start, middle), Node(middle, self.stop)


def divide(shards: int, ranks: int) -> list[range]:
    """Return each rank's neighbouring shards: equally many, the first ranks one more.

    Raises:
        ValueError: some ranks would hold none.
    """
    if ranks > shards:
        raise ValueError(f"{ranks} ranks cannot hold {shards} logical shards: some would have none")
    least, more = divmod(shards, ranks)
    starts = [rank * least + min(rank, more) for rank in range(ranks + 1)]
    return [range(start, stop) for start, stop in pairwise(starts)]


def subtrees(shards: int, held: range) -> list[Node]:
    """Return the largest whole subtrees within `held`, from left to right."""
    found: list[Node] = []

    def visit(node: Node) -> None:
        if held.start <= node.start and node.stop <= held.stop:
            found.append(node)
        elif node.start < held.stop and held.start < node.stop:
            for child in node.children or ():
                visit(child)

    visit(Node(0, shards))
    return found


def total(shards: int, parts: dict[Node, T], add: Callable[[T, T], T]) -> T:
    """Sum the tree over subtrees that cover it; `add` is given the left part first."""

    def value(node: Node) -> T:
        if node in parts:
            return parts[node]
        children = node.children
        if children is None:
            raise ValueError(f"no part holds shard {node.start} of {shards}")
        left, right = children
        return add(value(left), value(right))

    return value(Node(0, shards))


def merges(shards: int, held: range) -> list[int]:
    """Count the additions that each shard of `held` completes when they come in order.

    The sums so far are a stack: a shard is pushed, then the two newest become one as often as is
    returned here. What is left at the end are the sums of `subtrees`.
    """
    completed = dict.fromkeys(held, 0)

    def visit(node: Node) -> None:
        if node.children is not None:
            completed[node.stop - 1] += 1
            for child in node.children:
                visit(child)

    for node in subtrees(shards, held):
        visit(node)
    return list(completed.values())
