"""A cell of a benchmark's matrix: what the job of one combination of values runs with."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from trainhall.training.spec import ResourcesSpec
from trainhall.training.spec.models import shape_of
from trainhall.training.spec.tasks import LanguageModelParams
from trainhall.training.spec.training import GradientSync, ParallelismSpec, TrainingSpec


@dataclass(frozen=True)
class Cell:
    """None: the job has none, such as the strategy of a script."""

    strategy: str | None = None
    workers: int | None = None
    precision: str | None = None
    batch_size: int | None = None
    """Samples per optimizer step over all ranks."""
    compression: str | None = None
    tokens_per_sample: int | None = None


def cell_of(document: Mapping[str, Any]) -> Cell:
    """Return the cell of a job spec's document, which need not be valid: one that cannot run is a
    row, too."""
    resources = _part(document, "resources")
    most = "max_workers" if resources.get("max_workers") else "workers"
    workers = _value(resources, ResourcesSpec, most, int)
    if document.get("task") is None:
        return Cell(workers=workers)
    parallelism, training = _part(document, "parallelism"), _part(document, "training")
    return Cell(
        strategy=_value(parallelism, ParallelismSpec, "strategy", str),
        workers=workers,
        precision=_value(training, TrainingSpec, "precision", str),
        batch_size=_value(training, TrainingSpec, "global_batch_size", int),
        compression=_value(_part(parallelism, "gradient_sync"), GradientSync, "compression", str),
        tokens_per_sample=_tokens_per_sample(_part(document, "task")),
    )


def _part(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    part = document.get(key)
    return part if isinstance(part, Mapping) else {}


def _value(part: Mapping[str, Any], model: type[BaseModel], name: str, kind: type) -> Any:
    """Return the value of a key or its default; None: it is of another type."""
    value = part.get(name, model.model_fields[name].default)
    return value if isinstance(value, kind) and not isinstance(value, bool) else None


def _tokens_per_sample(task: Mapping[str, Any]) -> int | None:
    """Return the tokens of a sample; None for a task without tokens."""
    if task.get("name") != "language_model":
        return None
    try:
        return shape_of(LanguageModelParams.model_validate(task.get("params") or {})).context
    except ValidationError:
        return None
