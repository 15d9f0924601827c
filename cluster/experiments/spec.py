"""The document that describes an experiment, and what is refused in it."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, ValidationError, model_validator

from trainhall.cluster.experiments.space import GivenDimension, overlapping
from trainhall.training.spec import SpecError, SpecProblem
from trainhall.training.spec.base import Name, SpecModel, Text
from trainhall.training.spec.keys import unknown_key
from trainhall.training.spec.parse import load_document
from trainhall.training.spec.problems import UNKNOWN_KEY, display_value, problem_at, problems_in
from trainhall.training.spec.recovery import MetricMode, implied_mode
from trainhall.training.spec.training import PositiveStep

MAX_RUNS = 1000
MAX_FIELDS = 64
SEED_LIMIT = 2**62
_LATER = {("kind", "scaling"): "scaling is not offered yet; use sweep or benchmark"}
_OF_BENCHMARK = {
    "method": "grid",
    "objective": {"metric": "samples_per_second", "goal": "max", "at": "median"},
    "parallel": 1,
    "warmup_steps": 10,
}
"""Defaults of a benchmark that differ from a sweep's, or are required there."""


class ExperimentError(SpecError):
    """The document is not a valid experiment."""


class ObjectiveSpec(SpecModel):
    """The value that rates a run."""

    metric: Annotated[Text, Field(min_length=1)]
    """A metric that the job reports, such as `eval_accuracy`."""
    goal: MetricMode | None = None
    """`min`: lower is better; `max`: higher. Default: `min` for names that end in `loss`, `max` for
    `accuracy`; required for others."""
    at: Literal["last", "best", "median"] = "last"
    """The value that counts: the last one of the run, the best one, or the median of all after
    `warmup_steps`."""

    @model_validator(mode="after")
    def _imply_goal(self) -> Self:
        if self.goal is None:
            goal = implied_mode(self.metric)
            if goal is None:
                raise problem_at("goal", None,
                    f"must be min or max: is a lower or a higher {self.metric} better?",
                )  # fmt: skip
            object.__setattr__(self, "goal", goal)
        return self


class AshaSpec(SpecModel):
    """Asynchronous successive halving (Li et al., arXiv:1810.05934) with promotion."""

    min_steps: PositiveStep
    """First rung: the step at which each run pauses until it is promoted or stopped."""
    max_steps: PositiveStep
    """Steps of a run in full. For tasks, this sets `training.steps`."""
    factor: Annotated[int, Field(ge=2, le=1000)] = 3
    """Each rung has `factor` times the steps of the one before; 1/factor of its trials are promoted
    to the next."""

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.min_steps >= self.max_steps:
            raise problem_at("min_steps", self.min_steps,
                f"must be below max_steps ({self.max_steps:,})",
            )  # fmt: skip
        return self

    @property
    def rungs(self) -> tuple[int, ...]:
        """Steps of the rungs, the last of which is the end."""
        steps = [self.min_steps]
        while (following := steps[-1] * self.factor) < self.max_steps:
            steps.append(following)
        return (*steps, self.max_steps)


class EarlyStoppingSpec(SpecModel):
    """The way in which runs are stopped that are worse than others at the same step."""

    asha: AshaSpec


def _without_required(schema: dict[str, Any]) -> None:
    """Take out of a schema what a benchmark has defaults for."""
    schema["required"] = [name for name in schema["required"] if name not in _OF_BENCHMARK]


class ExperimentSpec(SpecModel):
    """Jobs that differ in some values, and how they are compared."""

    model_config = ConfigDict(json_schema_extra=_without_required)

    name: Name
    """Need not be unique."""
    kind: Literal["sweep", "benchmark"]
    """`sweep`: which values are best? `benchmark`: how fast is each combination?"""
    job: dict[str, Any]
    """The job spec that every run starts from."""
    space: Annotated[dict[str, GivenDimension], Field(min_length=1, max_length=MAX_FIELDS)]
    """Values by the dotted fields of the job spec that they replace, as in
    `training.learning_rate` or `parameters.layers`."""
    method: Literal["grid", "random", "tpe"]
    """`grid`: every combination, the last field varying fastest. `random`: combinations drawn with
    the seed. `tpe`: each combination is chosen from the results so far, by Optuna's
    tree-structured Parzen estimator. Required for a sweep; a benchmark is a `grid`."""
    objective: ObjectiveSpec
    """Required for a sweep. Default for a benchmark: the median of `samples_per_second`."""
    trials: Annotated[int, Field(ge=1, le=MAX_RUNS)] | None = None
    """Number of combinations; required for `random` and `tpe`. Default for `grid`: all of them."""
    parallel: Annotated[int, Field(ge=1, le=MAX_RUNS)] = 4
    """Most runs that are unfinished at a time. Default for a benchmark: 1."""
    repeats: Annotated[int, Field(ge=1, le=100)] = 1
    """Runs of each combination, with seeds that count up."""
    seed: Annotated[int, Field(ge=0, lt=SEED_LIMIT)] | None = None
    """Seed of the draws, and of the first repeat of each combination. Default: 0 for the draws, and
    the job's own."""
    early_stopping: EarlyStoppingSpec | None = None
    """Default: all runs take all steps."""
    warmup_steps: Annotated[int, Field(ge=0, le=10**6)] = 0
    """First steps of each attempt of a job that medians leave out. Default for a benchmark: 10."""
    baseline: dict[str, Any] | None = None
    """Benchmark: values of the combination that the others are compared with."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_what_is_planned(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        for (field, value), message in _LATER.items():
            if data.get(field) == value:
                raise problem_at(field, value, message)
        return _OF_BENCHMARK | data if data.get("kind") == "benchmark" else data

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if self.kind == "benchmark":
            self._check_benchmark()
        elif self.baseline is not None:
            raise problem_at("baseline", None, "is for kind benchmark; leave it out")
        return self

    def _check_benchmark(self) -> None:
        if self.method != "grid":
            raise problem_at("method", self.method,
                "a benchmark runs every combination: leave it out, or use kind sweep",
            )  # fmt: skip
        for field in ("trials", "early_stopping"):
            if getattr(self, field) is not None:
                raise problem_at(field, None,
                    "a benchmark runs every combination to its end: leave it out",
                )  # fmt: skip
        for field, value in (self.baseline or {}).items():
            if field not in self.space:
                raise problem_at(("baseline", field), None,
                    f"is not in the space; its fields are {', '.join(self.space)}",
                )  # fmt: skip
            values = self.space[field].values or ()
            if repr(value) not in map(repr, values):
                raise problem_at(("baseline", field), json.dumps(value)[:80],
                    f"is not among its values in the space, {json.dumps(values)[:200]}",
                )  # fmt: skip
        if self.baseline is not None and (missing := self._missing_in_baseline()):
            raise problem_at("baseline", None,
                f"must name one combination: give {' and '.join(missing)} as well",
            )  # fmt: skip

    def _missing_in_baseline(self) -> list[str]:
        """Return the fields that several combinations of the baseline's values differ in."""
        given = self.baseline or {}
        return [
            field
            for field, dimension in self.space.items()
            if field not in given and len(dimension.values or ()) != 1
        ]

    @model_validator(mode="after")
    def _check_space(self) -> Self:
        for field in self.space:
            if field in ("name", "code") or not all(field.split(".")):
                raise problem_at(("space", field), None,
                    "must be a field of the job spec other than name and code, such as "
                    "training.learning_rate",
                )  # fmt: skip
        if (pair := overlapping(self.space)) is not None:
            outer, inner = pair
            raise problem_at(("space", inner), None,
                f"is part of {outer}, which the space varies as well; leave out one of them",
            )  # fmt: skip
        if self.method != "grid" and self.trials is None:
            raise problem_at("trials", None, f"is required for method {self.method}")
        if self.method == "grid":
            for field, dimension in self.space.items():
                if dimension.values is None:
                    raise problem_at(("space", field), json.dumps(dimension.given),
                        "is continuous, and a grid needs single values: give a list, a range with "
                        "a step, or method random or tpe",
                    )  # fmt: skip
        return self

    def document(self) -> dict[str, Any]:
        """Return the experiment as JSON data, with its defaults."""
        return self.model_dump(mode="json")


_PARTS: dict[tuple[str | int, ...], type[SpecModel]] = {
    ("objective",): ObjectiveSpec,
    ("early_stopping",): EarlyStoppingSpec,
    ("early_stopping", "asha"): AshaSpec,
}


def parse_experiment(raw: bytes | str, form: Literal["json", "yaml"]) -> ExperimentSpec:
    """Read an experiment; its runs are not checked.

    Raises:
        ExperimentError: with one problem per wrong field.
    """
    try:
        return validate_experiment(load_document(raw, form, "an experiment"))
    except ExperimentError:
        raise
    except SpecError as error:
        raise ExperimentError(error.problems) from None


def validate_experiment(data: dict[str, Any]) -> ExperimentSpec:
    """Check a document that was already read.

    Raises:
        ExperimentError: with one problem per wrong field.
    """
    if "job" not in data and ("task" in data or "script" in data):
        message = "this is a job, not an experiment; submit it with `trainhall submit`"
        raise ExperimentError([SpecProblem("", message)])
    try:
        return ExperimentSpec.model_validate(data)
    except ValidationError as error:
        raise ExperimentError(_problems(error)) from None


def rungs_of(document: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the steps of a valid experiment's rungs; none without early stopping."""
    stopping = document.get("early_stopping")
    return () if stopping is None else AshaSpec.model_validate(stopping["asha"]).rungs


def _problems(error: ValidationError) -> list[SpecProblem]:
    found = []
    for loc, value, message in problems_in(error):
        if message == UNKNOWN_KEY:
            model = _PARTS.get(loc[:-1], ExperimentSpec)
            message = unknown_key(str(loc[-1]), model.model_fields)
            value = None
        found.append(SpecProblem(".".join(map(str, loc)), message, shown_value(value)))
    return found


def shown_value(value: object) -> str | None:
    """Return a value as an error shows it; None for one that is too large."""
    return None if value is None or isinstance(value, dict | list) else display_value(value)[:80]
