"""How a check inside the spec names the field that it complains about."""

from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from trainhall.training.spec.wording import in_words


def problem_at(loc: str | tuple[str | int, ...], value: Any, message: str) -> PydanticCustomError:
    """An error about the field at `loc`, relative to the model whose validator raises it."""
    where = (loc,) if isinstance(loc, str) else loc
    return problems_at([(where, value, message)])


def problems_at(found: list[tuple[tuple[str | int, ...], Any, str]]) -> PydanticCustomError:
    """Several errors at once, each `(loc, value, message)`; pydantic keeps one per validator."""
    text = "; ".join(message for _, _, message in found)
    return PydanticCustomError("spec_problem", "{text}", {"text": text, "problems": found})


def problems_in(error: ValidationError) -> list[tuple[tuple[str | int, ...], Any, str]]:
    """Every error as `(loc, value, message)`, those that `problems_at` raised one by one."""
    found = []
    for item in error.errors(include_url=False):
        nested = item.get("ctx", {}).get("problems") if item["type"] == "spec_problem" else None
        for where, value, message in nested or [((), item["input"], in_words(item))]:
            found.append(((*item["loc"], *where), value, message))
    return found
