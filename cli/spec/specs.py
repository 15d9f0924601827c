"""Job specs as commands take them: a file or standard input, and `--set` overrides."""

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trainhall.cli.base.errors import CliError, UsageError
from trainhall.cli.base.output import notice, size

if TYPE_CHECKING:
    from trainhall.cli.base.client import Client
    from trainhall.cli.spec.code import Packed
    from trainhall.training.spec import JobSpec, SpecError

OUTLOOK_SECONDS = 3.0
"""Most time that a submission waits for the forecast of the job's start."""


_SCRIPTS = {".py", ".sh", ".ipynb"}
"""Suffixes of files that people hand over in place of a spec."""


def load(file: str, overrides: list[str] | Mapping[str, str] | None) -> "JobSpec":
    """Read and check a spec. A relative `script.path` is taken from the folder of the file, or from
    the present one when the spec comes from standard input.

    Args:
        overrides: those of `--set`; or YAML values by their fields, where no option was given.

    Raises:
        UsageError: the file can't be read, or is not a valid spec; every wrong field is listed.
    """
    raw, form = read_file(file)
    text = raw.decode(errors="replace")
    folder = folder_of(file)
    if isinstance(overrides, Mapping):
        return _parsed(named(file), text, raw, form, dict(overrides), folder, option="")
    replaced = parse_overrides(overrides)
    return _parsed(named(file), text, raw, form, replaced, folder, option="--set ")


def load_words(
    words: Sequence[str], overrides: list[str] | None, git: Mapping[str, str] | None = None
) -> "JobSpec":
    """Read the spec that the words of a command line name, or make that of a script or a command.

    Args:
        git: repository that hosts clone, as the spec's `code`; None: the code is here.

    Raises:
        UsageError: as `load`; or there is no such script, or a spec has arguments.
    """
    from trainhall.cli.spec.programs import document_for, document_in_git, is_program

    if not is_program(words):
        # An option of its own comes before --set code.token=NAME.
        code = [f"code={json.dumps(git)}"] if git is not None else []
        return load(words[0], [*code, *(overrides or ())])
    here = Path.cwd()
    if git is not None:
        document = document_in_git(words, git)
        notice(f"Code: {git['git']} at {git.get('ref', 'HEAD')}, cloned by the hosts.")
    else:
        document, why = document_for(words, here)
        notice(f"Code: {document['code']} ({why}), without what its ignore files name.")
    return of_document(
        document, parse_overrides(overrides), folder=here, name=" ".join(words)[:80],
        option="--set ",
    )  # fmt: skip


def load_for(workers: int, file: str, overrides: list[str] | None) -> "JobSpec":
    """Load as `load`, for another number of workers: degrees may be for its own or for that.

    Raises:
        UsageError: as `load`, with what is wrong of the spec as it is.
    """
    from trainhall.training.spec import SpecError, parse_spec

    raw, form = read_file(file)
    replaced, folder = parse_overrides(overrides), folder_of(file)
    try:
        return parse_spec(raw, form, replaced | {"resources.workers": str(workers)}, folder)
    except SpecError:
        text = raw.decode(errors="replace")
        return _parsed(named(file), text, raw, form, replaced, folder, option="--set ")


def of_document(
    document: Mapping[str, Any],
    overrides: Mapping[str, str],
    *,
    folder: Path | None = None,
    name: str = "the spec",
    is_base: bool = False,
    text: str = "",
    at: str = "",
    option: str = "",
) -> "JobSpec":
    """Check what would be in a file of a folder, with YAML values by their fields.

    Args:
        folder: None: the present one.
        name: the document, in an error.
        is_base: as of `parse_spec`.
        text: the text that users see, in which the document's fields begin with `at`.
        option: the option by which they gave `overrides`.

    Raises:
        UsageError: it is not a valid spec; every wrong field is listed.
    """
    try:
        raw = json.dumps(document).encode()
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} has a value that JSON cannot express: {error}") from None
    folder = folder or Path.cwd()
    replaced = dict(overrides)
    return _parsed(name, text, raw, "json", replaced, folder, option=option, is_base=is_base, at=at)


def _parsed(
    name: str,
    text: str,
    raw: bytes,
    form: Literal["json", "yaml"],
    replaced: dict[str, str],
    folder: Path,
    *,
    option: str,
    is_base: bool = False,
    at: str = "",
) -> "JobSpec":
    """Parse a spec.

    Args:
        text: the text that users see, whose lines are reported.
        option: the option by which they gave `replaced`.
    """
    from trainhall.training.spec import SpecError, parse_spec

    try:
        spec = parse_spec(raw, form, replaced, folder, is_base=is_base)
    except SpecError as error:
        message = f"{name} is not a valid job spec"
        raise refusal(message, error, text, replaced, option=option, at=at) from None
    _note_similar_parameters(raw, form, replaced, option)
    return spec


def _note_similar_parameters(
    raw: bytes, form: Literal["json", "yaml"], replaced: Mapping[str, str], option: str
) -> None:
    """Note parameters that are new beside one of a similar name: any name is valid."""
    from trainhall.training.spec.keys import near_parameter
    from trainhall.training.spec.parse import load_document

    names = [field.removeprefix("parameters.") for field in replaced if _is_parameter(field)]
    if not names:
        return
    document = load_document(raw, form)
    for name in names:
        if near := near_parameter(name, document):
            notice(f"Note: {option}parameters.{name}: the spec has no parameter {name} yet; did "
                f"you mean {near}?")  # fmt: skip


def _is_parameter(field: str) -> bool:
    part, _, name = field.partition(".")
    return part == "parameters" and name != ""


def refusal(
    message: str,
    error: "SpecError",
    text: str,
    overrides: Mapping[str, str],
    *,
    option: str = "--set ",
    at: str = "",
) -> UsageError:
    """Return the error of a command: the message, and a line for each problem.

    Args:
        text: the text that users see, in which the problems' fields begin with `at`.
        option: the option by which they gave `overrides`.
    """
    count = len(error.problems)
    count_text = f": {count} problems" if count > 1 else ""
    return UsageError(message + count_text, _problem_lines(error, text, overrides, option, at))


def _problem_lines(
    error: "SpecError", text: str, overrides: Mapping[str, str], option: str, at: str
) -> list[str]:
    """Return a line for each problem, in text order, with where the value was given."""
    from trainhall.cli.spec.spec_lines import Lines

    lines = Lines(text)
    texts: list[tuple[int, str]] = []
    for problem in error.problems:
        given = f" (given: {problem.value})" if problem.value is not None else ""
        field = f"{at}{problem.field}: " if problem.field else ""
        line = lines.of(at + problem.field)
        where = f"line {line}: " if line else ""
        if any(problem.field == o or problem.field.startswith(o + ".") for o in overrides):
            line, where, field = None, option, f"{problem.field}: "
        texts.append((line or 0, f"{where}{field}{problem.message}{given}"))
    return [text for _, text in sorted(texts, key=lambda pair: pair[0])]


def submit(spec: "JobSpec", client: "Client", *, include_env: bool = False) -> Any:
    """Submit a job, its code uploaded first if it names a folder and it is not there yet.

    Args:
        include_env: as of `code.packed`.

    Raises:
        UsageError: the folder cannot be sent, or lacks the script or the task; or the coordinator
            found a fault.
    """
    return _sent(spec, *document_of(spec, include_env=include_env), client)


def submit_with_forecast(
    spec: "JobSpec", client: "Client", *, include_env: bool = False
) -> tuple[Any, str | None]:
    """Submit; also return what the job waits for: None if it starts now, or it is unknown.

    Raises:
        UsageError: as `submit`.
    """
    document, code = document_of(spec, include_env=include_env)
    # Asked for before: afterwards the job would be taken for another one that is ahead of it.
    outlook = _outlook(document, client)
    job = _sent(spec, document, code, client)
    if outlook is None or outlook["when"] == "now":
        return job, None
    return job, _describe_outlook(outlook, submitted=True)


def _sent(
    spec: "JobSpec", document: dict[str, Any], code: "Packed | None", client: "Client"
) -> Any:
    from trainhall.cli.spec.provenance import with_provenance

    upload(code, client, document.get("project"))
    return client.submit(with_provenance(document, spec, code))


def upload(code: "Packed | None", client: "Client", project: str | None) -> None:
    if code is None:
        return
    if client.upload_code(code.sha256, code.archive, project):
        notice(f"Uploaded {code.folder} ({_size(code)}).")
    else:
        notice(f"{code.folder} ({_size(code)}) is unchanged since it was uploaded.")


def _outlook(document: dict[str, Any], client: "Client") -> Any:
    """Return the forecast of the job's start; None if it takes too long: it is submitted anyway."""
    return _dry_run(document, client).get("outlook")


def shortage(document: dict[str, Any], client: "Client") -> str | None:
    """Return why the cluster could not hold such a job alone; None if it could, or is unknown."""
    found: str | None = _dry_run(document, client).get("shortage")
    return found


def _dry_run(document: dict[str, Any], client: "Client") -> dict[str, Any]:
    """Return the answer to a dry run; empty if there is none in time."""
    try:
        deadline = time.monotonic() + OUTLOOK_SECONDS
        answer: dict[str, Any] = client.submit(document, dry_run=True, deadline=deadline)
    except CliError:
        return {}
    return answer


def check(spec: "JobSpec", client: "Client", *, include_env: bool = False) -> tuple[Any, list[str]]:
    """Return the job that a submission would create, and a description. Only the spec is sent.

    Raises:
        UsageError: as `submit`.
    """
    document, code = document_of(spec, include_env=include_env)
    plan = client.submit(document, dry_run=True)
    words = [_describe_outlook(plan["outlook"], submitted=False)]
    if code is None:
        refuse_missing_code(plan, "code")
    elif plan["code_missing"]:
        words.insert(0, f"{code.folder} would be uploaded ({_size(code)}).")
    else:
        words.insert(0, f"{code.folder} ({_size(code)}) is unchanged since it was uploaded.")
    return plan, words


def refuse_missing_code(plan: dict[str, Any], field: str) -> None:
    """Check that code that was given by its SHA-256 is stored.

    Raises:
        UsageError: it is not.
    """
    if plan["code_missing"]:
        raise UsageError(f"{field}: no code with this SHA-256 was uploaded; name its folder")


def _describe_outlook(outlook: dict[str, Any], *, submitted: bool) -> str:
    """Describe in a line when the job would start, or will."""
    reason = outlook["reason"]
    will, will_be = ("will", "is") if submitted else ("would", "would be")
    match outlook["when"]:
        case "now":
            return f"It {will} start now, {reason}."
        case "never":
            return f"On the cluster as it is now, it {will} never start: {reason}."
        case _:
            return f"It {will_be} number {outlook['position']} in the queue: {reason}."


def document_of(
    spec: "JobSpec", *, include_env: bool = False
) -> tuple[dict[str, Any], "Packed | None"]:
    """Return the spec as it is sent, and the folder that goes with it; note what deserves it.

    Args:
        include_env: as of `code.packed`.

    Raises:
        UsageError: the folder cannot be sent, or lacks the script or the task.
    """
    document: dict[str, Any] = spec.model_dump(mode="json", exclude_unset=True)
    script = spec.script
    for warning in spec.warnings:
        notice(f"Warning: {warning}.")
    if spec.code_folder is None:
        if spec.code is None:
            for field, path in _paths(spec):
                _note_missing_path(field, path)
        return document, None
    from trainhall.cli.spec.code import packed

    code = packed(Path(spec.code_folder), include_env=include_env)
    if code.left_out:
        notice(f"Note: {', '.join(code.left_out)} may hold secrets: not sent; use `trainhall "
            "secrets set`, or send it with `submit --include-env` or a line `!.env` in "
            ".trainhallignore.")  # fmt: skip
    if script is not None:
        code.check(script)
    elif spec.task is not None and spec.task.is_own:
        code.check_task(spec.task.name)
    if (source := spec.environment.source) is not None:
        code.check_environment(*source)
    document["code"] = code.sha256
    return document, code


def propose_environment(spec: "JobSpec") -> None:
    """Say which file beside the program lists packages, if the spec leaves that out."""
    if spec.code_folder is None or spec.environment.is_prepared:
        return
    folder = Path(spec.code_folder)
    script = spec.script.path if spec.script is not None else None
    beside = Path(script).parent if script and not Path(script).is_absolute() else Path()
    for place in dict.fromkeys((beside, Path())):
        for name, key, value in (
            ("requirements.txt", "requirements", (place / "requirements.txt").as_posix()),
            ("pyproject.toml", "project", place.as_posix()),
        ):
            if (folder / place / name).is_file():
                notice(f"Note: the packages of {(place / name).as_posix()} are not installed; to "
                    f"have that done, add --set environment.{key}={value}")  # fmt: skip
                return


def folder_in_place(spec: "JobSpec", command: str) -> str | None:
    """Return the folder of a job's code, for a command that imports from it here; None: it has
    none.

    Raises:
        UsageError: it is not a folder of this host.
    """
    if spec.git_code is not None:
        raise UsageError(
            f"code: `trainhall {command}` clones nothing; clone {spec.git_code.git}, and add "
            "--set code=FOLDER"
        )
    if spec.uploaded_code is not None or (spec.code_folder and not Path(spec.code_folder).is_dir()):
        raise UsageError(
            f"code: {spec.code} is not a folder; `trainhall {command}` uses it in place"
        )
    return spec.code_folder


def refuse_prepared(spec: "JobSpec", command: str) -> None:
    """Refuse a spec whose environment or data sets are made ready by hosts alone.

    Args:
        command: the one that runs it here.

    Raises:
        UsageError: it asks for such an environment, or for data sets.
    """
    if spec.data:
        raise UsageError(
            f"data: `trainhall {command}` makes no data sets ready; give paths of this host in "
            "task.params, or use `trainhall submit`"
        )
    if spec.environment.is_prepared:
        raise UsageError(
            f"environment: `trainhall {command}` runs in this Python, and installs and starts "
            "nothing else; --set environment={} does without, and `trainhall submit` has hosts do "
            "it"
        )


def _paths(spec: "JobSpec") -> Iterator[tuple[str, str]]:
    """Yield the paths that a job reads, each with its field."""
    from trainhall.training.spec.tasks import TASK_PARAMS, paths_in

    for i, each in enumerate(spec.data):
        if each.path is not None:
            yield f"data.{i}.path", each.path
    if spec.script is not None and spec.script.path is not None:
        yield "script.path", spec.script.path
    task = spec.task
    if task is None or task.name not in list(TASK_PARAMS) or task.params.get("download"):
        return
    for key, path in paths_in(task.params):
        # What has a pattern in it, or is a data set, is looked up on the hosts.
        if not has_magic(path) and not path.startswith("$"):
            yield f"task.params.{key}", path


def _note_missing_path(field: str, path: str) -> None:
    """Note a path that may well exist on other hosts."""
    if not Path(path).exists():
        along = "; with `code: FOLDER` it would be uploaded" if field == "script.path" else ""
        notice(f"Note: {field}: {path} is not on this host. Every node that runs the job needs "
            f"it there{along}.")  # fmt: skip


def _size(code: "Packed") -> str:
    count = len(code.names)
    return f"{count:,} file{'s' if count != 1 else ''}, {size(code.size)}"


def named(file: str) -> str:
    return "the spec on standard input" if file == "-" else file


def folder_of(file: str) -> Path:
    return Path.cwd() if file == "-" else Path(file).absolute().parent


def read_file(file: str) -> tuple[bytes, Literal["json", "yaml"]]:
    if file == "-":
        # YAML reads JSON as well, but for numbers such as 1e-3, which YAML 1.1 takes for text.
        raw = sys.stdin.buffer.read()
        return raw, "json" if raw.lstrip().startswith(b"{") else "yaml"
    path = Path(file)
    if path.suffix in _SCRIPTS and path.is_file():
        raise UsageError(
            f"{file} is a script; a job needs a spec that names it. Write job.yaml:",
            [
                f"  name: {path.stem}",
                "  code: .",
                f"  script: {{path: {path.name}}}",
                "  resources: {workers: 1}",
                "and run `trainhall submit job.yaml -f`",
            ],
        )
    try:
        return path.read_bytes(), "json" if path.suffix == ".json" else "yaml"
    except FileNotFoundError:
        raise UsageError(f"there is no file {file}") from None
    except IsADirectoryError:
        raise UsageError(f"{file} is a folder; give a file in YAML or JSON") from None
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from None


def parse_overrides(
    given: list[str] | None, option: str = "--set", example: str = "training.steps=20"
) -> dict[str, str]:
    """Parse `["training.steps=20"]` to `{"training.steps": "20"}`.

    Args:
        option: the option that they were given by, in errors.
        example: what it takes.

    Raises:
        UsageError: one of them is not FIELD=VALUE.
    """
    overrides: dict[str, str] = {}
    for text in given or []:
        field, equals, value = text.partition("=")
        if not equals or not field.strip():
            raise UsageError(f"{option} takes FIELD=VALUE, as in {example}, not {text!r}")
        # As a shell leaves it of a variable that is not set; YAML would take it for null.
        if not value.strip():
            raise UsageError(
                f"{option} {text} has no value; {field}=null removes the field from the spec"
            )
        overrides[field.strip()] = value
    return overrides
