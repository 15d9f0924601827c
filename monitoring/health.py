"""Stragglers: the rank that the others wait for, step after step.

Ranks compare the time that each takes without waiting for the others
(`training.loop.stragglers`) at every step sync, and rank 0 reports the slowest and its ratio to the
median as series of the job. This module interprets them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainhall.db.documents import Allocation
from trainhall.db.views import VALUE
from trainhall.documented import Documented

SLOWEST = "slowest_rank"
RATIO = "slowest_rank_ratio"
SLOW = 1.25
"""A rank that takes so many times the median without waiting is slow, rather than the slowest."""


@dataclass(frozen=True)
class Straggler(Documented):
    """Rank that holds up the others."""

    __pydantic_config__ = VALUE
    rank: int
    ratio: float
    """Ratio of its own time for a step to the median of all ranks'."""
    node: str | None
    """Name of its node."""


def straggler_of(metrics: Mapping[str, Any], allocation: Allocation | None) -> Straggler | None:
    """Return the job's slow rank by its newest metrics; None: no rank is slow, or none is reported.

    Args:
        allocation: `Attempt.allocation`, to name the rank's node. A rank that is not in it, or is
            alone, was slow in an earlier attempt.
    """
    rank, ratio = metrics.get(SLOWEST), metrics.get(RATIO)
    if not isinstance(rank, int | float) or not isinstance(ratio, int | float):
        return None
    if not math.isfinite(ratio) or ratio < SLOW:
        return None
    if allocation is None:
        return Straggler(int(rank), float(ratio), None)
    nodes = {slot.rank: host.node_name for host in allocation for slot in host.ranks}
    if int(rank) not in nodes or len(nodes) < 2:
        return None
    return Straggler(int(rank), float(ratio), nodes[int(rank)])
