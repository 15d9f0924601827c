"""The life of a node. Nothing else writes a node's `state`.

The letters of the edges appear in the diagram of the documentation:

    a  · → pending            registered
    b  pending → ready        its agent reports for the first time
    c  pending, ready, lost → suspect    no heartbeat for a while, or its agent stops
    d  suspect → ready        it reports again
    e  ready, suspect, draining, drained → lost      no heartbeat for long: attempts replaced
    f  lost → ready           it reports again
    g  pending, ready, suspect, lost → draining      it is to be drained, and something runs on it
    h  draining → drained     nothing runs on it any more
    i  pending, ready, suspect, lost → drained       it is to be drained, and nothing runs on it
    j  draining, drained → ready, suspect    a user takes the drain back

A drain is a request (`Node.drain_reason`), kept until a user takes it back. So a drained node that
is lost and returns is drained, and so is one whose agent or coordinator restarts. A node that is to
be removed drains first.
"""

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import CursorResult, bindparam, delete, exists, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.lifecycle.alerts import report_node_down
from trainhall.cluster.lifecycle.jobs import IllegalTransitionError, reason_columns, set_reason
from trainhall.cluster.lifecycle.reasons import Reason, ReasonCode
from trainhall.cluster.lifecycle.states import NodeState
from trainhall.db.models import Grant, Node, NodeEvent

KEPT_EVENTS = 100
"""So many of a node's last events are kept."""

_REACHABLE = (NodeState.READY, NodeState.SUSPECT, NodeState.DRAINING, NodeState.DRAINED)
_NOT_DRAINED = (NodeState.PENDING, NodeState.READY, NodeState.SUSPECT, NodeState.LOST)
NODE_EDGES: dict[tuple[NodeState, NodeState], str] = {
    (NodeState.PENDING, NodeState.READY): "b",
    (NodeState.PENDING, NodeState.SUSPECT): "c",
    (NodeState.READY, NodeState.SUSPECT): "c",
    (NodeState.LOST, NodeState.SUSPECT): "c",
    (NodeState.SUSPECT, NodeState.READY): "d",
    **{(start, NodeState.LOST): "e" for start in _REACHABLE},
    (NodeState.LOST, NodeState.READY): "f",
    **{(start, NodeState.DRAINING): "g" for start in _NOT_DRAINED},
    (NodeState.DRAINING, NodeState.DRAINED): "h",
    **{(start, NodeState.DRAINED): "i" for start in _NOT_DRAINED},
    (NodeState.DRAINING, NodeState.READY): "j",
    (NodeState.DRAINED, NodeState.READY): "j",
    (NodeState.DRAINING, NodeState.SUSPECT): "j",
    (NodeState.DRAINED, NodeState.SUSPECT): "j",
}

DRAINS = frozenset({NodeState.DRAINING, NodeState.DRAINED})
_BEYOND_KEPT = (
    select(NodeEvent.id)
    .where(NodeEvent.node_id == bindparam("at_node"))
    .order_by(NodeEvent.id.desc())
    .offset(KEPT_EVENTS)
    .limit(1)
)
UNREACHABLE_STATES = frozenset({NodeState.PENDING, NodeState.LOST})
"""Nothing that runs on such a node is waited for."""


def state_when_reachable(
    state: NodeState, *, drains: bool, holds: bool, agent_stops: bool
) -> NodeState:
    """Return the state of a node after a heartbeat.

    Args:
        drains: it is to be drained, or removed.
        holds: an attempt has devices of it.
        agent_stops: it reported that it is about to end.
    """
    if drains:
        drained = state is NodeState.DRAINED or not holds
        return NodeState.DRAINED if drained else NodeState.DRAINING
    return NodeState.SUSPECT if agent_stops else NodeState.READY


def reason_to_drain(state: NodeState, why: str) -> Reason:
    """Return the reason of a node that drains."""
    code = ReasonCode.DRAINED if state is NodeState.DRAINED else ReasonCode.DRAINING
    return Reason.of(code, why=why)


async def create_node(
    session: AsyncSession, node: Node, *, now: datetime, user: str | None = None
) -> None:
    """Edge a. Store a node that was registered, with its first event.

    Args:
        user: who registered it, if that is known; so below.
    """
    node.state, node.state_at, node.created_at = NodeState.PENDING.value, now, now
    reason = Reason.of(ReasonCode.REGISTERED, user=user)
    set_reason(node, reason)
    session.add(node)
    await session.flush()
    await record_node_event(session, node.id, NodeState.PENDING, reason, now)


async def move_node(
    session: AsyncSession,
    node_id: str,
    start: NodeState,
    end: NodeState,
    *,
    reason: Reason,
    now: datetime,
) -> bool:
    """Take one edge of the table, if the node still is in `start`.

    The guard is in the database; False means that another change came first, and nothing
    was changed.

    Raises:
        IllegalTransitionError: for an edge that is not in the table.
    """
    if (start, end) not in NODE_EDGES:
        raise IllegalTransitionError("a node", start, end)
    moved = await session.execute(
        update(Node)
        .where(Node.id == node_id, Node.state == start.value)
        .values(state=end.value, state_at=now, **reason_columns(reason))
    )
    assert isinstance(moved, CursorResult)
    if moved.rowcount != 1:
        return False
    await record_node_event(session, node_id, end, reason, now)
    if end is NodeState.LOST:
        await report_node_down(session, node_id, reason.text, now)
    return True


async def drain_node(session: AsyncSession, node: Node, *, reason: str, now: datetime) -> None:
    """Edges g and i, of a locked node that is not being removed: from now on it is to be drained,
    for this reason. Draining it again for the same reason changes nothing."""
    if node.drain_reason == reason:
        return
    state = NodeState(node.state)
    node.drain_reason = reason
    if state in UNREACHABLE_STATES:
        await session.flush()
        requested = Reason.of(ReasonCode.DRAIN_REQUESTED, why=reason)
        await record_node_event(session, node.id, state, requested, now)
        return
    end = state
    if state not in DRAINS:
        holds = await holds_devices(session, node.id)
        end = NodeState.DRAINING if holds else NodeState.DRAINED
    why = reason_to_drain(end, reason)
    if end is state:
        set_reason(node, why)
        await session.flush()
        await record_node_event(session, node.id, state, why, now)
        return
    await session.flush()
    await move_node(session, node.id, state, end, reason=why, now=now)
    await session.refresh(node)


async def undrain_node(
    session: AsyncSession, node: Node, *, reachable: bool, now: datetime, user: str | None = None
) -> None:
    """Edge j, of a locked node: it may get work again. Harmless where it is not drained.

    Args:
        reachable: its heartbeats arrive.
    """
    if node.drain_reason is None:
        return
    state = NodeState(node.state)
    node.drain_reason, node.faults_counted_from = None, now
    await session.flush()
    reason = Reason.of(ReasonCode.UNDRAINED, user=user)
    if state not in DRAINS:
        await record_node_event(session, node.id, state, reason, now)
        return
    end = NodeState.READY if reachable else NodeState.SUSPECT
    await move_node(session, node.id, state, end, reason=reason, now=now)
    await session.refresh(node)


def void_join_token(node: Node) -> None:
    """End a node's join token."""
    node.join_token_sha256 = node.join_expires_at = None


async def record_node_event(
    session: AsyncSession, node_id: str, state: NodeState, reason: Reason, now: datetime
) -> None:
    """Add to the short history that a node has; the oldest of it goes."""
    code, text = reason.code.value, reason.text
    session.add(NodeEvent(node_id=node_id, time=now, state=state.value, code=code, reason=text))
    await session.flush()
    beyond = await session.scalar(_BEYOND_KEPT, {"at_node": node_id})
    if beyond is not None:
        old = NodeEvent.node_id == node_id, NodeEvent.id <= beyond
        await session.execute(delete(NodeEvent).where(*old))


async def hold_ready(session: AsyncSession, node_ids: Collection[str]) -> bool:
    """Return whether all of these nodes may get new work.

    Until the commit none of them is drained or removed, both of which lock them.
    """
    found = await session.scalars(
        select(Node.id)
        .where(Node.id.in_(node_ids), Node.state == NodeState.READY.value, Node.removing.is_(False))
        .order_by(Node.id)
        .with_for_update(read=True, key_share=True)
    )
    return set(found) == set(node_ids)


async def holds_devices(session: AsyncSession, node_id: str) -> bool:
    """Return whether an attempt holds devices of a node."""
    return bool(await session.scalar(select(exists().where(Grant.node_id == node_id))))
