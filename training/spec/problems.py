"""Errors of the spec's own checks, each with the field it is about."""

from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from trainhall.training.spec.wording import error_message


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
