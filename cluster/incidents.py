"""The incidents of an attempt: what failed, what was done about it, and how long each part took.

An incident begins with a failure and ends with the next step: of the next attempt, or of the next
generation where ranks regroup in place. All of it is computed from what is stored of attempts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from trainhall.cluster.lifecycle import AttemptState
from trainhall.db.models import Attempt
from trainhall.training.cause import Cause


@dataclass(frozen=True)
class Incident:
    """One failure and the way back to work. A time that is not known, or not yet, is None."""

    generation: int
    """Of the ranks that failed."""
    failure: dict[str, Any]
    """A `trainhall.training.link.Failure`."""
    done: str
    """In words."""
    happened_at: datetime | None
    """By the clock of the rank's host."""
    detected_at: datetime | None
    """The coordinator heard of it, or gave the node up."""
    regrouped_at: datetime | None
    """Devices were granted, or the ranks that are left were told."""
    loaded_at: datetime | None
    """All ranks had their state and were about to train."""
    stepped_at: datetime | None
    """The next step was done."""
    steps_redone: int | None
    """Steps that had been taken and were taken again."""

    @property
    def detect_seconds(self) -> float | None:
        return _between(self.happened_at, self.detected_at)

    @property
    def regroup_seconds(self) -> float | None:
        return _between(self.detected_at, self.regrouped_at)

    @property
    def load_seconds(self) -> float | None:
        return _between(self.regrouped_at, self.loaded_at)

    @property
    def step_seconds(self) -> float | None:
        """From the loaded state to the next step."""
        return _between(self.loaded_at, self.stepped_at)

    @property
    def total_seconds(self) -> float | None:
        return _between(self.happened_at, self.stepped_at)

    def told(self) -> str:
        """In one line."""
        cause = Cause(self.failure.get("cause") or Cause.UNKNOWN)
        parts = [
            f"{seconds:.2g} s to {what}"
            for what, seconds in (
                ("detect", self.detect_seconds),
                ("regroup", self.regroup_seconds),
                ("load", self.load_seconds),
                ("the next step", self.step_seconds),
            )
            if seconds is not None
        ]
        if self.steps_redone is not None:
            n = self.steps_redone
            parts.append(f"{n} step{'s' if n != 1 else ''} done again")
        return f"recovered from {cause.told}: {', '.join(parts) or self.done}"


def incidents_of(attempt: Attempt, following: Attempt | None) -> list[Incident]:
    """Those of one attempt, the oldest first.

    Args:
        following: the job's next attempt, if there is one.
    """
    found = [
        _in_place(attempt, before, after)
        for before, after in zip(attempt.generations, attempt.generations[1:], strict=False)
        if after.get("failure")
    ]
    if attempt.failure:
        found.append(_at_the_end(attempt, following))
    return found


def newest_incident(attempts: Sequence[Attempt], generation: int) -> Incident | None:
    """The one that a generation of the last of these attempts has gone on from."""
    *_, attempt = attempts
    if generation > 1:
        own = incidents_of(attempt, None)
        return next((i for i in own if i.generation == generation - 1), None)
    if len(attempts) < 2:
        return None
    return next(reversed(incidents_of(attempts[-2], attempt)), None)


def began(attempt: Attempt, generation: int, loaded: float, stepped: float, step: int) -> None:
    """Note when a generation had its state and when it had taken its first step, `step`."""
    told = {"loaded": loaded, "stepped": stepped, "step": step}
    known = attempt.began.get(str(generation), {})
    attempt.began = {**attempt.began, str(generation): {**known, **told}}


def began_anew(attempt: Attempt, generation: int, step: int, since: int) -> None:
    """Note that a generation went on from a checkpoint, at `step`: those who had the state of the
    one before are gone, and what they write from there on is void.

    Args:
        since: the earliest generation in which one of its processes began.
    """
    known = attempt.began.get(str(generation), {})
    told = {**known, "anew": step, "since": since}
    attempt.began = {**attempt.began, str(generation): told}


def has_stepped(attempt: Attempt, generation: int) -> bool:
    return "step" in attempt.began.get(str(generation), {})


def _begun(attempt: Attempt, generation: int) -> dict[str, Any] | None:
    """When a generation had its state and took its first step; None: it has taken none."""
    return attempt.began[str(generation)] if has_stepped(attempt, generation) else None


def _in_place(attempt: Attempt, before: dict[str, Any], after: dict[str, Any]) -> Incident:
    failure, number = after["failure"], after["generation"]
    regrouped = datetime.fromisoformat(after["time"])
    size, was = after["world_size"], before["world_size"]
    change = "" if size == was else f", {was} → {size} ranks"
    return _incident(
        generation=before["generation"],
        failure=failure,
        done=f"the ranks that were left regrouped in place as generation {number}{change}",
        detected_at=regrouped,
        regrouped_at=regrouped,
        begun=_begun(attempt, number),
    )


def _at_the_end(attempt: Attempt, following: Attempt | None) -> Incident:
    assert attempt.failure is not None
    # Hosts that a regrouping left out have no part in how it ends.
    of_hosts = [attempt.node_outcomes.get(host["node_id"], {}) for host in attempt.allocation]
    heard = [
        datetime.fromtimestamp(told["ended_at"], UTC) for told in of_hosts if told.get("ended_at")
    ]
    if attempt.state == AttemptState.LOST or not heard:
        detected = attempt.finished_at
    else:
        # Where one host's failure ends the others, it was heard before those had ended.
        detected = min([*heard, *([attempt.stopping_at] if attempt.stopping_at else [])])
    if following is None:
        done = "the attempt ended" if attempt.finished_at is not None else "its ranks are ended"
    else:
        done = f"attempt {following.number} took its place"
    # One that made room for others then waits in the queue: that is no part of a way back.
    moved = attempt.failure.get("cause") == Cause.PREEMPTED
    return _incident(
        generation=attempt.generation,
        failure=attempt.failure,
        done=done,
        detected_at=None if moved else detected,
        regrouped_at=following.started_at if following is not None else None,
        begun=_begun(following, 1) if following is not None else None,
    )


def _incident(
    *,
    generation: int,
    failure: dict[str, Any],
    done: str,
    detected_at: datetime | None,
    regrouped_at: datetime | None,
    begun: dict[str, Any] | None,
) -> Incident:
    newest, happened = failure.get("step"), failure.get("time")
    redone = None
    if begun is not None and newest is not None:
        redone = max(0, newest - begun["step"] + 1)
    return Incident(
        generation=generation,
        failure=failure,
        done=done,
        happened_at=_at(happened),
        detected_at=detected_at,
        regrouped_at=regrouped_at,
        loaded_at=_at(begun["loaded"]) if begun else None,
        stepped_at=_at(begun["stepped"]) if begun else None,
        steps_redone=redone,
    )


def _at(seconds: float | None) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if seconds is not None else None


def _between(begin: datetime | None, end: datetime | None) -> float | None:
    """Never negative: hosts' clocks differ a little."""
    if begin is None or end is None:
        return None
    return max(0.0, (end - begin).total_seconds())
