"""Texts about an experiment that several commands print."""

from typing import Any

from trainhall.cli.base import output as out
from trainhall.cluster.experiments.means import mean_of_repeats
from trainhall.training.common.units import percent


def counts_text(experiment: out.Json) -> str:
    """Format the number of runs in each state."""
    return ", ".join(f"{n} {state}" for state, n in sorted(experiment["counts"].items()))


def best_text(experiment: out.Json) -> str:
    """Format the best trial so far; empty while there is none."""
    best = experiment["best"]
    if best is None:
        return ""
    metric = experiment["spec"]["objective"]["metric"]
    at = "" if best["step"] is None else f" at step {best['step']:,}"
    trials = ", ".join(str(number) for number in (best["trial"], *best["ties"]))
    return f"trial{'s' if best['ties'] else ''} {trials}, {out.metric(metric, best['value'])}{at}"


def steps_text(steps: out.Json) -> str:
    """Format the steps that runs took, beside those that all would take in full."""
    taken, in_full = steps["taken"], steps["in_full"]
    return f"{taken:,} of {in_full:,} that all runs in full would take ({percent(taken / in_full)})"


def trial_means(runs: list[out.Json]) -> dict[int, float]:
    """Return the mean objective of each trial whose repeats all have a value."""
    objectives: dict[int, list[Any]] = {}
    for run in runs:
        objectives.setdefault(run["number"], []).append(run["objective"])
    return {
        number: mean_of_repeats(values)
        for number, values in objectives.items()
        if None not in values
    }
