"""A simulated GPU host: its agent decides as the real one does, and its attempts take their time.

preparing → starting → running → (stopping) → an end that is told, shipped and forgotten
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from trainhall import __version__
from trainhall.cluster.agent.reconcile import (
    Action,
    CleanUp,
    DesiredAttempt,
    ObservedAttempt,
    Plan,
    Prepare,
    ReportNotStarted,
    RequestGradients,
    SendCommand,
    Stage,
    Start,
    decide,
)
from trainhall.cluster.agent.shim.rank_process import writer_name
from trainhall.cluster.ports import Clock
from trainhall.cluster.simulator.mock.node import Node, Token
from trainhall.cluster.simulator.workload import planning
from trainhall.cluster.simulator.workload.gpu import IDLE, gpus
from trainhall.cluster.simulator.workload.spool import Spool
from trainhall.cluster.simulator.workload.work import Group
from trainhall.cluster.wire.protocol import (
    Assignment,
    AssignmentReport,
    DeviceInfo,
    DeviceUse,
    HostUse,
)
from trainhall.training.link.failure import Failure
from trainhall.training.link.failure_cause import Cause
from trainhall.training.link.launch import Command, Launch, Rendezvous
from trainhall.training.link.status import (
    EXIT_COMPLETED,
    EXIT_PAUSED,
    EXIT_STOPPED,
    Outcome,
    RankState,
)
from trainhall.training.spec.plan import ChosenPlan, PlanningFailedError

PLAN_SECONDS = (3.0, 6.0)
PREPARE_SECONDS = (0.3, 0.8)
FETCH_SECONDS = (0.8, 2.5)
"""To have a checkpoint of the coordinator's store at hand."""
START_SECONDS = (1.5, 3.5)
STOP_SECONDS = (0.2, 1.2)
SHIM_DIED = "the process that supervised the ranks was killed"

_EXIT_CODES = {
    Outcome.COMPLETED: EXIT_COMPLETED,
    Outcome.PAUSED: EXIT_PAUSED,
    Outcome.STOPPED: EXIT_STOPPED,
}
_TIB = 2**40

Phase = Literal["planning", "preparing", "starting", "running", "stopping", "exited"]


@dataclass
class HostAttempt:
    """One attempt on this host: its shim and its ranks."""

    name: str
    """Of the host."""
    launch: Launch
    phase: Phase = "preparing"
    until: float = inf
    """When the present phase passes into the next by itself (seconds since the epoch)."""
    asked: Command = Command.RUN
    gradients: int = 0
    """The newest request for gradients that its ranks have heard of."""
    outcome: Outcome | None = None
    failure: Failure | None = None
    rendezvous: Rendezvous | None = None
    plan: ChosenPlan | None = None
    ranks: list[RankState] = field(default_factory=list)
    spools: dict[int, Spool] = field(default_factory=dict)
    silent: bool = False
    """The host is off: there is nobody to see that the processes are gone."""

    @property
    def alive(self) -> bool:
        return self.outcome is None and not self.silent

    @property
    def shipped(self) -> bool:
        return self.outcome is not None and all(spool.empty for spool in self.spools.values())

    def observe(self) -> ObservedAttempt:
        stage = Stage.LIVE
        if self.outcome is not None:
            stage = Stage.ENDED
        elif self.phase == "planning":
            stage = Stage.PLANNING
        elif self.phase == "preparing":
            stage = Stage.PREPARING
        return ObservedAttempt(stage, self.asked, self.shipped, gradients=self.gradients)

    def end(self, outcome: Outcome, now: float, failure: Failure | None = None) -> None:
        if self.outcome is not None:
            return
        self.phase, self.outcome, self.failure, self.until = "exited", outcome, failure, inf
        for rank in self.ranks:
            rank.finished_at = now
            first = failure is not None and failure.rank == rank.rank
            if outcome in _EXIT_CODES:
                rank.exit_code = _EXIT_CODES[outcome]
            elif first and failure is not None and failure.exit_code is not None:
                rank.exit_code = failure.exit_code
            else:
                rank.signal = 9

    def report(self) -> AssignmentReport:
        launch = self.launch
        return AssignmentReport(
            job_id=launch.job_id,
            attempt=launch.attempt,
            generation=launch.generation,
            phase=self.phase,
            ranks=self.ranks,
            rendezvous=self.rendezvous,
            plan=self.plan,
            outcome=self.outcome,
            failure=self.failure,
            shipped=self.shipped,
        )


class Host(Node):
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
        super().__init__(name, address=address)
        self.attempts: dict[Token, HostAttempt] = {}
        self.reported_at = -inf
        """When it last reported (monotonic)."""
        self.off = False
        self._clock = clock
        self._chance = chance
        self._group = group
        # Readings have a stream of their own: how often somebody looks must change nothing else.
        self._noise = random.Random(chance.getrandbits(64))
        self._gpus = gpus(num_gpus, self._noise)
        self._launched: dict[str, tuple[int, int]] = {}
        self._desired: dict[Token, Assignment] | None = None
        self._disk = chance.uniform(2.0, 5.5)
        self._thirst = chance.uniform(0.6, 1.3)
        """Of its data loading for the host's processors and memory."""
        self._reported: object = None

    # -- what is ---------------------------------------------------------------------------------

    @property
    def devices(self) -> Sequence[DeviceInfo]:
        return [gpu.info for gpu in self._gpus]

    def assignment_reports(self) -> list[AssignmentReport]:
        return [attempt.report() for attempt in self.attempts.values()]

    def device_use(self) -> list[DeviceUse]:
        loads = {
            place.device_index: self._group(attempt.launch).load(place.rank)
            for attempt in self.attempts.values()
            if attempt.alive and attempt.phase in ("running", "stopping")
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
        """What it would say of its attempts is not what it said last."""
        content = (
            self.revision,
            [
                (token, a.phase, a.outcome, a.rendezvous is None, a.plan is None, a.shipped)
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
        self._desired = {
            (a.launch.job_id, a.launch.attempt, a.launch.generation): a for a in assignments
        }
        self.reconcile()

    def reconcile(self) -> None:
        """Do what leads from what is to what shall be, by the real agent's decisions."""
        wanted = None
        if self._desired is not None:
            wanted = {
                token: DesiredAttempt(
                    a.goal,
                    a.launch.node_rank > 0 and a.launch.rendezvous is None,
                    plans=a.launch.planning is not None,
                    gradients=a.gradients,
                )
                for token, a in self._desired.items()
            }
        found = {token: attempt.observe() for token, attempt in self.attempts.items()}
        for action in decide(wanted, found, self._launched):
            self._act(action)

    def _act(self, action: Action) -> None:
        now = self._now()
        match action:
            case Plan(token):
                assert self._desired is not None
                attempt = HostAttempt(self.name, self._desired[token].launch, "planning")
                attempt.until = now + self._chance.uniform(*PLAN_SECONDS)
                self.attempts[token] = attempt
            case Prepare(token):
                assert self._desired is not None
                launch = self._desired[token].launch
                attempt = HostAttempt(self.name, launch)
                plan = launch.checkpoint
                fetches = plan.upload and plan.resume
                attempt.until = now + self._chance.uniform(
                    *(FETCH_SECONDS if fetches else PREPARE_SECONDS)
                )
                self.attempts[token] = attempt
            case Start():
                return  # nothing here dies between the two
            case SendCommand(token, command):
                attempt = self.attempts[token]
                attempt.asked, attempt.phase = command, "stopping"
                if command is Command.STOP:
                    attempt.until = now + self._chance.uniform(*STOP_SECONDS)
            case RequestGradients(token, gradients):
                self.attempts[token].gradients = gradients
            case ReportNotStarted(token, outcome, reason):
                assert self._desired is not None
                launch = self._desired[token].launch
                attempt = self.attempts.setdefault(token, HostAttempt(self.name, launch))
                failure = Failure(message=reason) if outcome is Outcome.FAILED else None
                attempt.end(outcome, now, failure)
            case CleanUp(token):
                del self.attempts[token]

    # -- time ------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Let phases end whose time has come."""
        if self.off:
            return
        now = self._now()
        for token, attempt in list(self.attempts.items()):
            while attempt.until <= now:
                self._next_phase(token, attempt, attempt.until)
        self.reconcile()

    def _next_phase(self, token: Token, attempt: HostAttempt, now: float) -> None:
        launch = attempt.launch
        match attempt.phase:
            case "planning":
                attempt.until = inf
                try:
                    attempt.plan = planning.plan(launch)
                except PlanningFailedError as error:
                    message = f"its strategy cannot be planned: {error}"
                    attempt.end(Outcome.FAILED, now, Failure(message=message, final=True))
            case "preparing":
                self._launched[token[0]] = (token[1], token[2])
                attempt.phase = "starting"
                attempt.until = now + self._chance.uniform(*START_SECONDS)
                if launch.node_rank == 0:
                    port = self._chance.randint(20_000, 60_000)
                    attempt.rendezvous = Rendezvous(address=self.address, port=port)
            case "starting":
                attempt.phase, attempt.until = "running", inf
                for place in launch.ranks:
                    attempt.ranks.append(
                        RankState(
                            rank=place.rank,
                            pid=self._chance.randint(2_000, 4_000_000),
                            started_at=now,
                        )
                    )
                    attempt.spools[place.rank] = Spool(
                        launch.job_id, launch.attempt, place.rank, writer_name(launch, place.rank)
                    )
                self._group(launch).join(attempt, now)
            case "stopping":
                attempt.end(Outcome.STOPPED, now)
            case _:
                attempt.until = inf

    def switch_off(self) -> None:
        """The power goes: every process ends, and nobody tells."""
        self.off = True
        for attempt in self.attempts.values():
            attempt.silent = attempt.outcome is None
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
