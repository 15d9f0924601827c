"""Ranks as models: processes that join, step, save and end together, and that regroup in place.

What `training` does with tensors is only numbers here: how many steps a process has in memory, and
which of them were reported; a `Work` measures and writes. A process outlives its agent and its
shim, and ends with its host. What it writes lies on its host's disk until an agent has sent it.
"""

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from trainhall.cluster.agent.shim.failure_cause import RankExit
from trainhall.cluster.ports import Clock
from trainhall.cluster.simulator.loop import later
from trainhall.cluster.simulator.spool import Files, Kind, Spool
from trainhall.cluster.wire.writers import recovery_writer
from trainhall.training.checkpoint.format.names import CheckpointName, parse_name
from trainhall.training.link.control import STUCK_SECONDS
from trainhall.training.link.events import RankEvent
from trainhall.training.link.launch import Command, Launch, RankSlot
from trainhall.training.link.status import (
    EXIT_COMPLETED,
    EXIT_NOT_REGROUPED,
    EXIT_PAUSED,
    EXIT_STOPPED,
)

JOIN_SECONDS = (0.1, 1.0)
BEGIN_SECONDS = (0.05, 0.5)
"""Until a new process joins its group."""
NOTICE_SECONDS = (0.01, 0.3)
"""Until connections that close are noticed at their other ends."""
REGROUP_NOTICE_SECONDS = (0.02, 0.5)
"""Until ranks that wait in a group heed a launch which says that it has lost one."""
_SAME_SECONDS = 0.001
"""Difference of two turns that are the same."""


@dataclass(frozen=True)
class Fate:
    """Fault of a process, if it gets that far."""

    kind: Literal["killed", "out of memory", "diverges", "error"]
    step: int
    """Counted from where the process starts."""
    rank: int = 0


class Storage:
    """Shared storage: the events of committed checkpoints, by job."""

    def __init__(self) -> None:
        self.committed: dict[str, dict[CheckpointName, Mapping[str, Any]]] = {}

    def commit(self, launch: Launch, name: CheckpointName, event: Mapping[str, Any]) -> None:
        self.committed.setdefault(launch.job_id, {})[name] = event

    def newest(self, launch: Launch) -> int:
        """Return the step that an attempt resumes from, as its agent and ranks find it."""
        there = self.committed.get(launch.job_id, {})
        if found := self._unrecorded(launch):
            return max(name.step for name in found)
        names = map(parse_name, launch.checkpoint.resume)
        return next((name.step for name in names if name in there and name), 0)

    def _unrecorded(self, launch: Launch) -> list[CheckpointName]:
        """Return commits of an earlier attempt that, as far as known, were not reported."""
        plan = launch.checkpoint.unrecorded
        return [
            name
            for name in self.committed.get(launch.job_id, ())
            if plan is not None
            and not launch.checkpoint.upload
            and (name.attempt, name.generation) == (plan.attempt, plan.generation)
            and name.step > plan.after_step
        ]

    def recovered(self, launch: Launch, time: float) -> Spool | None:
        """Return the reports of a launch's first host for an attempt without survivors."""
        found = self._unrecorded(launch) if launch.node_rank == 0 else []
        if not found or launch.checkpoint.unrecorded is None:
            return None
        token = launch.checkpoint.unrecorded.model_dump(include={"attempt", "generation"})
        earlier = launch.model_copy(update=token)
        spool = Spool(earlier, 0)
        spool.writer = recovery_writer(earlier.job_id, earlier.attempt, earlier.generation)
        for each in sorted(found, key=lambda name: name.step):
            data = dict(self.committed[launch.job_id][each])
            # By its step: another search gives the same.
            sequence = each.step + 1
            event = RankEvent(sequence=sequence, time=time, rank=0, kind="checkpoint", data=data)
            spool.events.append(event)
        return spool

    def remove(self, location: str) -> None:
        _, job_id, text = location.rsplit("/", 2)
        if name := parse_name(text):
            self.committed.get(job_id, {}).pop(name, None)


class RankShim(Protocol):
    """A rank's access to its shim: control byte, progress page, notifications."""

    host_name: str
    control: Command
    newest_group: Launch | None
    gradients: int

    def group_of(self, launch: Launch) -> "Group": ...

    def rank_ended(self, rank: "Rank", code: int) -> None: ...

    def wrote(self) -> None: ...


class Rank:
    """A process, from its first group to its end. It is known by its device.

    Args:
        slot: as the launch that it begins with lists it.
    """

    def __init__(
        self, shim: RankShim, launch: Launch, slot: RankSlot, spool: Spool, fate: Fate | None
    ) -> None:
        self.shim = shim
        self.launch = launch
        """Launch of the group that it is in, or has left."""
        self.number = slot.rank
        self.device = (slot.device_kind, slot.device_index)
        self.spool = spool
        self.pid = 0
        self.alive = True
        self.group: Group | None = None
        self.step = 0
        """Steps that it has in memory; 0: nothing that another could need."""
        self.reported_step = 0
        """The newest of them whose numbers all ranks have exchanged."""
        self.unsure: list[int] = []
        """Steps among them that rank 0 may not have written."""
        self.was_first = False
        """True if it was rank 0 of the last group that joined."""
        self.has_saved = False
        self.steps_left = math.inf if fate is None else fate.step
        """Steps until its fate."""
        self.fate = fate
        self.account: RankExit | None = None
        """Its own failure, as the shim of a real host would find it."""
        self._waits = False
        """True while it waits for the next group after its own broke up."""

    def begin(self) -> None:
        if self.alive:
            self._enter(self.launch)

    def _enter(self, launch: Launch) -> bool:
        """Join the group of a launch; False where it has no place in it."""
        for slot in launch.ranks:
            if (slot.device_kind, slot.device_index) == self.device:
                self.launch, self.number, self._waits = launch, slot.rank, False
                self.group = self.shim.group_of(launch)
                self.group.join(self)
                return True
        return False

    def end(self, code: int, *, silently: bool = False) -> None:
        """End the rank with exit code `code`, or by signal `-code`.

        `silently`: its host loses its power, so that no connection closes.
        """
        if not self.alive:
            return
        self.alive = False
        group, self.group = self.group, None
        if group is not None:
            group.lost(self, silently=silently)
        self.shim.rank_ended(self, code)

    # -- from one group to the next --------------------------------------------------------------

    def leave_group(self, group: "Group") -> None:
        """Leave a group that is broken up, or that a newer one takes the place of."""
        if not self.alive or self.group is not group:
            return
        self.group, self._waits = None, True
        group.lost(self)
        if not self.launch.in_place:
            self.end(1)
            return
        later(self.launch.spec.recovery.regroup_seconds, self._time_out, self.launch)
        self.read_page()

    def read_page(self) -> None:
        """Act on a change in the page that it shares with its shim."""
        if self.group is not None:
            self.group.catch_up()
        if not self.alive:
            return
        newest = self.shim.newest_group
        if self._waits and self.shim.control is Command.STOP:
            self.end(EXIT_STOPPED)
        elif newest is None or newest.generation <= self.launch.generation:
            return
        elif self._waits:
            if not self._enter(newest):
                self.end(EXIT_STOPPED)
        elif self.group is not None:
            lost = newest.broken >= self.launch.generation
            after = self.group.chance.uniform(*REGROUP_NOTICE_SECONDS) if lost else STUCK_SECONDS
            later(after, self._break_up, self.group, self.step)

    def _break_up(self, group: "Group", step: int) -> None:
        """Leave a group that is stuck while a newer one waits."""
        if self.step == step:
            self.leave_group(group)

    def _time_out(self, launch: Launch) -> None:
        if self._waits and self.launch is launch:
            self.end(EXIT_NOT_REGROUPED)


class GroupObserver:
    def joined(self, group: "Group") -> None:
        """Note that its ranks have joined, and from which step they continue."""

    def stepped(self, group: "Group") -> None: ...


class Work(ABC):
    """The steps of ranks that have joined, and what they write about them."""

    takes_blocks = False
    """A reader may find more steps taken, although none was due."""

    def __init__(self, group: "Group") -> None:
        self.group = group

    @property
    @abstractmethod
    def total(self) -> int:
        """Return the last step."""

    @abstractmethod
    def wait(self) -> float:
        """Return the seconds until the next turn."""

    @abstractmethod
    def take(self, *, is_due: bool) -> int:
        """Take steps, as far as time allows, and at most up to one after which the ranks have
        something to agree on; return their number.

        Args:
            is_due: the time of the last `wait` is over.
        """

    @abstractmethod
    def fail(self, rank: Rank, fate: Fate) -> int:
        """Write what a rank says whose fate comes; return its exit code, or below zero a signal."""

    def flush_rows(self, source: Rank, steps: Sequence[int]) -> None:
        """Write what the rank 0 of an earlier group may not have come to write."""
        return

    def break_off(self, lost: Rank, others: Sequence[Rank]) -> None:
        """Break a step off, somewhere between its first collective and its last number."""
        return

    def start(self, data: dict[str, Any]) -> None:
        self.group.record("started", data)

    def note_first_step(self, data: dict[str, Any]) -> None:
        self.group.record("stepped", data)

    def saves(self) -> bool:
        """Return whether a checkpoint is due after the present step."""
        every = self.group.launch.spec.checkpoint.every_steps
        return self.group.step % (every or self.total) == 0

    def checkpoint(self, name: CheckpointName) -> tuple[dict[str, Any], Files | None]:
        """Return the event of a checkpoint, and the files to upload; None on shared storage."""
        return {"name": str(name), "step": name.step, "size": 1, "metrics": {}}, None

    def pause(self) -> None:
        """Save, and report it, before all ranks leave."""
        self.group.save()
        self.group.record("paused", {"step": self.group.step})

    def complete(self) -> None:
        self.group.save()
        self.group.record("completed", {"steps": self.group.step, "metrics": {}})


@dataclass
class Group:
    """The ranks of a generation of an attempt: they join, step, agree on where to stop, and end."""

    launch: Launch
    """Launch of any of its hosts."""
    storage: Storage
    chance: random.Random = field(repr=False)
    clock: Clock = field(repr=False)
    observer: GroupObserver = field(repr=False)
    begin: Callable[["Group"], Work] = field(repr=False)
    ranks: dict[int, Rank] = field(default_factory=dict)
    """Members by rank."""
    work: Work | None = None
    """Their work, since they have joined."""
    step: int = 0
    is_fresh: bool = False
    """None of its ranks had taken a step: they started from a checkpoint or from scratch."""
    is_broken: bool = False
    _is_silent: bool = False
    """True while it is broken and no member has noticed."""
    _has_stepped: bool = False
    _next_turn: float = math.inf
    """Monotonic time of it."""

    def now(self) -> float:
        """Return the time of day where they run."""
        return self.clock.now().timestamp()

    def join(self, rank: Rank) -> None:
        self.ranks[rank.number] = rank
        if self.is_broken:
            # Its peer is gone: it finds out when it tries to connect.
            later(4 * STUCK_SECONDS, rank.leave_group, self)
        elif len(self.ranks) == self.launch.world_size:
            later(self.chance.uniform(*JOIN_SECONDS), self._begin_work)

    def lost(self, rank: Rank, *, silently: bool = False) -> None:
        """Handle the loss of a rank that has ended or left."""
        if self.ranks.get(rank.number) is not rank:
            return
        del self.ranks[rank.number]
        if self.is_broken and not self._is_silent:
            return
        if self.work is not None and not self.is_broken and self.step < self.work.total:
            # No step follows the last one.
            self.work.break_off(rank, list(self.ranks.values()))
        self.is_broken, self._is_silent = True, silently
        if silently or not self.launch.in_place:
            return  # they wait in a collective until they are notified
        notice = NOTICE_SECONDS if self.work else (STUCK_SECONDS, 4 * STUCK_SECONDS)
        for other in self.ranks.values():
            later(self.chance.uniform(*notice), other.leave_group, self)

    # -- what they do ----------------------------------------------------------------------------

    def _begin_work(self) -> None:
        """Exchange positions; the furthest rank gives its state to the others."""
        if self.is_broken:
            return
        ranks = [self.ranks[number] for number in sorted(self.ranks)]
        source = max(ranks, key=lambda rank: (rank.step, rank.reported_step, -rank.number))
        self.is_fresh = source.step == 0
        self.step = self.storage.newest(ranks[0].launch) if self.is_fresh else source.step
        self.work = self.begin(self)
        if not self.is_fresh:
            self._flush_rows(self.work, source, ranks)
        saves_again = source.has_saved and not any(rank.was_first for rank in ranks)
        for rank in ranks:
            rank.step = rank.reported_step = self.step
            rank.unsure, rank.was_first = [], rank.number == 0
            rank.has_saved = source.has_saved
        self.observer.joined(self)
        if self.is_fresh:
            resumed = {"resumed_from": self.step or None, "total_steps": self.work.total}
            since = min(rank.spool.generation for rank in ranks)
            self.work.start({"generation": self.launch.generation, "since": since, **resumed})
        elif saves_again:
            self.save()
        if self.step >= self.work.total:
            self.work.complete()
            self._end(EXIT_COMPLETED)
        elif self.launch.pauses_at(self.step):
            # Others saved there, and failed before they had paused.
            self.record("paused", {"step": self.step})
            self._end(EXIT_PAUSED)
        else:
            self._await_turn(self.work)

    def _flush_rows(self, work: Work, source: Rank, ranks: Sequence[Rank]) -> None:
        """Write from the source what rank 0 may not have written yet."""
        steps = list(range(source.reported_step + 1, source.step + 1))
        if not any(rank.was_first and rank.reported_step >= source.reported_step for rank in ranks):
            steps = [*source.unsure, *steps]
        work.flush_rows(source, steps)

    def catch_up(self) -> None:
        """Take the steps of the time that has passed, where they are taken in blocks: they are
        read, or there is something to agree on sooner than was expected."""
        if self.work is not None and self.work.takes_blocks and not self.is_broken:
            self._turn(self.work, is_due=False)

    def _await_turn(self, work: Work) -> None:
        wait = work.wait()
        at = self.clock.monotonic() + wait
        if at < self._next_turn - _SAME_SECONDS:
            self._next_turn = at
            later(wait, self._turn_is_due, work, at)

    def _turn_is_due(self, work: Work, at: float) -> None:
        # A rank that is gone leaves the others in a collective.
        if at == self._next_turn and not self.is_broken:
            self._next_turn = math.inf
            self._turn(work, is_due=True)

    def _turn(self, work: Work, *, is_due: bool) -> None:
        steps = work.take(is_due=is_due)
        if steps:
            if not self._note_steps(work, steps):
                return
            code = self._agree(work)
            if self.is_broken:
                return
            if code is not None:
                self._end(code)
                return
        self._await_turn(work)

    def _end(self, code: int) -> None:
        self.is_broken = True
        for rank in list(self.ranks.values()):
            rank.end(code)

    def _note_steps(self, work: Work, steps: int) -> bool:
        """Exchange what is measured; False where a rank fails in it."""
        self.step += steps
        self.observer.stepped(self)
        for rank in self.ranks.values():
            rank.step = rank.reported_step = self.step
            rank.steps_left -= steps
            if rank.number:
                rank.unsure = [self.step]
        if not self._has_stepped:
            self._has_stepped = True
            progress = {"generation": self.launch.generation, "step": self.step}
            work.note_first_step({**progress, "loaded": self.now()})
        fated = [rank for rank in self.ranks.values() if rank.steps_left == 0]
        if fated and (fate := fated[-1].fate):
            fated[-1].end(work.fail(fated[-1], fate))
        return not fated

    def _agree(self, work: Work) -> int | None:
        """Agree on how to continue after a step; returns an exit code when all end."""
        ranks = list(self.ranks.values())
        asked = self.asked
        if asked is Command.STOP:
            if not self.launch.in_place:
                return EXIT_STOPPED
            # A host that is left out has its ranks stopped: that is nothing to the others.
            for rank in ranks:
                if rank.shim.control is Command.STOP:
                    rank.end(EXIT_STOPPED)
        self._leave_if_superseded(ranks)
        if self.is_broken:
            return None
        if self.step >= work.total:
            work.complete()
            return EXIT_COMPLETED
        if asked is Command.PAUSE or self.launch.pauses_at(self.step):
            work.pause()
            return EXIT_PAUSED
        if work.saves():
            self.save()
        return None

    @property
    def asked(self) -> Command:
        """Return the highest command that any host was given: all ranks agree on it."""
        return max(rank.shim.control for rank in self.ranks.values())

    def _leave_if_superseded(self, ranks: Sequence[Rank]) -> None:
        """Break the group up if a rank knows of a newer one."""
        groups = [rank.shim.newest_group for rank in ranks]
        if any(group and group.generation > self.launch.generation for group in groups):
            self.is_broken = True
            for rank in ranks:
                rank.unsure = []
                rank.leave_group(self)

    # -- for those who work ----------------------------------------------------------------------

    def save(self) -> None:
        assert self.work is not None
        name = CheckpointName(self.step, self.launch.attempt, self.launch.generation)
        for rank in self.ranks.values():
            rank.has_saved = True
        event, files = self.work.checkpoint(name)
        self.storage.commit(self.launch, name, event)
        self.ranks[0].spool.checkpoint(event, files, self.now())

    def record(self, kind: Kind, data: dict[str, Any]) -> None:
        self.ranks[0].spool.event(kind, data, self.now())
        if kind == "started":
            # Until that is known they are not regrouped.
            self.ranks[0].shim.wrote()
