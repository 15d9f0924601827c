"""Effects of a node's report on the stored state of an attempt there (`Attempt.node_outcomes`)."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from trainhall.cluster.lifecycle.host_report import HostReport
from trainhall.cluster.wire.protocol import AssignmentReport
from trainhall.training.link.failure import Cause, Failure
from trainhall.training.link.status import Outcome

MAX_REFUSAL = 1000
"""Characters of a host's words on why a strategy cannot be predicted."""
MAX_PREPARING = 200
"""Characters of a host's words on what it prepares."""
LASTING_STEP = timedelta(minutes=1)
"""Precision of the time of what lasts: not every report is to be stored."""
MISSING_REPORTS = 2
"""Reports in a row without an attempt that the node once had, until it is taken as lost there."""


def merge_report(stored: HostReport | None, report: AssignmentReport, now: datetime) -> HostReport:
    """Add a report to what is known. An outcome stands once it was reported: a report that arrives
    late does not take it back."""
    if stored is not None and stored.outcome is not None:
        return replace(stored, shipped=stored.shipped or report.shipped, missing=0)
    prepared_at = stored.prepared_at if stored is not None else None
    if report.preparing:
        prepared_at = _last(prepared_at, now)
    used_at = stored.used_at if stored is not None else None
    if report.sessions:
        used_at = _last(used_at, now)
    elif stored is not None and stored.sessions:
        used_at = now
    elif report.sessions is not None and report.phase == "running":
        used_at = used_at or now
    merged = HostReport(
        phase=report.phase,
        generation=report.generation,
        in_place=report.in_place,
        failed_ranks=tuple(report.failed_ranks),
        leaving=tuple(report.leaving),
        stall=report.stall,
        plan=report.plan,
        plan_refusal=report.plan_refusal and report.plan_refusal[:MAX_REFUSAL],
        preparing=report.preparing and report.preparing[:MAX_PREPARING],
        prepared_at=prepared_at,
        sessions=report.sessions or 0,
        used_at=used_at,
    )
    if report.outcome is None:
        return merged
    return replace(
        merged,
        phase="exited",
        outcome=report.outcome,
        failure=report.failure,
        shipped=report.shipped,
        agent_stopped=report.agent_stopped,
        isolated=report.isolated,
        ended_at=now,
    )


def _last(before: datetime | None, now: datetime) -> datetime:
    """Return when something lasts that was reported before, in steps."""
    return now if before is None or now - before >= LASTING_STEP else before


@dataclass(frozen=True)
class Unreported:
    """Stored state of an attempt that a node's newest report does not list."""

    stored: HostReport | None
    withhold: bool = False
    """True if it may be gone from the node, which must not be asked to run it: it would run
    twice."""


def mark_unreported(
    stored: HostReport | None, *, active: bool, node_name: str, attempt: int, now: datetime
) -> Unreported:
    """Update the state of an attempt that an up-to-date report does not list."""
    if not active:
        return Unreported(replace(stored, phase="gone") if stored else HostReport("gone"))
    if stored is None or stored.phase in ("planning", "preparing"):
        return Unreported(stored)  # nothing of it was launched yet: it may still be
    if stored.outcome is not None:
        # It forgot: nothing more will come, and what has ended must not begin again.
        return Unreported(replace(stored, shipped=True), withhold=True)
    missing = stored.missing + 1
    if missing < MISSING_REPORTS:
        return Unreported(replace(stored, missing=missing), withhold=True)
    message = (
        f"node {node_name} no longer knows attempt {attempt}: "
        "its agent's data folder was lost or replaced"
    )
    failure = Failure(message=message, cause=Cause.NODE_LOST, node=node_name)
    gone = HostReport("gone", outcome=Outcome.FAILED, failure=failure, shipped=True, ended_at=now)
    return Unreported(gone, withhold=True)
