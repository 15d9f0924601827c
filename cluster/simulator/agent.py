"""A host's agent: it decides and connects as the real one does, and may be killed at any moment.

What the real agent keeps in files this one keeps on its host's disk, so that the next one finds its
way from what is left.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from trainhall.cluster.agent.attempt import Attempt, keep_prepared
from trainhall.cluster.agent.coordinator_link.connection import Connection
from trainhall.cluster.agent.coordinator_link.http_api import UnavailableError
from trainhall.cluster.agent.options import (
    AgentOptions,
    CredentialRefusedError,
    RemovedByCoordinatorError,
)
from trainhall.cluster.agent.reconcile import (
    Action,
    CleanUp,
    DesiredAttempt,
    EndAsGeneration,
    Plan,
    Prepare,
    Regroup,
    ReportNotStarted,
    RequestGradients,
    RequestProfile,
    SendCommand,
    Stage,
    Start,
    decide,
)
from trainhall.cluster.coordinator import Coordinator
from trainhall.cluster.errors import ClusterError
from trainhall.cluster.simulator.host import Host
from trainhall.cluster.simulator.loop import Process, later
from trainhall.cluster.simulator.shim import Folder, Shim
from trainhall.cluster.simulator.spool import Spool
from trainhall.cluster.waiting import wait_until_set
from trainhall.cluster.wire.protocol import Assignment, Desired, JoinRequest, Report
from trainhall.monitoring.lineage import Origin
from trainhall.training.fencing import FencingToken
from trainhall.training.link.failure import Cause, Failure
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.launch import Command, Launch
from trainhall.training.link.status import Outcome
from trainhall.training.spec.plan import PlanningFailedError

PLAN_SECONDS = (3.0, 6.0)
PREPARE_SECONDS = (0.05, 1.5)
START_SECONDS = (0.05, 0.8)
RETRY_SECONDS = (0.2, 2.0)
LAST_REPORT_POLLS, LAST_REPORT_POLL_SECONDS = 50, 0.02
SHIM_DIED = "the process that supervised the ranks was killed"
NOWHERE = Path("/nonexistent")


class Agent:
    """One process of a host's agent."""

    def __init__(self, host: Host, agent_id: str) -> None:
        self.attempts: dict[FencingToken, Attempt] = {}
        self._desired: dict[FencingToken, Assignment] | None = None
        self.host = host
        self.agent_id = agent_id
        self.process = Process(agent_id)
        self._homes: dict[FencingToken, FencingToken] = {}
        """Folder keys of attempts that continue in a later generation."""
        self._known: dict[FencingToken, set[tuple[int, int]]] = {}
        """Writers whose files are shipped, by folder key."""
        self._leaving: set[FencingToken] = set()
        self._removed: list[str] = []
        self._stopping = False
        self._acked_at = float("-inf")
        self._seen_running: set[FencingToken] = set()
        self._bell = asyncio.Event()
        self._to_ship = asyncio.Event()
        self._connection: Connection | None = None
        for home, folder in host.disk.folders.items():
            self._find(home, folder)
        self.process.spawn(self._stay_connected(), "connection")
        self.process.spawn(self._watch(), "shims")
        self.process.spawn(self._ship(), "shipping")

    def ring(self) -> None:
        self._bell.set()

    def ship(self) -> None:
        self._to_ship.set()

    @property
    def is_connected(self) -> bool:
        return self._connection is not None and self._connection.is_open

    async def leave(self) -> None:
        """Report that it ends, if the coordinator is there."""
        self._stopping = True
        if self._connection is not None and self._connection.is_open:
            self._connection.changed()
            for _ in range(LAST_REPORT_POLLS):
                if self._connection.is_up_to_date():
                    break
                await asyncio.sleep(LAST_REPORT_POLL_SECONDS)

    # -- the coordinator -------------------------------------------------------------------------

    async def _stay_connected(self) -> None:
        host = self.host
        while True:
            if not host.disk.credential:
                await self._join()
            self._connection = Connection(
                AgentOptions(coordinator="http://simulated", data_dir=NOWHERE),
                host.disk.credential,
                self._report,
                self._take,
                self._to_ship.set,
                dial=partial(host.server.dial, host.link, host.disk.credential),
                chance=host.chance,
                on_ack=self._heartbeat_acked,
                clock=host.clock.monotonic,
            )
            try:
                await self._connection.run()
            except RemovedByCoordinatorError:
                host.story.log(host.name, "was removed: its ranks end, then it joins again")
                host.disk.credential = ""
                self._desired = {}
                while self.attempts or self._leaving:
                    self.reconcile()
                    await asyncio.sleep(host.poll_seconds)
                self._desired = None
                if not host.ledger.rejoins(host):
                    host.agent = None
                    await self.process.kill()
            except CredentialRefusedError as error:
                host.story.log(host.name, f"is refused, and joins again: {error}")
                host.disk.credential = ""

    async def _join(self) -> None:
        host = self.host

        async def join(coordinator: Coordinator) -> None:
            registered = await coordinator.nodes.register(host.name)
            reply = await coordinator.nodes.join(
                JoinRequest(
                    join_token=registered.join_token,
                    name=host.name,
                    address=host.address,
                    agent_version=host.agent_version,
                    devices=list(host.devices),
                )
            )
            host.node_id, host.disk.credential = reply.node_id, reply.credential

        while not host.disk.credential:
            try:
                await host.server.request(host.link, join)
            except (UnavailableError, ClusterError):
                await asyncio.sleep(host.chance.uniform(*RETRY_SECONDS))

    def _report(self, revision: int) -> Report:
        return Report(
            agent_version=self.host.agent_version,
            agent_id=self.agent_id,
            time=self.host.clock.time_of_day(),
            address=self.host.address,
            devices=list(self.host.devices),
            device_use=self.host.device_use(),
            host=self.host.host_use(),
            assignments=[a.report(self._shipped(a)) for a in self.attempts.values()],
            removed=self._removed,
            revision=revision,
            stopping=self._stopping,
        )

    def _take(self, desired: Desired) -> None:
        for location in desired.remove:
            self.host.storage.remove(location)
        self._removed = desired.remove
        self._seen_running &= {assignment.launch.token for assignment in desired.assignments}
        for assignment in desired.assignments:
            token = assignment.launch.token
            if assignment.goal == "run" and token not in self._seen_running:
                self._seen_running.add(token)
                newest = self.host.disk.launched.get(token.job_id)
                if newest is not None and token <= newest:
                    self.host.ledger.agent_runs_again()
        self.host.ledger.agent_takes(self.host, desired)
        self.desire(desired.assignments)

    def _heartbeat_acked(self, sent: float) -> None:
        """Pass the acknowledgement to the shims, which read it even if the agent has died."""
        self._acked_at = max(sent, self._acked_at)
        for token in self.attempts:
            if (folder := self._folder(token)) is not None:
                folder.acked_at = self._acked_at

    def _changed(self) -> None:
        if self._connection is not None:
            self._connection.changed()

    # -- its decisions ---------------------------------------------------------------------------

    def desire(self, assignments: Sequence[Assignment]) -> None:
        """Take the complete desired state in place of the one before."""
        self._desired = {a.launch.token: a for a in assignments}
        self.reconcile()

    def reconcile(self) -> None:
        """Act on the difference between the observed and the desired state."""
        wanted = None
        if self._desired is not None:
            wanted = {
                token: DesiredAttempt.of(assignment)
                for token, assignment in self._desired.items()
                if token in self.attempts or not self._is_leaving(token)
            }
        found = {token: a.observe(self._shipped(a)) for token, a in self.attempts.items()}
        for action in decide(wanted, found, self.host.disk.launched):
            self._act(action)

    def _act(self, action: Action) -> None:
        match action:
            case Plan(token):
                self._begin(self._add(token, self._wanted(token), Stage.PLANNING), self._plan)
            case Prepare(token):
                self._begin(self._add(token, self._wanted(token), Stage.PREPARING), self._prepare)
            case Start(token):
                self._begin(self.attempts[token], self._launch)
            case SendCommand(token, command):
                if (shim := self._shim(token)) is not None:
                    shim.send_command(command)
            case RequestGradients(token, gradients):
                self.attempts[token].gradients = gradients
                if (shim := self._shim(token)) is not None:
                    shim.request_gradients(gradients)
            case RequestProfile():
                pass  # a coordinator of simulated hosts refuses profiles
            case Regroup(token, onto):
                self._regroup(self.attempts[token], onto)
            case EndAsGeneration(token, onto):
                self._rename(self.attempts[token], onto)
            case ReportNotStarted(token, outcome, reason):
                self._report_not_started(token, outcome, reason)
            case CleanUp(token):
                attempt = self.attempts.pop(token)
                self._leaving.add(token)
                self.process.spawn(self._forget(attempt), "forget")

    def _report_not_started(self, token: FencingToken, outcome: Outcome, reason: str) -> None:
        attempt = self.attempts.get(token) or self._add(token, self._wanted(token), Stage.READY)
        if attempt.task is not None:
            attempt.task.cancel()
        self.host.remove_folder(self._home(token))
        failure = Failure(message=reason) if outcome is Outcome.FAILED else None
        self._end(attempt, outcome, failure)

    def _begin(
        self, attempt: Attempt, work: Callable[[Attempt], Coroutine[Any, Any, None]]
    ) -> None:
        attempt.task = self.process.spawn(work(attempt), work.__name__)

    def _add(self, token: FencingToken, launch: Launch, stage: Stage) -> Attempt:
        attempt = Attempt(token, AttemptFolder(NOWHERE), launch, stage)
        self.attempts[token] = attempt
        self._known.setdefault(self._home(token), set())
        return attempt

    def _wanted(self, token: FencingToken) -> Launch:
        assert self._desired is not None
        return self._desired[token].launch

    def _note_launched(self, token: FencingToken) -> None:
        newest = self.host.disk.launched.get(token.job_id, token)
        self.host.disk.launched[token.job_id] = max(newest, token)

    def _is_leaving(self, token: FencingToken) -> bool:
        """Return whether an attempt of its job is still being removed."""
        return any(token[0] == leaving[0] for leaving in self._leaving)

    # -- this host -------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            self._bell.clear()
            if self._refresh():
                self._changed()
            self.reconcile()
            await wait_until_set(self._bell, self.host.poll_seconds if self.attempts else None)

    def _refresh(self) -> bool:
        changed = False
        for token, attempt in list(self.attempts.items()):
            folder = self._folder(token)
            if attempt.stage not in (Stage.READY, Stage.LIVE) or folder is None:
                continue
            before = (attempt.stage, attempt.status)
            self._poll(attempt, folder)
            if before != (attempt.stage, attempt.status):
                changed = True
                self._follow(attempt, folder)
        return changed

    def _follow(self, attempt: Attempt, folder: Folder) -> None:
        """Follow a shim that took up a later generation or started another process."""
        status = attempt.status
        if status is None:
            return
        if status.generation > attempt.token.generation:
            attempt.launch = folder.launch
            self._rename(attempt, attempt.token._replace(generation=status.generation))
        self._ship_all_of(attempt, folder)

    def _rename(self, attempt: Attempt, token: FencingToken) -> None:
        self._homes[token] = self._homes.pop(attempt.token, attempt.token)
        self.attempts[token] = self.attempts.pop(attempt.token)
        attempt.token = token
        self._changed()

    def _ship_all_of(self, attempt: Attempt, folder: Folder) -> None:
        ranks = attempt.status.ranks if attempt.status is not None else []
        self._known[self._home(attempt.token)] |= {*folder.spools, *(r.writer for r in ranks)}

    def _home(self, token: FencingToken) -> FencingToken:
        return self._homes.get(token, token)

    def _folder(self, token: FencingToken) -> Folder | None:
        return self.host.disk.folders.get(self._home(token))

    def _shim(self, token: FencingToken) -> Shim | None:
        folder = self._folder(token)
        return folder.shim if folder is not None else None

    def _poll(self, attempt: Attempt, folder: Folder) -> None:
        shim = folder.shim
        if shim is None:
            return
        attempt.stage, attempt.started_at, attempt.status = Stage.LIVE, None, shim.status
        if shim.alive:
            return
        if shim.status is not None and shim.status.outcome is not None:
            self._end(attempt, shim.status.outcome, shim.status.failure)
        elif folder.ended is not None:
            self._end(attempt, *folder.ended)
        else:
            # It died without an outcome: end what it left behind, and report in its place.
            shim.die(with_ranks=True)
            asked = attempt.status.command if attempt.status is not None else Command.RUN
            failed = asked is not Command.STOP
            folder.ended = (
                (Outcome.FAILED, Failure(message=SHIM_DIED, cause=Cause.KILLED))
                if failed
                else (Outcome.STOPPED, None)
            )
            self._end(attempt, *folder.ended)

    def _end(self, attempt: Attempt, outcome: Outcome, failure: Failure | None) -> None:
        attempt.stage, attempt.outcome, attempt.failure = Stage.ENDED, outcome, failure
        self._to_ship.set()
        self._changed()

    def _regroup(self, attempt: Attempt, onto: FencingToken) -> None:
        """Give the shim the launch of a later generation. Until it has taken it up (`_follow`) this
        is done again and again."""
        folder = self._folder(attempt.token)
        assert folder is not None
        folder.launch = keep_prepared(self._wanted(onto), attempt.launch)
        self._note_launched(onto)
        if folder.shim is not None:
            folder.shim.take_launch()

    def _find(self, home: FencingToken, folder: Folder) -> None:
        """Take up what an earlier agent has left."""
        status = folder.shim.status if folder.shim is not None else None
        # The shim may not have taken up the newest launch yet: it will be notified again.
        generation = folder.launch.generation if status is None else status.generation
        token = home._replace(generation=generation)
        self._homes[token] = home
        attempt = self._add(token, folder.launch, Stage.READY)
        attempt.status = status
        self._ship_all_of(attempt, folder)

    async def _plan(self, attempt: Attempt) -> None:
        await asyncio.sleep(self.host.chance.uniform(*PLAN_SECONDS))
        attempt.task = None
        try:
            attempt.plan = self.host.plan(attempt.launch)
        except PlanningFailedError as error:
            planning = attempt.launch.planning
            if planning is not None and planning.own_strategy:
                attempt.plan_refusal = str(error)
            else:
                message = f"its strategy cannot be planned: {error}"
                self._end(attempt, Outcome.FAILED, Failure(message=message, final=True))
        self._changed()

    async def _prepare(self, attempt: Attempt) -> None:
        await asyncio.sleep(self.host.chance.uniform(*PREPARE_SECONDS))
        folder = Folder(attempt.launch, acked_at=self._acked_at)
        now = self.host.clock.time_of_day()
        folder.recovered = self.host.storage.recovered(attempt.launch, now)
        self.host.disk.folders[attempt.token] = folder
        self._known[attempt.token] = {
            (slot.rank, attempt.launch.generation) for slot in attempt.launch.ranks
        }
        attempt.stage = Stage.READY
        await self._launch(attempt)

    async def _launch(self, attempt: Attempt) -> None:
        """Note first that the token was launched here, and never launch it again."""
        host, home = self.host, self._home(attempt.token)
        self._note_launched(attempt.token)
        await asyncio.sleep(host.chance.uniform(*START_SECONDS))
        folder = host.disk.folders.get(home)
        attempt.started_at = 0.0
        attempt.task = None
        if folder is not None:
            # It is on its way, whatever becomes of this agent.
            after = host.chance.uniform(*START_SECONDS)
            later(after, host.start_shim, home, folder, host.power_cuts)

    async def _forget(self, attempt: Attempt) -> None:
        if attempt.task is not None:
            attempt.task.cancel()
        await asyncio.sleep(self.host.chance.uniform(0.0, 0.3))
        home = self._homes.pop(attempt.token, attempt.token)
        self.host.remove_folder(home)
        self._known.pop(home, None)
        self._leaving.discard(attempt.token)
        self._changed()
        self._bell.set()

    # -- shipping --------------------------------------------------------------------------------

    def _shipped(self, attempt: Attempt) -> bool:
        return all(spool.empty for spool in self._spools(self._home(attempt.token)))

    def _spools(self, home: FencingToken) -> list[Spool]:
        """Return the spools that it knows of."""
        folder, known = self.host.disk.folders.get(home), self._known.get(home, set())
        if folder is None:
            return []
        spools = [spool for writer, spool in folder.spools.items() if writer in known]
        return spools if folder.recovered is None else [*spools, folder.recovered]

    async def _ship(self) -> None:
        """Send what the ranks wrote, each part until it is acknowledged."""
        while True:
            self._to_ship.clear()
            for shim in self.host.shims():
                shim.catch_up()
            for home in list(self.host.disk.folders):
                for spool in self._spools(home):
                    if spool.empty:
                        continue
                    try:
                        await self._ship_spool(home, spool)
                    except (UnavailableError, ClusterError):
                        await asyncio.sleep(self.host.chance.uniform(*RETRY_SECONDS))
            await wait_until_set(self._to_ship, self.host.chance.uniform(*self.host.ship_seconds))

    async def _ship_spool(self, token: FencingToken, spool: Spool) -> None:
        def accepted(again: bool) -> None:
            self.host.ledger.accepted(token, again=again)
            self._changed()

        send = partial(self.host.server.request, self.host.link)
        await spool.ship(send, Origin(spool.generation, self.host.node_id), accepted=accepted)
