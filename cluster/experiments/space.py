"""The space of an experiment: for each field of the job spec that varies, which values it takes."""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from trainhall.training.spec.problems import problem_at

FORMS = (
    "must be a list of values, {range: [low, high]}, {range: [low, high], step: 1} or "
    "{log: [low, high]}"
)
MAX_VALUES = 1000
_LARGEST = 1e100
"""Limit of the numbers of a range: it leaves room to compute with them."""
_DIGITS = 6
"""Significant digits of a value that is drawn: more would only make names and tables longer."""


@dataclass(frozen=True)
class Dimension:
    """Values of one field: some, or all numbers from `low` to `high`."""

    given: Any
    """As it was given."""
    values: tuple[Any, ...] | None = None
    low: float = 0.0
    high: float = 0.0
    is_log: bool = False

    def draw(self, chance: random.Random) -> Any:
        if self.values is not None:
            return chance.choice(self.values)
        if self.is_log:
            drawn = math.exp(chance.uniform(math.log(self.low), math.log(self.high)))
        else:
            drawn = chance.uniform(self.low, self.high)
        return self.rounded(drawn)

    def rounded(self, drawn: float) -> float:
        return min(max(float(f"{drawn:.{_DIGITS}g}"), self.low), self.high)

    @property
    def is_ordered(self) -> bool:
        """Return whether near values are alike: those of a list need not be."""
        return not isinstance(self.given, list)

    @property
    def samples(self) -> tuple[Any, ...]:
        """The ends of a range and a number between them; of others all values."""
        if self.values is not None:
            return self.values
        return self.low, self.rounded(self.low + 0.618034 * (self.high - self.low)), self.high


def _read(value: Any) -> Dimension:
    if isinstance(value, list):
        return Dimension(value, values=_distinct(value))
    if not isinstance(value, dict) or not value:
        raise problem_at((), value, FORMS)
    kind = "log" if "log" in value else "range"
    known = ("log",) if kind == "log" else ("range", "step")
    if unknown := [key for key in value if key not in known]:
        raise problem_at((str(unknown[0]),), None, f"unknown key; the field {FORMS}")
    low, high = _bounds(kind, value.get(kind))
    if kind == "log":
        if low <= 0:
            raise problem_at(("log",), low, "must lie above 0 for a logarithmic scale")
        return Dimension(value, low=low, high=high, is_log=True)
    if "step" in value:
        return Dimension(value, values=_steps(low, high, value["step"]))
    return Dimension(value, low=low, high=high)


def _distinct(values: list[Any]) -> tuple[Any, ...]:
    if not values:
        raise problem_at((), None, "is empty: give at least one value")
    if len(values) > MAX_VALUES:
        raise problem_at(
            (), None, f"has {len(values):,} values; at most {MAX_VALUES:,} are allowed"
        )
    # 1, 1.0 and true are equal in Python, and different values of a job spec.
    seen: set[str] = set()
    for i, text in enumerate(map(repr, values)):
        if text in seen:
            raise problem_at((i,), values[i], "is given twice")
        seen.add(text)
    return tuple(values)


def _bounds(kind: str, given: Any) -> tuple[float, float]:
    if not isinstance(given, list) or len(given) != 2 or not all(map(_is_number, given)):
        raise problem_at((kind,), _shown(given), "must be two numbers, [low, high]")
    low, high = given
    if not low < high:
        raise problem_at((kind,), _shown(given), "the first number must be below the second")
    if not max(abs(low), abs(high)) < _LARGEST:
        raise problem_at((kind,), _shown(given), f"the numbers must be within ±{_LARGEST:g}")
    return low, high


def _steps(low: float, high: float, step: Any) -> tuple[float, ...]:
    if not _is_number(step) or step <= 0:
        raise problem_at(("step",), step, "must be a number above 0")
    if not step < _LARGEST:
        raise problem_at(("step",), _shown(step), f"must be within ±{_LARGEST:g}")
    # A sum of steps such as 0.1 may pass the end by a rounding error.
    steps = (high - low) / step + 1e-9
    if not steps < MAX_VALUES:
        message = f"makes more than the {MAX_VALUES:,} values that are allowed"
        raise problem_at(("step",), step, message)
    count = math.floor(steps) + 1
    whole = all(isinstance(number, int) for number in (low, step))
    values = (low + i * step for i in range(count))
    rounded = tuple(value if whole else float(f"{value:.12g}") for value in values)
    if len(set(rounded)) < count:
        message = "is too small beside the numbers of the range: values have 12 digits"
        raise problem_at(("step",), step, message)
    return rounded


def _is_number(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: Any) -> str | None:
    return None if value is None else str(value)[:80]


_SCHEMA = {
    "anyOf": [
        {"type": "array", "items": {}, "minItems": 1},
        {
            "type": "object",
            "properties": {
                "range": {"type": "array", "items": {"type": "number"}},
                "step": {"type": "number", "exclusiveMinimum": 0},
                "log": {"type": "array", "items": {"type": "number"}},
            },
        },
    ]
}
GivenDimension = Annotated[
    Dimension,
    PlainValidator(_read),
    PlainSerializer(lambda dimension: dimension.given),
    WithJsonSchema(_SCHEMA),
]


def replace_field(document: dict[str, Any], field: str, value: Any) -> None:
    """Replace a value of a job spec's document by its dotted field.

    Raises:
        ValueError: a part of the field is no object.
    """
    *parents, last = field.split(".")
    node = document
    for i, key in enumerate(parents):
        child = node.get(key)
        if child is None:
            child = node[key] = {}
        if not isinstance(child, dict):
            raise ValueError(f"{'.'.join(parents[: i + 1])} of the job has no keys")
        node = child
    node[last] = value


def overlapping(fields: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return two fields of which the first contains the second."""
    for field in fields:
        parts = field.split(".")
        for end in range(1, len(parts)):
            if (outer := ".".join(parts[:end])) in fields:
                return outer, field
    return None
