"""Following an experiment until all of its runs have ended."""

import math
from collections.abc import Callable
from typing import Any

from trainhall.cli.base.client import Client
from trainhall.cli.base.errors import FINAL, UNFINISHED
from trainhall.cli.base.output import label, notice
from trainhall.cli.experiments.summary import best_text, counts_text
from trainhall.cli.jobs.follow import POLL_SECONDS, deadline_after, readings
from trainhall.cluster.lifecycle.reasons import ReasonCode


def until_final(client: Client, experiment_id: str) -> int:
    """Print a line whenever runs start or end; return the exit code for the experiment's end, or
    101 once it has paused by itself.

    Ctrl-C leaves the experiment alone and returns 101.
    """
    shown = ""

    def show(experiment: Any) -> None:
        nonlocal shown
        if (line := _progress(experiment)) != shown:
            notice(line)
            shown = line

    try:
        return _print_end(_watch(client, experiment_id, math.inf, show))
    except KeyboardInterrupt:
        notice(
            f"\nThe experiment was not cancelled. Wait for it with `trainhall experiment wait "
            f"{experiment_id}`, cancel it with `trainhall experiment cancel {experiment_id}`."
        )
        return UNFINISHED


def wait(client: Client, experiment_id: str, timeout: float | None) -> int:
    """Wait in silence until all runs have ended, the experiment has paused by itself or `timeout`
    seconds passed; return the exit code for the end."""
    try:
        deadline = deadline_after(timeout)
        return _print_end(_watch(client, experiment_id, deadline, lambda _: None))
    except KeyboardInterrupt:
        return UNFINISHED


def _watch(client: Client, experiment_id: str, deadline: float, show: Callable[[Any], None]) -> Any:
    """Return the experiment once it has stopped, or as it was at the deadline."""
    found: Any = None
    for found in readings(client, f"/experiments/{experiment_id}", POLL_SECONDS, deadline):
        show(found)
        if has_stopped(found):
            break
    return found


def has_stopped(experiment: Any) -> bool:
    """Return whether all runs have ended, or none starts until a user decides."""
    paused_itself = experiment["reason_code"] == ReasonCode.PAUSED_UNRATED
    return experiment["finished_at"] is not None or paused_itself


def _progress(experiment: Any) -> str:
    parts = [counts_text(experiment)]
    if best := best_text(experiment):
        parts.append(f"best is {best}")
    if experiment["reason_code"] in (ReasonCode.TRIAL_NOT_RATED, ReasonCode.PAUSED_UNRATED):
        parts.append(experiment["reason"])
    return "; ".join(parts)


def _print_end(experiment: Any) -> int:
    if experiment["finished_at"] is None:
        notice(f"{label(experiment)} is still {experiment['state']}: {_progress(experiment)}")
        return UNFINISHED
    notice(f"{experiment['name']} {experiment['state']}: {experiment['reason']}")
    return FINAL[experiment["state"]]
