"""Shims and ranks as models: what the processes of an attempt do, on all its hosts together.

They outlive the agent, as the real ones do, and end with their host. What a rank writes lies on its
host's disk until an agent has sent it.
"""

import asyncio
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from trainhall.cluster.agent import isolation
from trainhall.cluster.agent.outcome import Work, first_failing, outcome_of
from trainhall.cluster.agent.ranks import writer_name
from trainhall.cluster.simulator.loop import detach, later
from trainhall.cluster.simulator.story import Story
from trainhall.training.checkpoint.names import CheckpointName, parse_name
from trainhall.training.link import (
    EXIT_COMPLETED,
    EXIT_PAUSED,
    EXIT_STOPPED,
    Command,
    Failure,
    Launch,
    MetricTable,
    Outcome,
    RankEvent,
    RankState,
    Rendezvous,
    ShimStatus,
    encode_frame,
    encode_tables,
)

Token = tuple[str, int, int]
Kind = Literal["started", "checkpoint", "failure", "completed", "paused"]

AGREE_SECONDS = 1.0
"""Between the word to stop and SIGKILL for ranks that did not agree on a step."""
STEP_SECONDS = (0.3, 0.8)
MEET_SECONDS = (0.1, 1.0)


class Tape:
    """What one rank wrote, and how far the coordinator has acknowledged it."""

    def __init__(self, launch: Launch, rank: int) -> None:
        self.rank = rank
        self.writer = writer_name(launch, rank)
        self.events: list[RankEvent] = []
        self.frames: list[bytes] = []
        self.steps: list[int] = []
        """Of the frames, one each."""
        self.acked_events = 0
        self.acked_frames = 0
        self.sent_frames = 0
        """Whether acknowledged or not."""

    def tell(self, kind: Kind, data: dict[str, Any], time: float) -> None:
        self.events.append(
            RankEvent(
                sequence=len(self.events) + 1, time=time, rank=self.rank, kind=kind, data=data
            )
        )

    def measure(self, step: int, time: float) -> None:
        table = MetricTable(None, [step], [time], {"loss": [1.0 / step]})
        self.steps.append(step)
        self.frames.append(encode_frame(len(self.frames) + 1, encode_tables([table])))

    @property
    def empty(self) -> bool:
        return self.acked_events == len(self.events) and self.acked_frames == len(self.frames)


@dataclass(frozen=True)
class Fate:
    """A rank that fails by itself."""

    step: int
    """Counted from where the attempt starts."""
    signal: bool
    """Something kills it; else it leaves with an error."""


class Storage:
    """What every host sees: the folders of committed checkpoints, by job."""

    def __init__(self) -> None:
        self.committed: dict[str, list[CheckpointName]] = {}

    def newest(self, launch: Launch) -> int:
        """The step that an attempt goes on from, as its agent and ranks find it."""
        there = self.committed.get(launch.job_id, [])
        plan = launch.checkpoint
        found = [name.step for name in map(parse_name, plan.resume) if name in there and name]
        if (untold := plan.unrecorded) is not None:
            token = (untold.attempt, untold.generation)
            found += [
                n.step
                for n in there
                if (n.attempt, n.generation) == token and n.step > untold.after_step
            ]
        return max(found, default=0)

    def remove(self, location: str) -> None:
        _, job_id, name = location.rsplit("/", 2)
        self.committed[job_id] = [n for n in self.committed.get(job_id, []) if str(n) != name]


@dataclass
class Group:
    """The ranks of one attempt: they meet, step, agree on where to stop, and end."""

    launch: Launch
    storage: Storage
    chance: random.Random = field(repr=False)
    now: Callable[[], float] = field(repr=False)
    """The time of day where they run."""
    fate: Fate | None = None
    shims: "dict[int, Shim]" = field(default_factory=dict)
    """By node rank, those whose ranks are up."""

    def join(self, shim: "Shim") -> None:
        self.shims[shim.launch.node_rank] = shim
        if len(self.shims) == self.launch.num_nodes:
            detach(self._work(), "ranks")

    @property
    def whole(self) -> bool:
        return len(self.shims) == self.launch.num_nodes and all(
            shim.has_ranks for shim in self.shims.values()
        )

    async def _work(self) -> None:
        await asyncio.sleep(self.chance.uniform(*MEET_SECONDS))
        step = first = self.storage.newest(self.launch)
        total = self.launch.spec.training.steps or 1
        if self.whole:
            self._tell("started", {"resumed_from": first or None, "total_steps": total})
        while self.whole:
            await asyncio.sleep(self.chance.uniform(*STEP_SECONDS))
            # A rank that is gone leaves the others in a collective: they wait until they are told.
            if not self.whole:
                return
            step += 1
            for shim in self.shims.values():
                shim.first_tape.measure(step, self.now())
            asked = max(shim.control for shim in self.shims.values())
            if asked is Command.STOP:
                self._leave(EXIT_STOPPED)
            elif self.fate is not None and step == first + self.fate.step:
                self._fail(self.fate)
                return
            elif step >= total:
                self._save(step)
                self._tell("completed", {"steps": step, "metrics": {}})
                self._leave(EXIT_COMPLETED)
            elif asked is Command.PAUSE:
                self._save(step)
                self._tell("paused", {"step": step})
                self._leave(EXIT_PAUSED)
            elif step % (self.launch.spec.checkpoint.every_steps or total) == 0:
                self._save(step)

    def _save(self, step: int) -> None:
        name = CheckpointName(step, self.launch.attempt, self.launch.generation)
        self.storage.committed.setdefault(self.launch.job_id, []).append(name)
        self._tell("checkpoint", {"name": str(name), "step": step, "size": 1, "metrics": {}})

    def _tell(self, kind: Kind, data: dict[str, Any]) -> None:
        self.shims[0].first_tape.tell(kind, data, self.now())

    def _leave(self, code: int) -> None:
        for shim in list(self.shims.values()):
            shim.ranks_left(code)

    def _fail(self, fate: Fate) -> None:
        shim = self.shims[max(self.shims)]
        if not fate.signal:
            shim.first_tape.tell("failure", {"type": "ValueError", "message": "no"}, self.now())
        shim.rank_failed(1, 9 if fate.signal else None)


class Shim:
    """Supervises the ranks of one attempt on one host.

    Args:
        ring: tells the host's agent, if there is one, to look.
        silence: seconds for which the coordinator has not been heard, as the agent passed it on.
    """

    def __init__(
        self,
        launch: Launch,
        tapes: dict[int, Tape],
        group: Group,
        where: str,
        ring: Callable[[], None],
        story: Story,
        chance: random.Random,
        launched: Callable[[Launch], None],
        ended: Callable[[], None],
        silence: Callable[[], float],
    ) -> None:
        self.launch = launch
        self.alive = True
        self.control = Command.RUN
        """What the ranks read."""
        self.first_tape = tapes[launch.ranks[0].rank]
        self._group = group
        self._where = where
        self._ring = ring
        self._story = story
        self._chance = chance
        self._launched = launched
        self._on_end = ended
        self._silence = silence
        self.isolated = False
        self._signalled = False
        self._started = False
        self._failure: Failure | None = None
        self._ranks = [RankState(rank=place.rank) for place in launch.ranks]
        self._rendezvous: Rendezvous | None = launch.rendezvous
        self.status: ShimStatus | None = None

    @property
    def has_ranks(self) -> bool:
        """All its ranks run."""
        return self.alive and self._started and not any(r.finished_at for r in self._ranks)

    @property
    def runs(self) -> bool:
        """Some rank may run."""
        return self.alive and self._started and not all(r.finished_at for r in self._ranks)

    async def run(self) -> None:
        if self.launch.isolation_seconds is not None:
            detach(self._heed_isolation(self.launch.isolation_seconds), "isolation")
        self._publish("starting")
        await asyncio.sleep(self._chance.uniform(0.05, 0.5))
        if not self.alive or self._signalled:
            return
        self._started = True
        if self.launch.node_rank == 0:
            self._rendezvous = Rendezvous(
                address="10.0.0.1", port=self._chance.randint(2**14, 2**15)
            )
        for rank in self._ranks:
            rank.pid, rank.started_at = self._chance.randint(2, 2**22), self._group.now()
        self._launched(self.launch)
        self._publish("running")
        self._group.join(self)

    async def _heed_isolation(self, lost_after: float) -> None:
        bounds = isolation.limits(lost_after, math.inf)
        while self.alive:
            step = isolation.step(self._silence(), 0.0, bounds)
            if step is not isolation.Step.GO_ON:
                self.isolated = self.isolated or self.control is Command.RUN
                self.tell(Command.PAUSE)
            if step is isolation.Step.KILL:
                self.tell(Command.STOP)
                self._kill_ranks()
            await asyncio.sleep(isolation.CHECK_SECONDS)

    def tell(self, command: Command) -> None:
        if not self.alive or command <= self.control:
            return
        self.control = command
        if not self._started:
            self._signalled = True
            self._end()
            return
        self._publish("stopping")
        if command is Command.PAUSE and len(self._group.shims) < self.launch.num_nodes:
            self.ranks_left(EXIT_PAUSED)  # it would wait for its peers for ever
        elif command is Command.STOP:
            later(AGREE_SECONDS, self._kill_ranks)

    def ranks_left(self, code: int) -> None:
        """Those ranks that still run agreed to leave."""
        if self.runs:
            for rank in self._ranks:
                if rank.finished_at is None:
                    rank.finished_at, rank.exit_code = self._group.now(), code
            self._look()

    def rank_failed(self, code: int, signal: int | None) -> None:
        """One rank ends, and the shim ends those beside it."""
        first = self._ranks[0]
        first.finished_at = self._group.now()
        first.exit_code, first.signal = (None, signal) if signal else (code, None)
        work = self._work()
        culprit = first_failing([first], work)
        if culprit is not None:
            word = f"was ended by signal {signal}" if signal else "failed: ValueError: no"
            self._failure = Failure(
                rank=first.rank,
                exit_code=first.exit_code,
                signal=signal,
                message=f"rank {first.rank} {word}",
            )
        self._kill_ranks()

    def die(self, *, with_ranks: bool) -> None:
        """It is killed without a word; its ranks go on where only the shim is killed."""
        self.alive = False
        if with_ranks:
            self._on_end()
            for rank in self._ranks:
                rank.finished_at = rank.finished_at or self._group.now()
        self._ring()

    def _kill_ranks(self) -> None:
        if not self.alive:
            return
        for rank in self._ranks:
            if rank.finished_at is None:
                self._signalled = self._signalled or self._failure is None
                rank.finished_at, rank.signal = self._group.now(), 9
        self._look()

    def _look(self) -> None:
        if self.alive and all(rank.finished_at for rank in self._ranks):
            self._end()

    def _end(self) -> None:
        ended, failure = outcome_of(self._ranks, self._work(), self._failure)
        self._publish("exited", ended, failure)
        self.alive = False
        self._on_end()
        self._ring()

    def _work(self) -> Work:
        return Work(is_script=False, asked=self.control, signalled=self._signalled)

    def _publish(
        self, phase: str, ended: Outcome | None = None, failure: Failure | None = None
    ) -> None:
        told = f": {ended}" if ended else ""
        why = f" ({failure.message})" if failure else ""
        self._story.tell(self._where, f"{name(self.launch)} {phase}{told}{why}")
        self.status = ShimStatus.model_validate(
            {
                "job_id": self.launch.job_id,
                "attempt": self.launch.attempt,
                "generation": self.launch.generation,
                "shim_pid": 1,
                "shim_started_at": 0.0,
                "phase": phase,
                "command": self.control,
                "ranks": [rank.model_dump() for rank in self._ranks],
                "rendezvous": self._rendezvous,
                "outcome": ended,
                "failure": failure,
                "isolated": self.isolated,
            }
        )
        self._ring()


def name(launch: Launch) -> str:
    return f"job {launch.job_id} attempt {launch.attempt}"
