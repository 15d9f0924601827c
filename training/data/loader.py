"""The rank's share of every global batch, read by the rank or ahead of it by data workers.

The sampler that checkpoints save stands where training stands; workers walk ahead with copies of
it.
"""

import copy
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from trainhall.training.common.sample_order import Sampler, eval_shard
from trainhall.training.data import prefetch
from trainhall.training.data.batch_reader import Reader, Request
from trainhall.training.data.prefetch import Prefetcher
from trainhall.training.spec import TrainingSpec

MAX_CHOSEN_WORKERS = 8


@dataclass(frozen=True)
class Share:
    """A rank's part of a global batch, and its number of micro-batches."""

    rank: int | None
    """None: the rank reads nothing."""
    world_size: int
    rounds: int = 1
    held: int = 1
    """Parts that the rank takes, one after the other; `rank` is the first of `world_size`."""


@dataclass(frozen=True)
class Workers:
    """Data workers of one rank."""

    number: int
    """0: the rank reads its batches itself."""
    prefetch: int
    """Batches that each reads ahead."""

    @classmethod
    def wanted(cls, spec: TrainingSpec, reader: Reader, ranks_here: int) -> "Workers":
        """Choose as the spec says, or as fits the data and this host's cores."""
        number = spec.data_workers
        if number is None:
            share = len(os.sched_getaffinity(0)) // ranks_here if prefetch.AVAILABLE else 0
            number = 0 if reader.in_memory else min(max(1, share - 1), MAX_CHOSEN_WORKERS)
        return cls(number if prefetch.AVAILABLE else 0, spec.data_prefetch)


@dataclass
class Loader:
    """Batches for training, step by step."""

    reader: Reader
    sampler: Sampler
    share: Share
    workers: Workers
    describe: Callable[[BaseException], str]
    on_assigned: Callable[[list[Tensor]], None] | None = None
    """Called at each step with the samples in this rank's micro-batches."""
    _ahead: Prefetcher | None = field(default=None, init=False)

    def step(self) -> Iterator[Any]:
        """Yield this rank's micro-batches of the next global batch; the sampler moves on by one.

        For a rank that reads nothing each of them is None.
        """
        if self.share.rank is None:
            yield from (None for _ in _step(self.sampler, self.share))
            return
        if self.workers.number and self._ahead is None:
            self._ahead = Prefetcher(
                self.reader.read,
                _Requests(copy.copy(self.sampler), self.share),
                workers=self.workers.number,
                prefetch=self.workers.prefetch,
                describe=self.describe,
            )
        requests = _step(self.sampler, self.share)
        if self.on_assigned is not None:
            self.on_assigned([request.indices for request in requests])
        for request in requests:
            yield self.reader.read(request) if self._ahead is None else self._ahead.next()

    def close(self) -> None:
        """End the data workers, if there are any."""
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None


@dataclass
class _Requests:
    """All that is still to be read, from where the sampler stands."""

    sampler: Sampler
    share: Share

    def __iter__(self) -> Iterator[Request]:
        while True:
            yield from _step(self.sampler, self.share)


def _step(sampler: Sampler, share: Share) -> list[Request]:
    batches = sampler.next_batch(share.rank or 0, share.world_size, share.rounds, share.held)
    return [Request(sampler.epoch, indices) for indices in batches]


def eval_batches(
    reader: Reader,
    size: int,
    share: Share,
    workers: Workers,
    batch: int,
    describe: Callable[[BaseException], str],
    *,
    together: bool = False,
) -> Iterator[tuple[int, int, Any]]:
    """Yield this rank's parts of the validation set: of each batch in which of them it is, counted
    from 0, its number of samples, and the batch.

    Args:
        together: give all ranks equally many batches; one that counts for nothing fills up.
    """
    if share.rank is None:
        return
    assigned = [
        (place, indices)
        for place in range(share.held)
        for indices in eval_shard(size, share.rank + place, share.world_size, batch)
    ]
    requests = [Request(0, indices) for _, indices in assigned]
    layout = [(place, len(indices)) for place, indices in assigned]
    if together and len(requests) < len(eval_shard(size, 0, share.world_size, batch)):
        requests.append(Request(0, torch.zeros(1, dtype=torch.int64)))
        layout.append((0, 0))
    number = min(workers.number, len(requests))
    if number == 0:
        for (place, samples), request in zip(layout, requests, strict=True):
            yield place, samples, reader.read(request)
        return
    ahead = Prefetcher(
        reader.read, requests, workers=number, prefetch=workers.prefetch, describe=describe
    )
    try:
        for place, samples in layout:
            yield place, samples, ahead.next()
    finally:
        ahead.close()
