"""Retention: the checkpoints of a job that are kept, with the reason. Free of torch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainhall.training.checkpoint.format.names import CheckpointName
from trainhall.training.spec.recovery import CheckpointSpec, MetricMode


@dataclass(frozen=True)
class Candidate:
    """A good checkpoint, as the retention sees it."""

    name: CheckpointName
    metrics: Mapping[str, Any] = field(default_factory=dict)
    pinned: bool = False


@dataclass(frozen=True)
class Verdict:
    """Decision about one checkpoint."""

    keep: bool
    reason: str


def verdicts(
    rule: CheckpointSpec, candidates: Sequence[Candidate], lineage: Sequence[str] = ()
) -> list[Verdict]:
    """Decide what is kept, in the order of `candidates`.

    Args:
        lineage: names of what the job would go back to, best first. Once an older checkpoint was
            restored these are others than the newest, and as many of them stay.

    A checkpoint stays if it is pinned, one of the newest, or one of the best; each of these counts
    by itself, so that a pinned one takes no place from the others. Of equally good ones the older
    goes first: where a metric is measured less often than checkpoints are saved, it is the one
    whose own value it is.
    """
    newest = {c.name for c in _newest_first(candidates)[: rule.keep_latest]}
    given = {str(c.name) for c in candidates}
    needed = set([name for name in lineage if name in given][: rule.keep_latest])
    best = {c.name for c in _best_first(rule, candidates)[: rule.keep_best]}
    verdicts_ = []
    for candidate in candidates:
        reasons = []
        if candidate.pinned:
            reasons.append("pinned")
        if candidate.name in newest:
            reasons.append(_one_of(rule.keep_latest, "newest"))
        elif str(candidate.name) in needed:
            reasons.append("the job resumes from it")
        if candidate.name in best:
            value = candidate.metrics[str(rule.metric)]
            reasons.append(f"{_one_of(rule.keep_best, 'best')} by {rule.metric} ({value:.6g})")
        verdicts_.append(Verdict(bool(reasons), ", ".join(reasons) or _why_not(rule, candidate)))
    return verdicts_


def _newest_first(candidates: Sequence[Candidate]) -> list[Candidate]:
    return sorted(candidates, key=lambda c: c.name.age_key, reverse=True)


def _best_first(rule: CheckpointSpec, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates that have the metric, best first."""
    sign = 1 if rule.best_mode is MetricMode.MIN else -1
    measured = [(v, c) for c in candidates if (v := _value(rule, c)) is not None]
    return [c for _, c in sorted(measured, key=lambda m: (sign * m[0], m[1].name.age_key))]


def _value(rule: CheckpointSpec, candidate: Candidate) -> float | None:
    value = None if rule.metric is None else candidate.metrics.get(rule.metric)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def _one_of(count: int, which: str) -> str:
    return f"the {which}" if count == 1 else f"one of the {count} {which}"


def _why_not(rule: CheckpointSpec, candidate: Candidate) -> str:
    why = f"not {_one_of(rule.keep_latest, 'newest')}"
    if rule.keep_best:
        if _value(rule, candidate) is None:
            return f"{why}, and it has no {rule.metric}"
        why += f", nor {_one_of(rule.keep_best, 'best')} by {rule.metric}"
    return why
