"""The shim as a model: it supervises the ranks of an attempt on one host, and outlives the agent.

Which ranks take part, which may be replaced and how all of it ended is the real one's code.
"""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from trainhall.cluster.agent.shim import failure_cause, isolation
from trainhall.cluster.agent.shim.failure_cause import RankExit
from trainhall.cluster.agent.shim.outcome import AttemptContext, failed, outcome_of
from trainhall.cluster.agent.shim.rank_table import (
    RankEntry,
    RankTable,
    can_be_replaced,
    failed_rank,
)
from trainhall.cluster.agent.shim.supervisor import AGREE_SECONDS, LEAVE_SECONDS, PEERS_SECONDS
from trainhall.cluster.simulator.clock import WorldClock
from trainhall.cluster.simulator.loop import later
from trainhall.cluster.simulator.ranks import BEGIN_SECONDS, Fate, Group, GroupObserver, Rank
from trainhall.cluster.simulator.spool import Spool
from trainhall.cluster.simulator.story import Story
from trainhall.training.link.failure import Failure
from trainhall.training.link.launch import Command, Launch, RankSlot, Rendezvous
from trainhall.training.link.status import (
    EXIT_NOT_REGROUPED,
    EXIT_STOPPED,
    FailedRank,
    Outcome,
    ShimStatus,
)

OPEN_SECONDS = (0.05, 0.5)
SEND_OFF_SECONDS = 0.1
"""Between the end of a rank that completed the job and of those that came too late for it."""


@dataclass
class Folder:
    """An attempt's folder."""

    launch: Launch
    """The newest that an agent gave to the shim."""
    shim: "Shim | None" = None
    ended: tuple[Outcome, Failure | None] | None = None
    """Outcome that an agent found in place of a dead shim."""
    spools: dict[tuple[int, int], Spool] = field(default_factory=dict)
    """By the rank and the generation with which a process began."""
    recovered: Spool | None = None
    """Unreported checkpoints of an earlier attempt, which its agent found."""
    acked_at: float = float("-inf")
    """Newest acknowledgement that the agent passed on for `on_isolation: stop`."""


class ShimObserver(GroupObserver):
    """The surroundings of shims: the groups that their ranks join, and hooks that observe them."""

    def group(self, launch: Launch) -> Group:
        """Return the group of a launch's ranks."""
        raise NotImplementedError

    def fate(self, machine: "Machine", launch: Launch, rank: int) -> Fate | None:
        """Return what goes wrong in a process that begins."""

    def begins(self, rank: Rank) -> None: ...

    def launched(self, shim: "Shim", kept: Mapping[tuple[str, int], int]) -> None:
        """Note that a shim has taken up a launch, and its processes run.

        Args:
            kept: the pids of those that ran before, by device.
        """

    def sent_away(self, shim: "Shim", rank: Rank) -> None:
        """Note that a process ends on request."""

    def ended(self, shim: "Shim") -> None:
        """Note that no rank of it is left, or that what is left has no supervisor."""


class Machine(Protocol):
    """The host, as a shim needs it."""

    name: str
    node_id: str
    chance: random.Random
    clock: WorldClock
    story: Story

    @property
    def ledger(self) -> ShimObserver: ...

    def shims(self) -> "list[Shim]": ...

    def ring(self) -> None:
        """Notify the host's agent, if there is one."""

    def wrote(self) -> None:
        """Note that a rank has reported something, which is rare."""


class Shim:
    def __init__(self, folder: Folder, machine: Machine) -> None:
        self.folder = folder
        self.host_name = machine.name
        self.launch = folder.launch
        self.alive = True
        self.control = Command.RUN
        """Command that the ranks read."""
        self.newest_group: Launch | None = None
        """The same: the newest generation whose ranks can join, of a job that regroups in place."""
        self.gradients = 0
        """Newest request for gradients."""
        self.isolated = False
        self.status: ShimStatus | None = None
        self.ranks: list[Rank] = []
        """Every process that it has started."""
        self.machine = machine
        self._ledger = machine.ledger
        self._ranks = RankTable(self.launch, self._start_rank, machine.clock.time_of_day)
        self._started = False
        self._signalled = False
        self._has_store = False
        self._failure: Failure | None = None
        self._failed_ranks: list[FailedRank] = []
        self._regroup_by = math.inf
        self._rendezvous: Rendezvous | None = None

    @property
    def running(self) -> list[Rank]:
        """Processes that are alive, whether it is or not."""
        return [rank for rank in self.ranks if rank.alive]

    @property
    def pids(self) -> dict[tuple[str, int], int]:
        """Return the pids of the processes in the present launch, by device."""
        table = self._ranks.current
        return {member.device: member.state.pid for member in table if member.state.pid}

    @property
    def has_completed(self) -> bool:
        """Ranks of it have completed the job."""
        return self._ranks.have_completed

    def start(self) -> None:
        if self.launch.isolation_seconds is not None:
            later(0.0, self._heed_isolation, self.launch.isolation_seconds)
        self._publish("starting")
        later(self.machine.chance.uniform(*OPEN_SECONDS), self._open)

    def _open(self) -> None:
        if self.alive and not self._signalled:
            self._open_rendezvous()
            self._ledger.launched(self, {})

    def group_of(self, launch: Launch) -> Group:
        return self._ledger.group(launch)

    def wrote(self) -> None:
        self.machine.wrote()

    def _heed_isolation(self, lost_after: float) -> None:
        if not self.alive:
            return
        since_ack = self.machine.clock.monotonic() - self.folder.acked_at
        step = isolation.step(since_ack, 0.0, isolation.limits(lost_after, math.inf))
        if step is not isolation.Step.CONTINUE:
            self.isolated = self.isolated or self.control is Command.RUN
            self.send_command(Command.PAUSE)
        if step is isolation.Step.KILL:
            self.send_command(Command.STOP)
            self._kill_ranks()
        later(isolation.CHECK_SECONDS, self._heed_isolation, lost_after)

    # -- commands --------------------------------------------------------------------------------

    def send_command(self, command: Command) -> None:
        self.catch_up()
        if not self.alive or command <= self.control:
            return
        self.control = command
        if not self._started:
            self._signalled = True
        elif command is Command.STOP:
            later(AGREE_SECONDS, self._kill_ranks)
        self._publish(self._phase())
        for rank in self.running:
            rank.read_page()
        self._settle()

    def request_gradients(self, number: int) -> None:
        self.catch_up()
        self.gradients = number
        for rank in self.running:
            rank.read_page()

    def catch_up(self) -> None:
        """Advance its ranks by the steps of the time that has passed, before new messages."""
        for rank in self.running:
            if rank.group is not None:
                rank.group.catch_up()

    def take_launch(self) -> None:
        """Continue with the launch in the folder, if it is of a later generation."""
        self.catch_up()
        launch, is_active = self.folder.launch, self.alive and self._started
        is_newer = launch.in_place and launch.generation > self.launch.generation
        is_over = self._failure is not None or self.has_completed
        if not is_active or not is_newer or is_over or self.control is Command.STOP:
            return
        kept: dict[tuple[str, int], int] = {rank.device: rank.pid for rank in self.running}
        self.launch = launch
        self._failed_ranks = []
        self._ranks.regroup(launch)
        self._regroup_by = math.inf
        if self._ranks.leaving:
            self._regroup_by = self.machine.clock.monotonic() + LEAVE_SECONDS
            later(LEAVE_SECONDS, self._settle)
        if not launch.ranks:
            assert self._rendezvous is not None
            self._meet_at(self._rendezvous)
        else:
            self._open_rendezvous()
        if self.alive:
            self._ledger.launched(self, kept)
            self._settle()

    def _open_rendezvous(self) -> None:
        """Open the rendezvous on the first host, which keeps it."""
        rendezvous = self.launch.rendezvous
        if self.launch.node_rank == 0:
            rendezvous = self._rendezvous
            if rendezvous is None or not self._has_store:
                port = self.machine.chance.randint(2**14, 2**15)
                rendezvous = Rendezvous(address="10.0.0.1", port=port)
            self._has_store = True
        assert rendezvous is not None  # the agent waits for it
        self._meet_at(rendezvous)

    def _meet_at(self, rendezvous: Rendezvous) -> None:
        self._rendezvous = rendezvous
        if self.launch.in_place:
            self.newest_group = self.launch
        before = self.running
        self._ranks.start(rendezvous)
        self._started = True
        self._publish("running")
        for rank in before:
            rank.read_page()

    # -- its ranks -------------------------------------------------------------------------------

    def _start_rank(self, launch: Launch, slot: RankSlot, rendezvous: Rendezvous) -> int:
        fate = self._ledger.fate(self.machine, launch, slot.rank)
        spool = self.folder.spools.setdefault(
            (slot.rank, launch.generation), Spool(launch, slot.rank)
        )
        rank = Rank(self, launch, slot, spool, fate)
        self.ranks.append(rank)
        rank.pid = len(self.ranks)
        self._ledger.begins(rank)
        later(self.machine.chance.uniform(*BEGIN_SECONDS), rank.begin)
        return rank.pid

    def rank_ended(self, rank: Rank, code: int) -> None:
        """Handle a rank's end with exit code `code`, or by signal `-code`."""
        member = self._ranks.ended(rank.pid, code)
        if not self.alive or member is None:
            return
        if code == EXIT_STOPPED:
            self._ledger.sent_away(self, rank)
        if not any(member is listed for listed in self._ranks.current):
            pass
        elif self._has_left(member):
            self._ranks.renew(member)
        else:
            self._take_failure(member, rank)
            if self.launch.in_place and self.has_completed:
                later(SEND_OFF_SECONDS, self._send_off_late_ones)
        if self.alive:  # unless the end of the last one was seen to meanwhile
            self._publish(self._phase())
            self._settle()

    def _send_off_late_ones(self) -> None:
        """Send away ranks that came for a generation before which the job was completed."""
        for rank in self.running:
            rank.end(EXIT_STOPPED)

    def _has_left(self, member: RankEntry) -> bool:
        """Return whether it left with an earlier launch; the present one lists its device again."""
        is_over = self._failure is not None or self.has_completed
        is_active = not is_over and self.control is not Command.STOP
        return self.launch.in_place and is_active and member.state.exit_code == EXIT_STOPPED

    def _take_failure(self, member: RankEntry, rank: Rank) -> None:
        if self._failure is not None or not failed(member.state, self._work()):
            return
        failure = _describe(member, rank)
        listed = self._ranks.current
        replaced = self.control is Command.RUN and can_be_replaced(
            self.launch, member.state, failure, alone=not any(m.is_alive for m in listed)
        )
        if not replaced:
            self._fail(self._failed_ranks[0].failure if self._failed_ranks else failure)
            return
        self._failed_ranks.append(failed_rank(self.launch, member, failure))
        patience = self.launch.spec.recovery.regroup_seconds + PEERS_SECONDS
        self._regroup_by = min(self._regroup_by, self.machine.clock.monotonic() + patience)
        later(patience, self._settle)

    def _settle(self) -> None:
        """See that what has failed is replaced in time, that what is to leave does, and that all
        of it ends once nothing is left."""
        if not self.alive:
            return
        late = self.machine.clock.monotonic() >= self._regroup_by
        if late:
            self._regroup_by = math.inf
            leaving = {member.state.pid for member in self._ranks.leaving}
            for rank in self.running:
                if rank.pid in leaving:
                    rank.end(-9)
        if self._failed_ranks and self._failure is None:
            alone = self.launch.num_nodes == 1 and not self._ranks.alive()
            if late or alone or self.control is not Command.RUN:
                self._fail(self._failed_ranks[0].failure)
        if self._is_over():
            self._end()

    def _is_over(self) -> bool:
        if not self._started:
            return self._failure is not None or self._signalled
        waits = bool(self._failed_ranks) and self._failure is None
        return self.alive and not waits and not self._ranks.alive()

    def _fail(self, failure: Failure) -> None:
        """End the other ranks too."""
        self._failure = failure
        self._kill_ranks()
        if self.alive:
            self._publish(self._phase())

    def _kill_ranks(self) -> None:
        if not self.alive:
            return
        for rank in self.running:
            if self._failure is None:
                self._signalled = True
                self._ledger.sent_away(self, rank)
            rank.end(-9)

    # -- its end ---------------------------------------------------------------------------------

    def die(self, *, with_ranks: bool, silently: bool = False) -> None:
        """Kill it without notice; its ranks run on if only the shim is killed."""
        self.alive = False
        if with_ranks:
            for rank in self.running:
                rank.end(-9, silently=silently)
            self._ledger.ended(self)
        self.machine.ring()

    def _end(self) -> None:
        ended, failure = outcome_of(self._ranks.states, self._work(), self._failure)
        self._publish("exited", ended, failure)
        self.alive = False
        self._ledger.ended(self)
        self.machine.ring()

    def _work(self) -> AttemptContext:
        return AttemptContext(is_script=False, asked=self.control, signalled=self._signalled)

    def _phase(self) -> str:
        if self.control is not Command.RUN or self._failure is not None:
            return "stopping"
        return "running" if self._started else "starting"

    def _publish(
        self, phase: str, ended: Outcome | None = None, failure: Failure | None = None
    ) -> None:
        failed = ", ".join(str(f.rank) for f in self._failed_ranks)
        detail = f": {ended}" if ended else f", without {failed}" if failed else ""
        why = f" ({failure.message})" if failure else ""
        self.machine.story.log(self.machine.name, f"{name(self.launch)} {phase}{detail}{why}")
        self.status = ShimStatus.model_validate(
            {
                "job_id": self.launch.job_id,
                "attempt": self.launch.attempt,
                "generation": self.launch.generation,
                "phase": phase,
                "command": self.control,
                "ranks": [rank.model_dump() for rank in self._ranks.states],
                "failed_ranks": [rank.model_dump() for rank in self._failed_ranks],
                "leaving": [member.slot.device_index for member in self._ranks.leaving],
                "rendezvous": self._rendezvous,
                "outcome": ended,
                "failure": failure,
                "isolated": self.isolated,
            }
        )
        self.machine.ring()


def _describe(member: RankEntry, rank: Rank) -> Failure:
    """Return the failure of a rank, as `outcome.describe_failure` reads it from files."""
    state, exception = member.state, None
    words = f"was ended by signal {state.signal}"
    if state.exit_code == EXIT_NOT_REGROUPED:
        exception, words = (
            "RegroupTimeoutError",
            "failed: RegroupTimeoutError: the coordinator sent no regroup command",
        )
    elif state.exit_code is not None:
        exception, words = "ValueError", "failed: ValueError: no"
    found = rank.account or RankExit(
        words, exception=exception, exit_code=state.exit_code, signal=state.signal
    )
    classified = failure_cause.classify_failure(found)
    return Failure(
        rank=state.rank,
        exit_code=state.exit_code,
        signal=state.signal,
        message=f"rank {state.rank} {found.words}",
        log_tail=found.log_tail,
        cause=classified.cause,
        evidence=classified.evidence,
        step=rank.step,
        time=state.finished_at,
    )


def name(launch: Launch) -> str:
    later_one = f" generation {launch.generation}" if launch.generation > 1 else ""
    return f"job {launch.job_id} attempt {launch.attempt}{later_one}"
