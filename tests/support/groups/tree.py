"""Ranks of a reproducible job whose sums over the ranks fail."""

from pathlib import Path

from torch import Tensor

from trainhall.distributed.tree_sum import TreeSum
from trainhall.training import rank


def failing(_: Path) -> int:
    def fail(self: TreeSum, sums: Tensor, result: Tensor) -> None:
        raise RuntimeError("rank 1 has closed the connection")

    TreeSum.all_reduce = fail  # type: ignore[method-assign]
    return rank.main()
