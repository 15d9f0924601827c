"""The runs of an experiment as CSV."""

from collections.abc import Iterable, Sequence

from trainhall.cluster.csv_text import csv_text
from trainhall.cluster.experiments.analysis.rows import FIGURES, RunRow


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
