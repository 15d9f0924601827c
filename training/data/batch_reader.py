"""Reading batches: in the rank itself, or by data workers that read ahead of it.

A batch depends on (seed, epoch, indices) alone. Samples of a map-style data set are each read with
random generators that were seeded by (seed, epoch, sample), and data that give whole batches with
generators seeded by (seed, epoch, first index); so no result depends on who read it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from trainhall.parallelism.pipelining.batches import draws_of_its_own, shapes_of
from trainhall.training.common import random_state
from trainhall.training.common.sample_order import sample_words
from trainhall.training.tasks.base import BadDataError, MapStyle, Samples, Task, gives_batches
from trainhall.training.tasks.own import CheckedBatches

_HOST = torch.device("cpu")


@dataclass(frozen=True)
class Request:
    """One batch to read."""

    epoch: int
    indices: Tensor
    """int64 [B]."""


class Reader:
    """Reads batches of one of a task's sets of samples."""

    def __init__(self, task: Task, data: Samples, seed: int) -> None:
        self.task = task
        self._data = data
        self._seed = seed
        self._whole = data if gives_batches(data) else None
        # Trainhall's own data take what they vary from `sample_words`. To keep the generators for
        # them would cost more than benchmarks/engine/step_cost.py allows a whole step.
        source = data.data if isinstance(data, CheckedBatches) else data
        self._draws = not type(source).__module__.startswith("trainhall.")
        self._set_epoch: Callable[[int], None] | None = getattr(data, "set_epoch", None)

    @property
    def in_memory(self) -> bool:
        """The data give whole batches."""
        return self._whole is not None

    def read(self, request: Request) -> Any:
        """Read the batch; the rank's own random generators are left as they were."""
        if self._set_epoch is not None:
            self._set_epoch(request.epoch)
        if self._whole is not None and not self._draws:
            return self._whole.batch(request.indices)
        with draws_of_its_own(_HOST):
            if self._whole is not None:
                self._seed_batch(request)
                return self._whole.batch(request.indices)
            return self._stack(request, list(self._samples(request)))

    def _seed_batch(self, request: Request) -> None:
        """Seed the generators: those of data workers depend on what each has read before."""
        first = request.indices[:1].numpy()
        for word in sample_words(self._seed, request.epoch, first, 1)[:, 0].tolist():
            random_state.seed_sample(word)

    def _samples(self, request: Request) -> Iterator[Any]:
        data = cast(MapStyle, self._data)
        indices = request.indices.tolist()
        words = sample_words(self._seed, request.epoch, np.asarray(indices), 1)
        for index, word in zip(indices, words[:, 0].tolist(), strict=True):
            random_state.seed_sample(word)
            yield data[index]

    def _stack(self, request: Request, samples: list[Any]) -> Any:
        try:
            return self.task.collate(samples)
        except RuntimeError as error:
            mismatch = _unequal(request.indices.tolist(), samples)
            if mismatch is None:
                raise
            raise BadDataError(
                f"the samples of a batch can't be stacked: {mismatch}; give all samples one "
                "shape, or override `collate` of the task"
            ) from error


def _unequal(indices: list[int], samples: list[Any]) -> str | None:
    """Return a message about the first two samples that differ in shape; None if none do."""
    first = shapes_of(samples[0])
    for index, sample in zip(indices, samples, strict=True):
        if (shapes := shapes_of(sample)) != first:
            return f"sample {indices[0]} has {_shown(first)}, sample {index} has {_shown(shapes)}"
    return None


def _shown(shapes: Iterable[tuple[int, ...]]) -> str:
    return " and ".join(str(list(shape)) for shape in shapes) or "no tensor"
