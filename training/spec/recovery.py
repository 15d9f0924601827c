"""The parts of a job spec that say what is kept of its work, and how it goes on after failures."""

from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from trainhall.training.spec.base import SpecModel, Text
from trainhall.training.spec.problems import problem_at


class MetricMode(StrEnum):
    MIN = "min"
    MAX = "max"


class CheckpointSpec(SpecModel):
    path: Annotated[Text, Field(min_length=1)] | None = None
    """Absolute folder that every node sees. Without it checkpoints go to the coordinator."""
    every_steps: Annotated[int, Field(ge=1, le=10**12)] | None = None
    """Save every so many steps. Give this or `every_seconds`, or only pauses and the end."""
    every_seconds: Annotated[float, Field(gt=0, le=10**9)] | None = None
    keep_latest: Annotated[int, Field(ge=1, le=10**6)] = 3
    """Newest checkpoints that are kept; pinned ones are always kept."""
    keep_best: Annotated[int, Field(ge=0, le=10**6)] = 0
    """Best checkpoints by `metric` that are kept as well."""
    metric: Annotated[Text, Field(min_length=1)] | None = None
    """What `keep_best` compares, such as `eval_loss`: its newest value when the checkpoint was
    saved."""
    metric_mode: MetricMode | None = None
    """Whether less (`min`) or more (`max`) of `metric` is better. Names that end with `loss` or
    `accuracy` tell it by themselves."""

    @property
    def best_mode(self) -> MetricMode | None:
        """`metric_mode`, or what the name of the metric says; None where neither tells."""
        if self.metric_mode is not None or self.metric is None:
            return self.metric_mode
        if self.metric.endswith("loss"):
            return MetricMode.MIN
        return MetricMode.MAX if self.metric.endswith("accuracy") else None

    @model_validator(mode="after")
    def _check_metric(self) -> Self:
        if self.keep_best and self.metric is None:
            raise problem_at("metric", None,
                "keep_best needs the name of a metric, such as eval_loss or eval_accuracy",
            )  # fmt: skip
        if self.metric is not None and not self.keep_best:
            raise problem_at("metric", self.metric,
                "is what keep_best goes by: say how many of the best are kept, as in keep_best: 1",
            )  # fmt: skip
        if self.metric is not None and self.best_mode is None:
            raise problem_at("metric_mode", None,
                f"say whether less (min) or more (max) of {self.metric} is better",
            )  # fmt: skip
        if self.metric_mode is not None and self.metric is None:
            raise problem_at("metric_mode", self.metric_mode.value, "belongs to a metric; give one")
        return self

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.path is not None and not PurePosixPath(self.path).is_absolute():
            raise problem_at("path", self.path, "must be an absolute path that every node sees")
        if self.every_steps is not None and self.every_seconds is not None:
            raise problem_at("every_seconds", self.every_seconds,
                "every_steps and every_seconds exclude each other; give one",
            )  # fmt: skip
        return self


def _off_or_a_second(value: float) -> float:
    if 0 < value < 1:
        raise PydanticCustomError("hang_seconds", "must be 0, which turns it off, or 1 to 86400")
    return value


class RecoverySpec(SpecModel):
    max_restarts: Annotated[int, Field(ge=0, le=10**6)] = 3
    """Restarts in a row without a new step before the job fails. The same error twice in a row
    without a new step ends it at once, and a lost node costs no restart."""
    grace_seconds: Annotated[float, Field(ge=0, le=3600)] = 10.0
    """Seconds between SIGTERM and SIGKILL for a script."""
    hang_seconds: (
        Annotated[float, Field(ge=0, le=86400), AfterValidator(_off_or_a_second)] | None
    ) = None
    """The least time without a step until the ranks count as hung: it is longer for a job whose
    steps are long. 0: never. Without it 30 for a task; a script is watched only if it is given, and
    only while it asks `trainhall.should_stop()` after every step."""
    regroup_seconds: Annotated[float, Field(ge=0, le=3600)] = 120.0
    """How long the ranks of a task under `ddp` that have lost one of them hold what they have in
    memory until they are told how to go on; after that the job goes on from its checkpoint. A
    host that went without a word is given up only after the cluster's `lost_after_seconds` (90)."""
    on_isolation: Literal["keep", "stop"] = "keep"
    """What becomes of ranks whose host does not reach the coordinator. `keep`: they go on, and end
    if they were replaced meanwhile. `stop`: they save and end before the job starts elsewhere, as a
    script with effects outside needs it."""
