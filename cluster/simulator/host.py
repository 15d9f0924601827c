"""A host: its disk, its processes, and its agent, which decides and connects as the real one does.

What the real agent keeps in files the simulated one keeps on a `HostDisk`, so that it too can be
killed at any moment and finds its way from what is left.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from trainhall.cluster.agent.attempt import Attempt, keep_prepared
from trainhall.cluster.agent.coordinator_link.connection import Connection
from trainhall.cluster.agent.coordinator_link.http_api import UnavailableError
from trainhall.cluster.agent.options import (
    AgentOptions,
    CredentialRefusedError,
    RemovedByCoordinatorError,
)
from trainhall.cluster.agent.reconcile import Stage
from trainhall.cluster.coordinator import Coordinator
from trainhall.cluster.errors import ClusterError
from trainhall.cluster.simulator.attempts import NOWHERE, SHIM_DIED, Attempts, token_of
from trainhall.cluster.simulator.clock import WorldClock
from trainhall.cluster.simulator.loop import Process, detach, later
from trainhall.cluster.simulator.network import Link, Server
from trainhall.cluster.simulator.ranks import Group, Rank, Storage, Tape, recovered
from trainhall.cluster.simulator.shim import Folder, Shim
from trainhall.cluster.simulator.story import Story
from trainhall.cluster.wire.protocol import Desired, DeviceInfo, JoinRequest, Report
from trainhall.monitoring.lineage import Origin
from trainhall.training.fencing import FencingToken
from trainhall.training.link.failure import Failure
from trainhall.training.link.failure_cause import Cause
from trainhall.training.link.launch import Command, Launch
from trainhall.training.link.status import Outcome

LOOK_SECONDS = 1.0
"""Between two looks at the shims where none rings: one that was killed does not."""
PREPARE_SECONDS = (0.05, 1.5)
START_SECONDS = (0.05, 0.8)
RETRY_SECONDS = (0.2, 2.0)
SHIP_SECONDS = (2.0, 8.0)
"""Between two looks for what the ranks of an attempt wrote; its end rings."""
LOST_FOLDERS = 0.5
"""The share of attempts' folders that a power cut takes: unlike what an agent notes before it
launches, they are not written through."""


@dataclass
class HostDisk:
    credential: str = ""
    launched: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The newest (attempt, generation) that was ever launched here, by job."""
    folders: dict[FencingToken, Folder] = field(default_factory=dict)
    """By the token with which the attempt began here: its launch may be of a later generation."""


class Ledger(Protocol):
    """Interface that records events of a host."""

    def begins(self, host: "Host", rank: Rank) -> None: ...

    def launched(self, host: "Host", shim: Shim, kept: Mapping[tuple[str, int], int]) -> None: ...

    def forgets(self, host: "Host", folder: Folder) -> None: ...

    def agent_takes(self, host: "Host", desired: Desired) -> None: ...

    def agent_runs_again(self, host: "Host", token: FencingToken) -> None: ...

    def accepted(self, host: "Host", token: FencingToken, *, again: bool) -> None: ...

    def sent_away(self, host: "Host", shim: Shim, rank: Rank) -> None: ...

    def ended(self, host: "Host", shim: Shim) -> None: ...


class Host:
    """A machine of the cluster.

    Args:
        group: where the ranks of an attempt meet.
        ledger: is told what is launched, wanted and forgotten here.
    """

    def __init__(
        self,
        name: str,
        slots: int,
        *,
        clock: WorldClock,
        server: Server,
        link: Link,
        storage: Storage,
        group: Callable[[Launch], Group],
        story: Story,
        chance: random.Random,
        ledger: Ledger,
    ) -> None:
        self.name = name
        self.clock = clock
        self.server = server
        self.link = link
        self.storage = storage
        self.story = story
        self.chance = chance
        self.ledger = ledger
        self._group = group
        self.disk = HostDisk()
        self.node_id = ""
        self.powered = True
        self.power_cuts = 0
        self.agent: Agent | None = None
        self.agents = 0
        self.devices = [
            DeviceInfo(index=i, kind="cuda", name="simulated", memory_total=1) for i in range(slots)
        ]

    # -- processes -------------------------------------------------------------------------------

    def start_agent(self) -> None:
        self.agents += 1
        self.agent = Agent(self, f"{self.name}-{self.agents}")
        self.story.log(self.name, f"agent {self.agents} starts")

    async def kill_agent(self) -> None:
        agent, self.agent = self.agent, None
        if agent is not None:
            await agent.process.kill()

    async def power_off(self) -> None:
        """Everything ends where it stands; the disk keeps what was written through to it."""
        self.powered = False
        self.power_cuts += 1
        await self.kill_agent()
        for shim in self.shims():
            shim.die(with_ranks=True, silently=True)
        for token in list(self.disk.folders):
            if self.chance.random() < LOST_FOLDERS:
                self.story.log(self.name, f"lost the folder of job {token[0]} attempt {token[1]}")
                self.remove_folder(token)

    def power_on(self) -> None:
        self.powered = True
        self.start_agent()

    def shims(self) -> list[Shim]:
        """Return the shims that are alive, or whose ranks are."""
        shims = [f.shim for f in self.disk.folders.values() if f.shim is not None]
        return [shim for shim in shims if shim.alive or shim.running]

    def remove_folder(self, token: FencingToken) -> None:
        folder = self.disk.folders.pop(token, None)
        if folder is not None:
            self.ledger.forgets(self, folder)

    def start_shim(self, token: FencingToken, folder: Folder, power_cuts: int) -> None:
        """The first to take the folder stays the only one.

        Args:
            power_cuts: how many there were when it was on its way.
        """
        if folder.shim is not None or self.disk.folders.get(token) is not folder:
            return
        if power_cuts != self.power_cuts:
            return
        folder.shim = Shim(folder, self)
        detach(folder.shim.run(), "shim")

    # -- what a shim needs of it -----------------------------------------------------------------

    def ring(self) -> None:
        if self.agent is not None:
            self.agent.ring()

    def wrote(self) -> None:
        if self.agent is not None:
            self.agent.ship()

    def time_of_day(self) -> float:
        return self.clock.now().timestamp()

    def monotonic(self) -> float:
        return self.clock.monotonic()

    def group(self, launch: Launch) -> Group:
        return self._group(launch)

    def begins(self, rank: Rank) -> None:
        self.ledger.begins(self, rank)

    def launched(self, shim: Shim, kept: dict[tuple[str, int], int]) -> None:
        self.ledger.launched(self, shim, kept)

    def sent_away(self, shim: Shim, rank: Rank) -> None:
        self.ledger.sent_away(self, shim, rank)

    def ended(self, shim: Shim) -> None:
        self.ledger.ended(self, shim)


class Agent(Attempts[Attempt]):
    """One process of it."""

    def __init__(self, host: Host, agent_id: str) -> None:
        super().__init__(Attempt, host.disk.launched)
        self.host = host
        self.agent_id = agent_id
        self.process = Process(agent_id)
        self._homes: dict[FencingToken, FencingToken] = {}
        """Folder keys of attempts that continue in a later generation."""
        self._known: dict[FencingToken, set[tuple[int, int]]] = {}
        """Writers whose files are shipped, by folder key."""
        self._leaving: set[FencingToken] = set()
        self._removed: list[str] = []
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
        """Note that there is something to poll."""
        self._bell.set()

    def ship(self) -> None:
        """Note that there is something to ship."""
        self._to_ship.set()

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
                    await asyncio.sleep(LOOK_SECONDS)
                self._desired = None
            except CredentialRefusedError as error:
                host.story.log(host.name, f"is refused, and joins again: {error}")
                host.disk.credential = ""

    async def _join(self) -> None:
        host = self.host

        async def join(coordinator: Coordinator) -> None:
            announced = await coordinator.nodes.announce(host.name)
            reply = await coordinator.nodes.join(
                JoinRequest(
                    join_token=announced.join_token,
                    name=host.name,
                    address=host.name,
                    agent_version="simulated",
                    devices=host.devices,
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
            agent_version="simulated",
            agent_id=self.agent_id,
            time=self.host.clock.now().timestamp(),
            address=self.host.name,
            devices=self.host.devices,
            assignments=self.assignment_reports(),
            removed=self._removed,
            revision=revision,
        )

    def _take(self, desired: Desired) -> None:
        for location in desired.remove:
            self.host.storage.remove(location)
        self._removed = desired.remove
        for assignment in desired.assignments:
            token = token_of(assignment.launch)
            if assignment.goal == "run" and token not in self._seen_running:
                self._seen_running.add(token)
                if token[1:] <= self.host.disk.launched.get(token[0], (0, 0)):
                    self.host.ledger.agent_runs_again(self.host, token)
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

    # -- this host -------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            self._bell.clear()
            if self._refresh():
                self._changed()
            self.reconcile()
            try:
                async with asyncio.timeout(LOOK_SECONDS if self.attempts else None):
                    await self._bell.wait()
            except TimeoutError:
                pass

    def _refresh(self) -> bool:
        changed = False
        for token, attempt in list(self.attempts.items()):
            folder = self._folder(token)
            if attempt.stage not in (Stage.READY, Stage.LIVE) or folder is None:
                continue
            before = (attempt.stage, attempt.status)
            self._look(attempt, folder)
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
        self._known[self._home(attempt.token)] |= {*folder.tapes, *(r.writer for r in ranks)}

    def _home(self, token: FencingToken) -> FencingToken:
        return self._homes.get(token, token)

    def _folder(self, token: FencingToken) -> Folder | None:
        return self.host.disk.folders.get(self._home(token))

    def _look(self, attempt: Attempt, folder: Folder) -> None:
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
            # It died without a word: what it left behind is ended, and that is said in its place.
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

    def _is_leaving(self, token: FencingToken) -> bool:
        return any(token[0] == leaving[0] for leaving in self._leaving)

    def _prepare(self, attempt: Attempt) -> None:
        attempt.task = self.process.spawn(self._make_ready(attempt), "prepare")

    def _start(self, attempt: Attempt) -> None:
        attempt.task = self.process.spawn(self._launch(attempt), "start")

    def _send_command(self, attempt: Attempt, command: Command) -> None:
        folder = self._folder(attempt.token)
        if folder is not None and folder.shim is not None:
            folder.shim.send_command(command)

    def _discard(self, attempt: Attempt) -> None:
        if attempt.task is not None:
            attempt.task.cancel()
        self.host.remove_folder(self._home(attempt.token))

    def _clean_up(self, attempt: Attempt) -> None:
        self._leaving.add(attempt.token)
        self.process.spawn(self._forget(attempt), "forget")

    def _regroup(self, attempt: Attempt, onto: FencingToken) -> None:
        """Give the shim the launch of a later generation. Until it has taken it up (`_follow`) this
        is done again and again."""
        folder = self._folder(attempt.token)
        assert folder is not None
        folder.launch = keep_prepared(self._wanted(onto), attempt.launch)
        self._note_launched(onto)
        if folder.shim is not None:
            folder.shim.take_launch()

    def _add(self, token: FencingToken, launch: Launch, stage: Stage) -> Attempt:
        attempt = super()._add(token, launch, stage)
        self._known.setdefault(self._home(token), set())
        return attempt

    def _find(self, home: FencingToken, folder: Folder) -> None:
        """Take up what an earlier agent has left."""
        status = folder.shim.status if folder.shim is not None else None
        # The shim may not have taken up the newest launch yet: it will be told again.
        generation = folder.launch.generation if status is None else status.generation
        token = home._replace(generation=generation)
        self._homes[token] = home
        attempt = self._add(token, folder.launch, Stage.READY)
        attempt.status = status
        self._ship_all_of(attempt, folder)

    async def _make_ready(self, attempt: Attempt) -> None:
        await asyncio.sleep(self.host.chance.uniform(*PREPARE_SECONDS))
        folder = Folder(attempt.launch, acked_at=self._acked_at)
        if attempt.launch.node_rank == 0 and (
            found := self.host.storage.unrecorded(attempt.launch)
        ):
            folder.recovered = recovered(attempt.launch, found, self.host.time_of_day())
        self.host.disk.folders[attempt.token] = folder
        self._known[attempt.token] = {
            (place.rank, attempt.launch.generation) for place in attempt.launch.ranks
        }
        attempt.stage = Stage.READY
        await self._launch(attempt)

    async def _launch(self, attempt: Attempt) -> None:
        """First it is noted that the token was launched here, and never again is."""
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
        return all(tape.empty for tape in self._tapes(self._home(attempt.token)))

    def _tapes(self, home: FencingToken) -> list[Tape]:
        """Return the tapes that it knows of."""
        folder, known = self.host.disk.folders.get(home), self._known.get(home, set())
        if folder is None:
            return []
        tapes = [tape for writer, tape in folder.tapes.items() if writer in known]
        return tapes if folder.recovered is None else [*tapes, folder.recovered]

    async def _ship(self) -> None:
        """Send what the ranks wrote, each piece until it is acknowledged."""
        while True:
            self._to_ship.clear()
            for home in list(self.host.disk.folders):
                for tape in self._tapes(home):
                    if tape.empty:
                        continue
                    try:
                        await self._ship_tape(home, tape)
                    except (UnavailableError, ClusterError):
                        await asyncio.sleep(self.host.chance.uniform(*RETRY_SECONDS))
            try:
                async with asyncio.timeout(self.host.chance.uniform(*SHIP_SECONDS)):
                    await self._to_ship.wait()
            except TimeoutError:
                pass

    async def _ship_tape(self, token: FencingToken, tape: Tape) -> None:
        def accepted(again: bool) -> None:
            self.host.ledger.accepted(self.host, token, again=again)
            self._changed()

        send = partial(self.host.server.request, self.host.link)
        await tape.ship(send, Origin(tape.generation, self.host.node_id), accepted=accepted)
