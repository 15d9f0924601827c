"""Last lines of a benchmark: each figure, and whether it meets its goal.

    <figure>: <value> (goal <limit>) ok|MISSED

A figure without a goal says neither. A benchmark measures and never fails: on a busy machine a
goal is missed through no fault of the program.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One measured number; at most one of the limits is given."""

    name: str
    value: float
    unit: str = ""
    at_most: float | None = None
    at_least: float | None = None

    def line(self) -> str:
        text = f"{self.name}: {_number(self.value)}{self._suffix()}"
        if self.at_most is not None:
            goal, met = f"<= {_number(self.at_most)}", self.value <= self.at_most
        elif self.at_least is not None:
            goal, met = f">= {_number(self.at_least)}", self.value >= self.at_least
        else:
            return text
        return f"{text} (goal {goal}{self._suffix()}) {'ok' if met else 'MISSED'}"

    def _suffix(self) -> str:
        return f" {self.unit}" if self.unit else ""


def report(*figures: Figure) -> None:
    """Print the last lines of a benchmark."""
    print()
    for figure in figures:
        print(figure.line(), flush=True)


def _number(value: float) -> str:
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
