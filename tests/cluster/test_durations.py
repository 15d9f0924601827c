"""Durations with units."""

import json
from pathlib import Path

import pytest

from trainhall.cluster.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("90", 90.0), ("60s", 60.0), ("250ms", 0.25), ("10m", 600.0), ("10 min", 600.0),
     ("1.5h", 5400.0), ("2d", 172800.0), (15, 15.0), (0.5, 0.5)],
)  # fmt: skip
def test_parse_duration_takes_units(given: object, seconds: float) -> None:
    assert parse_duration(given) == seconds


@pytest.mark.parametrize("given", ["", "soon", "10 years", "5 s s", "1h30", True, None, "inf"])
def test_parse_duration_refuses_the_rest(given: object) -> None:
    with pytest.raises(ValueError, match="is not a duration, such as 90s, 10m or 2h"):
        parse_duration(given)


def test_format_duration_rounds_to_nearest() -> None:
    """The dashboard's test of `duration` has the same cases."""
    root = Path(__file__).parents[2]
    cases = json.loads((root / "dashboard" / "src" / "shared" / "durations.json").read_text())
    assert {seconds: format_duration(float(seconds)) for seconds in cases} == cases
    assert [format_duration(seconds) for seconds in (-1, 5.4, 5.5)] == ["0 s", "5 s", "6 s"]
