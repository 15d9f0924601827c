"""From bytes to a `JobSpec`: YAML and JSON are read safely, errors become advice by field."""

import json
import math
import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from trainhall.training.spec.document.errors import (
    MAX_DEPTH,
    MAX_NODES,
    TOO_DEEP,
    TOO_MANY,
    SpecError,
    SpecProblem,
)
from trainhall.training.spec.idle import idle_options
from trainhall.training.spec.job import SHA256, JobSpec
from trainhall.training.spec.keys import unknown_key_message
from trainhall.training.spec.parameters import names_used
from trainhall.training.spec.problems import UNKNOWN_KEY, display_value, problems_in
from trainhall.training.spec.resources import without_replaced
from trainhall.training.spec.tasks import TASK_PARAMS, TASK_PATHS
from trainhall.training.spec.world.data import PREFIX, reference_in, undefined_data

MAX_SPEC_BYTES = 128 * 1024
MAX_PROBLEMS = 20
_SHOWN_VALUE = 80
_MAIN_KEYS: dict[tuple[str | int, ...], str] = {("task",): "name", ("script",): "path"}
"""Main key of each part that users often write as a plain string: `task: digits`."""
_EXAMPLES: dict[tuple[str | int, ...], str] = {
    ("data",): "[{name: corpus, path: /data/corpus}]",
    ("environment",): "{requirements: requirements.txt}",
    ("interactive",): "{idle_seconds: 1800}",
    ("metric",): "{name: eval_accuracy, goal: max}",
    ("script", "args"): '["--lr", "0.1"]',
    ("script", "env"): "{NCCL_DEBUG: INFO}",
}
"""Correct forms of other parts that users often write as a string."""
_PLAIN_TEXT = re.compile(r"[\w.:/-]{1,80}")
"""Strings that YAML reads unquoted inside braces."""


_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+", re.ASCII)
_SEVERAL_NUMBERS = re.compile(r"\s*[-+.\deE]+(\s*,\s*[-+.\deE]+)+\s*", re.ASCII)


def parse_spec(
    raw: bytes | str,
    format: Literal["json", "yaml"] = "yaml",  # noqa: A002 - the word users know
    overrides: dict[str, str] | None = None,
    folder: Path | None = None,
    *,
    is_base: bool = False,
) -> JobSpec:
    """Read a job spec.

    Args:
        overrides: maps dotted fields to YAML values ("training.steps": "20").
        folder: what relative paths are relative to (`code`, `script.path`, `script.working_dir`,
            `root` and `files` of a built-in task), an absolute path; without it such a path is an
            error.
        is_base: an experiment may add parameters: `script.args` may use names that are none yet.

    Raises:
        SpecError: with one problem per wrong field.
    """
    data = load_document(raw, format)
    if "job" in data and "space" in data:
        message = "this is an experiment, not a job; create it with `trainhall experiment create`"
        raise SpecError([SpecProblem("", message)])
    if overrides:
        _replace_workers(data, overrides)
        for field, text in overrides.items():
            _override(data, field, text)
        _check_tree(data)
    if folder is not None:
        _resolve_paths(data, folder)
    spec = validate_spec(data)
    refuse_idle(spec)
    if not is_base:
        refuse_undefined(spec)
    return spec


def validate_spec(data: object) -> JobSpec:
    """Check a document that was already read; options without effect are accepted.

    Raises:
        SpecError: with one problem per wrong field.
    """
    if not isinstance(data, dict):
        raise _no_object(data)
    try:
        return JobSpec.model_validate(data)
    except ValidationError as error:
        raise SpecError(problems_of(error, data)) from None


def refuse_idle(spec: JobSpec, asked: Collection[tuple[str, ...]] | None = None) -> None:
    """Refuse options that have no effect.

    Args:
        asked: the fields to look at, or what they are part of; None: all of them.

    Raises:
        SpecError: with one problem per option that would do nothing.
    """
    problems = [
        SpecProblem(_dotted(where), message, _shown(value))
        for where, value, message in idle_options(spec)
        if asked is None or any(where[: len(part)] == part for part in asked)
    ]
    if problems:
        raise SpecError(problems)


def refuse_undefined(spec: JobSpec) -> None:
    """Refuse `${name}` in the arguments of a script where no parameter or data set has the name.

    A stored spec is not checked, so that a job of an older version still runs.

    Raises:
        SpecError: with one problem per argument.
    """
    problems = []
    known = {*spec.parameters, *(f"{PREFIX}{each.name}" for each in spec.data)}
    for i, argument in enumerate(spec.script.args if spec.script is not None else ()):
        for name in names_used(argument):
            if name not in known:
                problems.append(SpecProblem(f"script.args.{i}", _undefined(name, spec), argument))
                break
    if problems:
        raise SpecError(problems)


def _undefined(name: str, spec: JobSpec) -> str:
    if name.startswith(PREFIX):
        return undefined_data(name.removeprefix(PREFIX), spec.data)
    known = ", ".join(sorted(spec.parameters))
    return (
        f"no parameter is called {name}"
        + (f"; the parameters are {known}" if known else "; the spec has no parameters")
        + f"; write $${{{name}}} for the text ${{{name}}} itself"
    )


def load_document(
    raw: bytes | str,
    form: Literal["json", "yaml"],
    what: str = "a job spec",
) -> dict[str, Any]:
    """Read one mapping from YAML or JSON: plain data only, bounded in size and depth.

    Args:
        what: the document, in a sentence.

    Raises:
        SpecError: naming the line where the text breaks.
    """
    size = len(raw)
    if size > MAX_SPEC_BYTES:
        raise SpecError(
            [SpecProblem("", f"the spec has {size:,} bytes; the limit is {MAX_SPEC_BYTES:,}")]
        )
    try:
        text = raw.decode("utf-8") if isinstance(raw, bytes) else raw
    except UnicodeDecodeError as error:
        raise SpecError([SpecProblem("", f"the spec is not UTF-8: byte {error.start}")]) from None
    if "\0" in text:
        raise SpecError(
            [SpecProblem("", f"the spec contains a NUL byte at character {text.index(chr(0))}")]
        )
    try:
        data = _load_json(text) if form == "json" else _load_yaml(text)
    except SpecError:
        raise
    except RecursionError:
        raise SpecError([TOO_DEEP]) from None
    except ValueError as error:
        raise SpecError([SpecProblem("", f"not valid {form.upper()}: {error}")]) from None
    _check_tree(data)
    if not isinstance(data, dict):
        raise _no_object(data, what)
    return data


def _no_object(data: object, what: str = "a job spec") -> SpecError:
    message = f"{what} must be an object with keys; this one is {_kind(data)}"
    return SpecError([SpecProblem("", message)])


def _load_yaml(text: str) -> Any:
    # Imported here, since programs and ranks read JSON.
    from trainhall.training.spec.document.yaml_text import load_yaml

    return load_yaml(text)


def _load_json(text: str) -> Any:
    def refuse_constant(name: str) -> None:
        raise ValueError(f"{name} is not a number")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise ValueError(f"key {key!r} is given twice")
            found[key] = value
        return found

    return json.loads(text, parse_constant=refuse_constant, object_pairs_hook=unique)


def _check_tree(data: object) -> None:
    """Refuse what JSON, a database or a terminal could not carry further.

    Raises:
        SpecError: nesting too deep, too many values, a value or a key that JSON does not have, a
            number of more than 64 bits, or half of a surrogate pair.
    """
    level, depth, nodes = [("", data)], 0, 0
    while level:
        depth += 1
        nodes += len(level)
        if depth > MAX_DEPTH:
            raise SpecError([TOO_DEEP])
        if nodes > MAX_NODES:
            raise SpecError([TOO_MANY])
        for path, node in level:
            _check_node(path, node)
        level = [child for path, node in level for child in _children(path, node)]


def _check_node(path: str, node: object) -> None:
    match node:
        case int() if not -(2**63) <= node < 2**63:
            raise SpecError([SpecProblem(path, "the number needs more than 64 bits")])
        case float() if not math.isfinite(node):
            raise SpecError([SpecProblem(path, "must be a finite number")])
        case str() if not _encodable(node):
            raise SpecError([SpecProblem("", "the spec contains half a surrogate pair")])
        case None | bool() | int() | float() | str() | dict() | list():
            return
    raise SpecError(
        [
            SpecProblem(
                path,
                f"is of the type {type(node).__name__}; write a string (in quotes), a number, a "
                "boolean, a list or an object",
            )
        ]
    )


def _children(path: str, node: object) -> Iterator[tuple[str, object]]:
    """Yield keys and values of a mapping, or the items of a list, each with its dotted field."""
    if isinstance(node, dict):
        for key, value in node.items():
            if not isinstance(key, str):
                message = f"the key {display_value(key)} must be a string; put it in quotes"
                raise SpecError([SpecProblem(path, message)])
            yield path, key
            yield (f"{path}.{key}" if path else key), value
    elif isinstance(node, list):
        yield from ((f"{path}.{i}", item) for i, item in enumerate(node))


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _resolve_paths(data: dict[str, Any], folder: Path) -> None:
    """Make the paths of the work absolute: the script's, or those in a built-in task's params."""
    script, task, code = data.get("script"), data.get("task"), data.get("code")
    if not (isinstance(code, str) and SHA256.fullmatch(code)):
        _resolve(data, "code", folder)
    # With code they are relative to it, and stay so.
    if isinstance(script, dict) and code is None:
        _resolve(script, "path", folder)
        _resolve(script, "working_dir", folder)
    environment = data.get("environment")
    if isinstance(environment, dict) and code is None:
        _resolve(environment, "project", folder)
        if isinstance(environment.get("requirements"), str):
            _resolve(environment, "requirements", folder)
    for each in data["data"] if isinstance(data.get("data"), list) else ():
        if isinstance(each, dict):
            _resolve(each, "path", folder)
    if isinstance(task, dict) and isinstance(params := task.get("params"), dict):
        for key in TASK_PATHS if task.get("name") in list(TASK_PARAMS) else ():
            _resolve(params, key, folder)


def _resolve(mapping: dict[str, Any], key: str, folder: Path) -> None:
    value = mapping.get(key)
    if isinstance(value, list):
        mapping[key] = [_absolute(item, folder) for item in value]
    elif value is not None:
        mapping[key] = _absolute(value, folder)


def _absolute(path: Any, folder: Path) -> Any:
    # Values that are not paths are left to the check that names the field.
    if not isinstance(path, str) or not path or "\0" in path or reference_in(path):
        return path
    # `normpath` and not `resolve`: a link on this host may lead elsewhere on another.
    return os.path.normpath(folder / path)


def changes(overrides: dict[str, str]) -> dict[str, Any]:
    """Return overrides as a document: `resources.workers=2` is `{"resources": {"workers": 2}}`.

    Raises:
        SpecError: a value is not valid YAML or has no form in JSON, or two of them contradict each
            other.
    """
    data: dict[str, Any] = {}
    for field, text in overrides.items():
        _override(data, field, text)
    _check_tree(data)
    return data


def _replace_workers(data: dict[str, Any], overrides: Collection[str]) -> None:
    """Let an overridden form replace the other form that it excludes."""
    if isinstance(resources := data.get("resources"), dict):
        asked = [field.removeprefix("resources.") for field in overrides]
        data["resources"] = without_replaced(resources, asked)


def _override(data: dict[str, Any], field: str, text: str) -> None:
    *parents, last = field.split(".")
    node = data
    for i, key in enumerate(parents):
        child = node.setdefault(key, {})
        if not isinstance(child, dict):
            at = ".".join(parents[: i + 1])
            raise SpecError(
                [SpecProblem(field, f"cannot be set: {at} is {_kind(child)}, not an object")]
            )
        node = child
    if _is_number(node.get(last)) and _SEVERAL_NUMBERS.fullmatch(text):
        raise SpecError([SpecProblem(field, _one_number(text.strip()), _shown(text))])
    try:
        node[last] = _load_yaml(text)
    except (ValueError, RecursionError):
        raise SpecError([SpecProblem(field, "the value is not valid YAML", _shown(text))]) from None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _one_number(text: str) -> str:
    """Return the message for numbers with commas in place of one number."""
    if _DECIMAL_COMMA.fullmatch(text):
        return (
            f"must be one number: write {text.replace(',', '.')} with a point; "
            "`trainhall experiment create` tries several values"
        )
    return "must be one number; `trainhall experiment create` tries several values"


def problems_of(error: ValidationError, data: object) -> list[SpecProblem]:
    """Return pydantic's errors as problems, with suggestions for unknown keys; the first 20 and the
    number of others."""
    problems: list[SpecProblem] = []
    found = problems_in(error)
    for loc, value, message in found[:MAX_PROBLEMS]:
        if message == UNKNOWN_KEY:
            problems.append(SpecProblem(_dotted(loc), unknown_key_message(loc, data)))
        elif isinstance(value, str) and loc in _MAIN_KEYS:
            advice = f"{message}; write {_as_object(str(loc[0]), value)}"
            problems.append(SpecProblem(_dotted(loc), advice, _shown(value)))
        elif isinstance(value, str) and loc in _EXAMPLES:
            advice = f"{message}, such as {_EXAMPLES[loc]}"
            problems.append(SpecProblem(_dotted(loc), advice, _shown(value)))
        elif isinstance(value, str) and _DECIMAL_COMMA.fullmatch(value) and "a number" in message:
            advice = f"{message}: write {value.replace(',', '.')} with a point"
            problems.append(SpecProblem(_dotted(loc), advice, _shown(value)))
        else:
            problems.append(SpecProblem(_dotted(loc), message, _shown(value)))
    if more := len(found) - len(problems):
        problems.append(SpecProblem("", f"and {more:,} more"))
    return problems


def _as_object(part: str, text: str) -> str:
    """Return the correct form of a part that was given as the value of its main key."""
    return f"{part}: {{{_MAIN_KEYS[(part,)]}: {text if _PLAIN_TEXT.fullmatch(text) else '…'}}}"


def _dotted(loc: tuple[str | int, ...]) -> str:
    return ".".join(str(part) for part in loc)


def _shown(value: object) -> str | None:
    if value is None or isinstance(value, dict | list):
        return None
    text = display_value(value)
    return text if len(text) <= _SHOWN_VALUE else text[: _SHOWN_VALUE - 1] + "…"


def _kind(value: object) -> str:
    names = {
        dict: "an object",
        list: "a list",
        str: "a string",
        bool: "a boolean",
        type(None): "empty",
    }
    return names.get(type(value), "a number")
