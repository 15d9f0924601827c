"""Findings about a benchmark, as short sentences."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from trainhall.cluster.experiments.analysis.comparisons import ONE_RUN, TOO_FEW, Verdict, compare
from trainhall.cluster.experiments.analysis.findings import (
    cost,
    failures,
    precision,
    progress,
)
from trainhall.cluster.experiments.analysis.intervals import LEVEL_PERCENT
from trainhall.cluster.experiments.analysis.rows import ExperimentRow, TrialRow, field_labels
from trainhall.cluster.experiments.analysis.text import count, listing, shortened, value_text
from trainhall.cluster.experiments.analysis.views import BenchmarkRow
from trainhall.training.common.units import brief, figure, percent, size_text

_LISTED = 24
"""Most cells that are compared in sentences; the table has all."""
_REASONS = 5
_REASON_LENGTH = 200
_VERDICTS = {
    Verdict.BETTER: "better",
    Verdict.WORSE: "worse",
    Verdict.NO_DIFFERENCE: "no difference shown",
}
_OPTIONAL = {
    "communication_share": "communication",
    "model_flops_utilization": "model FLOP utilization",
    "energy_per_sample": "energy",
}
"""Figures that depend on the devices, with their names in a sentence."""


def benchmark_findings(
    experiment: ExperimentRow,
    trials: Sequence[TrialRow],
    ranked: Sequence[TrialRow],
    rows: Sequence[BenchmarkRow],
) -> list[str]:
    """Return the findings, the most important first.

    Args:
        ranked: cells that have an objective, the best first.
        rows: one for each of `trials`.
    """
    labels = field_labels(experiment.space)
    runs = [run for trial in trials for run in trial.runs]
    return [
        *progress(experiment, runs),
        *_best(experiment, ranked, rows, labels),
        *_against_baseline(experiment, rows, labels),
        *cannot_run(trials, labels),
        *failures([run for run in runs if run.can_run]),
        *interrupted(rows, labels),
        *shared_hosts(rows, labels),
        *_predictions(rows, labels),
        *_not_measured(rows),
        *cost(runs),
    ]


def cell_text(values: Mapping[str, object], labels: Mapping[str, str]) -> str:
    """Return the values of a cell, as `strategy ddp, workers 2`."""
    return ", ".join(f"{labels.get(name, name)} {value_text(v)}" for name, v in values.items())


def _best(
    experiment: ExperimentRow,
    ranked: Sequence[TrialRow],
    rows: Sequence[BenchmarkRow],
    labels: Mapping[str, str],
) -> Iterator[str]:
    if not ranked:
        yield f"No combination has a value of {experiment.metric} for every repeat yet."
        return
    best = ranked[0]
    assert best.objective is not None
    goal = "highest" if experiment.sign < 0 else "lowest"
    value = f"{figure(best.objective)}{precision(experiment.metric, best.objectives)}"
    yield f"The {goal} {experiment.metric}, {value}, has {cell_text(best.values, labels)}."
    # The baseline is compared by ratios, which may show a difference that their intervals do not.
    if not {row.trial for row in rows if row.is_baseline} & {each.trial for each in ranked[:2]}:
        yield from (each.text for each in compare(experiment, ranked) if each.field is None)


def _against_baseline(
    experiment: ExperimentRow, rows: Sequence[BenchmarkRow], labels: Mapping[str, str]
) -> Iterator[str]:
    baseline = next((row for row in rows if row.is_baseline), None)
    if baseline is None:
        return
    name = cell_text(baseline.values, labels)
    if baseline.objective is None:
        yield f"The baseline, {name}, has no value of {experiment.metric} for every repeat yet."
        return
    yield f"The baseline is {name}, with {experiment.metric} {figure(baseline.objective)}."
    compared = [row for row in rows if row.ratio is not None]
    for row in compared[:_LISTED]:
        yield f"{cell_text(row.values, labels)}: {_ratio(row)}."
    if len(compared) > _LISTED:
        yield f"The table compares {len(compared) - _LISTED} more with the baseline."


def _ratio(row: BenchmarkRow) -> str:
    assert row.ratio is not None
    text = f"{figure(row.ratio)} × the baseline"
    if row.ratio_interval is None:
        return f"{text}; {ONE_RUN}"
    low, high = map(figure, row.ratio_interval)
    text += f" ({LEVEL_PERCENT} % interval {low} to {high})"
    if row.verdict is None or row.verdict is Verdict.TOO_FEW_RUNS:
        return f"{text}; {TOO_FEW}"
    return f"{text}: {_VERDICTS[row.verdict]}"


def cannot_run(trials: Sequence[TrialRow], labels: Mapping[str, str]) -> Iterator[str]:
    refused = [trial for trial in trials if not trial.runs[0].can_run]
    if not refused:
        return
    yield f"{count(len(refused), 'combination')} of {len(trials):,} cannot run."
    for trial in refused[:_REASONS]:
        reason = shortened(trial.reason, _REASON_LENGTH)
        yield f"{cell_text(trial.values, labels)} {reason}."


def interrupted(rows: Sequence[BenchmarkRow], labels: Mapping[str, str]) -> Iterator[str]:
    found = [row for row in rows if row.interruptions]
    if found:
        what = shortened(found[0].interruptions[0], _REASON_LENGTH)
        yield (
            f"{count(len(found), 'combination')} {'was' if len(found) == 1 else 'were'} measured "
            f"over an interruption, such as {cell_text(found[0].values, labels)}, {what}."
        )


def shared_hosts(rows: Sequence[BenchmarkRow], labels: Mapping[str, str]) -> Iterator[str]:
    shared = [row for row in rows if row.shared_with]
    if not shared:
        return
    first = shared[0]
    others = listing(first.shared_with[:3])
    yield (
        f"{count(len(shared), 'combination')} shared hosts with other jobs, such as "
        f"{cell_text(first.values, labels)} with {others}: alone they may be faster."
    )


def _predictions(rows: Sequence[BenchmarkRow], labels: Mapping[str, str]) -> Iterator[str]:
    """Yield by how much what was measured differs from the predictions of the plans."""
    cells = [(cell_text(row.values, labels), row, row.predicted) for row in rows]
    times = [
        _Compared(cell, plan.step_seconds, row.step_seconds)
        for cell, row, plan in cells
        if plan is not None and row.step_seconds is not None
    ]
    memories = [
        _Compared(cell, plan.peak_memory_bytes, plan.measured_memory_bytes)
        for cell, _, plan in cells
        if plan is not None and plan.measured_memory_bytes is not None
    ]
    yield from _errors("step time", times, brief)
    yield from _errors("memory", memories, lambda size: size_text(int(size)))
    if times and not memories:
        yield (
            "Predictions of memory are not compared: that of tensors was not measured, as always "
            "on a CPU."
        )


@dataclass(frozen=True)
class _Compared:
    """A prediction for a cell and what was measured."""

    cell: str
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Share of the measured value."""
        return abs(self.predicted / self.measured - 1)


def _errors(
    what: str, compared: Sequence[_Compared], text: Callable[[float], str]
) -> Iterator[str]:
    if not compared:
        return
    worst = max(compared, key=lambda each: each.error)
    where = f"{worst.cell}: predicted {text(worst.predicted)}, measured {text(worst.measured)}"
    if len(compared) == 1:
        yield f"The predicted {what} is off by {percent(worst.error)} ({where})."
        return
    middle = median(each.error for each in compared)
    yield (
        f"The predicted {what} is off by {percent(middle)} in the median of "
        f"{count(len(compared), 'combination')}, by {percent(worst.error)} at worst ({where})."
    )


def _not_measured(rows: Sequence[BenchmarkRow]) -> Iterator[str]:
    if not any(row.completed for row in rows):
        return
    missing = [
        text for name, text in _OPTIONAL.items() if all(getattr(row, name) is None for row in rows)
    ]
    if missing:
        yield f"Not measured: {listing(missing)}."
