"""The runs of an experiment as CSV."""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from typing import Any

from trainhall.cluster.experiments.analysis.rows import FIGURES, RunRow

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def to_csv(space: Iterable[str], runs: Iterable[RunRow], figures: Sequence[str] = FIGURES) -> str:
    """Return a line for each run; a value that was not measured is empty.

    Args:
        space: fields that vary.
        figures: names of those to write.
    """
    fields = list(space)
    titles = ["trial", "repeat", "job_id", "state", *fields, "objective", *figures, "reason"]
    lines = (
        (
            run.trial,
            run.repeat,
            run.job_id,
            run.state,
            *(run.values.get(field) for field in fields),
            run.objective,
            *(run.figures.get(name) for name in figures),
            run.reason,
        )
        for run in runs
    )
    return csv_text([titles, *lines])


def csv_text(lines: Iterable[Iterable[Any]]) -> str:
    """Write lines of values; lists and objects are JSON, and None is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for line in lines:
        writer.writerow(map(_cell, line))
    return out.getvalue()


def _cell(value: Any) -> Any:
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    # A spreadsheet would compute it.
    return f"'{text}" if text.startswith(_FORMULA) else text
