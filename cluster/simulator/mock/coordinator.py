"""Mock mode: a coordinator whose cluster is simulated, for those who develop the dashboard or try
out the API. Everything lies in a temporary folder that goes with the process."""

import asyncio
import contextlib
import math
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import delete, select

from trainhall.cluster.background_tasks import BackgroundTasks, end_process
from trainhall.cluster.coordinator import Coordinator
from trainhall.cluster.lifecycle.states import FINAL_STATES
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.simulator.chance import SeededIds
from trainhall.cluster.simulator.clock import CatchingUpClock
from trainhall.cluster.simulator.mock.cluster import SimulatedCluster
from trainhall.cluster.simulator.mock.folder import temporary_folder
from trainhall.cluster.simulator.mock.scenario import OPENING_SECONDS, Fates, Scenario
from trainhall.db.database import Database
from trainhall.db.models import Job

SEED = 20
TURN_SECONDS = 1.0
"""Between two looks at what the ranks have done."""
PASSING_SECONDS = 6.0
"""The least that passes between two turns of the opening."""
UNREACHABLE_SECONDS = 31.0
"""Most seconds between two turns of the opening while a host is unreachable."""
FORGET_SECONDS = 600.0
KEPT_JOBS = 300
"""So many ended jobs are remembered: some 50 MB, and what happened in eight hours."""
SHIP_SECONDS = 300.0
"""Most seconds that output of the opening may lie on its host."""


class Mock:
    """A simulated cluster that first catches up with the present and then lives in it."""

    def __init__(
        self,
        db: Database,
        folder: Path,
        *,
        options: ClusterOptions | None = None,
        seed: int = SEED,
        on_fatal: Callable[[str, BaseException | None], None] = end_process,
    ) -> None:
        present = datetime.now(UTC)
        self.clock = CatchingUpClock(present - timedelta(seconds=OPENING_SECONDS))
        self.coordinator = Coordinator(
            db,
            data_dir=folder,
            clock=self.clock,
            ids=SeededIds(seed),
            options=options,
            on_fatal=on_fatal,
        )
        fates = Fates()
        self._news = asyncio.Event()
        self.cluster = SimulatedCluster(
            self.coordinator, self.clock, seed=seed, fate=fates.of, on_sent=self._news.set
        )
        self.scenario = Scenario(self.cluster, fates, seed, self.clock.now().timestamp())
        self._db = db
        self.folder = folder
        self._heartbeat = self.coordinator.options.heartbeat_seconds
        self._tasks = BackgroundTasks(on_fatal)

    async def start(self) -> None:
        """Tell the opening, then go on in real time."""
        # A task of its own: it is resumed some hundred thousand times, each time through all that
        # awaits it, and an application's start is awaited from deep within.
        await asyncio.create_task(self._catch_up(), name="catch up")
        self.clock.go_live()
        await self.coordinator.start()
        self._tasks.start("simulation", self._live())
        self._tasks.start("forgetting", self._forget_regularly())

    async def stop(self) -> None:
        await self._tasks.stop()
        await self.coordinator.stop()
        await self.cluster.close()

    async def _catch_up(self) -> None:
        """From one event to the next, as fast as the database goes."""
        shipped = self.clock.now().timestamp()
        while True:
            now, present = self.clock.now().timestamp(), datetime.now(UTC).timestamp()
            self.cluster.advance()
            if acting := self.scenario.due <= now:
                # Until now nobody had been away for long, however long the last step was.
                self.cluster.report_all()
                await self.cluster.exchanged()
                await self.scenario.act(now)
            new = await self.cluster.exchange(math.inf)
            everything = now - shipped >= SHIP_SECONDS or now >= present
            await self.cluster.ship(metrics=everything)
            shipped = now if everything else shipped
            if acting or new or self.cluster.silent:
                await self.cluster.turn()
            if now >= present:
                return
            step = max(min(self.scenario.due, self.cluster.due) - now, PASSING_SECONDS)
            if self.cluster.silent:
                step = min(step, UNREACHABLE_SECONDS)
            self.clock.advance(min(step, SHIP_SECONDS, max(present - now, 0.001)))

    async def _live(self) -> None:
        """Until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TURN_SECONDS):
                    await self._news.wait()
            self._news.clear()
            await self.scenario.act(self.clock.now().timestamp())
            self.cluster.advance()
            await self.cluster.exchange(self._heartbeat)
            await self.cluster.ship()
            # What was shipped may have been the last of an attempt.
            await self.cluster.exchange(self._heartbeat)

    async def _forget_regularly(self) -> None:
        while True:
            await asyncio.sleep(FORGET_SECONDS)
            await self.forget()

    async def forget(self, kept: int = KEPT_JOBS) -> None:
        """Remove all that belongs to ended jobs but the newest, so that no disk fills up."""
        final = [state.value for state in FINAL_STATES]
        async with self._db.transaction() as session:
            ended = select(Job.id).where(Job.state.in_(final))
            old = list(await session.scalars(ended.order_by(Job.number.desc()).offset(kept)))
            for job_id in old:
                await session.execute(delete(Job).where(Job.id == job_id))
        for job_id in old:
            for kind in ("checkpoints", "uploads"):
                folder = self.folder / kind / job_id
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        self.scenario.forget(old)


@asynccontextmanager
async def mock_coordinator(
    options: ClusterOptions | None,
    on_fatal: Callable[[str, BaseException | None], None],
) -> AsyncIterator[Coordinator]:
    """A coordinator whose cluster is simulated. It leaves nothing behind."""
    with temporary_folder() as folder:
        db = Database("sqlite://", temporary_below=folder)
        try:
            await db.migrate()
            mock = Mock(db, folder, options=options, on_fatal=on_fatal)
            try:
                await mock.start()
                yield mock.coordinator
            finally:
                await mock.stop()
                await mock.coordinator.hub.close()
        finally:
            await db.close()
