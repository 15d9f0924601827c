"""Finds the rank that the others wait for, by what ranks exchange at every step sync.

All ranks of a synchronous job take as long for a step: a slow rank makes the others wait. So what
is compared is a rank's own time: the step without its communication, in which the waiting lies.
"""

import statistics
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainhall.training.spec import JobSpec

MEMORY = 0.8
"""Weight of what was measured before, at every step sync: single steps are noise."""

Seconds = npt.NDArray[np.float64]


ALIKE = ("ddp", "fsdp", "tensor")
"""Strategies under which every rank has the same work, so that one that takes longer is slow."""


def have_equal_work(spec: JobSpec, world_size: int) -> bool:
    """Return whether ranks have equal work: not for pipeline stages or unequal shard counts."""
    shards = spec.training.logical_shards if spec.training.reproducible else None
    return spec.strategy in ALIKE and (shards is None or shards % world_size == 0)


@dataclass(frozen=True)
class Slowest:
    rank: int
    ratio: float
    """Ratio of its own time to the median of all ranks'; 1: no rank waits for another."""


class Stragglers:
    """Holds a smoothed own time of every rank."""

    def __init__(self) -> None:
        self._own: Seconds | None = None

    def add(self, own: Seconds) -> Slowest | None:
        """Return the slowest of at least two ranks.

        Args:
            own: [rank] seconds of a step without communication, the mean since the last step sync.
        """
        if len(own) < 2:
            return None
        before = self._own
        if before is None or len(before) != len(own):
            self._own = own
        else:
            self._own = MEMORY * before + (1 - MEMORY) * own
        median = statistics.median(self._own.tolist())  # NumPy's own imports its masked arrays
        rank = int(np.argmax(self._own))
        return Slowest(rank, float(self._own[rank]) / median) if median > 0 else None
