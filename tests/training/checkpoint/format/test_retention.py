"""Retention keeps the newest, the best and the pinned, each counted by itself."""

from typing import Any

import pytest

from trainhall.training.checkpoint.format.names import CheckpointName
from trainhall.training.checkpoint.format.retention import Candidate, verdicts
from trainhall.training.spec import SpecError
from trainhall.training.spec.parse import validate_spec
from trainhall.training.spec.recovery import CheckpointSpec


def at(step: int, *, attempt: int = 1, pinned: bool = False, **metrics: Any) -> Candidate:
    return Candidate(CheckpointName(step, attempt, 1), metrics, pinned)


def kept(rule: CheckpointSpec, *candidates: Candidate) -> dict[int, str]:
    """The reasons of those that stay, by step."""
    with_verdicts = zip(candidates, verdicts(rule, candidates), strict=True)
    return {c.name.step: verdict.reason for c, verdict in with_verdicts if verdict.keep}


def not_kept(rule: CheckpointSpec, *candidates: Candidate) -> dict[int, str]:
    with_verdicts = zip(candidates, verdicts(rule, candidates), strict=True)
    return {c.name.step: verdict.reason for c, verdict in with_verdicts if not verdict.keep}


LOSSES = [at(s, eval_loss=loss) for s, loss in ((10, 0.5), (20, 0.1), (30, 0.3), (40, 0.4))]


def test_newest_the_best_and_the_pinned_stay() -> None:
    rule = CheckpointSpec(keep_latest=1, keep_best=2, metric="eval_loss")
    assert kept(rule, *LOSSES, at(5, pinned=True)) == {
        40: "the newest",
        20: "one of the 2 best by eval_loss (0.1)",
        30: "one of the 2 best by eval_loss (0.3)",
        5: "pinned",
    }
    assert not_kept(rule, *LOSSES, at(5)) == {
        10: "not the newest, nor one of the 2 best by eval_loss",
        5: "not the newest, and it has no eval_loss",
    }


def test_retention_reasons_are_independent() -> None:
    rule = CheckpointSpec(keep_latest=2, keep_best=1, metric="eval_loss")
    pinned = at(50, pinned=True, eval_loss=0.0)
    assert kept(rule, *LOSSES, pinned) == {
        50: "pinned, one of the 2 newest, the best by eval_loss (0)",
        40: "one of the 2 newest",
    }
    assert not_kept(CheckpointSpec(keep_latest=3), *LOSSES) == {10: "not one of the 3 newest"}


@pytest.mark.parametrize(
    ("metric", "mode", "best"),
    [
        ("loss", None, 10),
        ("eval_accuracy", None, 20),
        ("reward", "max", 20),
        ("reward", "min", 10),
        ("loss", "max", 20),
    ],
)
def test_retention_mode_follows_name_or_setting(metric: str, mode: Any, best: int) -> None:
    rule = CheckpointSpec(keep_latest=1, keep_best=1, metric=metric, metric_mode=mode)
    scores: list[dict[str, Any]] = [{metric: 1}, {metric: 2}, {}]
    found = [at(10 * number, **score) for number, score in enumerate(scores, 1)]
    assert set(kept(rule, *found)) == {30, best}


def test_retention_ignores_nan_values() -> None:
    rule = CheckpointSpec(keep_latest=1, keep_best=3, metric="loss")
    odd = [at(1, loss="nan"), at(2, loss=float("nan")), at(3, loss=True), at(4, loss=None), at(5)]
    assert kept(rule, *odd) == {5: "the newest"}


def test_retention_keeps_the_older_of_equals() -> None:
    rule = CheckpointSpec(keep_latest=1, keep_best=1, metric="eval_loss")
    found = [at(20, eval_loss=0.1), at(10, eval_loss=0.1), at(30, eval_loss=0.1)]
    assert set(kept(rule, *found)) == {10, 30}


def test_later_attempt_is_newer_whatever_its_step() -> None:
    assert set(kept(CheckpointSpec(keep_latest=1), at(90), at(20, attempt=2))) == {20}


@pytest.mark.parametrize(
    ("checkpoint", "field", "words"),
    [
        ({"keep_best": 1}, "checkpoint.metric", "keep_best needs a metric"),
        ({"metric": "eval_loss"}, "checkpoint.metric", "keep_best: 1"),
        (
            {"keep_best": 1, "metric": "reward"},
            "checkpoint.metric_mode",
            "is a lower or a higher reward better?",
        ),
        ({"metric_mode": "min"}, "checkpoint.metric_mode", "needs a metric"),
        ({"keep_best": 1, "metric": "a_loss", "metric_mode": "less"}, "checkpoint.metric_mode", ""),
    ],
)
def test_half_a_rule_is_refused(checkpoint: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        validate_spec({"name": "x", "task": {"name": "digits"}, "checkpoint": checkpoint})
    (problem,) = caught.value.problems
    assert problem.field == field
    assert words in problem.message


def test_retention_keeps_the_restored_checkpoint() -> None:
    rule = CheckpointSpec(keep_latest=2)
    before = [at(step) for step in (10, 20, 30, 40)]

    def left(*written: int) -> list[int]:
        own = [at(step, attempt=2) for step in written]
        lineage = [str(c.name) for c in (*reversed(own), *before[1::-1])]
        with_verdicts = zip([*before, *own], verdicts(rule, [*before, *own], lineage), strict=True)
        return [c.name.step for c, verdict in with_verdicts if verdict.keep]

    assert left() == [10, 20, 30, 40]
    assert left(25) == [20, 40, 25]
    assert left(25, 35) == [25, 35]
