"""State that ranks exchange when they form a new group, and the choice of the source rank."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainhall.training.sync.step_sync import Rows


@dataclass(frozen=True)
class RegroupState:
    """A rank's progress when its group ended."""

    step: int
    """Finished optimizer steps; 0: it has nothing that another could need."""
    reported: int = 0
    """The newest of them whose numbers all ranks have exchanged."""
    rows: Rows | None = None
    """Measurements of the steps after `reported`."""
    settled: int = 0
    """The newest step after which it has done all that was due."""
    abandoned_save: bool = False
    """True if a checkpoint was being written and was abandoned."""
    was_first: bool = False
    """The rank was rank 0 until now: it knows whether the last checkpoint was committed, and has
    reported the events of the whole job."""


def source_rank(states: Sequence[RegroupState]) -> int | None:
    """Return the rank whose state all adopt; None: no rank has any.

    It is the lowest one of those that are furthest. No step can be lost by it: a rank that lags
    behind misses steps of the others, and all of them are in their state.
    """
    best = max(states, key=lambda s: (s.step, s.reported))
    if best.step == 0:
        return None
    positions = [(s.step, s.reported) for s in states]
    return positions.index((best.step, best.reported))


def ranks_to_update(states: Sequence[RegroupState], source: int) -> list[int]:
    """Return the ranks that need the state of the source."""
    return [rank for rank, s in enumerate(states) if s.step < states[source].step]


def unreported_means(states: Sequence[RegroupState], source: int) -> Rows:
    """Return the job's means of the steps that the source took and no rank reported yet.

    [step, column]: of each step the mean over the ranks that have it, in their order; what a lost
    rank had measured since the last step sync is lost with it.
    """
    begin, end = states[source].reported, states[source].step
    own = states[source].rows
    if own is None or begin == end:
        return np.empty((0, 0))
    total = np.zeros_like(own)
    counts = np.zeros((len(own), 1))
    for regroup_state in states:
        rows = regroup_state.rows
        if rows is None or regroup_state.reported > end or rows.shape[1:] != own.shape[1:]:
            continue
        for i, row in enumerate(rows, start=regroup_state.reported):
            if begin <= i < end:
                total[i - begin] += row
                counts[i - begin] += 1
    means: Rows = total / counts
    return means


def is_reported(states: Sequence[RegroupState], source: int) -> bool:
    """Return whether the values exchanged up to the source's step were certainly written."""
    return any(s.was_first and s.reported >= states[source].reported for s in states)


def must_save(states: Sequence[RegroupState]) -> bool:
    """Return whether the last checkpoint may have failed, or no rank left knows."""
    return any(s.abandoned_save for s in states) or not any(s.was_first for s in states)


def is_unsettled(states: Sequence[RegroupState], source: int) -> bool:
    """Return whether the work due after the last step is repeated: some rank had not finished
    it."""
    step = states[source].step
    return any(s.settled < step for s in states if s.step == step)
