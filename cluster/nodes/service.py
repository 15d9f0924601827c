"""Nodes: registration, joining, authentication, removal."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum

from sqlalchemy import bindparam, delete, func, or_, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster import pagination
from trainhall.cluster.access import audit
from trainhall.cluster.access.principal import Principal
from trainhall.cluster.access.roles import Action
from trainhall.cluster.errors import (
    ConflictError,
    InvalidValueError,
    NodeRemovedError,
    NotAllowedError,
    ProtocolMismatchError,
)
from trainhall.cluster.lifecycle.jobs import set_reason
from trainhall.cluster.lifecycle.nodes import (
    DRAINS,
    UNREACHABLE_STATES,
    create_node,
    drain_node,
    holds_devices,
    move_node,
    record_node_event,
    undrain_node,
    void_join_token,
)
from trainhall.cluster.lifecycle.reasons import A_USER, Reason, ReasonCode, removed_by
from trainhall.cluster.lifecycle.states import ACTIVE_ATTEMPT_STATES, JobState, NodeState
from trainhall.cluster.nodes import views
from trainhall.cluster.nodes.commands import refused_commands
from trainhall.cluster.nodes.devices import store_devices
from trainhall.cluster.nodes.heartbeats import HeartbeatMonitor
from trainhall.cluster.nodes.names import check_labels, check_name
from trainhall.cluster.service import Service, ServiceContext, load
from trainhall.cluster.wire.join_token import PREFIX, JoinToken
from trainhall.cluster.wire.protocol import PROTOCOL_VERSION, JoinReply, JoinRequest
from trainhall.db.accounts import Project
from trainhall.db.models import Attempt, Device, Grant, Job, Node, NodeEvent, RemovedNode
from trainhall.db.sanitize import sanitize_text

_TRIES = 8
_OF_CREDENTIAL = select(Node.id).where(Node.credential_sha256 == bindparam("digest"))


class Unchanged(Enum):
    """Stand-in for an argument that is not given: None stands for all."""

    UNCHANGED = "unchanged"


UNCHANGED = Unchanged.UNCHANGED


class NodeService(Service):
    def __init__(self, context: ServiceContext, heartbeats: HeartbeatMonitor) -> None:
        super().__init__(context)
        self._heartbeats = heartbeats
        self._known: dict[str, tuple[str, float]] = {}
        """SHA-256 of a credential → (node id, monotonic time until which that is trusted)."""

    async def register(
        self, name: str | None = None, labels: dict[str, str] | None = None
    ) -> views.Registration:
        """Make a token with which one host may join, once, within a day.

        The name of a node without heartbeats registers that same node again, for a host that lost
        its credential; the old one works until the new token is used. Without a name the node gets
        its host's.

        Raises:
            ConflictError: a node of that name is alive, or being removed.
        """
        self._caller.check_admin("add nodes")
        if name is not None:
            check_name("name", name)
        labels = labels or {}
        check_labels(labels)
        now = self._clock.now()
        token = PREFIX + self._ids.secret()
        expires = now + timedelta(seconds=self._options.join_token_seconds)
        try:
            registration = await self._register(name, labels, token, expires, now)
        except IntegrityError:
            raise ConflictError(f"a node named {name!r} was registered at the same time") from None
        self._notifier.notify_reconciler()
        return registration

    async def _register(
        self,
        name: str | None,
        labels: dict[str, str],
        token: str,
        expires: datetime,
        now: datetime,
    ) -> views.Registration:
        async with self._db.transaction() as session:
            node = None
            if name is not None:
                node = await session.scalar(select(Node).where(Node.name == name).with_for_update())
            if node is None:
                node_id = self._ids.new()
                node = Node(
                    id=node_id,
                    name=name or _placeholder(node_id),
                    labels=labels,
                    address="",
                    host_use={},
                    removing=False,
                )
                await create_node(session, node, now=now, user=self._caller.named)
            elif node.removing:
                raise ConflictError(
                    f"a node named {name!r} is being removed: choose another name, or wait"
                )
            elif node.state in {NodeState.READY, *DRAINS}:
                raise ConflictError(
                    f"a node named {name!r} is {node.state}: choose another name, or remove it"
                )
            elif labels:
                node.labels = labels
            replaced = node.join_expires_at is not None and node.join_expires_at > now
            node.join_token_sha256 = _digest(token)
            node.join_expires_at = expires
            await session.flush()
            self._audit(session, "node.register", node.id, detail=f"node {node.name}")
            return views.Registration(node.id, node.name, token, expires, replaced)

    async def join(self, request: JoinRequest) -> JoinReply:
        """Trade a join token for the node's own credential.

        The answer may be lost on its way. So a node that has never reported may join with the same
        token again, and its earlier credential is revoked; its first report ends the token.

        Raises:
            NotAllowedError: the token is unknown, used or expired.
            ProtocolMismatchError: the agent speaks another version.
            ConflictError: other hosts took every name that was free for it.
        """
        if request.protocol_version != PROTOCOL_VERSION:
            raise ProtocolMismatchError(request.protocol_version, PROTOCOL_VERSION)
        for _ in range(_TRIES):
            try:
                reply = await self._join(request)
            except IntegrityError:
                continue  # another host of this name joined meanwhile
            self._forget(reply.node_id)
            self._notifier.notify_reconciler()
            return reply
        raise ConflictError(
            f"too many hosts named {request.name[:80]!r} join at the same time; join again"
        )

    async def _join(self, request: JoinRequest) -> JoinReply:
        now = self._clock.now()
        credential = self._ids.secret()
        digest = _digest(JoinToken.parse(request.join_token).secret)
        async with self._db.transaction() as session:
            node = await session.scalar(
                select(Node).where(Node.join_token_sha256 == digest).with_for_update()
            )
            if node is None:
                raise NotAllowedError(
                    "the join token is unknown, was used before, or was replaced by a later "
                    "`trainhall nodes add` of the same node; make a new one with that command"
                )
            if node.join_expires_at is None or node.join_expires_at <= now:
                raise NotAllowedError(
                    "the join token has expired; make a new one with `trainhall nodes add`"
                )
            if node.name == _placeholder(node.id):
                node.name = await _free_name(session, request.name, node.id)
            if node.state != NodeState.PENDING:
                void_join_token(node)
            node.credential_sha256 = _digest(credential)
            node.address = sanitize_text(request.address, 255)
            node.agent_version = sanitize_text(request.agent_version, 64)
            if node.state == NodeState.PENDING:
                set_reason(node, Reason.of(ReasonCode.JOINED))
            await store_devices(session, node.id, request.devices)
            await session.flush()
            return JoinReply(node_id=node.id, credential=credential)

    async def authenticate(self, credential: str) -> str:
        """Return the id of the node that holds this credential.

        Raises:
            NodeRemovedError: the node that held it was removed.
            NotAllowedError: no node holds it (any more).
        """
        digest = _digest(credential)
        known = self._known.get(digest)
        if known is not None and known[1] > self._clock.monotonic():
            return known[0]
        async with self._db.session() as session:
            node_id = await session.scalar(_OF_CREDENTIAL, {"digest": digest})
            removed = None if node_id else await session.get(RemovedNode, digest)
        if node_id is None:
            self._known.pop(digest, None)
            if removed is not None:
                raise NodeRemovedError(removed.name)
            raise NotAllowedError(
                "no node has this credential: it has joined again, or it joined another "
                "coordinator; join with a token from `trainhall nodes add`"
            )
        until = self._clock.monotonic() + self._options.credential_cache_seconds
        self._known[digest] = (node_id, until)
        return node_id

    async def list(self, *, limit: int = 50, cursor: str | None = None) -> views.NodePage:
        """List nodes by name."""
        async with self._db.session() as session:
            rows, following = await pagination.page_by_name(
                session, select(Node), "nodes", Node.name, limit, cursor
            )
            devices = await _devices_of(session, [node.id for (node,) in rows], self._caller)
        items = [_node_view(node, devices, self._caller) for (node,) in rows]
        return views.NodePage(items=items, next_cursor=following)

    async def check(self, node_id: str) -> None:
        """Check that there is such a node.

        Raises:
            NotFoundError: there is none.
        """
        async with self._db.session() as session:
            await load(session, Node, node_id)

    async def get(self, node_id: str) -> views.Node:
        async with self._db.session() as session:
            node = await load(session, Node, node_id)
            return await self._view(session, node)

    async def devices(self) -> Sequence[views.Device]:
        """List every device of the cluster, by node and index."""
        async with self._db.session() as session:
            ids = (await session.scalars(select(Node.id).order_by(Node.name))).all()
            devices = await _devices_of(session, ids, self._caller)
        return [device for node_id in ids for device in devices.get(node_id, [])]

    async def summary(self) -> views.Summary:
        """Summarize the cluster in a few numbers."""
        async with self._db.session() as session:
            nodes = await session.scalar(
                select(func.count()).select_from(Node).where(Node.state != NodeState.PENDING.value)
            )
            busy = await session.scalar(select(func.count()).select_from(Grant))
            listed = select(Job.state, func.count()).where(Job.archived.is_(False))
            states = await session.execute(listed.group_by(Job.state))
            row = (
                await session.execute(
                    select(
                        func.count(),
                        func.avg(Device.utilization),
                        func.sum(Device.memory_used),
                        func.sum(Device.memory_total),
                        func.sum(Device.power),
                    )
                )
            ).one()
            jobs = {state.value: 0 for state in JobState} | dict(states.all())
        devices, utilization, memory_used, memory_total, power = row
        return views.Summary(
            nodes=nodes or 0,
            devices=devices,
            devices_busy=busy or 0,
            jobs=jobs,
            utilization=None if utilization is None else float(utilization),
            memory_used=int(memory_used or 0),
            memory_total=int(memory_total or 0),
            power=None if power is None else float(power),
        )

    async def remove(self, node_id: str) -> views.Node | None:
        """Drain a node and remove it once nothing runs on it; None when it is gone at once.

        Its jobs save and move to other nodes. A node that is lost or never joined goes at once.
        """
        self._caller.check_admin("remove nodes")
        now = self._clock.now()
        async with self._db.transaction() as session:
            node = await load(session, Node, node_id, locked=True)
            self._audit(session, "node.remove", node_id, detail=f"node {node.name}")
            active = node.state not in UNREACHABLE_STATES and await holds_devices(session, node_id)
            if not active and not await _jobs_using(session, node_id):
                await delete_node(session, node, now=now)
                view = None
            else:
                state = NodeState(node.state)
                why = f"{removed_by(self._caller.named)}: its jobs move first"
                reason = Reason.of(ReasonCode.REMOVED, why=why)
                node.removing, node.removed_by = True, self._caller.named
                set_reason(node, reason)
                await session.flush()
                if state in (NodeState.READY, NodeState.SUSPECT):
                    end = NodeState.DRAINING
                    await move_node(session, node_id, state, end, reason=reason, now=now)
                    await session.refresh(node)
                view = await self._view(session, node)
        if view is None:
            self.removed(node_id)
        self._notifier.notify_reconciler()
        return view

    async def drain(self, node_id: str, reason: str | None = None) -> views.Node:
        """Give a node no new work and have its jobs save and move; it stays drained until
        `undrain`. Without a reason, one that is drained already keeps its own."""
        self._caller.check_admin("drain nodes")
        async with self._db.transaction() as session:
            node = await load(session, Node, node_id, locked=True)
            if not node.removing:  # which drains it too
                before = node.drain_reason
                why = self._why_drained(reason, before)
                await drain_node(session, node, reason=why, now=self._clock.now())
                if why != before:
                    changes = {"reason": (before, why)}
                    self._audit(
                        session, "node.drain", node_id, changes=changes, detail=f"node {node.name}"
                    )
            view = await self._view(session, node)
        self._notifier.notify_reconciler()
        return view

    def _why_drained(self, reason: str | None, before: str | None) -> str:
        """Return why a node is drained, in words that name the caller.

        Args:
            reason: what they say themselves.
            before: why it is drained already.
        """
        user = self._caller.named
        if reason is None:
            return before or f"drained by {user or A_USER}"
        return f"drained by {user}: {reason}" if user else reason

    async def undrain(self, node_id: str) -> views.Node:
        """Give a drained node work again.

        Raises:
            ConflictError: it is being removed.
        """
        self._caller.check_admin("undrain nodes")
        idle_seconds = self._heartbeats.seconds_since(node_id)
        reachable = idle_seconds < self._options.suspect_after_seconds
        async with self._db.transaction() as session:
            node = await load(session, Node, node_id, locked=True)
            if node.removing:
                raise ConflictError(
                    f"node {node.name} is being removed, which cannot be undone: add it again "
                    "with `trainhall nodes add` once it is removed"
                )
            if node.drain_reason is not None:
                changes = {"reason": (node.drain_reason, None)}
                self._audit(
                    session, "node.undrain", node_id, changes=changes, detail=f"node {node.name}"
                )
            await undrain_node(
                session, node, reachable=reachable, now=self._clock.now(), user=self._caller.named
            )
            view = await self._view(session, node)
        self._notifier.notify_reconciler()
        return view

    async def change(
        self,
        node_id: str,
        *,
        labels: Mapping[str, str | None] | None = None,
        projects: Sequence[str] | Unchanged | None = UNCHANGED,
    ) -> views.Node:
        """Change a node, as a whole or not at all. Jobs that run there stay.

        Args:
            labels: labels to set, and those to take away, whose value is None.
            projects: gives it only jobs of these; None: of all.

        Raises:
            ForbiddenError: the caller is no admin.
            InvalidValueError: a label is not valid, or there is no such project.
        """
        self._caller.check_admin("change nodes")
        async with self._db.transaction() as session:
            node = await load(session, Node, node_id, locked=True)
            if labels:
                await self._label(session, node, labels)
            if not isinstance(projects, Unchanged):
                await self._limit(session, node, projects)
            view = await self._view(session, node)
        self._notifier.notify_reconciler()
        return view

    async def _label(
        self, session: AsyncSession, node: Node, changes: Mapping[str, str | None]
    ) -> None:
        labels = {**node.labels, **changes}
        kept = {key: value for key, value in labels.items() if value is not None}
        check_labels(kept)
        if kept == node.labels:
            return
        names = kept.keys() | node.labels.keys()
        values = {name: (node.labels.get(name), kept.get(name)) for name in names}
        node.labels = kept
        text = ", ".join(f"{k}={v}" for k, v in sorted(kept.items())) or "none"
        reason = Reason.of(ReasonCode.LABELS_CHANGED, labels=text, user=self._caller.named)
        await self._record_change(session, node, values, reason)

    async def _limit(
        self, session: AsyncSession, node: Node, projects: Sequence[str] | None
    ) -> None:
        wanted = None if projects is None else sorted(set(projects))
        known = await session.scalars(select(Project.name).where(Project.name.in_(wanted or ())))
        if unknown := set(wanted or ()) - set(known):
            name = min(unknown)
            raise InvalidValueError("projects", name, f"there is no project {name!r}")
        if wanted == node.projects:
            return
        values = {"projects": (node.projects, wanted)}
        node.projects = wanted
        # Everybody reads events, so they name no project.
        change = "open to all projects" if wanted is None else "limited to some projects"
        reason = Reason.of(ReasonCode.PROJECTS_CHANGED, change=change, user=self._caller.named)
        await self._record_change(session, node, values, reason)

    async def _record_change(
        self, session: AsyncSession, node: Node, changes: audit.Changes, reason: Reason
    ) -> None:
        self._audit(session, "node.change", node.id, changes=changes, detail=f"node {node.name}")
        state, now = NodeState(node.state), self._clock.now()
        await record_node_event(session, node.id, state, reason, now)

    async def events(self, node_id: str) -> Sequence[views.NodeEvent]:
        """Return the events of a node, oldest first; the last 100 are kept."""
        async with self._db.session() as session:
            await load(session, Node, node_id)
            rows = await session.scalars(
                select(NodeEvent).where(NodeEvent.node_id == node_id).order_by(NodeEvent.id)
            )
            return [views.NodeEvent.of(row) for row in rows]

    async def _view(self, session: AsyncSession, node: Node) -> views.Node:
        devices = await _devices_of(session, [node.id], self._caller)
        return _node_view(node, devices, self._caller)

    def removed(self, node_id: str) -> None:
        """Forget what is remembered of a removed node, and end its connection."""
        self._forget(node_id)
        self._heartbeats.forget(node_id)
        self._notifier.notify_node(node_id)

    def _forget(self, node_id: str) -> None:
        for digest in [d for d, (known, _) in self._known.items() if known == node_id]:
            del self._known[digest]


async def delete_node(session: AsyncSession, node: Node, *, now: datetime) -> None:
    """Delete a node. Its credential stays refused: an agent that presents it ends."""
    if node.credential_sha256 is not None:
        session.add(
            RemovedNode(credential_sha256=node.credential_sha256, name=node.name, removed_at=now)
        )
        await session.flush()
    await session.execute(delete(Grant).where(Grant.node_id == node.id))
    await session.execute(delete(Device).where(Device.node_id == node.id))
    await session.execute(delete(Node).where(Node.id == node.id))


def _node_view(
    node: Node, devices: Mapping[str, list[views.Device]], reader: Principal
) -> views.Node:
    projects = node.projects
    if projects is not None:
        projects = [name for name in projects if reader.may(Action.READ, name)]
    return views.Node.of(
        node,
        projects=projects,
        devices=devices.get(node.id, []),
        host=node.host_use,
        refused_commands=refused_commands(node, reader),
    )


async def _jobs_using(session: AsyncSession, node_id: str) -> set[str]:
    """Return the jobs whose active attempts have the node in their allocation."""
    states = [state.value for state in ACTIVE_ATTEMPT_STATES]
    rows = await session.execute(
        select(Attempt.job_id, Attempt.allocation).where(Attempt.state.in_(states))
    )
    return {row.job_id for row in rows if row.allocation.host(node_id) is not None}


async def _devices_of(
    session: AsyncSession, node_ids: Sequence[str], reader: Principal
) -> dict[str, list[views.Device]]:
    """Return the devices of nodes, by node; of what others hold only that it is held."""
    rows = await session.execute(
        select(
            Device.__table__, Grant.job_id, Job.name.label("job_name"),
            Job.user.label("job_user"), Job.project.label("job_project"),
        )
        .outerjoin(Grant, (Grant.node_id == Device.node_id) & (Grant.device_index == Device.index))
        .outerjoin(Job, Job.id == Grant.job_id)
        .where(
            Device.node_id.in_(node_ids),
            # Given back, it stays no longer than until its node reports.
            or_(Device.gone.is_(False), Grant.job_id.is_not(None)),
        )
        .order_by(Device.node_id, Device.index)
    )  # fmt: skip
    found: dict[str, list[views.Device]] = {}
    for row in rows.mappings():
        view = views.Device.model_validate({**row, "busy": row["job_id"] is not None})
        found.setdefault(view.node_id, []).append(view)
    await _leave_out_replaced(session, found)
    for of_node in found.values():
        for device in of_node:
            if device.job_project and not reader.may(Action.READ, device.job_project):
                device.name_no_job()
    return found


async def _leave_out_replaced(
    session: AsyncSession, devices: Mapping[str, list[views.Device]]
) -> None:
    """Show no job on a lost node that resumed elsewhere: its grant only keeps the devices from
    others until the node reports that the old ranks ended."""
    held = {node_id for node_id, of_node in devices.items() if any(d.job_id for d in of_node)}
    lost = await session.scalars(
        select(Node.id).where(Node.id.in_(held), Node.state == NodeState.LOST.value)
    )
    for node_id in lost.all():
        job_ids = await _jobs_using(session, node_id)
        for device in devices[node_id]:
            if device.job_id not in job_ids:
                device.busy = False
                device.name_no_job()


async def _free_name(session: AsyncSession, wanted: str, node_id: str) -> str:
    """Return the host's own name, made valid and unique."""
    valid = re.sub(r"[^A-Za-z0-9._-]+", "-", wanted).strip("._-")[:100].rstrip("._-")
    base = valid or _placeholder(node_id)
    others = select(Node.name).where(Node.name.startswith(base), Node.id != node_id)
    taken = set(await session.scalars(others))
    name, number = base, 2
    while name in taken:
        name, number = f"{base}-{number}", number + 1
    return name


def _placeholder(node_id: str) -> str:
    """Return the name of a node that was registered without one, until its host reports its own."""
    return f"node-{node_id}"


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
