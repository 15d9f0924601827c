"""What is waited for before an attempt under `on_isolation: stop` is replaced. Pure functions.

The ranks of a lost node have ended by themselves (`agent/shim/isolation.py`). Those of its other
hosts are told to, and what nobody can tell about has the whole time to end by itself.
"""

from collections.abc import Collection
from datetime import datetime

from trainhall.cluster.lifecycle.reasons import Reason, ReasonCode
from trainhall.cluster.reconcile.decisions import StopAttempt
from trainhall.cluster.snapshot.model import AttemptFacts, HostFacts


def may_still_run(now: datetime, attempt: AttemptFacts) -> bool:
    """Whether ranks may go on of which their node knows nothing any more: its agent's folder was
    replaced, or the agent itself. Nobody tells them that the node is heard, so they will end."""
    if attempt.isolation_seconds is None:
        return False
    gone = [h.report.ended_at for h in attempt.hosts if h.report and h.report.phase == "gone"]
    return any(
        at is not None and 0 <= (now - at).total_seconds() < attempt.isolation_seconds
        for at in gone
    )


def to_end_first(attempt: AttemptFacts, lost: Collection[HostFacts]) -> list[HostFacts]:
    """The hosts whose ranks have to end before an attempt that lost some hosts is replaced."""
    if attempt.isolation_seconds is None:
        return []
    return [
        host
        for host in attempt.hosts
        if host not in lost and (host.report is None or host.report.outcome is None)
    ]


def end_others(attempt: AttemptFacts, lost: HostFacts) -> StopAttempt | None:
    """Have them end; None once they were told."""
    if attempt.goal == "stop":
        return None
    reason = Reason.of(ReasonCode.ISOLATED_RANKS_END, node=lost.node_name)
    return StopAttempt(attempt.token, "stop", reason)
