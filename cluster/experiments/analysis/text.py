"""Figures and values as an analysis and its report write them."""

import json
from typing import Any, TypeGuard

_LENGTH = 60
_LARGE = 1e9
"""From here on numbers are written as powers of ten."""


def is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def figure(value: float) -> str:
    """Return a measured number in four digits."""
    if isinstance(value, int) and abs(value) < 10**6:
        return str(value)
    if 1e4 <= abs(value) < _LARGE:
        return f"{float(f'{value:.4g}'):,.0f}"
    return f"{value:.4g}"


def percent(share: float) -> str:
    """Return a share as whole percents, a smaller one in two digits."""
    return f"{100 * share:.0f} %" if not 1e-5 < share < 0.01 else f"{100 * share:.2g} %"


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
