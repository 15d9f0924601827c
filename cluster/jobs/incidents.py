"""The incidents of an attempt: what failed, what was done about it, and how long each part took.

An incident begins with a failure and ends with the next step: of the next attempt, or of the next
generation where ranks regroup in place. All of it is computed from what is stored of attempts.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from trainhall.cluster.durations import format_duration
from trainhall.cluster.lifecycle.host_report import parse_failure, reports_of
from trainhall.cluster.lifecycle.states import AttemptState
from trainhall.db.documents import GenerationRecord, GenerationStart
from trainhall.db.models import Attempt
from trainhall.db.views import Time, View
from trainhall.training.link import failure as link
from trainhall.training.link.failure import Cause


class Failure(View):
    """Why an attempt failed: its first failing rank."""

    rank: int | None = None
    exit_code: int | None = None
    """Set when the rank left on its own."""
    signal: int | None = None
    """Set when a signal ended the rank."""
    message: str
    log_tail: str = ""
    """Last lines of the rank's stderr."""
    cause: Cause = Cause.UNKNOWN
    """Most likely cause."""
    evidence: str = ""
    """Message, signal or exit code that the cause follows from."""
    node: str | None = None
    """Name of the rank's node."""
    step: int | None = None
    """Newest step that was finished before it."""


class Incident(View):
    """One failure and the recovery from it. A time that is not known, or not yet, is null."""

    generation: int
    """Generation of the ranks that failed."""
    failure: Failure
    is_move: bool
    """Nothing failed: the attempt left its devices as decided."""
    done: str
    """Action taken, as a sentence."""
    happened_at: Time | None
    """By the clock of the rank's host."""
    detected_at: Time | None
    """When the coordinator was informed, or declared the node lost."""
    regrouped_at: Time | None
    """When devices were granted, or the remaining ranks were informed."""
    loaded_at: Time | None
    """All ranks had their state and were about to train."""
    stepped_at: Time | None
    """The next step was done."""
    steps_redone: int | None
    """Steps that had been finished and were repeated."""
    detect_seconds: float | None
    regroup_seconds: float | None
    load_seconds: float | None
    step_seconds: float | None
    """Time from the loaded state to the next step."""
    total_seconds: float | None
    times: str
    """The known times and the repeated steps in one line; empty if none is known."""

    def summary(self) -> str:
        """Summarize it in one line."""
        return f"recovered from {self.failure.cause.label}: {self.times or self.done}"


def failure_view(stored: dict[str, Any] | None) -> Failure | None:
    """Build the view of a stored failure, also of one that another version stored."""
    failure = parse_failure(stored)
    return Failure.of(failure) if failure is not None else None


def incidents_of(attempt: Attempt, following: Attempt | None) -> list[Incident]:
    """Return the incidents of one attempt, oldest first.

    Args:
        following: the job's next attempt, if there is one.
    """
    found = [
        _in_place(attempt, before, after)
        for before, after in zip(attempt.generations, attempt.generations[1:], strict=False)
        if after.failure
    ]
    if attempt.failure:
        found.append(_at_the_end(attempt, following))
    return found


def newest_incident(attempts: Sequence[Attempt], generation: int) -> Incident | None:
    """Return the incident after which the last attempt's `generation` resumed."""
    *_, attempt = attempts
    if generation > 1:
        own = incidents_of(attempt, None)
        return next((i for i in own if i.generation == generation - 1), None)
    if len(attempts) < 2:
        return None
    return next(reversed(incidents_of(attempts[-2], attempt)), None)


def _start(attempt: Attempt, generation: int) -> GenerationStart | None:
    """Return how a generation began; None: it has taken no step."""
    start = attempt.began.get(generation)
    return start if start is not None and start.step is not None else None


def _in_place(attempt: Attempt, before: GenerationRecord, after: GenerationRecord) -> Incident:
    size, was = after.world_size, before.world_size
    change = "" if size == was else f", {was} → {size} ranks"
    return _incident(
        generation=before.generation,
        failure=_failure(after.failure),
        done=f"the remaining ranks regrouped in place as generation {after.generation}{change}",
        detected_at=after.time,
        regrouped_at=after.time,
        start=_start(attempt, after.generation),
    )


def _at_the_end(attempt: Attempt, following: Attempt | None) -> Incident:
    failure = _failure(attempt.failure)
    # Hosts that a regrouping left out have no part in how it ends.
    members = set(attempt.allocation.node_ids)
    reports = [report for node_id, report in reports_of(attempt).items() if node_id in members]
    ended = [report.ended_at for report in reports if report.ended_at]
    if attempt.state == AttemptState.LOST or not ended:
        detected = attempt.finished_at
    else:
        # Where one host's failure ends the others, it was reported before those had ended.
        detected = min([*ended, *([attempt.stopping_at] if attempt.stopping_at else [])])
    if following is None:
        done = "the attempt ended" if attempt.finished_at is not None else "its ranks were stopped"
    else:
        done = f"attempt {following.number} replaced it"
    # A preempted job then waits in the queue: that is no part of its recovery.
    moved = failure.cause.is_move
    return _incident(
        generation=attempt.generation,
        failure=failure,
        done=done,
        detected_at=None if moved else detected,
        regrouped_at=following.started_at if following is not None else None,
        start=_start(following, 1) if following is not None else None,
        first_step=following.first_step if following is not None else None,
    )


def _failure(stored: dict[str, Any] | None) -> link.Failure:
    failure = parse_failure(stored)
    assert failure is not None
    return failure


def _incident(
    *,
    generation: int,
    failure: link.Failure,
    done: str,
    detected_at: datetime | None,
    regrouped_at: datetime | None,
    start: GenerationStart | None,
    first_step: int | None = None,
) -> Incident:
    redone = None
    if start is not None:  # None of a script, which reports no start
        first_step = start.step
    if first_step is not None and failure.step is not None:
        redone = max(0, failure.step - first_step + 1)
    happened_at = _at(failure.time)
    loaded_at = _at(start.loaded) if start else None
    stepped_at = _at(start.stepped) if start else None
    incident = Incident(
        generation=generation,
        failure=Failure.model_validate(failure),
        is_move=failure.cause.is_move,
        done=done,
        happened_at=happened_at,
        detected_at=detected_at,
        regrouped_at=regrouped_at,
        loaded_at=loaded_at,
        stepped_at=stepped_at,
        steps_redone=redone,
        detect_seconds=_between(happened_at, detected_at),
        regroup_seconds=_between(detected_at, regrouped_at),
        load_seconds=_between(regrouped_at, loaded_at),
        step_seconds=_between(loaded_at, stepped_at),
        total_seconds=_between(happened_at, stepped_at),
        times="",
    )
    incident.times = _times(incident)
    return incident


def _times(incident: Incident) -> str:
    parts = [
        f"{what} {_span(seconds)}"
        for what, seconds in (
            ("detected in", incident.detect_seconds),
            ("regrouped in", incident.regroup_seconds),
            ("loaded in", incident.load_seconds),
            ("next step after", incident.step_seconds),
        )
        if seconds is not None
    ]
    redone = incident.steps_redone
    if redone is not None:
        parts.append(f"{redone} step{'s' if redone != 1 else ''} repeated")
    return ", ".join(parts)


def _span(seconds: float) -> str:
    """Format a duration: short ones in two digits, longer ones in minutes."""
    return f"{seconds:.2g} s" if seconds < 60 else format_duration(seconds)


def _at(seconds: float | None) -> datetime | None:
    """Return the time; None also where a host's clock gives no possible one."""
    try:
        return datetime.fromtimestamp(seconds, UTC) if seconds is not None else None
    except (OverflowError, ValueError, OSError):
        return None


def _between(begin: datetime | None, end: datetime | None) -> float | None:
    """Return the time between, never negative: hosts' clocks differ a little."""
    if begin is None or end is None:
        return None
    return max(0.0, (end - begin).total_seconds())
