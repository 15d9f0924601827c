"""The step sync: the only moment at which ranks talk about anything but gradients.

Every k steps all ranks gather one small vector: what they measured since the last sync, the command
they were given, and whether they wish a checkpoint. All combine the same numbers in the same order,
so all come to the same metrics and the same decision at the same step, and the steps between
cost nothing. k follows from the exchanged step times and so is the same everywhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from trainhall.distributed import breakable
from trainhall.training.link.launch import Command

TARGET_SECONDS = 0.25
"""Training between two step syncs. The interval bounds how late a command or a metric arrives."""
MAX_STEPS = 1000
"""Bounds what a rank holds, and loses when it is killed, between two step syncs."""
_HEADER = 6

Rows = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SyncResult:
    """The combined state of all ranks after a step sync, equal on each of them."""

    command: Command
    """The highest command that any rank was given."""
    save: bool
    """Some rank wishes a checkpoint at this step."""
    peak_memory_bytes: float
    """The peak of the rank that needed most."""
    request: int
    """The newest request for gradients that any rank knows of."""
    generation: int
    """The newest generation that any rank is to regroup in."""
    means: Rows
    """[step, column]: the mean over ranks of each column, summed in rank order."""
    ranks: Rows = field(default_factory=lambda: np.empty((0, 0)))
    """[rank, column]: the mean over steps of each column; empty if there were no steps."""
    profile: int = 0
    """A request for a profile that every rank has, and none has begun; 0: there is none."""


def combine(gathered: Sequence[Rows], steps: int) -> SyncResult:
    """Combine all ranks' vectors, in rank order; equal vectors give equal bits."""
    columns = (len(gathered[0]) - _HEADER) // max(steps, 1)
    tables = [vector[_HEADER:].reshape(steps, columns) for vector in gathered]
    total = tables[0].copy()
    for table in tables[1:]:
        total += table
    return SyncResult(
        command=Command(int(max(vector[0] for vector in gathered))),
        save=any(vector[1] != 0 for vector in gathered),
        peak_memory_bytes=float(max(vector[2] for vector in gathered)),
        request=int(max(vector[3] for vector in gathered)),
        generation=int(max(vector[4] for vector in gathered)),
        profile=int(min(vector[5] for vector in gathered)),
        means=total / len(tables),
        ranks=np.stack([table.mean(axis=0) for table in tables]) if steps else np.empty((0, 0)),
    )


def next_interval(previous: int, step_seconds: float) -> int:
    """Return steps until the next sync: `TARGET_SECONDS`, at most twice as many as before.

    Doubling from 1 lets the first metrics appear at once, and the first steps, which are slow,
    decide nothing for long.
    """
    wanted = TARGET_SECONDS / step_seconds if step_seconds > 0 else MAX_STEPS
    return max(1, min(int(min(wanted, MAX_STEPS)), 2 * previous))


class StepSync:
    """Gathers over `group` (Gloo) and keeps the rhythm."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self._world_size = dist.get_world_size(group)
        self.begin(0)

    def begin(self, step: int) -> None:
        """Start to train after `step`; the next step exchanges."""
        self._interval = 1
        self._next = step + 1

    def due(self, step: int) -> bool:
        return step >= self._next

    def exchange(
        self,
        step: int,
        rows: Rows,
        *,
        seconds: int,
        command: Command,
        save: bool,
        peak_memory_bytes: float,
        request: int = 0,
        generation: int = 0,
        profile: int = 0,
    ) -> SyncResult:
        """Exchange `rows` [steps since the last sync, columns] with the other ranks.

        Args:
            seconds: the column that holds the seconds of a step.
        """
        header = np.asarray(
            [command, save, peak_memory_bytes, request, generation, profile], dtype=np.float64
        )
        mine = np.concatenate([header, rows.reshape(-1)])
        result = combine(self.gather(mine), len(rows))
        if len(rows):
            self._interval = next_interval(self._interval, float(result.means[:, seconds].mean()))
        self._next = step + self._interval
        return result

    def gather(self, vector: Rows) -> list[Rows]:
        """Gather every rank's vector of the same length, in rank order."""
        if self._world_size == 1:
            return [vector]
        mine = torch.from_numpy(vector)
        rows = mine.new_empty(self._world_size, len(mine))
        breakable.all_gather(rows.view(-1), mine, self._group)
        return list(rows.numpy())
