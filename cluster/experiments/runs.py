"""The runs of an experiment: their values, and their job specs."""

import copy
import difflib
import itertools
import json
import math
import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainhall.cluster.experiments.scaling_space import BATCH, WORKERS, scalings_of
from trainhall.cluster.experiments.space import replace_field
from trainhall.cluster.experiments.spec import (
    MAX_RUNS,
    SPEED_KINDS,
    AshaSpec,
    ExperimentError,
    ExperimentSpec,
    shown_value,
)
from trainhall.training.spec import JobSpec, SpecError, SpecProblem
from trainhall.training.spec.parameters import names_used
from trainhall.training.spec.parse import refuse_idle, refuse_undefined, validate_spec
from trainhall.training.spec.resources import without_replaced

_REDRAWS = 1000
"""Draws of a trial that no other trial has before the space counts as used up."""
_MAX_CHARACTERS = 4_000_000
"""Most characters of JSON that the values of all runs have together: each run stores its own."""
_NAME_LENGTH = 100
"""Most characters of an experiment's name in those of its jobs, which may have 128."""


@dataclass(frozen=True)
class Configuration:
    """One combination of values."""

    number: int
    """From 1."""
    values: dict[str, Any]
    """By the field of the job spec."""
    problem: str = ""
    """Reason why it cannot run; only those of a benchmark or scaling study have one."""


def plan_configurations(spec: ExperimentSpec) -> list[Configuration]:
    """Decide all configurations, and check the job of each.

    Those of method `tpe` are chosen later: the ends of its ranges and each value of its lists are
    checked. Those of a benchmark or scaling study that cannot run have a problem.

    Raises:
        ExperimentError: there are too many or too long ones, or one of them is not a valid job; of
            a benchmark or scaling study all of them, or the baseline.
    """
    _check_parameters(spec, _check_job(spec))
    _check_number(spec)
    _check_seeds(spec)
    if spec.method == "tpe":
        for configuration in _samples(spec):
            _check_configuration(spec, configuration)
        return []
    points = _grid(spec) if spec.method == "grid" else _drawn(spec)
    planned = [
        Configuration(number, values)
        for number, values in enumerate(itertools.islice(points, spec.trials), 1)
    ]
    _check_length(spec, planned)
    if spec.kind in SPEED_KINDS:
        return _with_problems(spec, planned)
    for configuration in planned:
        _check_configuration(spec, configuration)
    return planned


def start_order(spec: ExperimentSpec, planned: Iterable[Configuration]) -> list[tuple[int, int]]:
    """Return the runs, each the number of its configuration and of its repeat, as they start.

    Where speeds are compared, the order is random, so that a host that slows down is no difference
    between configurations: all of them once, then all once more.
    """
    numbers = [each.number for each in planned]
    repeats = range(1, spec.repeats + 1)
    if spec.kind not in SPEED_KINDS:
        return list(itertools.product(numbers, repeats))
    order: list[tuple[int, int]] = []
    for repeat in repeats:
        chance = random.Random(f"{spec.seed or 0}/order/{repeat}")
        order += [(number, repeat) for number in chance.sample(numbers, len(numbers))]
    return order


def num_runs(spec: ExperimentSpec, planned: Sequence[Configuration]) -> int:
    return (len(planned) or spec.trials or 0) * spec.repeats


def run_name(trial: int, repeat: int, repeats: int) -> str:
    return f"trial {trial}, repeat {repeat}" if repeats > 1 else f"trial {trial}"


def job_of(spec: ExperimentSpec, values: Mapping[str, Any], trial: int, repeat: int) -> JobSpec:
    """Return the job spec of a run.

    Raises:
        SpecError: it is not valid.
    """
    document = document_of(spec.job, values)
    seed_field = _seed_field(spec)
    if _sets_seeds(spec) and _takes_seed(values, seed_field):
        first = spec.seed if spec.seed is not None else _own_seed(document, seed_field)
        replace_field(document, seed_field, first + repeat - 1)
    if spec.kind == "benchmark" and repeat == 1:  # in others it would only take time
        _predict(document)
    document["name"] = f"{spec.name[:_NAME_LENGTH]} {run_name(trial, repeat, spec.repeats)}"
    return _valid_job(spec, document)


def _predict(document: dict[str, Any]) -> None:
    """Ask for a prediction of memory and step time, for the row of the configuration."""
    parallelism = document.setdefault("parallelism", {})
    if "task" in document and isinstance(parallelism, dict):
        parallelism.setdefault("predict", True)


def document_of(job: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of a job with other values by their fields.

    Raises:
        SpecError: a part of a field is no object.
    """
    document = copy.deepcopy(dict(job))
    if isinstance(resources := document.get("resources"), dict):
        fields = [field.removeprefix("resources.") for field in values]
        document["resources"] = without_replaced(resources, fields)
    for field, value in values.items():
        try:
            replace_field(document, field, copy.deepcopy(value))
        except ValueError as error:
            raise SpecError([SpecProblem(field, f"cannot be varied: {error}")]) from None
    return document


def of_job(error: SpecError) -> ExperimentError:
    """Return the error of an experiment whose job has these problems."""
    return ExperimentError([_within("job", problem) for problem in error.problems])


def _check_job(spec: ExperimentSpec) -> JobSpec:
    """Check that the job is valid as it is: otherwise every configuration would be refused."""
    document = copy.deepcopy(spec.job)
    try:
        return _valid_job(spec, document)
    except SpecError as error:
        raise of_job(error) from None


def _valid_job(spec: ExperimentSpec, document: dict[str, Any]) -> JobSpec:
    training = document.get("training")
    if isinstance(training, dict) and training.get("pause_at"):
        message = "would keep its run unfinished until a user resumes the job; leave it out"
        raise SpecError([SpecProblem("training.pause_at", message)])
    if spec.early_stopping is not None and isinstance(training, dict | None):
        _pause_at_rungs(document, spec.early_stopping.asha, spec.objective.metric)
    job = validate_spec(document)
    refuse_idle(job)
    return job


def _pause_at_rungs(document: dict[str, Any], asha: AshaSpec, metric: str) -> None:
    """Let a job pause at the rungs and end at the last one.

    Raises:
        SpecError: the job says otherwise.
    """
    training = document["training"] = dict(document.get("training") or {})
    for key in ("steps", "evaluate_every_steps"):
        if training.get(key, 0) is None:
            del training[key]  # as if it was left out
    training["pause_at"] = list(asha.rungs[:-1])
    if document.get("task") is None:
        return  # a script counts its steps itself
    if training.get("epochs") is not None:
        message = "early stopping counts steps: leave it out"
        raise SpecError([SpecProblem("training.epochs", message, shown_value(training["epochs"]))])
    if training.setdefault("steps", asha.max_steps) != asha.max_steps:
        message = f"must be early_stopping.asha.max_steps ({asha.max_steps:,}), or left out"
        raise SpecError([SpecProblem("training.steps", message, shown_value(training["steps"]))])
    if metric.startswith("eval_"):
        every = training.setdefault("evaluate_every_steps", asha.min_steps)
        if isinstance(every, int) and every > asha.min_steps:
            message = (
                f"must be at most early_stopping.asha.min_steps ({asha.min_steps:,}), so that "
                f"every rung has a value of {metric}"
            )
            raise SpecError([SpecProblem("training.evaluate_every_steps", message, str(every))])


def _check_parameters(spec: ExperimentSpec, job: JobSpec) -> None:
    """Refuse parameters that the job does not know: their runs would all be the same."""
    varies_arguments = any(field.partition(".")[0] == "script" for field in spec.space)
    arguments = job.script.args if job.script is not None else []
    known = {*job.parameters, *itertools.chain.from_iterable(map(names_used, arguments))}
    problems = []
    for field in spec.space:
        part, _, name = field.partition(".")
        if part == "parameters" and name and name not in known and not varies_arguments:
            problems.append(SpecProblem(f"space.{field}", _unknown_parameter(name, known)))
    if problems:
        raise ExperimentError(problems)


def _unknown_parameter(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    others = f", only {', '.join(sorted(known))}" if known else ""
    advice = f"did you mean {near[0]}?" if near else f"give {name} a value in job.parameters"
    return f"the job has no parameter {name}{others}; {advice}"


def _check_number(spec: ExperimentSpec) -> None:
    points = _points(spec)
    if spec.trials is not None and spec.trials > points:
        raise ExperimentError(
            [
                SpecProblem(
                    "trials",
                    f"must be at most {points:,.0f}, the number of combinations in the space",
                    str(spec.trials),
                )
            ]
        )
    trials = points if spec.trials is None else spec.trials
    if trials * spec.repeats > MAX_RUNS:
        field = "space" if spec.trials is None else "trials"
        message = (
            f"{trials:,.6g} combinations, each run {spec.repeats} times, are more than the limit "
            f"of {MAX_RUNS:,} runs; give fewer values, trials or repeats"
        )
        raise ExperimentError([SpecProblem(field, message)])


def _check_seeds(spec: ExperimentSpec) -> None:
    field = _seed_field(spec)
    varied = [
        f for f, dimension in spec.space.items()
        if not all(_takes_seed({f: value}, field) for value in dimension.samples)
    ]  # fmt: skip
    if spec.repeats > 1 and varied:
        message = f"repeats set {field}; leave it out of the space, or set repeats to 1"
        raise ExperimentError([SpecProblem(f"space.{varied[0]}", message)])


def _check_length(spec: ExperimentSpec, planned: Iterable[Configuration]) -> None:
    length = 0
    for configuration in planned:
        length += len(json.dumps(configuration.values)) * spec.repeats
        if length > _MAX_CHARACTERS:
            message = (
                f"the values of all runs have more than {_MAX_CHARACTERS // 10**6} MB of JSON; "
                "give shorter values, fewer trials or fewer repeats"
            )
            raise ExperimentError([SpecProblem("space", message)])


def _check_configuration(spec: ExperimentSpec, configuration: Configuration) -> None:
    try:
        _check_job_of(spec, configuration)
    except SpecError as error:
        problems = [_of_space(problem, configuration.values) for problem in error.problems]
        raise ExperimentError(problems) from None


def _check_job_of(spec: ExperimentSpec, configuration: Configuration) -> None:
    number, values = configuration.number, configuration.values
    refuse_undefined(job_of(spec, values, number, spec.repeats))  # seeds count up


def _with_problems(spec: ExperimentSpec, planned: Sequence[Configuration]) -> list[Configuration]:
    """Note the problem of each configuration that cannot run.

    Raises:
        ExperimentError: none can run, or the baseline cannot.
    """
    checked = [replace(each, problem=_problem(spec, each)) for each in planned]
    for configuration in checked:
        if configuration.problem and is_baseline(spec.baseline, configuration.values):
            message = f"cannot run, so nothing can be compared with it: {configuration.problem}"
            raise ExperimentError([SpecProblem("baseline", message)])
    if all(configuration.problem for configuration in checked):
        _check_configuration(spec, planned[0])
    return checked


def _problem(spec: ExperimentSpec, configuration: Configuration) -> str:
    try:
        _check_job_of(spec, configuration)
    except SpecError as error:
        return str(error)
    return ""


def is_baseline(baseline: Mapping[str, Any] | None, values: Mapping[str, Any]) -> bool:
    """Return whether these are the values of the baseline."""
    return baseline is not None and all(
        repr(values.get(field)) == repr(value) for field, value in baseline.items()
    )


def _of_space(problem: SpecProblem, values: Mapping[str, Any]) -> SpecProblem:
    """Return a problem of one configuration, at the field of the space that causes it."""
    for field, value in values.items():
        given = shown_value(value)
        if problem.field == field or problem.field.startswith(f"{field}."):
            inner = problem.field[len(field) :]
            return SpecProblem(f"space.{field}{inner}", problem.message, problem.value or given)
        if field.startswith(f"{problem.field}."):
            return SpecProblem(f"space.{field}", f"{problem.field}: {problem.message}", given)
    shown = ", ".join(f"{field} {shown_value(value) or '…'}" for field, value in values.items())
    return _within("job", problem, f"; this follows from {shown}")


def _within(part: str, problem: SpecProblem, addition: str = "") -> SpecProblem:
    field = f"{part}.{problem.field}" if problem.field else part
    return SpecProblem(field, problem.message + addition, problem.value)


def _points(spec: ExperimentSpec) -> float:
    """Number of combinations; infinite if a field is continuous."""
    sizes = {
        f: math.inf if d.values is None else float(len(d.values)) for f, d in spec.space.items()
    }
    if spec.scaling is not None:
        # Batch sizes follow from the line and its workers; all lines share the fewest workers.
        sizes[BATCH] = 1.0
        sizes[WORKERS] = len(spec.scaling) * (sizes[WORKERS] - 1) + 1
    return math.prod(sizes.values())


def _grid(spec: ExperimentSpec) -> Iterator[dict[str, Any]]:
    choices = [dimension.values or () for dimension in spec.space.values()]
    points = (dict(zip(spec.space, point, strict=True)) for point in itertools.product(*choices))
    if spec.scaling is None:
        yield from points
        return
    fewest = min(spec.space[WORKERS].values or ())
    for values in points:
        if scalings_of(spec.job, values, fewest, spec.scaling):
            yield values


def limited_samples(
    spec: ExperimentSpec, planned: Sequence[Configuration]
) -> Iterator[Configuration]:
    """Yield the configurations by which jobs differ in what a project may limit; of method `tpe`,
    which has none yet, each value of a list and each end of a range."""
    if any(field.split(".")[0] in _LIMITED for field in spec.space):
        configurations = planned or _samples(spec)
        yield from (each for each in configurations if not each.problem)


_LIMITED = ("priority", "resources", "checkpoint", "code", "script", "task")
"""First parts of the fields that limits of projects are about."""


def _samples(spec: ExperimentSpec) -> Iterator[Configuration]:
    """Yield configurations that have each value of a list and each end of a range."""
    samples = {field: dimension.samples for field, dimension in spec.space.items()}
    for i in range(max(map(len, samples.values()))):
        yield Configuration(i + 1, {f: values[i % len(values)] for f, values in samples.items()})


def _drawn(spec: ExperimentSpec) -> Iterator[dict[str, Any]]:
    """Draw without end. A trial's values follow from the seed, its number and the name of the
    field: neither from how many there are, nor from the other fields, unless they are used up.

    Raises:
        ExperimentError: there is no other combination.
    """
    seen: set[str] = set()
    for number in itertools.count(1):
        point = drawn_point(spec, number, seen)
        seen.add(repr(point))
        yield point


def drawn_point(spec: ExperimentSpec, number: int, seen: Collection[str]) -> dict[str, Any]:
    """Draw a combination that is not among those seen.

    Raises:
        ExperimentError: there is no other.
    """
    for draw in range(_REDRAWS):
        point = {
            field: dimension.draw(_chance(spec, number, draw, field))
            for field, dimension in spec.space.items()
        }
        if repr(point) not in seen:
            return point
    return _unused_point(spec, seen)


def _unused_point(spec: ExperimentSpec, seen: Collection[str]) -> dict[str, Any]:
    if math.isinf(_points(spec)):
        message = (
            f"has about {len(seen)} different combinations for {spec.trials} trials: drawn numbers "
            "have 6 digits; widen a range"
        )
        raise ExperimentError([SpecProblem("space", message)])
    return next(point for point in _grid(spec) if repr(point) not in seen)


def _chance(spec: ExperimentSpec, number: int, draw: int, field: str) -> random.Random:
    return random.Random(f"{spec.seed or 0}/{number}/{draw}/{field}")


def _sets_seeds(spec: ExperimentSpec) -> bool:
    return spec.repeats > 1 or spec.seed is not None


def _seed_field(spec: ExperimentSpec) -> str:
    """Return the field of the seed: a task has a key for it, a script reads a parameter."""
    return "training.seed" if spec.job.get("task") is not None else "parameters.seed"


def _takes_seed(values: Mapping[str, Any], field: str) -> bool:
    """Return whether a combination leaves the seed to the experiment."""
    part, _, key = field.partition(".")
    whole = values.get(part, {})
    return field not in values and isinstance(whole, dict) and key not in whole


def _own_seed(document: Mapping[str, Any], field: str) -> int:
    part, _, key = field.partition(".")
    seed = (document.get(part) or {}).get(key, 0)
    return seed if isinstance(seed, int) else 0
