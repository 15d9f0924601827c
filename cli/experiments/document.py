"""An experiment as commands take it: a file whose job is written in it, or in a file of its own."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainhall.cli.base.errors import CliError, UsageError
from trainhall.cli.base.output import label, notice
from trainhall.cli.spec import specs

if TYPE_CHECKING:
    from trainhall.cli.base.client import Client
    from trainhall.cli.spec.code import Packed
    from trainhall.cluster.experiments.runs import Configuration
    from trainhall.cluster.experiments.spec import ExperimentSpec
    from trainhall.training.spec import JobSpec


_FORECASTS = 20
"""Most different resources for which the coordinator is asked when a job of theirs would start."""
_OF_ONE_JOB = {"user", "notes"}
"""Keys of a spec that an experiment on the job does not take over."""
_OPTION = re.compile(r"--?(?P<name>[A-Za-z_][A-Za-z0-9_-]{0,63})")
_JOINED = re.compile(rf"(?P<start>{_OPTION.pattern}=)(?P<value>.+)")
_NUMBER = re.compile(r"-?(0|[1-9]\d{0,14})(\.\d+)?([eE][-+]?\d\d?)?", re.ASCII)
"""No 007: that is a name."""
_DECIMAL_COMMA = re.compile(r"0,\d+", re.ASCII)
_NAME_LENGTH = 100
"""Most characters of a job's name in that of its sweep, which may have 128."""


@dataclass(frozen=True)
class Given:
    """An experiment as it was given."""

    document: dict[str, Any]
    folder: Path
    """The folder that its relative paths are taken from."""
    name: str = "the experiment"
    text: str = ""
    """The text that users see, whose lines are reported."""
    overrides: dict[str, str] = field(default_factory=dict)
    """YAML values by their fields, from `--set`."""

    @property
    def has_space(self) -> bool:
        """Return whether the document or an override gives values to try."""
        of_space = any(key.partition(".")[0] == "space" for key in self.overrides)
        return bool(self.document.get("space")) or of_space


@dataclass(frozen=True)
class Checked:
    """A valid experiment, with the code that its job needs."""

    spec: "ExperimentSpec"
    configurations: "list[Configuration]"
    code: "Packed | None"


def load(file: str, overrides: list[str] | None = None) -> Given:
    """Read an experiment.

    Raises:
        UsageError: the file can't be read, or is not one object.
    """
    raw, document = _read(file, "an experiment")
    given = specs.parse_overrides(overrides)
    text = raw.decode(errors="replace")
    return Given(document, specs.folder_of(file), specs.named(file), text, given)


def from_job(job: Any, given: Given | None, overrides: list[str] | None) -> Given:
    """Return an experiment on a submitted job, with its code.

    Args:
        given: the rest of the experiment; None: a sweep by the metric that rates the job.
    """
    base = {key: value for key, value in (job["spec"] or {}).items() if key not in _OF_ONE_JOB}
    if base.get("training"):
        # A run would wait there until a user resumes it.
        base["training"] = {k: v for k, v in base["training"].items() if k != "pause_at"}
    base = _with_parameters(base)
    if given is not None:
        return replace(given, document={**given.document, "job": base})
    rated = job["main_metric"] or {"name": "loss", "goal": "min"}
    document = {
        "name": f"{job['name'][:_NAME_LENGTH]} sweep",
        "kind": "sweep",
        "job": base,
        "space": {},
        "method": "grid",
        "objective": {"metric": rated["name"], "goal": rated["goal"]},
    }
    name = f"the sweep of {label(job)}"
    return Given(document, Path.cwd(), name, "", specs.parse_overrides(overrides))


def _with_parameters(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a spec whose script has its numbers as parameters: `--epochs 3` becomes `--epochs
    ${epochs}`."""
    script = spec.get("script")
    if not script or not script.get("args"):
        return spec
    parameters = dict(spec.get("parameters") or {})

    def taken(name: str, value: str) -> str:
        if name in parameters or not _NUMBER.fullmatch(value):
            return value
        parameters[name] = json.loads(value)
        return f"${{{name}}}"

    args = list(script["args"])
    for i, argument in enumerate(script["args"]):
        if joined := _JOINED.fullmatch(argument):
            args[i] = joined["start"] + taken(joined["name"], joined["value"])
        elif i and (option := _OPTION.fullmatch(script["args"][i - 1])):
            args[i] = taken(option["name"], argument)
    return {**spec, "script": {**script, "args": args}, "parameters": parameters}


def example_field(job: Any) -> str:
    """Return a field of a job that a sweep may vary."""
    parameters = (job["spec"] or {}).get("parameters") or {}
    if (job["spec"] or {}).get("task") is not None and not parameters:
        return "training.learning_rate"
    return f"parameters.{next(iter(parameters), 'NAME')}"


def with_space(given: Given, options: list[str] | None) -> Given:
    """Return an experiment with the values of `--space`: FIELD=VALUES, with commas between them,
    or as in a file.

    Raises:
        UsageError: one of them is not FIELD=VALUES, or no YAML.
    """
    from trainhall.training.spec import SpecError
    from trainhall.training.spec.parse import changes

    fields = specs.parse_overrides(options, "--space", "parameters.lr=0.001,0.01")
    if not fields:
        return given
    space = given.document.get("space")
    space = dict(space) if isinstance(space, Mapping) else {}
    for name, text in fields.items():
        try:
            (values,) = changes({"values": f"[{text}]"}).values()
        except SpecError:
            raise UsageError(f"--space {name}: {text} is not valid YAML") from None
        if _DECIMAL_COMMA.fullmatch(text):
            notice(f"Note: --space {name}: {text} are two values, 0 and {text[2:]}; write "
                f"{text.replace(',', '.')} for one.")  # fmt: skip
        is_whole = len(values) == 1 and isinstance(values[0], list | dict)
        space[name] = values[0] if is_whole else values
    return replace(given, document={**given.document, "space": space})


def check(given: Given) -> Checked:
    """Check an experiment and the job of every run; nothing is sent.

    Raises:
        UsageError: something in it is wrong; every wrong field is listed.
    """
    from trainhall.cluster.experiments.runs import plan_configurations
    from trainhall.cluster.experiments.spec import validate_experiment
    from trainhall.training.spec import SpecError

    try:
        document, job = _with_job(given)
        if job is not None:
            document["job"] = job.model_dump(mode="json", exclude_unset=True)
        spec = validate_experiment(document)
        if job is None:
            return Checked(spec, plan_configurations(spec), None)
        sent, code = specs.document_of(job)
        spec = spec.model_copy(update={"job": sent})
        return Checked(spec, plan_configurations(spec), code)
    except SpecError as error:
        raise specs.refusal(
            f"{given.name} is not a valid experiment", error, given.text, given.overrides
        ) from None


def never_starting(checked: Checked, client: "Client") -> str | None:
    """Return which trials could never start on the cluster as it is now, and why; None: all can,
    or it is unknown."""
    from trainhall.cluster.experiments.runs import job_of

    reasons: dict[str, str | None] = {}
    trials: list[int] = []
    for each in checked.configurations:
        if each.problem:
            continue
        job = job_of(checked.spec, each.values, each.number, 1)
        resources = job.resources.model_dump_json()
        if resources not in reasons:
            if len(reasons) == _FORECASTS:
                break
            reasons[resources] = _never(job, client)
        if reasons[resources] is not None:
            trials.append(each.number)
    if not trials:
        return None
    why = next(reason for reason in reasons.values() if reason is not None)
    numbers = f"trial {trials[0]}" if len(trials) == 1 else f"{len(trials)} trials"
    return f"On the cluster as it is now, {numbers} will never start: {why}."


def _never(job: "JobSpec", client: "Client") -> str | None:
    document = job.model_dump(mode="json", exclude_unset=True)
    try:
        outlook = client.submit(document, dry_run=True)["outlook"]
    except CliError:  # nobody needs the forecast
        return None
    return str(outlook["reason"]) if outlook["when"] == "never" else None


def check_on_cluster(checked: Checked, client: "Client") -> str | None:
    """Check an experiment against the cluster, by its coordinator; not one with code, which that
    does not have yet. Return the coordinator's hint, if it has one.

    Raises:
        UsageError: the coordinator found a fault.
    """
    if checked.code is not None:
        return None
    plan = client.create_experiment(checked.spec.document(), dry_run=True)
    specs.refuse_missing_code(plan, "job.code")
    hint: str | None = plan["hint"]
    return hint


def create(checked: Checked, client: "Client") -> Any:
    """Create an experiment, the code of its job uploaded first.

    Raises:
        UsageError: the coordinator found a fault.
    """
    specs.upload(checked.code, client, checked.spec.job.get("project"))
    return client.create_experiment(checked.spec.document())


def _with_job(given: Given) -> tuple[dict[str, Any], "JobSpec | None"]:
    """Return the document with `--set` applied, and its job, read if it is in another file.

    Raises:
        SpecError: a value of `--set` cannot be set.
        UsageError: the job is not valid.
    """
    document, job_file = dict(given.document), given.document.get("job")
    folder, name, text, at = given.folder, "the job of the experiment", given.text, "job."
    if isinstance(job_file, str):
        path = folder / job_file
        raw, document["job"] = _read(str(path), "a job spec")
        folder, name, text, at = path.parent, f"the job in {path}", raw.decode(), ""
    of_job = {}
    for key, value in given.overrides.items():
        if key.startswith("job."):
            of_job[key.removeprefix("job.")] = value
        else:
            _replace(document, key, value)
    job = _as_json(document)["job"] if "job" in document else None
    if not isinstance(job, Mapping):
        return document, None
    return document, specs.of_document(
        job, of_job, folder=folder, name=name, is_base=True, text=text, at=at, option="--set job."
    )


def _replace(document: dict[str, Any], key: str, text: str) -> None:
    from trainhall.cluster.experiments.space import replace_field
    from trainhall.training.spec import SpecError, SpecProblem
    from trainhall.training.spec.parse import changes

    (value,) = changes({"value": text}).values()
    part, _, inner = key.partition(".")
    try:
        # The keys of the space are dotted themselves.
        if part == "space" and inner and isinstance(document.setdefault(part, {}), dict):
            document[part] = {**document[part], inner: value}
        else:
            replace_field(document, key, value)
    except ValueError as error:
        raise SpecError([SpecProblem(key, f"cannot be set: {error}")]) from None


def _read(file: str, what: str) -> tuple[bytes, dict[str, Any]]:
    from trainhall.training.spec import SpecError
    from trainhall.training.spec.parse import load_document

    raw, form = specs.read_file(file)
    try:
        return raw, load_document(raw, form, what)
    except SpecError as error:
        raise UsageError(f"{specs.named(file)} is not {what}: {error}") from None


def _as_json(document: dict[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(document, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the experiment has a value that JSON cannot express: {error}") from None
    return document
