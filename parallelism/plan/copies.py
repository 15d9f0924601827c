"""Strategies whose ranks hold the whole model, as far as memory and computation go.

DistributedDataParallel looks at the values of its tensors, so that it cannot run on such as have
none. What it holds is imitated here.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from trainhall.distributed.tree import divide, merges
from trainhall.parallelism.degrees import Degrees
from trainhall.parallelism.strategy import Strategy, clip_gradients


class SingleRank(Strategy):
    """One rank: gradients are new in each step."""

    averages = False

    def __init__(self, model: nn.Module) -> None:
        self.degrees, self.samples, self.stream = Degrees(), 0, 0
        self.model = self.called = model
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}

    def clip(self, largest: float | None) -> Tensor:
        parameters = list(self.parameters.values())
        norm = torch.zeros(())
        clip_gradients(parameters, largest, norm)
        return norm

    def share_buffers(self) -> None:
        """Do nothing: there is one rank."""


class Copies(SingleRank):
    """As DistributedDataParallel: gradients live in buckets, which stay from step to step."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        for parameter in self.parameters.values():
            parameter.grad = torch.empty_like(parameter)

    def clear_gradients(self) -> None:
        """Keep them: the next backward pass writes over them."""


class Shards(SingleRank):
    """As `logical_shards.LogicalShards`, of the rank that holds the most shards.

    What shards give is kept until the tree that adds them up has a use for it.
    """

    def __init__(self, model: nn.Module, ranks: int, shards: int, bucket_bytes: float) -> None:
        super().__init__(model)
        self._ranks = ranks
        self._bucket_bytes = bucket_bytes
        shared = self.parameters.values() if ranks > 1 else ()
        self._in_buckets = [torch.empty_like(parameter) for parameter in shared]
        mine = max(divide(shards, ranks), key=len)
        self._completed = merges(shards, mine)
        self._sums: list[list[Tensor]] = []

    def begin(self) -> Iterator[bool]:
        """Yield before the passes of each shard whether it is the last."""
        for index, completed in enumerate(self._completed):
            final = index == len(self._completed) - 1
            if final and self._in_buckets:
                self._give_buckets()
            yield final
            if final and self._in_buckets:
                self._exchange(completed)
            else:
                self._push(completed)
        if not self._in_buckets:
            for parameter, gradient in zip(self.parameters.values(), self._sums[0], strict=True):
                parameter.grad = gradient
        self._sums = []

    def _give_buckets(self) -> None:
        for parameter, gradient in zip(self.parameters.values(), self._in_buckets, strict=True):
            parameter.grad = gradient

    def _push(self, completed: int) -> None:
        self._sums.append([p.grad for p in self.parameters.values() if p.grad is not None])
        self.clear_gradients()
        for _ in range(completed):
            newest = self._sums.pop()
            torch._foreach_add_(self._sums[-1], newest)

    def _exchange(self, completed: int) -> None:
        """Allocate a bucket's sums, and what is sent to and received from other ranks."""
        del self._sums[len(self._sums) - completed :]
        rows = len(self._sums) + 1
        elements = min(sum(g.numel() for g in self._in_buckets), int(self._bucket_bytes) // 4)
        like = self._in_buckets[0]
        if rows > 1:
            sums = like.new_empty(rows, elements)
            outgoing = torch.empty_like(sums)
            del sums, outgoing
        subtrees = rows * self._ranks  # other ranks hold no more than this one
        incoming = like.new_empty(subtrees * elements // self._ranks)
        del incoming
