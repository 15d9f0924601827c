"""Draining nodes on which attempts fail again and again (`fault_policy` has the rule)."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import structlog
from sqlalchemy import Row, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.lifecycle.host_report import parse_failure
from trainhall.cluster.lifecycle.nodes import drain_node
from trainhall.cluster.lifecycle.states import ACTIVE_ATTEMPT_STATES, AttemptState
from trainhall.cluster.nodes.fault_policy import WINDOW, Ended, quarantine_reason
from trainhall.db.documents import Allocation
from trainhall.db.models import Attempt, Node
from trainhall.training.link.failure import Failure

log = structlog.get_logger(__name__)

# Of a day's attempts, which may be many: what is large about them stays in the database.
_ENDS = select(
    Attempt.job_id,
    Attempt.state,
    Attempt.generations,
    Attempt.allocation,
    Attempt.finished_at,
    Attempt.failure,
)
_STOPPED_STATES = (AttemptState.PAUSED.value, AttemptState.CANCELLED.value)
_OVER = (AttemptState.FAILED.value, AttemptState.COMPLETED.value, *_STOPPED_STATES)


async def quarantine_failing_nodes(
    session: AsyncSession, node_ids: Iterable[str], now: datetime
) -> list[str]:
    """Drain those of some nodes that have failed too often; their ids.

    Call it when an end of a cause that `can_quarantine` was stored. A node that is drained already
    is left as it is: its drain has a reason.
    """
    active = Attempt.state.in_([state.value for state in ACTIVE_ATTEMPT_STATES])
    # An index leads from a state to its newest ends.
    over = Attempt.state.in_(_OVER) & (Attempt.finished_at > now - WINDOW)
    # An attempt that was stopped before it trained is no evidence for or against its nodes.
    conclusive = Attempt.state.not_in(_STOPPED_STATES) | Attempt.first_step.is_not(None)
    recent = (
        await session.execute(
            _ENDS.where(
                or_(
                    # Ranks that regroup in place have failed although their attempt continues.
                    active & Attempt.in_place & (Attempt.generation > 1),
                    over & conclusive,
                )
            )
        )
    ).all()
    nodes = await session.scalars(
        select(Node).where(Node.id.in_(node_ids)).order_by(Node.id).with_for_update()
    )
    found = []
    for node in nodes:
        if node.removing or node.drain_reason is not None:
            continue
        ended = [each for a in recent for each in _ends_on(node, a)]
        why = quarantine_reason(now, ended, since=node.faults_counted_from)
        if why is not None:
            log.warning("node_quarantined", node=node.id, reason=why)
            await drain_node(session, node, reason=why, now=now)
            found.append(node.id)
    return found


def _ends_on(node: Node, attempt: Row[Any]) -> Iterator[Ended]:
    """Return a node's ends of an attempt (`_ENDS`) and of its generations that lost ranks."""
    for before, after in pairwise(attempt.generations):
        failure = parse_failure(after.failure)
        if failure is not None and _is_of(node, failure, before.allocation):
            yield _ended(attempt, failure, after.time.astimezone(UTC))
    if attempt.allocation.host(node.id) is None or attempt.finished_at is None:
        return
    failure = parse_failure(attempt.failure)
    if attempt.state in _STOPPED_STATES:
        # That it was failing while a user cancelled it is neither a fault nor a good end.
        if failure is None or failure.cause.is_move:
            yield _ended(attempt, None)
    elif failure is not None and _is_of(node, failure, attempt.allocation):
        yield _ended(attempt, failure)
    else:
        yield _ended(attempt, None)


def _ended(attempt: Row[Any], failure: Failure | None, time: datetime | None = None) -> Ended:
    return Ended(
        time or attempt.finished_at,
        attempt.job_id,
        failure.cause if failure else None,
        failure.message if failure else "",
    )


def _is_of(node: Node, failure: Failure, allocation: Allocation) -> bool:
    """Return whether a node's rank failed first; always true with one host."""
    name = failure.node
    if allocation.host(node.id) is None:
        return False
    return name == node.name or (name is None and len(allocation) == 1)
