"""What ranks tell each other when they meet in a new group, and who gives the others its state."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainhall.training.pulse import Rows


@dataclass(frozen=True)
class Standing:
    """Where a rank stands."""

    step: int
    """Finished optimizer steps; 0: it has nothing that another could need."""
    told: int = 0
    """The newest of them whose numbers all ranks have exchanged."""
    rows: Rows | None = None
    """What it has measured in the steps behind `told`."""
    settled: int = 0
    """The newest step behind which it has done all that was due."""
    gave_up_save: bool = False
    """It was writing a checkpoint, which is given up."""
    was_first: bool = False
    """It was rank 0 until now, and so knows what became of the last checkpoint, and has told what
    there was to tell of the whole job."""


def source_of(standings: Sequence[Standing]) -> int | None:
    """The rank whose state all go on from; None: nobody has any.

    It is the lowest one of those that are furthest. No step can be lost by it: a rank that is
    behind misses what the others have taken, and all of it is in their state.
    """
    best = max(standings, key=lambda s: (s.step, s.told))
    if best.step == 0:
        return None
    places = [(s.step, s.told) for s in standings]
    return places.index((best.step, best.told))


def lacking(standings: Sequence[Standing], source: int) -> list[int]:
    """The ranks that need the state of the source."""
    return [rank for rank, s in enumerate(standings) if s.step < standings[source].step]


def means_of(standings: Sequence[Standing], source: int) -> Rows:
    """The job's numbers of the steps that the source has taken and nobody has told yet.

    [step, column]: of each step the mean over the ranks that have it, in their order; what a lost
    rank had measured since the last pulse is lost with it.
    """
    begin, end = standings[source].told, standings[source].step
    own = standings[source].rows
    if own is None or begin == end:
        return np.empty((0, 0))
    total = np.zeros_like(own)
    counts = np.zeros((len(own), 1))
    for standing in standings:
        rows = standing.rows
        if rows is None or standing.told > end or rows.shape[1:] != own.shape[1:]:
            continue
        for i, row in enumerate(rows, start=standing.told):
            if begin <= i < end:
                total[i - begin] += row
                counts[i - begin] += 1
    means: Rows = total / counts
    return means


def is_told(standings: Sequence[Standing], source: int) -> bool:
    """Whether what all ranks have exchanged as far as the source was certainly written."""
    return any(s.was_first and s.told >= standings[source].told for s in standings)


def must_save(standings: Sequence[Standing]) -> bool:
    """Whether the last checkpoint may have come to nothing: nobody is left who knows, or it did."""
    return any(s.gave_up_save for s in standings) or not any(s.was_first for s in standings)


def is_unsettled(standings: Sequence[Standing], source: int) -> bool:
    """What was due behind the last step is to be done again: some had not come to its end."""
    step = standings[source].step
    return any(s.settled < step for s in standings if s.step == step)
