"""How a check inside the spec names the field that it complains about."""

from typing import Any

from pydantic_core import PydanticCustomError


def problem_at(loc: str | tuple[str | int, ...], value: Any, message: str) -> PydanticCustomError:
    """An error about the field at `loc`, relative to the model whose validator raises it."""
    where = (loc,) if isinstance(loc, str) else loc
    return problems_at([(where, value, message)])


def problems_at(found: list[tuple[tuple[str | int, ...], Any, str]]) -> PydanticCustomError:
    """Several errors at once, each `(loc, value, message)`; pydantic keeps one per validator."""
    text = "; ".join(message for _, _, message in found)
    return PydanticCustomError("spec_problem", "{text}", {"text": text, "problems": found})
