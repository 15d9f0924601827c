"""The reconciler: load the state, decide, apply; woken by events and a slow tick."""

import asyncio
import math

import structlog
from sqlalchemy.exc import DBAPIError

from trainhall.cluster.experiments.advance import ExperimentAdvancer
from trainhall.cluster.experiments.load import load_unfinished
from trainhall.cluster.nodes.heartbeats import HeartbeatMonitor
from trainhall.cluster.reconcile.apply import Applier
from trainhall.cluster.reconcile.decide import decide, seconds_until_unreachable
from trainhall.cluster.reconcile.decisions import Explain, subject
from trainhall.cluster.service import Service, ServiceContext
from trainhall.cluster.snapshot.load import load_facts
from trainhall.cluster.snapshot.undeliverable import UndeliverableAttempts
from trainhall.cluster.waiting import wait_until_set

log = structlog.get_logger(__name__)

_MAX_PASSES = 20
"""Passes in a row before others get a turn; what is left is done on the next wake-up."""


class Reconciler(Service):
    def __init__(
        self,
        context: ServiceContext,
        heartbeats: HeartbeatMonitor,
        undeliverable: UndeliverableAttempts,
    ) -> None:
        super().__init__(context)
        self._heartbeats = heartbeats
        self._undeliverable = undeliverable
        self._applier = Applier(context, heartbeats)
        self._experiments = ExperimentAdvancer(context)
        self._wanted = asyncio.Event()
        self._unreachable_in = math.inf
        """Seconds until a node without heartbeats calls for a decision, as of the last pass."""

    def wake(self) -> None:
        self._wanted.set()

    async def run(self) -> None:
        """Run until cancelled; wait for a database that is away for a moment."""
        while True:
            self._wanted.clear()
            try:
                await self._pass_repeatedly()
            except DBAPIError as error:
                log.error("database_unavailable", error=str(error.orig))
                await asyncio.sleep(self._options.tick_seconds)
                continue
            # A node's jobs wait for the moment it is lost, not for a tick later.
            await wait_until_set(
                self._wanted, min(self._options.tick_seconds, self._unreachable_in)
            )

    async def stop(self) -> None:
        """Stop what passes have left to threads."""
        await self._experiments.stop()

    async def settle(self) -> None:
        """Pass until nothing is left to decide, not even values of trials that are being chosen."""
        await self._pass_repeatedly()
        while await self._experiments.wait():
            await self._pass_repeatedly()

    async def _pass_repeatedly(self) -> None:
        """Pass until nothing is left to decide now."""
        for _ in range(_MAX_PASSES):
            if not await self.pass_once():
                return
        self.wake()

    async def pass_once(self) -> bool:
        """Run one pass; return whether it changed anything that another pass should handle."""
        await self._applier.examine_nodes()
        async with self._db.session() as session:
            facts = await load_facts(session, self._heartbeats, self._undeliverable)
            experiments = await load_unfinished(session)
        self._unreachable_in = seconds_until_unreachable(facts, self._options)
        decisions = decide(self._clock.now(), facts, self._options)
        explanations = [d for d in decisions if isinstance(d, Explain)]
        changed = False
        for decision in decisions:
            if isinstance(decision, Explain):
                continue
            applied = await self._applier.apply(decision)
            log.info(
                "decision_applied" if applied else "decision_outdated",
                decision=type(decision).__name__,
                about=subject(decision),
                reason=decision.reason.text,
                code=decision.reason.code.value,
            )
            changed = changed or applied
        # Last: whatever fails in an experiment, the jobs have been decided on.
        changed = await self._experiments.advance(experiments) or changed
        if explanations and not changed:
            # Otherwise the next pass, which follows at once, knows better.
            await self._applier.explain(explanations)
        return changed
