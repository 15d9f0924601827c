"""Durations as people write them: 90, 90s, 10m, 1.5h, 2d."""

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
