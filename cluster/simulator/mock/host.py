"""A simulated GPU host: its agent decides as the real one does, and its attempts take their time.

preparing → starting → running → (stopping) → an end that is told, shipped and forgotten
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

from trainhall import __version__
from trainhall.cluster.agent.attempt import Attempt
from trainhall.cluster.agent.reconcile import Stage
from trainhall.cluster.ports import Clock
from trainhall.cluster.simulator.attempts import SHIM_DIED, Attempts
from trainhall.cluster.simulator.mock.node import Node
from trainhall.cluster.simulator.spool import Spool
from trainhall.cluster.simulator.workload import planning
from trainhall.cluster.simulator.workload.gpu import IDLE, gpus
from trainhall.cluster.simulator.workload.work import Group
from trainhall.cluster.wire.protocol import Assignment, DeviceInfo, DeviceUse, HostUse
from trainhall.training.link.failure import Failure
from trainhall.training.link.failure_cause import Cause
from trainhall.training.link.launch import Command, Launch, Rendezvous
from trainhall.training.link.status import (
    EXIT_COMPLETED,
    EXIT_PAUSED,
    EXIT_STOPPED,
    Outcome,
    RankState,
    ShimStatus,
)
from trainhall.training.spec.plan import PlanningFailedError

PLAN_SECONDS = (3.0, 6.0)
PREPARE_SECONDS = (0.3, 0.8)
FETCH_SECONDS = (0.8, 2.5)
"""To have a checkpoint of the coordinator's store at hand."""
START_SECONDS = (1.5, 3.5)
STOP_SECONDS = (0.2, 1.2)

_EXIT_CODES = {
    Outcome.COMPLETED: EXIT_COMPLETED,
    Outcome.PAUSED: EXIT_PAUSED,
    Outcome.STOPPED: EXIT_STOPPED,
}
_TIB = 2**40


@dataclass
class HostAttempt(Attempt):
    """One attempt on this host: its shim and its ranks."""

    until: float = inf
    """When the present phase passes into the next by itself (seconds since the epoch)."""
    spools: dict[int, Spool] = field(default_factory=dict)
    silent: bool = False
    """The host is off: there is nobody to see that the processes are gone."""

    @property
    def alive(self) -> bool:
        return self.stage is not Stage.ENDED and not self.silent

    @property
    def asked(self) -> Command:
        return self.status.command if self.status is not None else Command.RUN

    @property
    def ranks_run(self) -> bool:
        return bool(self.spools) and self.alive

    def end(self, outcome: Outcome, now: float, failure: Failure | None = None) -> None:
        if self.stage is Stage.ENDED:
            return
        self.stage, self.outcome, self.failure, self.until = Stage.ENDED, outcome, failure, inf
        for rank in self.status.ranks if self.status is not None else []:
            rank.finished_at = now
            first = failure is not None and failure.rank == rank.rank
            if outcome in _EXIT_CODES:
                rank.exit_code = _EXIT_CODES[outcome]
            elif first and failure is not None and failure.exit_code is not None:
                rank.exit_code = failure.exit_code
            else:
                rank.signal = 9


class Host(Attempts[HostAttempt], Node):
    """A host with GPUs.

    Args:
        group: finds or makes the group that an attempt's ranks meet in.
    """

    agent_version = __version__

    def __init__(
        self,
        name: str,
        *,
        address: str,
        clock: Clock,
        chance: random.Random,
        group: Callable[[Launch], Group],
        num_gpus: int = 8,
    ) -> None:
        Attempts.__init__(self, HostAttempt, {})
        Node.__init__(self, name, address=address)
        self.reported_at = -inf
        """When it last reported (monotonic)."""
        self.off = False
        self._clock = clock
        self._chance = chance
        self._group = group
        # Readings have a stream of their own: how often somebody looks must change nothing else.
        self._noise = random.Random(chance.getrandbits(64))
        self._gpus = gpus(num_gpus, self._noise)
        self._disk = chance.uniform(2.0, 5.5)
        self._thirst = chance.uniform(0.6, 1.3)
        """Load factor of its data loading on the host's processors and memory."""
        self._reported: object = None

    # -- what is ---------------------------------------------------------------------------------

    @property
    def devices(self) -> Sequence[DeviceInfo]:
        return [gpu.info for gpu in self._gpus]

    def device_use(self) -> list[DeviceUse]:
        loads = {
            place.device_index: self._group(attempt.launch).load(place.rank)
            for attempt in self.attempts.values()
            if attempt.ranks_run
            for place in attempt.launch.ranks
        }
        now = self._clock.monotonic()
        return [gpu.use(loads.get(gpu.info.index, IDLE), now) for gpu in self._gpus]

    def host_use(self) -> HostUse:
        busy = sum(len(a.launch.ranks) for a in self.attempts.values() if a.alive)
        return HostUse(
            cpu=round(min(100.0, 1.2 + 4.5 * busy * self._thirst + self._noise.uniform(0, 3)), 1),
            memory_used=int(
                (0.05 + 0.05 * busy * self._thirst + 0.003 * self._noise.random()) * 2 * _TIB
            ),
            memory_total=2 * _TIB,
            disk_used=int(self._disk * _TIB),
            disk_total=14 * _TIB,
        )

    def news(self) -> bool:
        """Return whether its reports differ from the last ones."""
        content = (
            self.revision,
            [
                (token, a.stage, a.status and a.status.phase, a.plan is None, self._shipped(a))
                for token, a in self.attempts.items()
            ],
        )
        if content == self._reported:
            return False
        self._reported = content
        return True

    @property
    def due(self) -> float:
        """When an attempt's phase ends by itself (seconds since the epoch)."""
        return min((a.until for a in self.attempts.values()), default=inf)

    # -- what shall be ---------------------------------------------------------------------------

    def desire(self, assignments: Sequence[Assignment]) -> None:
        """Take the desired state. Ranks of mock mode do not regroup in place."""
        super().desire(
            [
                a.model_copy(update={"launch": a.launch.model_copy(update={"in_place": False})})
                for a in assignments
            ]
        )

    def _shipped(self, attempt: HostAttempt) -> bool:
        ended = attempt.stage is Stage.ENDED
        return ended and all(spool.empty for spool in attempt.spools.values())

    def _plan(self, attempt: HostAttempt) -> None:
        attempt.until = self._now() + self._chance.uniform(*PLAN_SECONDS)

    def _prepare(self, attempt: HostAttempt) -> None:
        checkpoint = attempt.launch.checkpoint
        fetches = checkpoint.upload and checkpoint.resume
        seconds = FETCH_SECONDS if fetches else PREPARE_SECONDS
        attempt.until = self._now() + self._chance.uniform(*seconds)

    def _send_command(self, attempt: HostAttempt, command: Command) -> None:
        assert attempt.status is not None
        attempt.status.command, attempt.status.phase = command, "stopping"
        if command is Command.STOP:
            attempt.until = self._now() + self._chance.uniform(*STOP_SECONDS)

    def _end(self, attempt: HostAttempt, outcome: Outcome, failure: Failure | None) -> None:
        attempt.end(outcome, self._now(), failure)

    # -- time ------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Let phases end whose time has come."""
        if self.off:
            return
        now = self._now()
        for attempt in list(self.attempts.values()):
            while attempt.until <= now:
                self._next_phase(attempt, attempt.until)
        self.reconcile()

    def _next_phase(self, attempt: HostAttempt, now: float) -> None:
        attempt.until = inf
        if attempt.stage is Stage.PLANNING:
            self._finish_planning(attempt, now)
        elif attempt.status is None:
            self._start_shim(attempt, now)
        elif attempt.status.phase == "starting":
            self._start_ranks(attempt, attempt.status, now)
        else:
            attempt.end(Outcome.STOPPED, now)

    def _finish_planning(self, attempt: HostAttempt, now: float) -> None:
        try:
            attempt.plan = planning.plan(attempt.launch)
        except PlanningFailedError as error:
            message = f"its strategy cannot be planned: {error}"
            attempt.end(Outcome.FAILED, now, Failure(message=message, final=True))

    def _start_shim(self, attempt: HostAttempt, now: float) -> None:
        self._note_launched(attempt.token)
        job_id, number, generation = attempt.token
        attempt.stage, attempt.until = Stage.LIVE, now + self._chance.uniform(*START_SECONDS)
        rendezvous = None
        if attempt.launch.node_rank == 0:
            port = self._chance.randint(20_000, 60_000)
            rendezvous = Rendezvous(address=self.address, port=port)
        attempt.status = ShimStatus(
            job_id=job_id,
            attempt=number,
            generation=generation,
            shim_pid=1,
            shim_started_at=now,
            phase="starting",
            rendezvous=rendezvous,
        )

    def _start_ranks(self, attempt: HostAttempt, status: ShimStatus, now: float) -> None:
        launch, status.phase = attempt.launch, "running"
        for place in launch.ranks:
            pid = self._chance.randint(2_000, 4_000_000)
            status.ranks.append(RankState(rank=place.rank, pid=pid, started_at=now))
            attempt.spools[place.rank] = Spool(launch, place.rank)
        self._group(launch).join(attempt, self.name, now)

    def switch_off(self) -> None:
        """Switch off the power: every process ends silently."""
        self.off = True
        for attempt in self.attempts.values():
            attempt.silent = attempt.stage is not Stage.ENDED
            attempt.until = inf

    def switch_on(self) -> None:
        """The agent finds what is left of its attempts."""
        self.off = False
        self._desired = None
        for attempt in self.attempts.values():
            if attempt.silent:
                attempt.silent = False
                attempt.end(
                    Outcome.FAILED, self._now(), Failure(message=SHIM_DIED, cause=Cause.KILLED)
                )

    def _now(self) -> float:
        return self._clock.now().timestamp()
