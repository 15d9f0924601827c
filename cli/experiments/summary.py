"""Texts about an experiment that several commands print."""

from statistics import mean

from trainhall.cli.base import output as out


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
    return f"trial {best['trial']}, {out.metric(metric, best['value'])}{at}"


def steps_text(steps: out.Json) -> str:
    """Format the steps that runs took, beside those that all would take in full."""
    taken, in_full = steps["taken"], steps["in_full"]
    return f"{taken:,} of {in_full:,} that all runs in full would take ({taken / in_full:.0%})"


def trial_means(runs: list[out.Json]) -> dict[int, float]:
    """Return the mean objective of each trial whose repeats all have a value."""
    objectives: dict[int, list[float | None]] = {}
    for run in runs:
        objectives.setdefault(run["number"], []).append(run["objective"])
    means = {}
    for number, values in objectives.items():
        known = [value for value in values if value is not None]
        if len(known) == len(values):
            means[number] = mean(known)  # unlike fmean, without an overflow
    return means
