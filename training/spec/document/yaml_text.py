"""YAML of plain data. Alone here, so that programs that speak JSON do without its modules."""

import re
from typing import Any

import yaml

from trainhall.training.spec.document.errors import (
    MAX_DEPTH,
    MAX_NODES,
    TOO_DEEP,
    TOO_MANY,
    SpecError,
    SpecProblem,
)


def load_yaml(text: str) -> Any:
    """Read a document of plain data, bounded in size and depth.

    Raises:
        SpecError: naming the line where the text breaks.
        RecursionError: it is nested too deep.
        ValueError: a value cannot be read.
    """
    try:
        return _read_bounded(text)
    except yaml.MarkedYAMLError as error:
        if "nesting depth" in str(error.problem):  # libyaml has a limit of its own
            raise SpecError([TOO_DEEP]) from None
        message = _yaml_message(error, text)
    except yaml.YAMLError as error:
        message = str(error).splitlines()[0]
    raise SpecError([SpecProblem("", f"not valid YAML: {message}")])


def _read_bounded(text: str) -> Any:
    """Read YAML without aliases (they allow exponential documents) and without deep nesting.

    The C parser builds its tree out of Python's reach, so its events are looked through first.
    """
    depth = nodes = 0
    for event in yaml.parse(text, Loader=_SpecLoader):
        if isinstance(event, yaml.AliasEvent):
            raise yaml.composer.ComposerError(
                problem="aliases are not supported",
                problem_mark=event.start_mark,  # type: ignore[arg-type] # the C parser's own class
            )
        nodes += isinstance(event, yaml.NodeEvent)
        if nodes > MAX_NODES:
            raise SpecError([TOO_MANY])
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise RecursionError
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return yaml.load(text, Loader=_SpecLoader)


class _SpecLoader(yaml.CSafeLoader):
    """Plain data only; a key that is given twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key.value!r} is given twice", key.start_mark
                )
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


# YAML 1.1, which PyYAML reads, takes 1e-4 for a text: a sweep would try the word.
_SpecLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)


def _yaml_message(error: yaml.MarkedYAMLError, text: str) -> str:
    """Return the error with its position, reworded for the most common mistakes."""
    mark, begin = error.problem_mark, error.context_mark
    if mark is None:
        return str(error.problem)
    line = [*text.split("\n"), ""][mark.line]
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return f"line {mark.line + 1}: tabs are not allowed for indentation; use spaces"
    # The parser stumbles over whatever follows, perhaps many lines below.
    opened = {"while parsing a flow mapping": "{", "while parsing a flow sequence": "["}
    if begin is not None and error.context in opened:
        sign = opened[error.context]
        return f"line {begin.line + 1}, column {begin.column + 1}: this {sign!r} is not closed"
    return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
