"""Ranks as models: processes that join, step, save and end together, and that regroup in place.

What `training` does with tensors is only numbers here: how many steps a process has in memory, and
which of them were told. A process outlives its agent and its shim, and ends with its host. What it
writes lies on its host's disk until an agent has sent it.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from trainhall.cluster.agent.shipping.unreported_checkpoints import writer_name as recovered_name
from trainhall.cluster.simulator.loop import detach, later
from trainhall.cluster.simulator.spool import Kind, Spool
from trainhall.training.checkpoint.format.names import CheckpointName, parse_name
from trainhall.training.link.control import STUCK_SECONDS
from trainhall.training.link.events import RankEvent
from trainhall.training.link.frames import MetricTable
from trainhall.training.link.launch import Command, Launch, RankSlot
from trainhall.training.link.status import (
    EXIT_COMPLETED,
    EXIT_NOT_REGROUPED,
    EXIT_PAUSED,
    EXIT_STOPPED,
)

STEP_SECONDS = (0.3, 0.8)
MEET_SECONDS = (0.1, 1.0)
BEGIN_SECONDS = (0.05, 0.5)
"""Until a new process looks for its group."""
NOTICE_SECONDS = (0.01, 0.3)
"""Until connections that close are noticed at their other ends."""
REGROUP_NOTICE_SECONDS = (0.02, 0.5)
"""Until ranks that wait in a group heed a launch which says that it has lost one."""
FATE_SHARE = 0.15
"""Share of processes that fail by themselves."""


def value_of(attempt: int, generation: int) -> float:
    """Return a measured value: the later their token, the greater."""
    return attempt * 1000.0 + generation


class Tape(Spool):
    """The spool of a rank that measures one number a step."""

    def __init__(self, launch: Launch, rank: int) -> None:
        super().__init__(launch, rank)
        self.steps: list[int] = []
        """Step of each frame."""

    def measure(self, step: int, time: float, value: float, rank: int | None = None) -> None:
        """
        Args:
            rank: None: the numbers are the whole job's.
        """
        self.steps.append(step)
        self.metrics([MetricTable(rank, [step], [time], {"loss": [value]})])


def recovered(launch: Launch, found: list[CheckpointName], time: float) -> Tape:
    """Return the reports of a launch's first host for an attempt without survivors.

    Args:
        found: what that attempt committed, see `Storage.unrecorded`.
    """
    assert launch.checkpoint.unrecorded is not None
    token = launch.checkpoint.unrecorded.model_dump(include={"attempt", "generation"})
    earlier = launch.model_copy(update=token)
    tape = Tape(earlier, 0)
    tape.writer = recovered_name(earlier)
    for each in sorted(found, key=lambda name: name.step):
        data = {"name": str(each), "step": each.step, "size": 1, "metrics": {}}
        # By its step: whoever looks again tells the same.
        event = RankEvent(sequence=each.step + 1, time=time, rank=0, kind="checkpoint", data=data)
        tape.events.append(event)
    return tape


@dataclass(frozen=True)
class Fate:
    """A rank that fails by itself."""

    step: int
    """Counted from where the process starts."""
    signal: bool
    """Something kills it; else it leaves with an error."""


class Storage:
    """Shared storage: the folders of committed checkpoints, by job."""

    def __init__(self) -> None:
        self.committed: dict[str, list[CheckpointName]] = {}

    def newest(self, launch: Launch) -> int:
        """Return the step that an attempt resumes from, as its agent and ranks find it."""
        there = self.committed.get(launch.job_id, [])
        if found := self.unrecorded(launch):
            return max(name.step for name in found)
        names = map(parse_name, launch.checkpoint.resume)
        return next((name.step for name in names if name in there and name), 0)

    def unrecorded(self, launch: Launch) -> list[CheckpointName]:
        """Return commits of an earlier attempt that, as far as known, were not reported."""
        plan = launch.checkpoint.unrecorded
        return [
            name
            for name in self.committed.get(launch.job_id, [])
            if plan is not None
            and (name.attempt, name.generation) == (plan.attempt, plan.generation)
            and name.step > plan.after_step
        ]

    def remove(self, location: str) -> None:
        _, job_id, name = location.rsplit("/", 2)
        self.committed[job_id] = [n for n in self.committed.get(job_id, []) if str(n) != name]


class ItsShim(Protocol):
    """A rank's access to its shim: control byte, progress page, notifications."""

    control: Command
    newest_group: Launch | None

    def group_of(self, launch: Launch) -> "Group": ...

    def rank_ended(self, rank: "Rank", code: int) -> None: ...

    def wrote(self) -> None: ...


class Rank:
    """A process, from its first group to its end. It is known by its device.

    Args:
        place: as the launch that it begins with lists it.
    """

    def __init__(
        self, shim: ItsShim, launch: Launch, place: RankSlot, tape: Tape, fate: Fate | None
    ) -> None:
        self.shim = shim
        self.launch = launch
        """Launch of the group that it is in, or has left."""
        self.number = place.rank
        self.device = (place.device_kind, place.device_index)
        self.tape = tape
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
        self._waits = False
        """True while it looks for the next group after its own broke up."""
        self._fate = fate
        self._taken = 0

    def begin(self) -> None:
        if self.alive:
            self._enter(self.launch)

    def _enter(self, launch: Launch) -> bool:
        """Join the group of a launch; False where it has no place in it."""
        for place in launch.ranks:
            if (place.device_kind, place.device_index) == self.device:
                self.launch, self.number, self._waits = launch, place.rank, False
                self.group = self.shim.group_of(launch)
                self.group.join(self)
                return True
        return False

    def is_fated(self) -> bool:
        """Return whether it has taken its last step."""
        self._taken += 1
        return self._fate is not None and self._taken == self._fate.step

    def meet_fate(self, time: float) -> None:
        assert self._fate is not None
        if self._fate.signal:
            self.end(-9)
        else:
            self.tape.event("failure", {"type": "ValueError", "message": "no"}, time)
            self.end(1)

    def end(self, code: int, *, silently: bool = False) -> None:
        """
        Args:
            code: its exit code, or below zero the signal that ends it.
            silently: its host loses its power, so that no connection closes.
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
        later(self.launch.spec.recovery.regroup_seconds, self._give_up, self.launch)
        self.look()

    def look(self) -> None:
        """The page that it shares with its shim says something new."""
        newest = self.shim.newest_group
        is_newer = newest is not None and newest.generation > self.launch.generation
        if self.alive and self._waits and self.shim.control is Command.STOP:
            self.end(EXIT_STOPPED)
        elif self.alive and self._waits and is_newer:
            assert newest is not None
            if not self._enter(newest):
                self.end(EXIT_STOPPED)
        elif self.alive and self.group is not None and is_newer:
            assert newest is not None
            lost = newest.broken >= self.launch.generation
            after = self.group.chance.uniform(*REGROUP_NOTICE_SECONDS) if lost else STUCK_SECONDS
            later(after, self._break_up, self.group, self.step)

    def _break_up(self, group: "Group", step: int) -> None:
        """Leave a group that is stuck while a newer one waits."""
        if self.step == step:
            self.leave_group(group)

    def _give_up(self, launch: Launch) -> None:
        if self._waits and self.launch is launch:
            self.end(EXIT_NOT_REGROUPED)


class Onlooker(Protocol):
    def met(self, group: "Group") -> None:
        """Note that its ranks have joined, and from which step they continue."""

    def stepped(self, group: "Group") -> None: ...


@dataclass
class Group:
    """The ranks of a generation of an attempt: they meet, step, agree on where to stop, and end."""

    launch: Launch
    """Launch of any of its hosts."""
    storage: Storage
    chance: random.Random = field(repr=False)
    now: Callable[[], float] = field(repr=False)
    """The time of day where they run."""
    looks_on: "Onlooker" = field(repr=False)
    ranks: dict[int, Rank] = field(default_factory=dict)
    """Members by rank."""
    step: int = 0
    has_met: bool = False
    is_fresh: bool = False
    """None of its ranks had taken a step: they went on from a checkpoint, or from nothing."""
    is_broken: bool = False
    _is_silent: bool = False
    """True while it is broken and no member has noticed."""
    _has_stepped: bool = False

    def join(self, rank: Rank) -> None:
        self.ranks[rank.number] = rank
        if self.is_broken:
            # Whom it should meet is gone: it finds out when it tries to connect.
            later(4 * STUCK_SECONDS, rank.leave_group, self)
        elif len(self.ranks) == self.launch.world_size:
            detach(self._work(), "ranks")

    def lost(self, rank: Rank, *, silently: bool = False) -> None:
        """One of them has ended or left."""
        if self.ranks.get(rank.number) is not rank:
            return
        del self.ranks[rank.number]
        if self.is_broken and not self._is_silent:
            return
        if self.has_met and not self.is_broken:
            self._break_off(rank)
        self.is_broken, self._is_silent = True, silently
        if silently or not self.launch.in_place:
            return  # they wait in a collective until they are told
        notice = NOTICE_SECONDS if self.has_met else (STUCK_SECONDS, 4 * STUCK_SECONDS)
        for other in self.ranks.values():
            later(self.chance.uniform(*notice), other.leave_group, self)

    def _break_off(self, lost: Rank) -> None:
        """A step breaks off, somewhere between its first collective and its last number."""
        if self.step >= self._total:
            return  # none follows the last one
        others = list(self.ranks.values())
        how_far = self.chance.random()
        if how_far < 0.2:  # some of them have got the last sum
            for rank in others:
                rank.step += self.chance.random() < 0.5
        elif how_far < 0.4 and lost.was_first:
            # All have exchanged what they measured, and rank 0 has not come to write it.
            for rank in others:
                rank.step = rank.reported_step = self.step + 1
                rank.unsure = [rank.step]

    # -- what they do ----------------------------------------------------------------------------

    @property
    def _value(self) -> float:
        """Return the value that the members measure, which identifies them."""
        return value_of(self.launch.attempt, self.launch.generation)

    async def _work(self) -> None:
        await asyncio.sleep(self.chance.uniform(*MEET_SECONDS))
        if self.is_broken:
            return
        self._meet()
        code = self._complete() if self.step >= self._total else None
        while code is None:
            await asyncio.sleep(self.chance.uniform(*STEP_SECONDS))
            # A rank that is gone leaves the others in a collective.
            if self.is_broken or not self._take_step():
                return
            code = self._agree()
            if self.is_broken:
                return
        self.is_broken = True
        for rank in list(self.ranks.values()):
            rank.end(code)

    @property
    def _total(self) -> int:
        return self.launch.spec.training.steps or 1

    def _meet(self) -> None:
        """Exchange positions; the furthest rank gives its state to the others."""
        ranks = [self.ranks[number] for number in sorted(self.ranks)]
        source = max(ranks, key=lambda rank: (rank.step, rank.reported_step, -rank.number))
        self.has_met, self.is_fresh = True, source.step == 0
        if self.is_fresh:
            self.step = self.storage.newest(ranks[0].launch)
        else:
            self.step = source.step
            self._flush_rows(source, ranks)
        saves_again = source.has_saved and not any(rank.was_first for rank in ranks)
        for rank in ranks:
            rank.step = rank.reported_step = self.step
            rank.unsure, rank.was_first = [], rank.number == 0
            rank.has_saved = source.has_saved
        self.looks_on.met(self)
        if self.is_fresh:
            resumed = {"resumed_from": self.step or None, "total_steps": self._total}
            since = min(rank.tape.generation for rank in ranks)
            generation = self.launch.generation
            self._record("started", {"generation": generation, "since": since, **resumed})
        elif saves_again:
            self._save()

    def _flush_rows(self, source: Rank, ranks: list[Rank]) -> None:
        """The source writes what rank 0 may not have come to write."""
        if not any(rank.was_first and rank.reported_step >= source.reported_step for rank in ranks):
            for step in source.unsure:
                source.tape.measure(step, self.now(), self._value)
        for step in range(source.reported_step + 1, source.step + 1):
            source.tape.measure(step, self.now(), self._value)

    def _take_step(self) -> bool:
        """One more, and what is measured is exchanged; False where a rank fails in it."""
        self.step += 1
        self.looks_on.stepped(self)
        now = self.now()
        for rank in self.ranks.values():
            rank.step = rank.reported_step = self.step
            if rank.number == 0:
                rank.tape.measure(self.step, now, self._value)
            else:
                rank.unsure = [self.step]
                if rank.number == rank.launch.ranks[0].rank:
                    rank.tape.measure(self.step, now, self._value, rank.number)
        if not self._has_stepped:
            self._has_stepped = True
            progress = {"generation": self.launch.generation, "step": self.step, "loaded": now}
            self._record("stepped", progress)
        fated = [rank for rank in self.ranks.values() if rank.is_fated()]
        if fated:
            fated[-1].meet_fate(now)
        return not fated

    def _agree(self) -> int | None:
        """Agree on how to continue after a step; returns an exit code when all end."""
        ranks = list(self.ranks.values())
        asked = max(rank.shim.control for rank in ranks)
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
        if self.step >= self._total:
            return self._complete()
        if asked is Command.PAUSE:
            self._save()
            self._record("paused", {"step": self.step})
            return EXIT_PAUSED
        if self.step % (self.launch.spec.checkpoint.every_steps or self._total) == 0:
            self._save()
        return None

    def _leave_if_superseded(self, ranks: Sequence[Rank]) -> None:
        """Break the group up if a rank knows of a newer one."""
        groups = [rank.shim.newest_group for rank in ranks]
        if any(group and group.generation > self.launch.generation for group in groups):
            self.is_broken = True
            for rank in ranks:
                rank.unsure = []
                rank.leave_group(self)

    def _complete(self) -> int:
        self._save()
        self._record("completed", {"steps": self.step, "metrics": {}})
        return EXIT_COMPLETED

    def _save(self) -> None:
        name = CheckpointName(self.step, self.launch.attempt, self.launch.generation)
        for rank in self.ranks.values():
            rank.has_saved = True
        self.storage.committed.setdefault(self.launch.job_id, []).append(name)
        self._record("checkpoint", {"name": str(name), "step": self.step, "size": 1, "metrics": {}})

    def _record(self, kind: Kind, data: dict[str, Any]) -> None:
        self.ranks[0].tape.event(kind, data, self.now())
        if kind == "started":
            # Until that is known nobody regroups them.
            self.ranks[0].shim.wrote()
