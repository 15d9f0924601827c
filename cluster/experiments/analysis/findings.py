"""Findings about an experiment, as short sentences."""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainhall.cluster.experiments.analysis.comparisons import TrialComparison
from trainhall.cluster.experiments.analysis.importance import FieldShare, Importances
from trainhall.cluster.experiments.analysis.intervals import (
    LEVEL_PERCENT,
    Interval,
    bounds_of,
    mean_interval,
)
from trainhall.cluster.experiments.analysis.rows import (
    ENDED,
    ExperimentRow,
    RunRow,
    TrialRow,
    field_labels,
)
from trainhall.cluster.experiments.analysis.text import (
    count,
    is_number,
    listing,
    shortened,
    value_text,
)
from trainhall.training.common.units import figure

_REASONS = 3
_REASON_LENGTH = 160
_NEAR = 0.02
"""Part of a continuous range that counts as its border."""
_VARYING = re.compile(r"[0-9a-f]{12}|\d+(?:\.\d+)?")
"""Parts that differ between reasons of one cause: ids, ranks, steps and sizes."""
_FIELDS_LISTED = 6
_TIES_LISTED = 6


def findings(
    experiment: ExperimentRow,
    trials: Sequence[TrialRow],
    ranked: Sequence[TrialRow],
    comparisons: Sequence[TrialComparison],
    importance: Importances,
) -> list[str]:
    """Return the findings, the most important first.

    Args:
        ranked: trials that have an objective, the best first.
    """
    runs = [run for trial in trials for run in trial.runs]
    labels = field_labels(experiment.space)
    return [
        *progress(experiment, runs),
        *_best(experiment, trials, ranked, labels),
        *_same_repeats(ranked),
        *(comparison.text for comparison in comparisons if comparison.field is None),
        *_importance(importance, labels),
        *_borders(experiment, ranked, importance, labels),
        *_stopped(experiment, runs),
        *failures(runs),
        *_failing_values(experiment.space, runs, labels),
        *_unrated(experiment, runs),
        *cost(runs),
    ]


def progress(experiment: ExperimentRow, runs: Sequence[RunRow]) -> Iterator[str]:
    if not experiment.is_finished:
        ended = sum(run.state in ENDED for run in runs)
        yield (
            f"The experiment is {experiment.state}: {ended:,} of {count(len(runs), 'run')} "
            f"{'has' if ended == 1 else 'have'} ended. Findings are about those and may change."
        )


def _best(
    experiment: ExperimentRow,
    trials: Sequence[TrialRow],
    ranked: Sequence[TrialRow],
    labels: Mapping[str, str],
) -> Iterator[str]:
    if not ranked:
        if any(run.state == "completed" for trial in trials for run in trial.runs):
            every = " for every repeat" if any(len(trial.runs) > 1 for trial in trials) else ""
            yield f"No trial has a value of {experiment.metric}{every}, so none is the best."
        else:
            yield "No run has completed, so no trial is the best."
            yield from _leading(experiment, trials, labels)
        return
    best = ranked[0]
    assert best.objective is not None
    values = _values(best, labels)
    value = f"the {_extreme(experiment)} {experiment.metric}, {figure(best.objective)}"
    tied = [str(trial.trial) for trial in ranked if trial.objective == best.objective]
    if len(tied) > 1:
        listed = tied[:_TIES_LISTED]
        more = [f"{len(tied) - len(listed)} more"] if len(tied) > len(listed) else []
        yield f"Trials {listing(listed + more)} share {value}; trial {best.trial} has {values}."
        return
    mean = precision(experiment.metric, best.objectives)
    yield f"Trial {best.trial} has {value}{mean}, with {values}."


def _same_repeats(ranked: Sequence[TrialRow]) -> Iterator[str]:
    """Yield that the spread over repeats is none of the seed's."""
    repeated = [trial.objectives for trial in ranked if len(trial.objectives) > 1]
    if repeated and all(len(set(objectives)) == 1 for objectives in repeated):
        yield (
            "All repeats of each trial have the same value: the seed has no effect. A script gets "
            "it as the parameter `seed`."
        )


def _leading(
    experiment: ExperimentRow, trials: Sequence[TrialRow], labels: Mapping[str, str]
) -> Iterator[str]:
    """Yield the trial that leads at the highest rung of early stopping reached."""
    at_rungs = [
        (trial, *trial.at_rung)
        for trial in trials
        if trial.at_rung is not None and trial.state != "stopped"
    ]
    if at_rungs:
        best, reached, value = min(at_rungs, key=lambda each: (-each[1], experiment.sign * each[2]))
        yield (
            f"At step {experiment.rungs[reached - 1]:,}, the highest rung reached so far, trial "
            f"{best.trial} has the {_extreme(experiment)} {experiment.metric}, {figure(value)}, "
            f"with {_values(best, labels)}."
        )


def _extreme(experiment: ExperimentRow) -> str:
    return "highest" if experiment.sign < 0 else "lowest"


def _values(trial: TrialRow, labels: Mapping[str, str]) -> str:
    return ", ".join(f"{labels.get(f, f)} {value_text(v)}" for f, v in trial.values.items())


def precision(metric: str, objectives: Sequence[float]) -> str:
    interval = mean_interval(objectives, bounds_of(metric, objectives)) if objectives else None
    if interval is None:
        return ""
    return f" (mean of {len(objectives)} runs, {_percent_interval(interval)})"


def _percent_interval(interval: Interval) -> str:
    low, high = map(figure, interval)
    return f"{LEVEL_PERCENT} % interval {low} to {high}"


def _importance(importance: Importances, labels: Mapping[str, str]) -> Iterator[str]:
    if importance.note and not importance.fields:
        yield importance.note
        return
    with_effect = [found for found in importance.fields if found.has_effect]
    without = [labels[found.field] for found in importance.fields if not found.has_effect]
    if with_effect:
        yield _most_important(with_effect[0], labels)
        if others := [labels[found.field] for found in with_effect[1:]]:
            yield f"{listing(others)} {'matters' if len(others) == 1 else 'matter'}, too."
    if without:
        listed = without[:_FIELDS_LISTED]
        more = [f"{len(without) - len(listed)} more"] if len(without) > len(listed) else []
        yield f"No effect shown for {listing(listed + more)}."


def _most_important(found: FieldShare, labels: Mapping[str, str]) -> str:
    share, low, high = (f"{100 * part:.0f}" for part in (found.share, *found.interval))
    return (
        f"{labels[found.field]} matters most for a good value: {share} % of the importance "
        f"({LEVEL_PERCENT} % interval {low} to {high} %)."
    )


def _borders(
    experiment: ExperimentRow,
    ranked: Sequence[TrialRow],
    importance: Importances,
    labels: Mapping[str, str],
) -> Iterator[str]:
    """Yield fields whose best value is the first or the last of its range, of those with an effect
    where that was estimated."""
    with_effect = [found.field for found in importance.fields if found.has_effect]
    fields = with_effect if importance.fields else list(experiment.space)
    for field in fields if ranked else []:
        dimension = experiment.space[field]
        end = _border(dimension, ranked[0].values.get(field))
        if end is not None:
            extreme, of = end
            more = "larger" if extreme == "largest" else "smaller"
            yield f"The best {labels[field]} is the {extreme} {of}: try {more} values."


def _border(dimension: Any, value: Any) -> tuple[str, str] | None:
    """Return the end of a dimension that a value lies at, and of what it is the end."""
    if not is_number(value):
        return None
    if isinstance(dimension, list):
        if len(dimension) < 3 or not all(map(is_number, dimension)):
            return None
        ordered = sorted(dimension)
        return _outside(value, ordered[1], ordered[-2], "of the list")
    if (step := dimension.get("step")) is not None:
        low, high = dimension["range"]
        # The last value may lie below the end of the range.
        is_short = high - low <= 1.5 * step
        return None if is_short else _outside(value, low + step / 2, high - step, "of its range")
    scale = math.log if "log" in dimension else float
    low, high = map(scale, dimension["log" if "log" in dimension else "range"])
    near = _NEAR * (high - low)
    return _outside(scale(value), low + near, high - near, "of its range, or close to it")


def _outside(value: float, low: float, high: float, of: str) -> tuple[str, str] | None:
    if low <= value <= high:
        return None
    return "smallest" if value < low else "largest", of


def _stopped(experiment: ExperimentRow, runs: Sequence[RunRow]) -> Iterator[str]:
    stopped = [run for run in runs if run.state == "stopped"]
    if not stopped:
        return
    verb, saved = "was" if len(stopped) == 1 else "were", ""
    if experiment.rungs:
        most = experiment.rungs[-1]
        steps = sum(most - (run.figures.get("steps") or 0) for run in stopped)
        saved = f" and saved {steps:,.0f} of the {most * len(runs):,} steps of all in full"
    yield (
        f"{len(stopped):,} of {count(len(runs), 'run')} {verb} stopped early{saved}; they cannot "
        "be the best, and for importance rank below those that went further."
    )


def failures(runs: Sequence[RunRow]) -> Iterator[str]:
    failed = [run for run in runs if run.state == "failed"]
    if not failed:
        return
    causes: dict[str, list[RunRow]] = defaultdict(list)
    for run in failed:
        causes[_VARYING.sub("…", run.reason)].append(run)
    top = sorted(causes.values(), key=len, reverse=True)[:_REASONS]
    texts = [f"{len(each)} × {_cause(each)}" for each in top]
    rest = len(failed) - sum(map(len, top))
    texts += [f"{rest} for other reasons"] if rest else []
    yield f"{len(failed):,} of {count(len(runs), 'run')} failed: {'; '.join(texts)}."


def _cause(runs: Sequence[RunRow]) -> str:
    reasons = {run.reason for run in runs}
    reason = _VARYING.sub("…", runs[0].reason) if len(reasons) > 1 else runs[0].reason
    return shortened(reason or "no reason known", _REASON_LENGTH)


def _failing_values(
    space: Mapping[str, Any], runs: Sequence[RunRow], labels: Mapping[str, str]
) -> Iterator[str]:
    """Yield values with which every run failed, while runs with other values completed."""
    if not any(run.state == "completed" for run in runs):
        return
    for field, dimension in space.items():
        if not isinstance(dimension, list) or len(dimension) < 2:
            continue
        states: dict[str, list[str]] = defaultdict(list)
        values: dict[str, Any] = {}
        for run in runs:
            if run.state in ("completed", "failed") and field in run.values:
                states[key := repr(run.values[field])].append(run.state)
                values[key] = run.values[field]
        for key, found in states.items():
            if len(found) > 1 and set(found) == {"failed"}:
                value = value_text(values[key])
                yield f"All {len(found)} runs with {labels[field]} {value} failed."


def _unrated(experiment: ExperimentRow, runs: Sequence[RunRow]) -> Iterator[str]:
    unrated = [run for run in runs if run.state == "completed" and run.objective is None]
    if unrated:
        yield (
            f"{count(len(unrated), 'run')} completed without a finite value of "
            f"{experiment.metric}: {shortened(unrated[0].reason, _REASON_LENGTH)}."
        )


def cost(runs: Sequence[RunRow]) -> Iterator[str]:
    total = sum(run.device_seconds for run in runs)
    if total <= 0:
        return
    failed = sum(run.device_seconds for run in runs if run.state == "failed")
    part = f", {_device_hours(failed)} of them in runs that failed" if failed else ""
    yield f"The runs used {_device_hours(total)} device-hours{part}."


def _device_hours(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.2g}"
