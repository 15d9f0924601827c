"""Durations as people write and read them: 90, 90s, 10m, 1.5h, 2d."""

import math
import re

_SECONDS = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(given: object) -> float:
    """Return a duration in seconds; a bare number counts seconds.

    Raises:
        ValueError: it is no duration.
    """
    if isinstance(given, int | float) and not isinstance(given, bool):
        return float(given)
    found = re.fullmatch(r"(-?\d+(?:\.\d*)?)\s*([a-z]*)", str(given).strip())
    if found is None or found[2] not in _SECONDS:
        raise ValueError(f"{given} is not a duration, such as 90s, 10m or 2h")
    return float(found[1]) * _SECONDS[found[2]]


def format_duration(seconds: float) -> str:
    """Format `75 s` as 1 min 15 s, `9000 s` as 2 h 30 min, rounded to the nearest of the smaller
    unit.

    The dashboard's shared/format.ts writes the same from 10 s on, and fractions below."""
    whole = _nearest(seconds, 1)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return _two(whole, 60, "min", 1, "s")
    whole = _nearest(seconds, 60)
    if whole < 86400:
        return _two(whole, 3600, "h", 60, "min")
    return _two(_nearest(seconds, 3600), 86400, "d", 3600, "h")


def _nearest(seconds: float, unit: int) -> int:
    """Return the nearest multiple of a unit; halves go up, as in JavaScript."""
    return math.floor(max(0.0, seconds) / unit + 0.5) * unit


def _two(seconds: int, large: int, large_unit: str, small: int, small_unit: str) -> str:
    first, rest = divmod(seconds, large)
    second = rest // small
    return f"{first} {large_unit}" + (f" {second} {small_unit}" if second else "")
