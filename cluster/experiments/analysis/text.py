"""Values, counts and lists as an analysis and its report write them."""

import json
from typing import Any, TypeGuard

from trainhall.training.common.units import figure

_LENGTH = 60


def is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def value_text(value: Any) -> str:
    """Return the value of a field: numbers are rounded, lists and objects are JSON."""
    if isinstance(value, float):
        return figure(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shortened(text, _LENGTH)


def shortened(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listing(names: list[str]) -> str:
    """Join names: a, b and c."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
