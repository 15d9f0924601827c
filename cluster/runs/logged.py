"""Parameters and tags that a job's tracking clients log: they join those of its spec."""

import math
import re
from typing import Any

from trainhall.db.models import Job
from trainhall.db.sanitize import sanitize_text

MAX_NAMES = 1000
MAX_CHARS = 64 * 1024
"""Characters of all names and values of a job: lists of jobs show them."""
MAX_VALUE = 500
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,3})?", re.ASCII)
_HIDDEN = ("mlflow.log-model.history", "mlflow.loggedArtifacts")
"""Tags that MLflow writes for its own pages."""


def join(job: Job, data: dict[str, Any]) -> None:
    """Add what an event says to a job's row: the newest value of a name counts, and for a
    parameter that the spec has, the spec's."""
    parameters = _texts(data.get("parameters"))
    if parameters:
        own = job.spec.get("parameters") or {}
        values = {name: _value(text) for name, text in parameters.items() if text is not None}
        job.parameters = {**_bounded({**(job.parameters or {}), **values}), **own} or None
    tags = {k: v for k, v in _texts(data.get("tags")).items() if k not in _HIDDEN}
    if tags:
        merged = {**(job.mlflow_tags or {}), **tags}
        job.mlflow_tags = _bounded({k: v for k, v in merged.items() if v is not None}) or None


def _texts(found: Any) -> dict[str, str | None]:
    if not isinstance(found, dict):
        return {}
    return {
        sanitize_text(str(name), 250): None
        if value is None
        else sanitize_text(str(value), MAX_VALUE)
        for name, value in found.items()
        if name
    }


def _value(text: str) -> str | int | float:
    """Return a number as such, so that lists of jobs are sorted by it: MLflow knows text alone."""
    if not _NUMBER.fullmatch(text):
        return text
    number = float(text)
    if not math.isfinite(number):
        return text
    return int(text) if text.lstrip("+-").isdigit() and abs(number) < 2**53 else number


def _bounded(values: dict[str, Any]) -> dict[str, Any]:
    kept, left = {}, MAX_CHARS
    for name, value in list(values.items())[:MAX_NAMES]:
        left -= len(name) + len(str(value))
        if left < 0:
            break
        kept[name] = value
    return kept
