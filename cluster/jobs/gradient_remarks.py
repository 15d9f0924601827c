"""Anomalies of gradients, by parameter."""

from collections.abc import Sequence
from enum import StrEnum
from statistics import median

from trainhall.cluster.jobs.gradients import Captured

EXPLODING = 10.0
"""So many times its median norm so far, and a gradient explodes."""
KNOWN_STEPS = 3
"""Steps before the newest after which it is reported."""
VANISHING = 1e-6
"""So small a share of the largest norm of its step, and a gradient vanishes."""


class Remark(StrEnum):
    """Anomaly of a parameter's newest gradient."""

    NOT_FINITE = "not finite"
    EXPLODING = "exploding"
    VANISHING = "vanishing"
    DEAD = "dead"


def remarks(records: Sequence[Captured]) -> list[Remark | None]:
    """Return remarks by the names of the newest record."""
    if not records:
        return []
    newest = records[-1]
    before = [dict(zip(each.names, each.norms, strict=True)) for each in records[:-1]]
    finite = [norm for norm in newest.norms if isinstance(norm, float)]
    top = max(finite, default=0.0)
    return [
        _remark(norm, [known[name] for known in before if name in known], top)
        for name, norm in zip(newest.names, newest.norms, strict=True)
    ]


def _remark(norm: float | str, before: Sequence[float | str], top: float) -> Remark | None:
    if isinstance(norm, str):
        return Remark.NOT_FINITE
    if norm == 0:
        return Remark.DEAD
    if norm < VANISHING * top:
        return Remark.VANISHING
    usual = [each for each in before if isinstance(each, float)]
    if len(usual) >= KNOWN_STEPS and norm > EXPLODING * median(usual):
        return Remark.EXPLODING
    return None
