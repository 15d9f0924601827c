"""The document that describes an experiment, and what is refused in it."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, ValidationError, model_validator

from trainhall.cluster.experiments.scaling_space import STRONG, scaling_space
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
SPEED_KINDS = frozenset({"benchmark", "scaling"})
"""Kinds that run every combination of a matrix and compare speeds."""
_OF_SPEED_KINDS = {
    "method": "grid",
    "objective": {"metric": "samples_per_second", "goal": "max", "at": "median"},
    "parallel": 1,
    "warmup_steps": 10,
}
"""Their defaults that differ from a sweep's, or are required there."""


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
    """Take out of a schema what the kinds that measure speed have defaults for."""
    schema["required"] = [name for name in schema["required"] if name not in _OF_SPEED_KINDS]


class ExperimentSpec(SpecModel):
    """Jobs that differ in some values, and how they are compared."""

    model_config = ConfigDict(json_schema_extra=_without_required)

    name: Name
    """Need not be unique."""
    kind: Literal["sweep", "benchmark", "scaling"]
    """`sweep`: which values are best? `benchmark`: how fast is each combination? `scaling`: how
    much faster are more workers?"""
    job: dict[str, Any]
    """The job spec that every run starts from."""
    space: Annotated[dict[str, GivenDimension], Field(min_length=1, max_length=MAX_FIELDS)]
    """Values by the dotted fields of the job spec that they replace, as in
    `training.learning_rate` or `parameters.layers`."""
    method: Literal["grid", "random", "tpe"]
    """`grid`: every combination, the last field varying fastest. `random`: combinations drawn with
    the seed. `tpe`: each combination is chosen from the results so far, by Optuna's
    tree-structured Parzen estimator. Required for a sweep; the other kinds are a `grid`."""
    objective: ObjectiveSpec
    """Required for a sweep. Default for the other kinds: the median of `samples_per_second`."""
    trials: Annotated[int, Field(ge=1, le=MAX_RUNS)] | None = None
    """Number of combinations; required for `random` and `tpe`. Default for `grid`: all of them."""
    parallel: Annotated[int, Field(ge=1, le=MAX_RUNS)] = 4
    """Most runs that are unfinished at a time. Default for benchmark and scaling: 1."""
    repeats: Annotated[int, Field(ge=1, le=100)] = 1
    """Runs of each combination, with seeds that count up."""
    seed: Annotated[int, Field(ge=0, lt=SEED_LIMIT)] | None = None
    """Seed of the draws, and of the first repeat of each combination. Default: 0 for the draws, and
    the job's own."""
    early_stopping: EarlyStoppingSpec | None = None
    """Default: all runs take all steps."""
    warmup_steps: Annotated[int, Field(ge=0, le=10**6)] = 0
    """First steps of each attempt of a job that medians leave out. Default for benchmark and
    scaling: 10."""
    baseline: dict[str, Any] | None = None
    """Benchmark: values of the combination that the others are compared with."""
    scaling: Annotated[list[Literal["strong", "weak"]], Field(min_length=1)] | None = None
    """Scaling: `strong` keeps the global batch size; `weak` the batch of each worker, which the
    fewest workers have with the job's global batch size. Default for scaling: `[strong]`."""

    @model_validator(mode="before")
    @classmethod
    def _with_defaults_of_kind(cls, data: Any) -> Any:
        # Of an unknown kind nothing else is missing.
        if isinstance(data, dict) and data.get("kind") != "sweep":
            return _OF_SPEED_KINDS | data
        return data

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if self.kind in SPEED_KINDS:
            self._check_matrix()
        if self.kind == "scaling":
            self._check_scaling()
        elif self.scaling is not None:
            raise problem_at("scaling", None, "is for kind scaling; leave it out")
        if self.kind == "benchmark":
            self._check_baseline()
        elif self.baseline is not None:
            raise problem_at("baseline", None, "is for kind benchmark; leave it out")
        return self

    def _check_matrix(self) -> None:
        """Refuse what does not run every combination."""
        name = {"benchmark": "a benchmark", "scaling": "a scaling study"}[self.kind]
        if self.method != "grid":
            raise problem_at("method", self.method,
                f"{name} runs every combination: leave it out, or use kind sweep",
            )  # fmt: skip
        for field in ("trials", "early_stopping"):
            if getattr(self, field) is not None:
                raise problem_at(field, None,
                    f"{name} runs every combination to its end: leave it out",
                )  # fmt: skip

    def _check_scaling(self) -> None:
        if self.objective.goal is not MetricMode.MAX:
            raise problem_at(("objective", "metric"), self.objective.metric,
                "must be a speed, of which more is better, such as samples_per_second",
            )  # fmt: skip
        scaling = list(dict.fromkeys(self.scaling or [STRONG]))
        object.__setattr__(self, "scaling", scaling)
        object.__setattr__(self, "space", scaling_space(self.job, self.space, scaling))

    def _check_baseline(self) -> None:
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
