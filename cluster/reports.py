"""Storing what a node reports: one short transaction, and what has to be looked at after it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import bindparam, exists, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.checkpoints import CheckpointService
from trainhall.cluster.facts import NodeState
from trainhall.cluster.lifecycle import ACTIVE_ATTEMPT_STATES
from trainhall.cluster.node_devices import store_device_use, store_devices
from trainhall.cluster.node_lifecycle import (
    REMOVED_BY_USER,
    holds_devices,
    move_node,
    reason_to_drain,
    state_when_heard,
    void_join_token,
)
from trainhall.cluster.ports import Clock
from trainhall.cluster.protocol import AssignmentReport, Report
from trainhall.cluster.regroup import joined
from trainhall.cluster.told import read_told, with_report, without_report
from trainhall.db.models import Attempt, Grant, Node

# Locked in one order: the nodes of an attempt report at the same time, each into its own part of
# the row.
_ATTEMPTS_OF_NODE = (
    select(Attempt)
    .where(
        exists().where(
            Grant.node_id == bindparam("at_node"),
            Grant.job_id == Attempt.job_id,
            Grant.attempt == Attempt.number,
        )
    )
    .order_by(Attempt.job_id, Attempt.number)
    .with_for_update(of=Attempt)
)


_HEARD = (
    update(Node)
    .where(Node.id == bindparam("at_node"))
    .values(
        last_seen_at=bindparam("now"),
        address=bindparam("told_address"),
        agent_version=bindparam("version"),
        host_use=bindparam("host"),
    )
    .execution_options(synchronize_session=False)
)


@dataclass
class Stored:
    """What came of storing a report."""

    changed: bool = False
    """The reconciler should look."""
    withheld: set[tuple[str, int]] = field(default_factory=set)
    """Attempts that the node seems to have lost: not to be told again."""
    told: set[str] = field(default_factory=set)
    """Nodes that have something new to be told: a rendezvous."""


async def store_report(
    session: AsyncSession,
    node: Node,
    report: Report,
    *,
    up_to_date: bool,
    clock: Clock,
    checkpoints: CheckpointService,
) -> Stored:
    """Bring the rows in line with what the node says.

    `up_to_date` says that the report was made in knowledge of all that the node was told, so that
    what it does not list does not exist there.
    """
    stored = Stored()
    now = clock.now()
    connection = await session.connection()
    await connection.execute(
        _HEARD,
        {
            "at_node": node.id,
            "now": now,
            "told_address": report.address[:255],
            "version": report.agent_version[:64],
            "host": report.host.model_dump(),
        },
    )
    stored.changed = await _move_node(session, node, report, clock)
    if await store_devices(session, node.id, report.devices):
        stored.changed = True
    await store_device_use(session, [(node.id, use) for use in report.device_use])
    await checkpoints.removed(session, report.removed)
    await _store_assignments(session, node, report, stored, up_to_date=up_to_date, clock=clock)
    return stored


async def _move_node(session: AsyncSession, node: Node, report: Report, clock: Clock) -> bool:
    """Bring the node's state in line with its being heard; whether it changed."""
    start = NodeState(node.state)
    drains = node.removing or node.drain_reason is not None
    end = state_when_heard(
        start,
        drains=drains,
        holds=drains and await holds_devices(session, node.id),
        agent_stops=report.stopping,
    )
    if end is start:
        return False
    if drains:
        reason = reason_to_drain(end, node.drain_reason or REMOVED_BY_USER)
    elif end is NodeState.SUSPECT:
        reason = "its agent was stopped; it gets no new work until it is back"
    else:
        reason = "its agent reports"
    if start is NodeState.PENDING:
        # Until now its host may not have got the credential, and might have had to ask again.
        void_join_token(node)
        await session.flush()
    await move_node(session, node.id, start, end, reason=reason, now=clock.now())
    await session.refresh(node)
    return True


def _newest_told(
    listed: Mapping[tuple[str, int, int], AssignmentReport], attempt: Attempt, node_id: str
) -> AssignmentReport | None:
    """What a node says of an attempt that may have regrouped since. What it said in an earlier
    generation counts as far as that is told with it: the end of its processes above all."""
    for generation in range(attempt.generation, joined(attempt, node_id) - 1, -1):
        told = listed.get((attempt.job_id, attempt.number, generation))
        if told is not None:
            return told
    return None


async def _store_assignments(
    session: AsyncSession,
    node: Node,
    report: Report,
    stored: Stored,
    *,
    up_to_date: bool,
    clock: Clock,
) -> None:
    now = clock.now()
    listed = {(a.job_id, a.attempt, a.generation): a for a in report.assignments}
    for attempt in await session.scalars(_ATTEMPTS_OF_NODE, {"at_node": node.id}):
        key = (attempt.job_id, attempt.number)
        active = attempt.state in ACTIVE_ATTEMPT_STATES and not attempt.revoked
        before = attempt.node_outcomes.get(node.id)
        told = _newest_told(listed, attempt, node.id)
        after: dict[str, Any] | None = before
        if told is not None:
            after = with_report(before, told, now)
            current = told.generation == attempt.generation
            if active and current and told.rendezvous is not None:
                found = told.rendezvous.model_dump()
                first = attempt.allocation[0]["node_id"] == node.id
                if first and attempt.rendezvous != found:
                    attempt.rendezvous = found
                    stored.told.update(host["node_id"] for host in attempt.allocation[1:])
        elif up_to_date:
            absent = without_report(
                before, active=active, node_name=node.name, attempt=attempt.number, now=now
            )
            after = absent.stored
            if absent.withhold:
                stored.withheld.add(key)
        if after != before:
            assert after is not None
            attempt.node_outcomes = {**attempt.node_outcomes, node.id: after}
            stored.changed = stored.changed or read_told(before) != read_told(after)
    await session.flush()
