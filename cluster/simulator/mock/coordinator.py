"""Mock mode: a coordinator whose cluster is simulated, for those who develop the dashboard or try
out the API. Everything lies in a temporary folder that goes with the process."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import select

from trainhall.cluster.agent.coordinator_link import connection
from trainhall.cluster.background_tasks import BackgroundTasks, end_process
from trainhall.cluster.coordinator import Coordinator
from trainhall.cluster.jobs.deletion import delete_record
from trainhall.cluster.lifecycle.states import FINAL_STATES
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.simulator import chance
from trainhall.cluster.simulator.chance import SeededIds
from trainhall.cluster.simulator.clock import CatchingUpClock
from trainhall.cluster.simulator.database import Disk, SimulatedDatabase
from trainhall.cluster.simulator.loop import Later, Process, VirtualLoop, later
from trainhall.cluster.simulator.mock.cluster import SimulatedCluster
from trainhall.cluster.simulator.mock.folder import temporary_folder
from trainhall.cluster.simulator.mock.outputs import write_outputs
from trainhall.cluster.simulator.mock.scenario import OPENING_SECONDS, Scenario
from trainhall.cluster.simulator.ranks import Fate
from trainhall.db.database import Database
from trainhall.db.models import Job

SEED = 20
PRESENT_SECONDS = 0.05
"""Distance from the present at which the opening may end."""
FORGET_SECONDS = 600.0
KEPT_JOBS = 300
"""So many ended jobs are remembered, besides runs of experiments: some 50 MB, and what happened in
eight hours."""
KEPT_RUNS = 2_000
"""Ended runs of experiments that are remembered."""
CONNECT_SECONDS = 10.0
"""A host that takes longer to connect does so while the coordinator answers already."""
POLL_SECONDS, SHIP_SECONDS = 30.0, (200.0, 300.0)
"""As in `cluster`, but of the opening."""


class Mock:
    """A simulated cluster that first catches up with the present, in virtual time, and then lives
    in it: its ranks run on, while its agents and its coordinator are others.

    Args:
        db: a file of SQLite that has its tables.
    """

    def __init__(
        self,
        db: Database,
        folder: Path,
        *,
        options: ClusterOptions | None = None,
        seed: int = SEED,
        on_fatal: Callable[[str, BaseException | None], None] = end_process,
    ) -> None:
        self.clock = CatchingUpClock(datetime.now(UTC) - timedelta(seconds=OPENING_SECONDS))
        self.folder = folder
        self._db = db
        self._ids = SeededIds(seed)
        self._options = _without_sending(options or ClusterOptions())
        self._seed = seed
        self._on_fatal = on_fatal
        fates: dict[str, dict[int, Fate]] = {}
        self.cluster = SimulatedCluster(
            self.clock,
            seed=seed,
            fate=lambda launch: fates.get(launch.job_id, {}).get(launch.attempt),
            broke=lambda error: on_fatal("a request", error),
            poll_seconds=POLL_SECONDS,
            ship_seconds=SHIP_SECONDS,
        )
        self.scenario = Scenario(self.cluster, fates, seed)
        self.coordinator = self._make_coordinator(db, self._options)
        self._tasks = BackgroundTasks(on_fatal)
        self._cancelled = threading.Event()
        """Set when the opening is to end early: a thread cannot be cancelled."""

    async def start(self) -> None:
        """Run the opening in virtual time, then continue in real time."""
        opening = asyncio.ensure_future(asyncio.to_thread(self._run_opening))
        try:
            passed, pending = await asyncio.shield(opening)
        finally:
            self._cancelled.set()
            await asyncio.wait([opening])
        self.clock.go_live(passed)
        for seconds, callback, args in pending:
            later(seconds, callback, *args)
        await self.coordinator.start()
        await write_outputs(self.coordinator)
        self.cluster.serve(self.coordinator)
        self.cluster.hurry()
        self.cluster.start_agents()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CONNECT_SECONDS):
                await self.cluster.connected()
        self._tasks.start("simulation", self._live())
        self._tasks.start("forgetting", self._forget_regularly())

    async def stop(self) -> None:
        await self._tasks.stop()
        await self.cluster.kill_agents()
        await self.coordinator.stop()
        await self.cluster.server.answered()

    def _make_coordinator(self, db: Database, options: ClusterOptions) -> Coordinator:
        return Coordinator(
            db,
            data_dir=self.folder,
            clock=self.clock,
            ids=self._ids,
            options=options,
            on_fatal=self._on_fatal,
        )

    def _run_opening(self) -> tuple[float, list[Later]]:
        """Return how many seconds passed, and what is to happen later."""
        loop = VirtualLoop()
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(self._catch_up())
            return loop.time(), loop.pending()

    async def _catch_up(self) -> None:
        with contextlib.closing(
            Disk(chance.stream(self._seed, "disk"), path=self._db.url.database)
        ) as disk:
            coordinator = self._make_coordinator(
                SimulatedDatabase(disk, Process("opening")), _slowed(self._options)
            )
            self.cluster.serve(coordinator)
            try:
                await coordinator.start()
                await self._reach_present()
            finally:
                await self.cluster.kill_agents()
                await coordinator.stop()
                await self.cluster.server.answered()

    async def _reach_present(self) -> None:
        while not self._cancelled.is_set():
            now = self.clock.now()
            left = (datetime.now(UTC) - now).total_seconds()
            if left <= PRESENT_SECONDS:
                return
            await self.scenario.act(now.timestamp())
            await asyncio.sleep(min(max(0.0, self.scenario.due - now.timestamp()), left))

    async def _live(self) -> None:
        """Run until cancelled."""
        while True:
            now = self.clock.now().timestamp()
            await self.scenario.act(now)
            await asyncio.sleep(max(0.0, self.scenario.due - now))

    async def _forget_regularly(self) -> None:
        while True:
            await asyncio.sleep(FORGET_SECONDS)
            await self.forget()

    async def forget(self, kept: int = KEPT_JOBS) -> None:
        """Remove all that belongs to ended jobs but the newest, so that no disk fills up."""
        final = [state.value for state in FINAL_STATES]
        ended = select(Job.id).where(Job.state.in_(final)).order_by(Job.number.desc())
        alone = Job.experiment_id.is_(None)
        async with self._db.transaction() as session:
            old = [*await session.scalars(ended.where(alone).offset(kept))]
            # A sweep of hundreds of trials is looked at as a whole.
            old += await session.scalars(ended.where(~alone).offset(KEPT_RUNS))
            for job_id in old:
                await delete_record(session, job_id, self.clock.now())
        self.scenario.forget(old)
        self.cluster.forget(old)


def _without_sending(options: ClusterOptions) -> ClusterOptions:
    return replace(options, alerts=replace(options.alerts, simulated=True))


def _slowed(options: ClusterOptions) -> ClusterOptions:
    """Return the options of the opening, whose single moments no one sees."""
    suspect = max(options.suspect_after_seconds, options.lost_after_seconds / 3)
    return replace(
        options,
        heartbeat_seconds=max(options.heartbeat_seconds, 0.8 * suspect),
        suspect_after_seconds=suspect,
        tick_seconds=max(options.tick_seconds, 20.0),
        telemetry_seconds=max(options.telemetry_seconds, 60.0),
        queue_history_seconds=max(options.queue_history_seconds, 60.0),
        packing_seconds=max(options.packing_seconds, 600.0),
        housekeeping_seconds=max(options.housekeeping_seconds, 600.0),
    )


@contextmanager
def _quiet_connections() -> Iterator[None]:
    """Keep what agents say about their connections out of the coordinator's log."""
    logger = logging.getLogger(connection.__name__)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@asynccontextmanager
async def mock_coordinator(
    options: ClusterOptions | None,
    on_fatal: Callable[[str, BaseException | None], None],
) -> AsyncIterator[Coordinator]:
    """Run a coordinator whose cluster is simulated; remove everything afterwards."""
    with _quiet_connections(), temporary_folder() as folder:
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
