"""Sanitizing of text and JSON that come from outside, before they are stored or answered with."""

import math
from typing import Any

MAX_TEXT = 64 * 1024
_MAX_DEPTH = 16


def sanitize_text(text: str, max_length: int = MAX_TEXT) -> str:
    """Replace what a database or a JSON reader refuses: NUL and halves of surrogate pairs.

    Text of more than `max_length` characters is cut, and ends in “…”.
    """
    clean = text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
    return clean if len(clean) <= max_length else clean[: max_length - 1] + "…"


def sanitize_json(value: Any, _depth: int = 0) -> Any:
    """Make a value fit for a JSON column.

    NaN, infinities and integers of more than 64 bits become text, text is sanitized, and what is
    nested deeper than 16 levels is left out.
    """
    if isinstance(value, float):
        return number_or_text(value)
    if isinstance(value, str):
        return sanitize_text(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else str(value)
    if _depth >= _MAX_DEPTH:
        return "…"
    if isinstance(value, dict):
        return {
            sanitize_text(str(key)): sanitize_json(item, _depth + 1) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [sanitize_json(item, _depth + 1) for item in value]
    return sanitize_text(str(value))


def sanitize_metrics(value: Any) -> dict[str, float | str]:
    """Return the numbers of an object, and the text that stands for those that are not finite;
    whatever else there is, is left out."""
    found = sanitize_json(value) if isinstance(value, dict) else {}
    return {
        name: item
        for name, item in found.items()
        if isinstance(item, int | float | str) and not isinstance(item, bool)
    }


def number_or_text(value: float) -> float | str:
    """Return the value itself, or "NaN", "Infinity" or "-Infinity"."""
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
