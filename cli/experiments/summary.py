"""Texts about an experiment that several commands print."""

from collections.abc import Iterable, Sequence

from trainhall.cli.base import output as out
from trainhall.cluster.experiments.means import mean_at_rung, mean_of_repeats
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


def objective_text(value: float | None, step: int | None) -> str:
    """Format an objective.

    Args:
        step: of the rung of early stopping that it is from; None: the run has completed.
    """
    return out.number(value) + ("" if step is None else f" at step {step:,}")


def trial_means(runs: Iterable[out.Json]) -> dict[int, tuple[float, int | None]]:
    """Return the mean objective of each trial whose repeats all have a value; until all have
    completed, that at the last rung of early stopping that they share, with its step."""
    trials: dict[int, list[out.Json]] = {}
    for run in runs:
        trials.setdefault(run["number"], []).append(run)
    means = ((number, _mean(repeats)) for number, repeats in trials.items())
    return {number: mean for number, mean in means if mean is not None}


def _mean(repeats: Sequence[out.Json]) -> tuple[float, int | None] | None:
    objectives = [run["objective"] for run in repeats]
    if None in objectives:
        return None
    if all(run["objective_step"] is None for run in repeats):
        return mean_of_repeats(objectives), None
    found = mean_at_rung([result["value"] for result in run["results"]] for run in repeats)
    if found is None:
        return None
    rung, mean = found
    return mean, repeats[0]["results"][rung - 1]["step"]
