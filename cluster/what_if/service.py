"""Comparisons of the recorded queue, computed when they are asked for."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from threading import Event

from trainhall.cluster.errors import InvalidValueError
from trainhall.cluster.lifecycle.states import NodeState
from trainhall.cluster.nodes.heartbeats import HeartbeatMonitor
from trainhall.cluster.service import Service, ServiceContext
from trainhall.cluster.snapshot.load import load_facts
from trainhall.cluster.snapshot.model import NodeFacts
from trainhall.cluster.what_if import views
from trainhall.cluster.what_if.change import Change
from trainhall.cluster.what_if.compare import compare
from trainhall.cluster.what_if.workload import load_workload


class WhatIfService(Service):
    def __init__(self, context: ServiceContext, heartbeats: HeartbeatMonitor) -> None:
        super().__init__(context)
        self._heartbeats = heartbeats
        # One at a time: each is seconds of computation beside the coordinator's other work.
        self._turn = asyncio.Lock()

    async def compare(self, change: Change, days: float) -> views.WhatIf:
        """Replay the jobs of the last days on the cluster as it is, and with a change.

        Raises:
            ForbiddenError: the caller is no admin, who alone sees everybody's waits.
            InvalidValueError: it removes a node that there is not.
        """
        self._caller.check_admin("ask what another cluster would change")
        now = self._clock.now()
        since = now - timedelta(days=days)
        nodes = await self._nodes()
        for name in sorted(change.remove - {node.name for node in nodes}):
            known = ", ".join(node.name for node in nodes) or "none"
            message = f"there is no such node in service; there are: {known}"
            raise InvalidValueError("remove", name, message)
        async with self._turn:
            workload = await self._db.read(lambda c: load_workload(c, since, now))
            cancelled = Event()
            try:
                return await asyncio.to_thread(
                    compare, workload, nodes, self._options, change, since, days, cancelled
                )
            finally:
                cancelled.set()  # the thread outlives a request that is cancelled

    async def _nodes(self) -> tuple[NodeFacts, ...]:
        """Return the nodes that are in service, or out of it for a while."""
        async with self._db.session() as session:
            facts = await load_facts(session, self._heartbeats)
        return tuple(
            replace(node, state=NodeState.READY, seconds_since_heartbeat=0.0)
            for node in facts.nodes
            if not node.removing and node.drain_reason is None and node.state != NodeState.PENDING
        )
