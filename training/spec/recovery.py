"""Job spec: checkpoints, outputs, and recovery after failures."""

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


def implied_mode(metric: str) -> MetricMode | None:
    """Return the mode that a metric's name implies; None if it implies none."""
    name = metric.lower()
    if name.endswith("loss"):
        return MetricMode.MIN
    return MetricMode.MAX if name.endswith("accuracy") else None


class CheckpointSpec(SpecModel):
    path: Annotated[Text, Field(min_length=1)] | None = None
    """Absolute path of a folder that every node sees. Default: upload to the coordinator."""
    every_steps: Annotated[int, Field(ge=1, le=10**12)] | None = None
    """Save every N steps. Give this or `every_seconds`. A job also saves when paused and at the
    end."""
    every_seconds: Annotated[float, Field(gt=0, le=10**9)] | None = None
    """Save every N seconds."""
    keep_latest: Annotated[int, Field(ge=1, le=10**6)] = 3
    """Keep the newest N; pinned ones are always kept."""
    keep_best: Annotated[int, Field(ge=0, le=10**6)] = 0
    """Also keep the best N by `metric`."""
    metric: Annotated[Text, Field(min_length=1)] | None = None
    """Metric for `keep_best`, such as `eval_loss`; its latest value when saving counts."""
    metric_mode: MetricMode | None = None
    """`min`: lower is better; `max`: higher. Default: `min` for names that end in `loss`, `max` for
    `accuracy`; required for others."""

    @property
    def best_mode(self) -> MetricMode | None:
        """Return `metric_mode`, or the mode that the metric's name implies; None if unknown."""
        if self.metric_mode is not None or self.metric is None:
            return self.metric_mode
        return implied_mode(self.metric)

    @model_validator(mode="after")
    def _check_metric(self) -> Self:
        if self.keep_best and self.metric is None:
            raise problem_at("metric", None,
                "keep_best needs a metric, such as eval_loss or eval_accuracy",
            )  # fmt: skip
        if self.metric is not None and not self.keep_best:
            raise problem_at("metric", self.metric,
                "has no effect without keep_best; add keep_best: 1, for example",
            )  # fmt: skip
        if self.metric is not None and self.best_mode is None:
            raise problem_at("metric_mode", None,
                f"must be min or max: is a lower or a higher {self.metric} better?",
            )  # fmt: skip
        if self.metric_mode is not None and self.metric is None:
            raise problem_at("metric_mode", self.metric_mode.value, "needs a metric; give one")
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
        raise PydanticCustomError("hang_seconds", "must be 0 (off) or from 1 to 86400")
    return value


Patterns = Annotated[list[Annotated[Text, Field(min_length=1, max_length=256)]],
                     Field(max_length=64)]  # fmt: skip


class OutputsSpec(SpecModel):
    path: Annotated[Text, Field(min_length=1, max_length=512)] = "."
    """Folder within the job's working folder; what ranks write elsewhere is not stored."""
    include: Patterns = Field(default_factory=list)
    """Patterns as in `.gitignore`, relative to the working folder; only files that match are
    stored. Default: all."""
    exclude: Patterns = Field(default_factory=list)
    """Patterns of files that are not stored."""
    max_bytes: Annotated[int, Field(ge=1, le=2**60)] | None = None
    """Limit of all files together, in bytes. Default, and the most: the server's
    `output_bytes_per_job`."""

    @model_validator(mode="after")
    def _check_path(self) -> Self:
        path = PurePosixPath(self.path)
        if path.is_absolute() or ".." in path.parts:
            raise problem_at("path", self.path,
                "must be a folder within the job's working folder, such as results",
            )  # fmt: skip
        return self

    @property
    def is_whole(self) -> bool:
        """Return whether the whole working folder counts."""
        return not PurePosixPath(self.path).parts


class RecoverySpec(SpecModel):
    max_restarts: Annotated[int, Field(ge=0, le=10**6)] = 3
    """Consecutive restarts without a new step before the job fails; a lost node does not count. Two
    identical errors without a new step fail it at once."""
    grace_seconds: Annotated[float, Field(ge=0, le=3600)] = 10.0
    """Seconds between SIGTERM and SIGKILL of a script."""
    hang_seconds: (
        Annotated[float, Field(ge=0, le=86400), AfterValidator(_off_or_a_second)] | None
    ) = None
    """Ranks without a step for so long count as hung; long steps get more time. 0 is off. Default:
    30 for a task, off for a script, which must call `trainhall.should_stop()` after every step."""
    regroup_seconds: Annotated[float, Field(ge=0, le=3600)] = 120.0
    """Seconds for which the other ranks of a `ddp` task keep their state in memory after one was
    lost, before the job resumes from its checkpoint. Nodes count as lost after the cluster's
    `lost_after_seconds` (90)."""
    on_isolation: Literal["keep", "stop"] = "keep"
    """Ranks whose node cannot reach the coordinator. `keep`: they continue until replaced. `stop`:
    they save and end before the job starts elsewhere; for scripts with external side effects."""


class MetricSpec(SpecModel):
    """The metric that rates the result of the job."""

    name: Annotated[Text, Field(min_length=1)]
    """A metric that the job reports, such as `eval_accuracy` or `val/f1`."""
    goal: MetricMode
    """`min`: lower is better; `max`: higher."""
