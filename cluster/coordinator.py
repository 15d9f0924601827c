"""The coordinator: everything that one process of it holds, put together."""

import asyncio
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from sqlalchemy.exc import DBAPIError

from trainhall.cluster.accounts.attempt_tokens import AttemptTokens
from trainhall.cluster.accounts.audit import AuditService
from trainhall.cluster.accounts.groups import GroupService
from trainhall.cluster.accounts.service import AccountService
from trainhall.cluster.accounts.users import UserService
from trainhall.cluster.alerts.dispatcher import Dispatcher
from trainhall.cluster.alerts.feed import BrowserFeed
from trainhall.cluster.alerts.monitor import AlertMonitor
from trainhall.cluster.alerts.service import AlertService
from trainhall.cluster.background_tasks import BackgroundTasks, end_process
from trainhall.cluster.checkpoints.service import CheckpointService
from trainhall.cluster.checkpoints.store import CheckpointStore
from trainhall.cluster.data_sets.service import DataService
from trainhall.cluster.environments.service import EnvironmentService
from trainhall.cluster.experiments.service import ExperimentService
from trainhall.cluster.gateway.connections import Gateway
from trainhall.cluster.gateway.rank_events import RankEvents
from trainhall.cluster.jobs.code_store import CodeStore
from trainhall.cluster.jobs.deletion import DeletedJobs
from trainhall.cluster.jobs.gradients import GradientService
from trainhall.cluster.jobs.listing.saved_views import SavedViewService
from trainhall.cluster.jobs.service import JobService
from trainhall.cluster.jobs.source.code_files import JobCodeService
from trainhall.cluster.jobs.source.commits import CommitService
from trainhall.cluster.ledger.keeper import LedgerKeeper
from trainhall.cluster.ledger.service import LedgerService
from trainhall.cluster.nodes.heartbeats import HeartbeatMonitor
from trainhall.cluster.nodes.holders import Holders
from trainhall.cluster.nodes.service import NodeService
from trainhall.cluster.notifier import Notifier
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.outputs.service import OutputService
from trainhall.cluster.outputs.store import OutputStore
from trainhall.cluster.ports import Clock, Ids, SystemClock, SystemIds
from trainhall.cluster.profiles.service import ProfileService
from trainhall.cluster.projects.service import ProjectService
from trainhall.cluster.queue.history import QueueHistoryService
from trainhall.cluster.reconcile.reconciler import Reconciler
from trainhall.cluster.reports.service import ReportService
from trainhall.cluster.runs.artifacts import RunArtifacts
from trainhall.cluster.runs.service import RunService
from trainhall.cluster.scheduling.queue import QueueService
from trainhall.cluster.scheduling.quota_service import QuotaService
from trainhall.cluster.secrets.service import SecretService
from trainhall.cluster.service import ServiceContext
from trainhall.cluster.snapshot.undeliverable import UndeliverableAttempts
from trainhall.cluster.tunnels.service import TunnelService
from trainhall.cluster.tunnels.waiting import WaitingTunnels
from trainhall.cluster.what_if.service import WhatIfService
from trainhall.db.database import Database
from trainhall.monitoring import devices
from trainhall.monitoring.ingest import Ingest
from trainhall.monitoring.live import Hub
from trainhall.monitoring.packer import Packer

if TYPE_CHECKING:
    from trainhall.cluster.experiments.analyses import AnalysisService

log = structlog.get_logger(__name__)


class Coordinator:
    """Built without touching the database; `start` begins the work, `stop` ends it."""

    def __init__(
        self,
        db: Database,
        *,
        data_dir: Path,
        clock: Clock | None = None,
        ids: Ids | None = None,
        options: ClusterOptions | None = None,
        on_fatal: Callable[[str, BaseException | None], None] = end_process,
    ) -> None:
        self.db = db
        self.clock = clock or SystemClock()
        self.ids = ids or SystemIds()
        self.options = options or ClusterOptions()
        notifier = Notifier()
        context = ServiceContext(db, self.clock, self.ids, self.options, notifier)
        self.heartbeats = HeartbeatMonitor(self.clock)
        self.holders = Holders(db)
        self.accounts = AccountService(context)
        self.attempt_tokens = AttemptTokens(context)
        self.secrets = SecretService(context, data_dir)
        self.audit = AuditService(context)
        self.users = UserService(context, self.accounts)
        self.groups = GroupService(context, self.accounts)
        self.store = CheckpointStore(data_dir, self.ids, self.options.max_upload_file_bytes)
        self.code = CodeStore(context, data_dir)
        output_store = OutputStore(data_dir)
        self.outputs = OutputService(context, output_store)
        self.jobs = JobService(context, self.code)
        self.job_code = JobCodeService(context, self.code)
        self.commits = CommitService(context)
        self.projects = ProjectService(context, self.accounts, self.jobs)
        self.deleted_jobs = DeletedJobs(db, self._remove_files)
        self.experiments = ExperimentService(context, self.code)
        self.environments = EnvironmentService(context)
        self.data = DataService(context)
        self.nodes = NodeService(context, self.heartbeats)
        self.queue_history = QueueHistoryService(context)
        self.queue = QueueService(context, self.heartbeats, self.queue_history)
        self.views = SavedViewService(context)
        self.reports = ReportService(context)
        self.quotas = QuotaService(context, self.heartbeats)
        self.what_if = WhatIfService(context, self.heartbeats)
        self.ledger = LedgerService(context)
        self.ledger_keeper = LedgerKeeper(context)
        self.gradients = GradientService(context)
        self.profiles = ProfileService(context)
        self.checkpoints = CheckpointService(context, self.store)
        self.rank_events = RankEvents(context, self.checkpoints)
        undeliverable = UndeliverableAttempts()
        self.waiting_tunnels = WaitingTunnels()
        self.tunnels = TunnelService(context, self.waiting_tunnels)
        self.gateway = Gateway(
            context, self.heartbeats, undeliverable, self.waiting_tunnels.tickets
        )
        self.reconciler = Reconciler(context, self.heartbeats, undeliverable)
        self.hub = Hub(db)
        self.alert_feed = BrowserFeed(db)
        self.alert_dispatcher = Dispatcher(context, self.alert_feed)
        # The disk of a host that only simulates others is no news of theirs.
        watched = None if self.options.alerts.simulated else data_dir
        self.alert_monitor = AlertMonitor(context, watched)
        self.alerts = AlertService(context, self.alert_dispatcher, self.alert_monitor)
        losses = self.alert_monitor.losses
        self.ingest = Ingest(
            db,
            self.clock.now,
            self.hub.wake,
            losses.record,
            max_log_bytes=context.options.log_bytes_per_job,
        )
        self.runs = RunService(context, self.ingest)
        self.run_artifacts = RunArtifacts(context, self.runs, output_store)
        self.packer = Packer(db, self.clock.now, self.hub.wake)
        notifier.notify_reconciler = self.reconciler.wake
        notifier.notify_node = self.gateway.wake
        notifier.notify_all_nodes = self.gateway.wake_all
        notifier.notify_node_removed = self.nodes.removed
        notifier.notify_viewers = self.hub.wake
        self._context = context
        self._tasks = BackgroundTasks(on_fatal)

    @cached_property
    def analyses(self) -> "AnalysisService":
        """Analyses and reports of experiments."""
        # Few coordinators analyze soon after their start, and this is 40 modules.
        from trainhall.cluster.experiments.analyses import AnalysisService

        return AnalysisService(self._context)

    async def start(self) -> None:
        """Begin to reconcile and to listen. Every node gets a full grace period from here."""
        # Every pass of the reconciler asks it, and one follows every tick.
        self.heartbeats.start(self.options.tick_seconds + self.options.suspect_after_seconds / 3)
        self._tasks.start("reconciler", self.reconciler.run())
        self._tasks.start("readings", self.gateway.keep_flushing())
        self._tasks.start("packer", self._keep_packing())
        self._tasks.start("queue history", self._keep_queue_history())
        self._tasks.start("housekeeping", self._keep_house())
        self._tasks.start("audit", self.audit.run())
        self._tasks.start("alerts", self.alert_monitor.run())
        self._tasks.start("alert deliveries", self.alert_dispatcher.run())

    async def stop(self) -> None:
        """End the connections, then the background work. What runs on the nodes runs on."""
        await self.gateway.stop()
        await self.accounts.stop()
        await self.audit.stop()
        await self.checkpoints.verification.stop()
        await self._tasks.stop()
        await self.reconciler.stop()

    async def _remove_files(self, job_id: str) -> None:
        """Remove a deleted job's files in the data folder.

        Raises:
            OSError: the disk does not let them go.
        """
        await self.store.remove_job(job_id)
        await self.outputs.delete(job_id)

    async def _keep_packing(self) -> None:
        while True:
            await asyncio.sleep(self.options.packing_seconds)
            try:
                await self.packer.pack_once()
            except DBAPIError as error:
                log.error("metrics_not_packed", error=str(error.orig))

    async def _keep_queue_history(self) -> None:
        while True:
            await asyncio.sleep(self.options.queue_history_seconds)
            try:
                await self.queue_history.sample()
            except DBAPIError as error:
                log.error("queue_positions_not_stored", error=str(error.orig))

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(self.options.housekeeping_seconds)
            try:
                await self.housekeep()
            except (DBAPIError, OSError) as error:
                log.error("housekeeping_failed", error=str(error))

    async def housekeep(self) -> None:
        """Remove what is not needed any more, and derive the desired states of all nodes again."""
        await self.deleted_jobs.sweep()
        await self.checkpoints.uploads.housekeep()
        await self.checkpoints.uploads.remove_unrecorded()
        await self.store.sweep(self.options.abandoned_upload_seconds)
        await self.code.sweep(self.options.unused_code_seconds)
        await self.outputs.uploads.sweep()
        async with self.db.transaction() as session:
            await devices.forget(session, self.clock.now())
        await self.ledger_keeper.keep()
        await self.packer.trim_ended()
        await self.alerts.housekeep()
        await self.attempt_tokens.sweep()
        await self.audit.housekeep()
        await self.db.reclaim()
        self.gateway.wake_all()
