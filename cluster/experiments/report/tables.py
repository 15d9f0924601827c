"""The runs of an experiment as CSV."""

import csv
import io
import json
from collections.abc import Iterable
from typing import Any

from trainhall.cluster.experiments.analysis.rows import FIGURES, RunRow

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def to_csv(space: Iterable[str], runs: Iterable[RunRow]) -> str:
    """Return a line for each run; a value that was not measured is empty.

    Args:
        space: fields that vary.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    fields = list(space)
    titles = ["trial", "repeat", "job_id", "state", *fields, "objective", *FIGURES, "reason"]
    writer.writerow(map(_cell, titles))
    for run in runs:
        writer.writerow(
            _cell(value)
            for value in (
                run.trial,
                run.repeat,
                run.job_id,
                run.state,
                *(run.values.get(field) for field in fields),
                run.objective,
                *(run.figures.get(name) for name in FIGURES),
                run.reason,
            )
        )
    return out.getvalue()


def _cell(value: Any) -> Any:
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    # A spreadsheet would compute it.
    return f"'{text}" if text.startswith(_FORMULA) else text
