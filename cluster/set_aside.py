"""Draining nodes on which attempts fail again and again (`node_faults` has the rule)."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import structlog
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.node_faults import WINDOW, Ended, set_aside
from trainhall.cluster.node_lifecycle import drain_node
from trainhall.db.models import Attempt, Node
from trainhall.training.link import Failure

log = structlog.get_logger(__name__)


async def set_aside_failing(
    session: AsyncSession, node_ids: Iterable[str], now: datetime
) -> list[str]:
    """Drain those of some nodes that have failed too often; their ids.

    One that is drained already is left as it is: whoever drained it has a reason.
    """
    recent = (
        await session.scalars(
            select(Attempt).where(
                Attempt.finished_at > now - WINDOW, Attempt.state.in_(["failed", "completed"])
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


def _ends_on(node: Node, attempt: Attempt) -> Iterator[Ended]:
    """How an attempt, and those of its generations that lost ranks, ended for a node."""
    hosts = [host["node_id"] for host in attempt.allocation]
    if node.id not in hosts or attempt.finished_at is None:
        return
    for generation in attempt.generations:
        failure = generation.get("failure")
        if failure is not None and _is_of(node, failure, hosts):
            at = datetime.fromisoformat(generation["time"])
            yield _ended(at.astimezone(UTC), attempt.job_id, failure)
    if attempt.failure is not None and _is_of(node, attempt.failure, hosts):
        yield _ended(attempt.finished_at, attempt.job_id, attempt.failure)
    else:
        yield Ended(attempt.finished_at, attempt.job_id, None)


def _is_of(node: Node, failure: dict[str, Any], hosts: list[str]) -> bool:
    """Whether a node's rank failed first; of one host alone that needs no telling."""
    name = failure.get("node")
    return name == node.name or (name is None and len(hosts) == 1)


def _ended(at: datetime, job_id: str, failure: dict[str, Any]) -> Ended:
    told = Failure.model_validate(failure)
    return Ended(at, job_id, told.cause, told.message)
