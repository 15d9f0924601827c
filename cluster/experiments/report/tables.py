"""The runs of an experiment as CSV."""

from collections.abc import Iterable, Sequence
from itertools import zip_longest

from trainhall.cluster.csv_text import csv_text
from trainhall.cluster.experiments.analysis.rows import FIGURES, RunRow


def to_csv(
    space: Iterable[str],
    runs: Iterable[RunRow],
    figures: Sequence[str] = FIGURES,
    rungs: Sequence[int] = (),
) -> str:
    """Return a line for each run; a value that was not measured is empty.

    Args:
        space: fields that vary.
        figures: names of those to write.
        rungs: steps of the rungs of early stopping; each has a column of the results there.
    """
    fields = list(space)
    at_rungs = [f"objective_at_step_{step}" for step in rungs]
    titles = [
        "trial", "repeat", "job_id", "state", *fields, "objective", *at_rungs, *figures, "reason",
    ]  # fmt: skip
    lines = (
        (
            run.trial,
            run.repeat,
            run.job_id,
            run.state,
            *(run.values.get(field) for field in fields),
            run.objective,
            *(result for _, result in zip_longest(rungs, run.results)),
            *(run.figures.get(name) for name in figures),
            run.reason,
        )
        for run in runs
    )
    return csv_text([titles, *lines])
