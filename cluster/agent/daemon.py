"""The agent: brings this host to the coordinator's desired state, and reports the current one.

It keeps no state of its own. If it is killed, the next agent finds the shims and the spools in the
data folder and resumes.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from trainhall import __version__
from trainhall.cluster.agent.attempt import Attempt
from trainhall.cluster.agent.attempts import Attempts
from trainhall.cluster.agent.containers.engine import HostEngine
from trainhall.cluster.agent.coordinator_link.batched_api import BatchedApi
from trainhall.cluster.agent.coordinator_link.connection import Connection
from trainhall.cluster.agent.coordinator_link.http_api import UnavailableError
from trainhall.cluster.agent.coordinator_link.trust import Trust
from trainhall.cluster.agent.data_dir import DataDir
from trainhall.cluster.agent.devices import Devices, host_use
from trainhall.cluster.agent.job_settings import JobSettings, check_limits
from trainhall.cluster.agent.launch.job_environment import job_environment
from trainhall.cluster.agent.launch.warm_client import WarmParent
from trainhall.cluster.agent.options import (
    AgentError,
    AgentOptions,
    CredentialRefusedError,
    JoinRefusedError,
    MissingCredentialError,
    RemovedByCoordinatorError,
)
from trainhall.cluster.agent.os_support import cgroups, linux
from trainhall.cluster.agent.run_as import RunAs, parse_run_as
from trainhall.cluster.agent.shim import folder_ipc
from trainhall.cluster.agent.shipping import checkpoint_transfer
from trainhall.cluster.agent.tunnels.host import Tunnels
from trainhall.cluster.backoff import Backoff
from trainhall.cluster.waiting import end_tasks, wait_until_set
from trainhall.cluster.wire.join_token import JoinToken
from trainhall.cluster.wire.protocol import (
    Desired,
    DeviceUse,
    HostUse,
    JoinReply,
    JoinRequest,
    Report,
)
from trainhall.training.event_log import EventLogger

logger = EventLogger(__name__)

POLL_SECONDS = 0.5
"""Between two polls of the shims: a new status rings the doorbell, a shim's death does not."""
STOP_MARGIN_SECONDS = 3.0
"""Beyond the longest grace of a script, until every rank has to be gone."""
LAST_SHIPPING_SECONDS = 5.0
"""Time limit for the last uploads and reports. The rest stays in the data folder for the next
agent."""
LAST_REPORT_SECONDS = 1.0
"""For the report that this agent ends."""
TIDY_SECONDS = 0.02


def run_agent(options: AgentOptions) -> None:
    """Run an agent until SIGTERM or SIGINT.

    Raises:
        AgentError: it cannot start or continue; the message says what to do.
    """
    _log_to_stderr()
    run_as = parse_run_as(options.run_as) if options.run_as else None
    data_dir = DataDir(options.data_dir, is_shared=run_as is not None)
    with data_dir.locked():
        if run_as is not None:
            run_as.check(data_dir.attempts)
            run_as.prepare_agent()
        else:
            logger.info("jobs_share_user", uid=os.geteuid(), separate="--run-as, as root")
        if options.job_memory is not None:
            check_limits(cgroups.find())
        asyncio.run(_main(options, data_dir, run_as))


async def _main(options: AgentOptions, data_dir: DataDir, run_as: RunAs | None) -> None:
    stop, force = asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        (force if stop.is_set() else stop).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    await Agent(options, data_dir, run_as).run(stop, force)


class Agent:
    def __init__(self, options: AgentOptions, data_dir: DataDir, run_as: RunAs | None) -> None:
        self._options = options
        self._data_dir = data_dir
        self._agent_id = secrets.token_hex(6)
        self._address = options.own_address()
        self._devices = Devices(options.slots)
        self._engine = HostEngine()
        environment = job_environment(os.environ, options.pass_env)
        environment.setdefault("OMP_NUM_THREADS", str(self._devices.threads))
        settings = JobSettings(
            environment,
            run_as,
            cgroups.find(),
            options.job_memory,
            options.allows_file_repositories,
            self._engine,
        )
        self._warm = WarmParent(data_dir, environment)
        self._trust = Trust(options, data_dir.read_pin(options.coordinator))
        self._api = BatchedApi(options, self._trust)
        self._wake = asyncio.Event()
        self._attempts = Attempts(data_dir, self._api, self._warm, self._wake.set, settings)
        self._tunnels = Tunnels(options, self._trust, self._attempts)
        self._connection: Connection | None = None
        self._use: tuple[list[DeviceUse], HostUse] = ([], HostUse())
        self._removed: dict[str, None] = {}
        """Checkpoint folders that are gone, of those the coordinator still asks about."""
        self._removing: dict[str, asyncio.Task[None]] = {}
        self._stopping = False

    async def run(self, stop: asyncio.Event, force: asyncio.Event) -> None:
        """Work until `stop` is set; `force` cuts the end short.

        Raises:
            AgentError: it cannot start or continue.
        """
        doorbell = folder_ipc.make_pipe(self._data_dir.doorbell)
        # Shims of other users ring it; they reach it only where jobs run as such.
        self._data_dir.doorbell.chmod(0o622)
        loop = asyncio.get_running_loop()
        loop.add_reader(doorbell, self._on_ring, doorbell)
        # What a shim leaves that is killed comes to this process, and is ended.
        linux.adopt_orphans()
        self._attempts.observed.find()
        work = asyncio.create_task(self._work(), name="work")
        stopped = asyncio.create_task(stop.wait(), name="stop")
        try:
            await asyncio.wait([work, stopped], return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                await work
            await self._leave(force)
        except BaseExceptionGroup as group:
            raise _cause(group) from None
        finally:
            await end_tasks([work, stopped, *self._removing.values()])
            await self._tunnels.close()
            await self._attempts.close()
            await self._warm.stop()
            await self._api.close()
            loop.remove_reader(doorbell)
            os.close(doorbell)
            self._data_dir.doorbell.unlink(missing_ok=True)

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._warm.watch(), name="warm parent")
            group.create_task(self._watch_shims(), name="shims")
            group.create_task(self._attempts.shipper.run(), name="shipping")
            group.create_task(self._measure(), name="measure")
            group.create_task(self._attempts.remove_left_containers(), name="containers")
            group.create_task(self._stay_connected(), name="connection")

    # -- the coordinator ------------------------------------------------------------------------

    async def _stay_connected(self) -> None:
        await self._attempts.observed.end_unreadable()
        await self._trust.establish()
        known = self._data_dir.read_credential(self._options.coordinator)
        if self._trust.replaces_kept:
            known = None
        joined = known is None
        if known is None:
            known = await self._join()
        while True:
            self._api.credential = known.credential
            self._connection = Connection(
                self._options,
                known.credential,
                self._report,
                self._take,
                self._attempts.shipper.wake,
                # Another token than the one that made this credential may help.
                raise_if_refused=not joined and self._options.token is not None,
                trust=self._trust,
                on_ack=self._attempts.report_acked,
            )
            try:
                await self._connection.run()
            except CredentialRefusedError as error:
                logger.warning("credential_refused", error=error, action="join with the token")
                joined = True
                with contextlib.suppress(JoinRefusedError):
                    known = await self._join()
            except RemovedByCoordinatorError as error:
                # Its attempts were replaced; what still runs here must not continue.
                self._data_dir.forget_credential()
                await self._stop_ranks()
                if joined or self._options.token is None:
                    raise
                logger.warning("node_removed", error=error, action="join with the token")
                joined = True
                try:
                    known = await self._join()
                except JoinRefusedError:
                    raise error from None

    async def _join(self) -> JoinReply:
        options = self._options
        if not options.token:
            raise MissingCredentialError(
                f"this host has not joined {options.coordinator} yet; add a node there and give "
                "its --token"
            )
        request = JoinRequest(
            join_token=JoinToken.parse(options.token).secret,
            name=options.name,
            address=self._address,
            agent_version=__version__,
            devices=self._devices.infos,
        )
        backoff, failed = Backoff(0.1, options.reconnect_limit_seconds), False
        while True:
            try:
                reply = await self._api.join(request)
                break
            except UnavailableError as error:
                if not failed:
                    logger.warning(
                        "coordinator_unreachable", coordinator=options.coordinator, error=error
                    )
                failed = True
            await asyncio.sleep(backoff.next())
        self._data_dir.write_credential(options.coordinator, reply, self._trust.pinned)
        logger.info("joined", coordinator=options.coordinator, node=reply.node_id)
        return reply

    def _report(self, revision: int) -> Report:
        device_use, host = self._use
        return Report(
            agent_version=__version__,
            agent_id=self._agent_id,
            time=time.time(),
            address=self._address,
            devices=self._devices.infos,
            device_use=device_use,
            host=host,
            assignments=self._attempts.observed.reports(),
            removed=list(self._removed),
            revision=revision,
            stopping=self._stopping,
        )

    def _take(self, desired: Desired) -> None:
        self._attempts.desire(desired.assignments)
        self._attempts.reconcile()
        if self._stopping:
            return
        self._tunnels.take(desired.tunnels, self._api.credential)
        self._removed = {path: None for path in self._removed if path in desired.remove}
        for path in desired.remove:
            if path not in self._removed and path not in self._removing:
                self._removing[path] = asyncio.create_task(self._remove(path))

    async def _remove(self, path: str) -> None:
        try:
            remove = partial(
                checkpoint_transfer.remove_released, Path(path), guarded=self._data_dir.is_shared
            )
            if await asyncio.to_thread(remove):
                self._removed[path] = None
                self._wake.set()
        finally:
            del self._removing[path]

    # -- this host ------------------------------------------------------------------------------

    def _on_ring(self, doorbell: int) -> None:
        folder_ipc.drain(doorbell)
        self._wake.set()

    async def _watch_shims(self) -> None:
        """Poll the shims when one rings, and from time to time, and do what follows."""
        while True:
            changed = self._wake.is_set()
            self._wake.clear()
            if (self._attempts.refresh() or changed) and self._connection is not None:
                self._connection.changed()
            self._attempts.reconcile()
            busy = self._attempts.watched()
            await wait_until_set(self._wake, POLL_SECONDS if busy else None)

    async def _measure(self) -> None:
        while True:
            ranks = self._attempts.observed.pids_by_slot()
            devices, host = await asyncio.to_thread(self._measure_once, ranks)
            host.backlog = self._attempts.shipper.backlog()
            self._use = devices, host
            await asyncio.sleep(self._options.heartbeat_seconds)

    def _measure_once(self, ranks: dict[int, list[int]]) -> tuple[list[DeviceUse], HostUse]:
        use, engine = host_use(self._data_dir.path), self._engine.find()
        use.container_engine = str(engine) if engine is not None else None
        return self._devices.use(ranks), use

    async def _leave(self, force: asyncio.Event) -> None:
        """Report that this agent ends, so that its node gets no new work, and end the ranks first
        where they are to end with it."""
        self._stopping = True
        if self._connection is not None:
            self._connection.changed()
        if self._options.stop_ranks_on_exit:
            await self._end_ranks(force)
        if self._connection is not None and self._connection.is_open:
            await self._until(self._connection.is_up_to_date, LAST_REPORT_SECONDS, force)
        if not self._options.stop_ranks_on_exit:
            live = len(self._attempts.observed.live())
            ranks = "they continue; the next agent here adopts them" if live else "none"
            logger.info("agent_stopped", attempts=live, ranks=ranks)

    async def _end_ranks(self, force: asyncio.Event) -> None:
        """End what runs here so that nothing is lost, and report it if the coordinator is there.

        Tasks save and scripts get SIGTERM; what takes too long, or longer than `force`, ends
        without. What the coordinator does not learn now, the next agent reports.
        """
        attempts, observed = self._attempts, self._attempts.observed
        attempts.leave()
        live = observed.live()
        if live:
            logger.info("ending_ranks", attempts=len(live))
        scripts_end = time.monotonic() + _longest_grace(live)
        await self._until(lambda: not observed.live_tasks(), self._options.save_seconds, force)
        attempts.leave_at_once()
        if force.is_set():
            await self._until(lambda: not observed.live_tasks(), STOP_MARGIN_SECONDS)
            return
        left = max(0.0, scripts_end - time.monotonic()) + STOP_MARGIN_SECONDS
        await self._until(lambda: not observed.live(), left, force)
        if self._connection is not None and self._connection.is_open:
            await self._until(attempts.all_reported, LAST_SHIPPING_SECONDS, force)
            self._connection.changed()

    async def _stop_ranks(self) -> None:
        """End every rank of this host and forget it, with the last of what it wrote."""
        attempts, observed = self._attempts, self._attempts.observed
        grace = _longest_grace(observed.live())
        attempts.stop_all()
        await self._until(lambda: not observed.live(), grace + STOP_MARGIN_SECONDS)
        await self._until(attempts.empty, LAST_SHIPPING_SECONDS)

    async def _until(
        self, check: Callable[[], bool], seconds: float, force: asyncio.Event | None = None
    ) -> None:
        """Wait until the check holds, doing meanwhile what can be done for it."""
        deadline = time.monotonic() + seconds
        while not check() and time.monotonic() < deadline:
            if force is not None and force.is_set():
                return
            await asyncio.sleep(TIDY_SECONDS)
            self._attempts.refresh()
            self._attempts.reconcile()


def _longest_grace(attempts: Iterable[Attempt]) -> float:
    """Return the seconds that the scripts among them may take to end."""
    graces = [a.launch.spec.recovery.grace_seconds for a in attempts if a.launch.spec.script]
    return max(graces, default=0.0)


def _cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error that ended the agent, preferring one that people can act on."""
    agent_errors = group.subgroup(AgentError)
    found: BaseException = agent_errors or group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


def _log_to_stderr() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for chatty in ("httpx", "httpcore", "websockets"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
