"""Anomalies of gradients."""

from datetime import UTC, datetime

from trainhall.cluster.jobs.gradient_remarks import remarks
from trainhall.cluster.jobs.gradients import Captured

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def captured(step: int, **norms: float | str) -> Captured:
    values = list(norms.values())
    return Captured(1, step, NOW, 0, False, list(norms), values, values)


def test_gradient_anomalies_are_reported() -> None:
    usual = {"sound": 1.0, "loud": 1.0, "dead": 0.1, "faint": 0.1, "broken": 1.0}
    now: dict[str, float | str] = {
        "sound": 2.0,
        "loud": 40.0,
        "dead": 0.0,
        "faint": 1e-9,
        "broken": "NaN",
        "new": 9.0,
    }
    records = [*(captured(step, **usual) for step in range(1, 4)), captured(4, **now)]
    found = dict(zip(now, remarks(records), strict=True))
    assert found == {
        "sound": None, "loud": "exploding", "dead": "dead", "faint": "vanishing",
        "broken": "not finite", "new": None,
    }  # fmt: skip
    assert remarks(records[2:])[1] is None, "there are too few earlier norms"
    assert remarks([]) == []
