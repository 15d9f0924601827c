"""Progress of an environment, in the words that a job shows while it starts."""

import re
from collections.abc import Callable

_STARTS = re.compile(r"\s*(?P<work>Downloading|Building|Updating) (?P<what>\S.*)")
_ENDS = re.compile(r"\s*(?P<work>Downloaded|Built|Updated) (?P<name>\S+)")
_STARTED_BY = {"Downloaded": "Downloading", "Built": "Building", "Updated": "Updating"}
_SHOWN = 3


class PreparationProgress:
    """
    Args:
        report: takes the words, whenever they change.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._step = ""
        self._busy: dict[tuple[str, str], str] = {}
        """By work and package: the package with its size."""

    def begin(self, step: str) -> None:
        """Begin a step of the preparation, such as `installing 12 packages`."""
        self._step = step
        self._busy.clear()
        self._show()

    def take_line(self, line: str) -> None:
        """Take a line of uv. It names packages that it builds, or that take long to download."""
        if found := _STARTS.fullmatch(line):
            self._busy[found["work"], found["what"].split()[0]] = found["what"]
        elif found := _ENDS.match(line):
            self._busy.pop((_STARTED_BY[found["work"]], found["name"]), None)
        else:
            return
        self._show()

    def _show(self) -> None:
        works: dict[str, list[str]] = {}
        for (work, _), what in self._busy.items():
            works.setdefault(work.lower(), []).append(what)
        parts = [f"{work} {_listed(names)}" for work, names in works.items()]
        self._report(": ".join(filter(None, [self._step, "; ".join(parts)])))


def _listed(names: list[str]) -> str:
    left = len(names) - _SHOWN
    shown = ", ".join(names[:_SHOWN])
    return f"{shown} and {left} more" if left > 0 else shown
