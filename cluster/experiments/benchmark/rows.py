"""Rows of a benchmark: one for each cell, with its figures and its ratio to the baseline."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from trainhall.cluster.experiments.analysis.analyze import row_fields
from trainhall.cluster.experiments.analysis.comparisons import MIN_REPEATS, Verdict
from trainhall.cluster.experiments.analysis.figures import BENCHMARK_FIGURES
from trainhall.cluster.experiments.analysis.intervals import Interval, ratio_interval
from trainhall.cluster.experiments.analysis.rows import RunRow, TrialRow, known, trial_rows
from trainhall.cluster.experiments.analysis.text import listing
from trainhall.cluster.experiments.analysis.views import BenchmarkRow, Predicted
from trainhall.cluster.experiments.benchmark.cell import Cell, cell_of
from trainhall.cluster.experiments.means import mean_of_repeats
from trainhall.cluster.experiments.runs import document_of, is_baseline
from trainhall.training.spec import SpecError


@dataclass(frozen=True)
class Compared:
    """A cell against the baseline."""

    ratio: float
    interval: Interval | None
    verdict: Verdict


def cell_trials(job: Mapping[str, Any], runs: Iterable[RunRow]) -> list[TrialRow]:
    """Return the cells of runs, in the order of their numbers.

    Args:
        job: the job spec that every run starts from.
    """
    return trial_rows(with_derived(job, runs), BENCHMARK_FIGURES)


def with_derived(job: Mapping[str, Any], runs: Iterable[RunRow]) -> list[RunRow]:
    """Return runs with the figures that follow from their cells and plans."""
    return [_with_derived(job, run) for run in runs]


def benchmark_rows(
    spec: Mapping[str, Any], trials: Sequence[TrialRow], sign: int
) -> list[BenchmarkRow]:
    """Return the rows of cells.

    Args:
        spec: document of the experiment.
        sign: factor that makes lower values of the objective the better ones.
    """
    baseline = next((t for t in trials if is_baseline(spec.get("baseline"), t.values)), None)
    rows = [_row(spec["job"], trial, baseline, sign) for trial in trials]
    # Latencies alone would repeat what the shares of communication say.
    if not any(row.communication_bytes for row in rows):
        return rows
    return [row.model_copy(update={"compares_communication": _compares(row)}) for row in rows]


def _compares(row: BenchmarkRow) -> bool:
    return row.is_baseline or bool(row.communication_bytes or row.latency_seconds)


def _row(
    job: Mapping[str, Any], trial: TrialRow, baseline: TrialRow | None, sign: int
) -> BenchmarkRow:
    compared = compare(trial, baseline, sign)
    speedup = _speedup(trial, baseline)
    cell = asdict(_cell(job, trial.values))
    del cell["tokens_per_sample"]
    shared = dict.fromkeys(name for run in trial.runs for name in run.shared_with)
    return BenchmarkRow(
        **row_fields(trial),
        **cell,
        bandwidth=_bandwidth(trial),
        speedup=speedup.ratio if speedup is not None else None,
        speedup_interval=_ends(speedup),
        speedup_verdict=speedup.verdict if speedup is not None else None,
        compares_communication=False,
        predicted=_predicted(trial),
        shared_with=list(shared),
        interruptions=[_interrupted(run, trial) for run in trial.runs if run.interruptions],
        is_baseline=trial is baseline,
        ratio=compared.ratio if compared is not None else None,
        ratio_interval=_ends(compared),
        verdict=compared.verdict if compared is not None else None,
    )


def compare(trial: TrialRow, baseline: TrialRow | None, sign: int) -> Compared | None:
    """Compare a cell with the baseline; None: one of them has no objective, or it is itself."""
    if baseline is None or trial is baseline:
        return None
    if trial.objective is None or not baseline.objective:
        return None
    return _compared(trial.objectives, baseline.objectives, sign)


def _speedup(trial: TrialRow, baseline: TrialRow | None) -> Compared | None:
    """Compare the samples per second of a cell with the baseline's."""
    if baseline is None or trial is baseline:
        return None
    values, others = (known(each.runs, "samples_per_second") for each in (trial, baseline))
    return _compared(values, others, -1) if values and sum(others) else None


def _compared(values: Sequence[float], others: Sequence[float], sign: int) -> Compared:
    interval = ratio_interval(values, others)
    ratio = mean_of_repeats(values) / mean_of_repeats(others)
    return Compared(ratio, interval, _verdict(interval, min(len(values), len(others)), sign))


def _interrupted(run: RunRow, trial: TrialRow) -> str:
    """Return what happened to a run while it was measured."""
    text = f"repeat {run.repeat} interrupted" if len(trial.runs) > 1 else "interrupted"
    text += f": {'; '.join(dict.fromkeys(run.interruptions))}"
    if not run.measured_attempts:
        return text
    plural = "s" if len(run.measured_attempts) > 1 else ""
    numbers = listing([str(number) for number in run.measured_attempts])
    return f"{text}; its figures are of attempt{plural} {numbers}"


def _bandwidth(trial: TrialRow) -> float | None:
    """Return the bytes that a rank sends in a second of communication."""
    sent, seconds = trial.figures["communication_bytes"], trial.figures["latency_seconds"]
    return sent / seconds if sent is not None and seconds else None


def _verdict(interval: Interval | None, repeats: int, sign: int) -> Verdict:
    if interval is None or repeats < MIN_REPEATS:
        return Verdict.TOO_FEW_RUNS
    low, high = interval
    if low <= 1 <= high:
        return Verdict.NO_DIFFERENCE
    return Verdict.BETTER if sign * (low - 1) < 0 else Verdict.WORSE


def _ends(compared: Compared | None) -> list[float] | None:
    if compared is None or compared.interval is None:
        return None
    return list(compared.interval)


def _predicted(trial: TrialRow) -> Predicted | None:
    plan = next((run.plan for run in trial.runs if run.plan is not None), None)
    if plan is None:
        return None
    measured = plan.compared
    return Predicted(
        plan=plan.summary,
        peak_memory_bytes=plan.prediction.peak_memory_bytes,
        measured_memory_bytes=measured.peak_memory_bytes if measured is not None else None,
        step_seconds=plan.prediction.step_seconds,
        communication_bytes=plan.prediction.communication_bytes,
    )


def _cell(job: Mapping[str, Any], values: Mapping[str, Any]) -> Cell:
    try:
        return cell_of(document_of(job, values))
    except SpecError:
        return Cell()


def _with_derived(job: Mapping[str, Any], run: RunRow) -> RunRow:
    figures: dict[str, float | None] = {}
    tokens = _cell(job, run.values).tokens_per_sample
    rate = run.figures.get("samples_per_second")
    if tokens is not None and rate is not None:
        figures["tokens_per_second"] = rate * tokens
    if run.plan is not None and run.plan.measured is not None:
        figures["communication_bytes"] = run.plan.measured.communication_bytes
    return replace(run, figures={**figures, **run.figures}) if figures else run
