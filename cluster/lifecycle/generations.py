"""The generations of an attempt: who joined, what was lost, when each took its first step."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from trainhall.cluster.lifecycle.jobs import set_reason
from trainhall.cluster.lifecycle.reasons import ReasonCode, running
from trainhall.cluster.lifecycle.states import AttemptState, JobState
from trainhall.db.documents import Allocation, GenerationStart
from trainhall.db.models import Attempt, Job


def regroups_in_place(spec: Mapping[str, Any]) -> bool:
    """Return whether ranks of a stored spec keep their state and continue when one dies.

    Under `ddp` each of them holds the whole state.
    """
    return spec.get("task") is not None and bool(spec["parallelism"]["strategy"] == "ddp")


def member_since(attempt: Attempt, node_id: str) -> int:
    """Return the generation from which on a host has been part of the attempt without a break; of
    one that a regrouping left out, of its last stay."""
    first = attempt.generation
    is_member = False
    for record in reversed(attempt.generations):
        if record.allocation.host(node_id) is not None:
            first, is_member = record.generation, True
        elif is_member:
            break
    return first


def newest_broken_generation(attempt: Attempt) -> int:
    """Return the newest generation of the attempt that has lost a rank; 0: none has."""
    lost = [record.generation for record in attempt.generations if record.failure is not None]
    return max(lost, default=1) - 1


def holds(allocation: Allocation, node_id: str, device_indices: Iterable[int]) -> bool:
    """Return whether an allocation has one of these devices."""
    return not allocation.devices.isdisjoint((node_id, index) for index in device_indices)


def note_full_size(job: Job, attempt: Attempt) -> str | None:
    """Replace the reason of a regrouping, now that the generation has taken a step, by that of a
    running attempt. One that shrank without a user's request keeps its reason.

    Returns:
        The attempt's new reason; None: it keeps the one that it has.
    """
    if len(attempt.generations) < 2 or not (
        job.attempt == attempt.number
        and job.state == JobState.RUNNING.value
        and attempt.state == AttemptState.RUNNING.value
    ):
        return None
    before, current = attempt.generations[-2:]
    resized = current.reason_code == ReasonCode.RESIZED
    if current.world_size < before.world_size and not resized:
        return None
    reason = running(current.world_size, current.allocation.node_names)
    if job.reason_code == current.reason_code:  # else a user has asked for something since
        set_reason(job, reason)
    set_reason(attempt, reason)
    return reason.text


def note_first_step(
    attempt: Attempt, generation: int, loaded: float, stepped: float, step: int
) -> None:
    """Note when a generation had its state and when it had taken its first step, `step`."""
    known = attempt.began.get(generation, GenerationStart())
    start = replace(known, loaded=loaded, stepped=stepped, step=step)
    attempt.began = {**attempt.began, generation: start}


def note_restart_point(attempt: Attempt, generation: int, step: int, since: int) -> None:
    """Note that a generation resumed from a checkpoint, at `step`: the ranks that had the state of
    the one before are gone, and what they write from there on is superseded.

    Args:
        since: the earliest generation in which one of its processes began.
    """
    known = attempt.began.get(generation, GenerationStart())
    start = replace(known, restart_step=step, since=since)
    attempt.began = {**attempt.began, generation: start}


def has_stepped(attempt: Attempt, generation: int) -> bool:
    start = attempt.began.get(generation)
    return start is not None and start.step is not None
