"""The main metric of a job: the one that rates its result."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainhall.db.views import VALUE, MetricValue
from trainhall.documented import Documented
from trainhall.training.spec.recovery import MetricMode, implied_mode

_VALIDATION = re.compile(r"(eval|val|valid|validation)[_/.-]", re.IGNORECASE)


@dataclass(frozen=True)
class MainMetric(Documented):
    """Metric that rates the result of a job."""

    __pydantic_config__ = VALUE
    name: str
    value: MetricValue
    """Latest value; null before the first. NaN and infinities are strings."""
    goal: MetricMode | None
    """`min` if lower is better, `max` if higher is; null if unknown."""


def main_metric(spec: Mapping[str, Any], metrics: Mapping[str, Any]) -> MainMetric | None:
    """Return the `metric` of the spec, else a reported validation metric, else a reported loss.

    Args:
        metrics: latest values of the job-wide series.
    """
    given = spec.get("metric")
    if given is not None:
        return MainMetric(given["name"], metrics.get(given["name"]), MetricMode(given["goal"]))
    validation = [name for name in metrics if _VALIDATION.match(name)]
    losses = [name for name in metrics if "loss" in name.lower()]
    candidates = validation or losses
    if not candidates:
        return None
    # Accuracy says more than a loss, and the names of both say which values are better.
    name = min(
        candidates,
        key=lambda name: (
            not (low := name.lower()).endswith("accuracy"),
            low != "loss",
            "loss" not in low,
            name,
        ),
    )
    return MainMetric(name, metrics[name], implied_mode(name))
