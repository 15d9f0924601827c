"""Assignment of samples: the order of an epoch, and the sampler that walks through it.

The order is a function of (seed, epoch, position) and of nothing else. The number of ranks decides
only who takes which part of a global batch, so a resized job continues with the same batches.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trainhall.training.common.random_state import derive_seed
from trainhall.training.spec import TrainingSpec

Indices = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]

_ROUNDS = 4
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_BLOCK = 1 << 16


class TooFewSamplesError(ValueError):
    """Not even one global batch fits into the training set."""


class SamplePositionError(ValueError):
    """The position of a checkpoint's job among its samples does not fit this job."""


def epoch_order(size: int, seed: int, epoch: int, start: int, stop: int) -> Indices:
    """Return the samples at positions `start` to `stop` of an epoch's random order of `size`
    samples.

    A keyed permutation computed where it is asked for: a Feistel network over the next power of
    two, walked until it falls below `size` (Black & Rogaway, "Ciphers with Arbitrary Finite
    Domains", 2002). So memory does not grow with the data set, no library's shuffle decides the
    order, and any position can be asked for at once.
    """
    bits = max(2, (size - 1).bit_length())
    low_bits = np.uint64(bits // 2)
    low_mask = np.uint64((1 << (bits // 2)) - 1)
    high_mask = np.uint64((1 << (bits - bits // 2)) - 1)
    keys = [np.uint64(derive_seed(seed, "order", epoch, i)) for i in range(2 * _ROUNDS)]

    def permute(values: _Words) -> _Words:
        high, low = values >> low_bits, values & low_mask
        for for_high, for_low in zip(keys[::2], keys[1::2], strict=True):
            high ^= mix(low ^ for_high) & high_mask
            low ^= mix(high ^ for_low) & low_mask
        return (high << low_bits) | low

    walk: Callable[[_Words], _Words] = permute
    if 1 << bits <= 2 * (stop - start):
        # Most of the domain is asked for: with all of it in a table, a walk only looks up.
        table = permute(np.arange(1 << bits, dtype=np.uint64))
        values, walk = table[start:stop].copy(), table.__getitem__
    else:
        values = permute(np.arange(start, stop, dtype=np.uint64))
    outside = np.flatnonzero(values >= size)
    while outside.size:
        values[outside] = walk(values[outside])
        outside = outside[values[outside] >= size]
    return values.astype(np.int64)


def mix(words: _Words) -> _Words:
    """Finalise as SplitMix64 does (Steele, Lea & Flood, 2014); products wrap around at 2^64."""
    words = (words ^ (words >> _SHIFTS[0])) * _FACTORS[0]
    words = (words ^ (words >> _SHIFTS[1])) * _FACTORS[1]
    return words ^ (words >> _SHIFTS[2])


def sample_words(seed: int, epoch: int, indices: Indices, lanes: int) -> _Words:
    """Return random 64-bit words [sample, lane] that depend on seed, epoch and sample alone.

    Augmentation draws from them, so it is the same on any rank, in any data worker and after any
    pause.
    """
    key = np.uint64(derive_seed(seed, "sample", epoch))
    samples = mix(indices.astype(np.uint64) ^ key)
    return mix(samples[:, None] + np.arange(1, lanes + 1, dtype=np.uint64) * _GOLDEN)


@dataclass
class Sampler:
    """Deals an epoch's samples out in global batches; the last partial batch is dropped.

    `epoch` counts from 0 and `offset` is the number of its samples dealt so far.

    Args:
        counted_by: the option, if any, for which batches are counted from the job's beginning on,
            so that all of them must be of one size.
    """

    size: int
    batch: int
    seed: int
    counted_by: str | None = None
    epoch: int = 0
    offset: int = 0

    @classmethod
    def of(cls, training: TrainingSpec, size: int) -> Self:
        """Build the order of so many samples, as a job's spec has it."""
        counted_by = None if training.steps is not None else "training.epochs"
        if training.reproducible:
            counted_by = "training.reproducible"
        return cls(size, training.global_batch_size, training.seed, counted_by)

    def __post_init__(self) -> None:
        if self.size < self.batch:
            raise TooFewSamplesError(
                f"training.global_batch_size is {self.batch}, but the training set has "
                f"{self.size} samples and a partial batch is dropped; give at most {self.size}"
            )
        self._block_at = (-1, -1)
        self._block = torch.empty(0, dtype=torch.int64)

    @property
    def batches_per_epoch(self) -> int:
        return self.size // self.batch

    def next_batch(self, rank: int, world_size: int, rounds: int, held: int = 1) -> list[Tensor]:
        """Return this rank's share of the next global batch, cut into `rounds` equal micro-batches.

        Args:
            held: shares that are taken instead of one, `rank` being the first; each is cut.
        """
        if self.offset + self.batch > self.size:
            self.epoch, self.offset = self.epoch + 1, 0
        share = self.batch // world_size
        start = self.offset + rank * share
        indices = self._at(start, start + held * share)
        self.offset += self.batch
        pieces = rounds * held
        return [indices] if pieces == 1 else list(indices.chunk(pieces))

    def _at(self, start: int, stop: int) -> Tensor:
        """Return a part of the epoch's order, from blocks that are computed once."""
        first = start - start % _BLOCK
        last = min(max(stop, first + _BLOCK), self.size)
        if self._block_at != (self.epoch, first) or stop > first + len(self._block):
            order = epoch_order(self.size, self.seed, self.epoch, first, last)
            self._block = torch.from_numpy(order)
            self._block_at = (self.epoch, first)
        return self._block[start - first : stop - first]

    def seek(self, step: int) -> None:
        """Move to after so many global batches from the beginning."""
        self.epoch, batches = divmod(step, self.batches_per_epoch)
        self.offset = batches * self.batch

    def state(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "offset": self.offset, "batch": self.batch, "size": self.size}

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from where `state` was taken.

        Batches of another size begin where the last one ended: what an epoch drops at its end is
        less than one of them.

        Raises:
            SamplePositionError: the training set has another size, or batches have, and something
                counts them.
        """
        if state["size"] != self.size:
            raise SamplePositionError(
                f"the checkpoint was made with a training set of {state['size']} samples, and this "
                f"one has {self.size}; give the job the same data, or start a new job"
            )
        if state["batch"] != self.batch and self.counted_by is not None:
            by_epochs = self.counted_by == "training.epochs"
            raise SamplePositionError(
                f"training.global_batch_size: {self.batch} was {state['batch']} when the "
                f"checkpoint was made, and {self.counted_by} counts batches of one size; keep "
                f"{state['batch']}, "
                + ("give training.steps instead of epochs, " if by_epochs else "")
                + "or start a new job"
            )
        self.epoch, self.offset = int(state["epoch"]), int(state["offset"])


def split_validation(size: int, fraction: float) -> tuple[Tensor, Tensor]:
    """Divide samples into training and validation sets: the same under every seed, neither
    empty."""
    order = torch.from_numpy(epoch_order(size, 0, 0, 0, size))
    number = min(max(1, round(size * fraction)), size - 1)
    return order[number:], order[:number]


def eval_shard(size: int, rank: int, world_size: int, batch: int) -> list[Tensor]:
    """Return this rank's part of the validation set in batches; the parts cover it exactly once."""
    mine = torch.arange(size)[rank::world_size]
    return list(mine.split(batch)) if len(mine) else []
