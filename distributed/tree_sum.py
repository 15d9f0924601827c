"""Sums over the ranks by the additions of one fixed tree: the same bits on any world size.

Each rank adds up a slice of everybody's sums in the order of `trainhall.distributed.tree` and sends
the result to all: a reduce-scatter by all-to-all, then an all-gather. Where every rank holds one
subtree, that is as many bytes as a ring's all-reduce sends.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from trainhall.distributed import breakable
from trainhall.distributed.tree import Node, divide, subtrees, total

_ALIGNMENT = 8
"""Bytes; no element is larger."""


class TreeSum:
    """Adds up what the ranks of the default process group hold; all of them call its methods."""

    def __init__(self, shards: int) -> None:
        """Set up; raise ValueError if there are more ranks than shards."""
        self._shards = shards
        self.world_size = dist.get_world_size()
        self._nodes = [subtrees(shards, held) for held in divide(shards, self.world_size)]
        self._order = [node for nodes in self._nodes for node in nodes]

    def all_reduce(self, sums: Tensor, result: Tensor) -> None:
        """Write the sum over the whole tree into `result`.

        Args:
            sums: [subtrees of this rank, elements]; each row is contiguous.
            result: [elements], contiguous, a multiple of the world size; it may be the memory of
                `sums`.
        """
        width = len(result) // self.world_size
        # To each rank its slice of every subtree: with a single one that is the memory as it is.
        outgoing = sums.view(len(sums), self.world_size, width).transpose(0, 1).contiguous()
        incoming = sums.new_empty(len(self._order), width)
        breakable.all_to_all(
            incoming.view(-1),
            outgoing.view(-1),
            come=[len(nodes) * width for nodes in self._nodes],
            go=[len(sums) * width] * self.world_size,
        )
        breakable.all_gather(result, self._added(incoming))

    def all_reduce_small(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """Return the whole tree's sums of few elements of any size and type, in one exchange.

        Args:
            parts: [subtrees of this rank, elements] each.

        Returns:
            [elements] each.
        """
        columns = [_padded(part.contiguous().view(torch.uint8)) for part in parts]
        widths = [column.shape[1] for column in columns]
        mine = torch.cat(columns, dim=1)
        # Ranks may hold unequally many subtrees, and an all-gather wants equal sizes.
        most = max(map(len, self._nodes))
        rows = mine.new_zeros(most, mine.shape[1])
        rows[: len(mine)] = mine
        gathered = mine.new_empty(self.world_size * most, mine.shape[1])
        breakable.all_gather(gathered.view(-1), rows.view(-1))
        held = [
            row for rank, nodes in enumerate(self._nodes)
            for row in range(rank * most, rank * most + len(nodes))
        ]  # fmt: skip
        found = gathered[held].split(widths, dim=1)
        return [
            self._added(column.contiguous().view(part.dtype)[:, : part.shape[1]].clone())
            for part, column in zip(parts, found, strict=True)
        ]

    def _added(self, sums: Tensor) -> Tensor:
        """Add up all ranks' subtrees [subtree, elements], in their memory."""
        by_node: dict[Node, Tensor] = dict(zip(self._order, sums.unbind(), strict=True))
        return total(self._shards, by_node, Tensor.add_)


def _padded(columns: Tensor) -> Tensor:
    """Pad bytes [row, byte] so that what follows is aligned."""
    return torch.nn.functional.pad(columns, (0, -columns.shape[1] % _ALIGNMENT))
