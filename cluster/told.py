"""What a node told of an attempt (`Attempt.node_outcomes`), and how a report adds to it."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from trainhall.cluster.facts import Told
from trainhall.cluster.protocol import AssignmentReport
from trainhall.cluster.storable import storable
from trainhall.training.cause import Cause
from trainhall.training.link import Failure, Fallen, Outcome
from trainhall.training.spec.plan import ChosenPlan
from trainhall.training.stall import Stall

MISSING_REPORTS = 2
"""Reports in a row without an attempt that the node once had, until it is taken as lost there."""


def read_told(stored: dict[str, Any] | None) -> Told | None:
    if stored is None:
        return None
    ended_at = stored.get("ended_at")
    failure = stored.get("failure")
    outcome = stored.get("outcome")
    return Told(
        phase=stored["phase"],
        generation=stored.get("generation", 1),
        in_place=bool(stored.get("in_place")),
        fallen=tuple(Fallen.model_validate(f) for f in stored.get("fallen", ())),
        leaving=tuple(stored.get("leaving", ())),
        outcome=Outcome(outcome) if outcome else None,
        failure=Failure.model_validate(failure) if failure else None,
        stall=Stall.model_validate(stored["stall"]) if stored.get("stall") else None,
        shipped=bool(stored.get("shipped")),
        agent_stopped=bool(stored.get("agent_stopped")),
        isolated=bool(stored.get("isolated")),
        plan=ChosenPlan.model_validate(stored["plan"]) if stored.get("plan") else None,
        ended_at=datetime.fromtimestamp(ended_at, UTC) if ended_at else None,
    )


def with_report(
    stored: dict[str, Any] | None, report: AssignmentReport, now: datetime
) -> dict[str, Any]:
    """An outcome stands once it was told: a report that arrives late does not take it back."""
    told: dict[str, Any] = {"phase": report.phase, "generation": report.generation}
    if report.in_place:
        told["in_place"] = True
    if report.fallen:
        told["fallen"] = [
            {**f.model_dump(mode="json"), "failure": _failure(f.failure)} for f in report.fallen
        ]
    if report.leaving:
        told["leaving"] = report.leaving
    if report.stall is not None:
        told["stall"] = report.stall.model_dump(mode="json")
    if report.plan is not None:
        told["plan"] = storable(report.plan.model_dump(mode="json"))
    if stored is not None and stored.get("outcome"):
        told = {key: value for key, value in stored.items() if key != "missing"}
        told["shipped"] = bool(stored.get("shipped")) or report.shipped
    elif report.outcome is not None:
        told.update(
            phase="exited",
            outcome=report.outcome.value,
            failure=_failure(report.failure),
            shipped=report.shipped,
            agent_stopped=report.agent_stopped,
            isolated=report.isolated,
            ended_at=now.timestamp(),
        )
    return told


@dataclass(frozen=True)
class Absent:
    stored: dict[str, Any] | None
    withhold: bool = False
    """It may be gone from the node: do not tell the node to run it, or it would run twice."""


def without_report(
    stored: dict[str, Any] | None, *, active: bool, node_name: str, attempt: int, now: datetime
) -> Absent:
    """What an up-to-date report that does not list the attempt says of it."""
    if not active:
        return Absent({**(stored or {}), "phase": "gone"})
    if stored is None or stored["phase"] in ("planning", "preparing"):
        return Absent(stored)  # nothing of it was launched yet: it may still be
    if stored.get("outcome"):
        return Absent({**stored, "shipped": True})  # it forgot: nothing more will come
    missing = int(stored.get("missing", 0)) + 1
    if missing < MISSING_REPORTS:
        return Absent({**stored, "missing": missing}, withhold=True)
    message = (
        f"node {node_name} no longer knows attempt {attempt}: "
        "its agent's data folder was lost or replaced"
    )
    return Absent(
        {
            "phase": "gone",
            "outcome": Outcome.FAILED.value,
            "failure": _failure(Failure(message=message, cause=Cause.NODE_LOST, node=node_name)),
            "shipped": True,
            "ended_at": now.timestamp(),
        },
        withhold=True,
    )


def _failure(failure: Failure | None) -> dict[str, Any] | None:
    if failure is None:
        return None
    data = failure.model_dump(mode="json")
    # Postgres stores no NUL in text.
    return {k: v.replace("\0", "\ufffd") if isinstance(v, str) else v for k, v in data.items()}
