"""Errors of a spec: each with the field it is about, in the words of a YAML or JSON author."""

import difflib
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

UNKNOWN_KEY = "unknown key"

INTEGER = "must be an integer"
NUMBER = "must be a number"
_OBJECT = "must be an object"
_PLAIN = {
    "missing": "is missing",
    "extra_forbidden": UNKNOWN_KEY,
    "unexpected_keyword_argument": UNKNOWN_KEY,
    "int_type": INTEGER,
    "int_parsing": INTEGER,
    "int_parsing_size": "is too large",
    "int_from_float": INTEGER,
    "float_type": NUMBER,
    "float_parsing": NUMBER,
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be a string",
    "list_type": "must be a list",
    "dict_type": _OBJECT,
    "mapping_type": _OBJECT,
    "dataclass_type": _OBJECT,
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "json_invalid": "is not valid JSON",
}
_BOUNDS = {
    "greater_than_equal": ("must be at least", "ge"),
    "greater_than": ("must be more than", "gt"),
    "less_than_equal": ("must be at most", "le"),
    "less_than": ("must be less than", "lt"),
}
VARIABLE_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"
PYTHON_VERSION = r"^3\.\d{1,2}$"
DATA_NAME = r"^[A-Za-z][A-Za-z0-9_-]{0,63}$"
HEADER_NAME = r"^[A-Za-z0-9_-]{1,64}$"
HEX_SHA256 = r"^[0-9a-f]{64}$"
IMAGE = (
    r"^([a-z0-9][a-z0-9.-]*(:\d{1,5})?/)?[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)*"
    r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?$"
)
_PATTERNS = {
    VARIABLE_NAME: "must be a letter or _, then letters, digits or _",
    IMAGE: "must name an image, such as pytorch/pytorch:latest or registry.lab:5000/team/train",
    PYTHON_VERSION: "must be a version of Python 3, such as 3.12",
    DATA_NAME: "must be a letter, then at most 63 letters, digits, _ or -",
    HEADER_NAME: "must be the name of a header: at most 64 letters, digits, - or _",
    HEX_SHA256: "must be a SHA-256: 64 digits 0-9 and a-f",
}
_LARGEST_PLAIN = 10**7
"""Larger round bounds are written as powers of ten."""


def problem_at(loc: str | tuple[str | int, ...], value: Any, message: str) -> PydanticCustomError:
    """Return an error about the field at `loc`, relative to the model whose validator raises it."""
    where = (loc,) if isinstance(loc, str) else loc
    return problems_at([(where, value, message)])


def problems_at(found: list[tuple[tuple[str | int, ...], Any, str]]) -> PydanticCustomError:
    """Return several `(loc, value, message)` as one error: pydantic keeps one per validator."""
    text = "; ".join(message for _, _, message in found)
    return PydanticCustomError("spec_problem", "{text}", {"text": text, "problems": found})


def problems_in(error: ValidationError) -> list[tuple[tuple[str | int, ...], Any, str]]:
    """Return every error as `(loc, value, message)`, with those of `problems_at` taken apart."""
    found = []
    for item in error.errors(include_url=False):
        nested = item.get("ctx", {}).get("problems") if item["type"] == "spec_problem" else None
        for where, value, message in nested or [((), item["input"], error_message(item))]:
            found.append(((*item["loc"], *where), value, message))
    return found


def error_message(error: Mapping[str, Any]) -> str:
    """Return the message for one pydantic error (an item of `ValidationError.errors()`).

    Unknown kinds keep pydantic's message.
    """
    kind, given = error["type"], error.get("input")
    if kind == "string_type" and isinstance(given, bool | int | float):
        return "must be a string; put it in quotes"
    if kind == "string_type" and given is None:
        return "is empty; it must be a string"
    if kind in _PLAIN:
        return _PLAIN[kind]
    try:
        message = _with_context(kind, error.get("ctx") or {}, given)
    except KeyError:  # pydantic leaves the context out for the keys of an object
        message = None
    return message or str(error["msg"]).removeprefix("Value error, ")


def display_value(value: object) -> str:
    """Return a wrong value as its author wrote it: `true`, not Python's `True`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)


def _with_context(kind: str, context: Mapping[str, Any], given: object) -> str | None:
    if kind in _BOUNDS:
        message, key = _BOUNDS[kind]
        return f"{message} {_bound(context[key])}"
    if kind in ("enum", "literal_error"):
        return _choice(str(context["expected"]), given)
    if kind in ("string_too_short", "too_short"):
        least = context["min_length"]
        what = "characters" if kind == "string_too_short" else "entries"
        return "must not be empty" if least == 1 else f"must have at least {least} {what}"
    if kind in ("string_too_long", "too_long"):
        what = "characters" if kind == "string_too_long" else "entries"
        return f"may have at most {context['max_length']} {what}"
    if kind == "string_pattern_mismatch":
        return _PATTERNS.get(context["pattern"], f"must have the form {context['pattern']}")
    return None


def _choice(expected: str, given: object) -> str:
    # Pydantic lists them as "'a', 'b' or 'c'".
    allowed = [word.strip(" '") for word in expected.replace(" or ", ", ").split(",")]
    if len(allowed) == 1:
        return f"must be {allowed[0]}"
    message = f"must be one of {', '.join(allowed)}"
    near = difflib.get_close_matches(str(given).lower(), allowed, n=1, cutoff=0.75)
    return f"{message}; did you mean {near[0]}?" if near else message


def _bound(value: float) -> str:
    if isinstance(value, int) and abs(value) > _LARGEST_PLAIN:
        for exponent in range(8, 20):
            if value == 10**exponent:
                return f"10^{exponent}"
    return f"{value:,}" if isinstance(value, int) else f"{value:,g}"
