"""Storing a node's report in one short transaction, and whom to notify after it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import bindparam, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.checkpoints import retention
from trainhall.cluster.lifecycle.generations import member_since
from trainhall.cluster.lifecycle.host_report import report_of, set_report
from trainhall.cluster.lifecycle.nodes import (
    holds_devices,
    move_node,
    reason_to_drain,
    state_when_reachable,
    void_join_token,
)
from trainhall.cluster.lifecycle.reasons import Reason, ReasonCode, removed_by
from trainhall.cluster.lifecycle.states import ACTIVE_ATTEMPT_STATES, NodeState
from trainhall.cluster.nodes.devices import store_device_use, store_devices
from trainhall.cluster.ports import Clock
from trainhall.cluster.snapshot.host_reports import mark_unreported, merge_report
from trainhall.cluster.wire.protocol import AssignmentReport, Report
from trainhall.db.models import Attempt, Grant, Node
from trainhall.db.sanitize import sanitize_text
from trainhall.training.fencing import FencingToken

# Locked in one order: the nodes of an attempt report at the same time, each into its own part of
# the row.
_ATTEMPTS_OF_NODE = (
    select(Attempt)
    .where(
        tuple_(Attempt.job_id, Attempt.number).in_(
            select(Grant.job_id, Grant.attempt).where(Grant.node_id == bindparam("at_node"))
        )
    )
    .order_by(Attempt.job_id, Attempt.number)
    .with_for_update(of=Attempt)
)


_RECORD_REPORT = (
    update(Node)
    .where(Node.id == bindparam("at_node"))
    .values(
        last_seen_at=bindparam("now"),
        address=bindparam("reported_address"),
        agent_version=bindparam("version"),
        host_use=bindparam("host"),
    )
    .execution_options(synchronize_session=False)
)


@dataclass
class Stored:
    """Result of storing a report."""

    changed: bool = False
    """The reconciler should look."""
    excluded: set[tuple[str, int]] = field(default_factory=set)
    """Attempts that the node seems to have lost: not to be sent again."""
    nodes_to_notify: set[str] = field(default_factory=set)
    """Nodes whose assignments changed: a rendezvous is known."""


async def store_report(
    session: AsyncSession,
    node: Node,
    report: Report,
    *,
    up_to_date: bool,
    clock: Clock,
) -> Stored:
    """Bring the rows in line with a node's report.

    `up_to_date` says that the report was made in knowledge of everything that the node was sent, so
    that an attempt which it does not list does not exist there.
    """
    stored = Stored()
    now = clock.now()
    connection = await session.connection()
    await connection.execute(
        _RECORD_REPORT,
        {
            "at_node": node.id,
            "now": now,
            "reported_address": sanitize_text(report.address, 255),
            "version": sanitize_text(report.agent_version, 64),
            "host": report.host.model_dump(),
        },
    )
    stored.changed = await _move_node(session, node, report, clock)
    if await store_devices(session, node.id, report.devices):
        stored.changed = True
    await store_device_use(session, [(node.id, use) for use in report.device_use])
    await retention.removed(session, node.id, report.removed)
    await _store_assignments(session, node, report, stored, up_to_date=up_to_date, clock=clock)
    return stored


async def _move_node(session: AsyncSession, node: Node, report: Report, clock: Clock) -> bool:
    """Update the node's state after a heartbeat; returns whether it changed."""
    start = NodeState(node.state)
    drains = node.removing or node.drain_reason is not None
    end = state_when_reachable(
        start,
        drains=drains,
        holds=drains and await holds_devices(session, node.id),
        agent_stops=report.stopping,
    )
    if end is start:
        return False
    if drains:
        reason = reason_to_drain(end, node.drain_reason or removed_by(node.removed_by))
    elif end is NodeState.SUSPECT:
        reason = Reason.of(ReasonCode.AGENT_OFFLINE)
    else:
        reason = Reason.of(ReasonCode.REPORTS)
    if start is NodeState.PENDING:
        # Until now its host may not have got the credential, and might have had to ask again.
        void_join_token(node)
        await session.flush()
    await move_node(session, node.id, start, end, reason=reason, now=clock.now())
    await session.refresh(node)
    return True


def _newest_report(
    listed: Mapping[FencingToken, AssignmentReport], attempt: Attempt, node_id: str
) -> AssignmentReport | None:
    """Return a node's report of an attempt that may have regrouped since.

    A report of an earlier generation counts as far as it still applies: above all the end of its
    processes.
    """
    for generation in range(attempt.generation, member_since(attempt, node_id) - 1, -1):
        report = listed.get(FencingToken(attempt.job_id, attempt.number, generation))
        if report is not None:
            return report
    return None


def _store_rendezvous(attempt: Attempt, report: AssignmentReport, stored: Stored) -> None:
    """Store where the first host's ranks meet the others."""
    if report.generation != attempt.generation or report.rendezvous is None:
        return
    found = report.rendezvous.model_dump()
    if attempt.rendezvous != found:
        attempt.rendezvous = found
        stored.nodes_to_notify.update(attempt.allocation.node_ids[1:])


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
    listed = {FencingToken(a.job_id, a.attempt, a.generation): a for a in report.assignments}
    for attempt in await session.scalars(_ATTEMPTS_OF_NODE, {"at_node": node.id}):
        key = (attempt.job_id, attempt.number)
        active = attempt.state in ACTIVE_ATTEMPT_STATES and not attempt.revoked
        before = after = report_of(attempt, node.id)
        newest = _newest_report(listed, attempt, node.id)
        if newest is not None:
            after = merge_report(before, newest, now)
            if active and attempt.allocation[0].node_id == node.id:
                _store_rendezvous(attempt, newest, stored)
        elif up_to_date:
            unreported = mark_unreported(
                before, active=active, node_name=node.name, attempt=attempt.number, now=now
            )
            after = unreported.stored
            if unreported.withhold:
                stored.excluded.add(key)
        if after is not None and set_report(attempt, node.id, after):
            stored.changed = stored.changed or before != report_of(attempt, node.id)
    await session.flush()
