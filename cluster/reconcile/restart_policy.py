"""The restart budget of a job: restarts in a row without progress, and failures that would repeat.

Faults of nodes are no failures in this sense: a lost node, a stopped agent or a broken device costs
no restart. A device that breaks again takes its node out of use (`fault_policy`), so this ends.
"""

import re
from dataclasses import dataclass
from datetime import datetime

from trainhall.cluster.nodes.fault_policy import is_node_fault
from trainhall.cluster.snapshot.model import JobFacts, NodeFacts
from trainhall.training.link.failure import Cause, Failure

_PASSING = re.compile(
    r"connect|timed? ?-?out|unreachable|unavailable|no route|name resolution|service not known"
    r"|broken pipe|reset by peer|bad gateway|too many requests|http error (5|429)"
    r"|stale file|input/output error|\bnccl|\bgloo\b|\becc\b",
    re.IGNORECASE,
)
"""Words of networks, neighbours and hardware: what they break may work a minute later."""
_VARYING = re.compile(r"0x[0-9a-f]+|\d+", re.IGNORECASE)
"""Ranks, attempts, addresses, times: what differs between two reports of one fault."""


@dataclass(frozen=True)
class AfterFailure:
    """Consequence for a job whose attempt failed."""

    restarts: int
    """Failed attempts in a row without a new step, this one included."""
    step: int
    """The step from which they are counted."""
    will_retry: bool
    is_free: bool
    """True if it costs no restart: the node is to blame."""
    repeated: bool
    """True if it fails although the budget is not used up: it would only fail in the same way
    again."""


def after_failure(job: JobFacts, failure: Failure) -> AfterFailure:
    """Return the consequence of a failure; new steps restore the whole budget."""
    if is_node_fault(failure.cause):
        return AfterFailure(
            job.restarts, job.restarts_step, will_retry=True, is_free=True, repeated=False
        )
    progressed = job.step > job.restarts_step
    restarts = 1 if progressed else job.restarts + 1
    repeated = (
        restarts > 1
        and job.failed_before is not None
        and is_same_failure(job.failed_before, failure)
    )
    return AfterFailure(
        restarts=restarts,
        step=max(job.step, job.restarts_step),
        will_retry=not _is_final(failure) and not repeated and restarts <= job.max_restarts,
        is_free=False,
        repeated=repeated,
    )


def node_lost(now: datetime, name: str, node: NodeFacts | None, step: int) -> Failure:
    """Return the failure of a job whose host is lost.

    Args:
        node: None: it was removed.
        step: the newest of the job.
    """
    idle_seconds = node.seconds_since_heartbeat if node is not None else 0.0
    return Failure(
        message=f"node {name} {'was removed' if node is None else 'is lost'}",
        cause=Cause.NODE_LOST,
        evidence="removed" if node is None else f"no heartbeat for {idle_seconds:.0f} s",
        node=name,
        step=step or None,
        time=now.timestamp() - idle_seconds,
    )


def _is_final(failure: Failure) -> bool:
    """Return whether a retry is useless, which it is not after a temporary read error."""
    passes = failure.rank is not None and _PASSING.search(failure.message)
    return failure.final and not passes


def is_same_failure(before: Failure, failure: Failure) -> bool:
    """Return whether two failures are one fault of the attempts' input: code, data, parameters.

    A process that left with an exit code decided to; one that a signal ended, or that its host
    could not start or continued without, may fare better next time. Not so where the checkpoints
    are damaged: the next attempt finds the same files.
    """
    decided = failure.exit_code is not None or failure.cause is Cause.BAD_CHECKPOINT
    if not decided or failure.signal is not None or _PASSING.search(failure.message):
        return False
    if failure.without_message:
        return False
    same = _fingerprint(failure) == _fingerprint(before)
    return same and before.exit_code == failure.exit_code


def _fingerprint(failure: Failure) -> str:
    return _VARYING.sub("#", failure.message.strip())
