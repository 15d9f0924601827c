"""Making what a rank tells fit for JSON columns: no NaN, no NUL, no bottomless nesting."""

import math
from typing import Any

_MAX_DEPTH = 16
_MAX_TEXT = 64 * 1024


def storable(value: Any, depth: int = 0) -> Any:
    """The same value with what no database keeps written as text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return text(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else str(value)
    if depth >= _MAX_DEPTH:
        return "…"
    if isinstance(value, dict):
        return {text(str(key)): storable(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item, depth + 1) for item in value]
    return text(str(value))


def text(value: str) -> str:
    """Text that every database keeps: no NUL, no lone surrogates, not without end."""
    clean = value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    return clean if len(clean) <= _MAX_TEXT else clean[: _MAX_TEXT - 1] + "…"
