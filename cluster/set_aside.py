"""Draining nodes on which attempts fail again and again (`node_faults` has the rule)."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import structlog
from sqlalchemy import Row, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.lifecycle import ACTIVE_ATTEMPT_STATES, AttemptState
from trainhall.cluster.node_faults import WINDOW, Ended, set_aside
from trainhall.cluster.node_lifecycle import drain_node
from trainhall.db.models import Attempt, Node
from trainhall.training.cause import Cause
from trainhall.training.link import Failure

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
_TOLD_TO_END = (AttemptState.PAUSED.value, AttemptState.CANCELLED.value)


async def set_aside_failing(
    session: AsyncSession, node_ids: Iterable[str], now: datetime
) -> list[str]:
    """Drain those of some nodes that have failed too often; their ids.

    To be called when an end of a cause that `may_set_aside` was stored. One that is drained already
    is left as it is: whoever drained it has a reason.
    """
    active = Attempt.state.in_([state.value for state in ACTIVE_ATTEMPT_STATES])
    over = Attempt.state.in_([AttemptState.FAILED.value, AttemptState.COMPLETED.value])
    # What was told to end before it trained says nothing of its nodes.
    trained = Attempt.state.in_(_TOLD_TO_END) & Attempt.first_step.is_not(None)
    recent = (
        await session.execute(
            _ENDS.where(
                or_(
                    # Ranks that regroup in place have failed although their attempt goes on.
                    active & Attempt.in_place & (Attempt.generation > 1),
                    (over | trained) & (Attempt.finished_at > now - WINDOW),
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
        why = set_aside(now, ended, since=node.trusted_from)
        if why is not None:
            log.warning("a node is set aside", node=node.id, reason=why)
            await drain_node(session, node, reason=why, now=now)
            found.append(node.id)
    return found


def _ends_on(node: Node, attempt: Row[Any]) -> Iterator[Ended]:
    """How an attempt (`_ENDS`), and those of its generations that lost ranks, ended for a node."""
    for before, after in pairwise(attempt.generations):
        failure = after.get("failure")
        if failure is not None and _is_of(node, failure, _hosts(before["allocation"])):
            at = datetime.fromisoformat(after["time"])
            yield _ended(at.astimezone(UTC), attempt.job_id, failure)
    hosts = _hosts(attempt.allocation)
    if node.id not in hosts or attempt.finished_at is None:
        return
    if attempt.state in _TOLD_TO_END:
        # That it was failing while a user cancelled it is neither a fault nor a good end.
        if attempt.failure is None or attempt.failure.get("cause") == Cause.PREEMPTED:
            yield Ended(attempt.finished_at, attempt.job_id, None)
    elif attempt.failure is not None and _is_of(node, attempt.failure, hosts):
        yield _ended(attempt.finished_at, attempt.job_id, attempt.failure)
    else:
        yield Ended(attempt.finished_at, attempt.job_id, None)


def _hosts(allocation: Iterable[dict[str, Any]]) -> list[str]:
    return [host["node_id"] for host in allocation]


def _is_of(node: Node, failure: dict[str, Any], hosts: list[str]) -> bool:
    """Whether a node's rank failed first; of one host alone that needs no telling."""
    name = failure.get("node")
    return node.id in hosts and (name == node.name or (name is None and len(hosts) == 1))


def _ended(at: datetime, job_id: str, failure: dict[str, Any]) -> Ended:
    told = Failure.model_validate(failure)
    return Ended(at, job_id, told.cause, told.message)
