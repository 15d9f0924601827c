"""Detection of hangs: which ranks take no step any more, and which of them is behind.

`detect_stall` is pure. `HangDetector` polls the ranks of one host and counts how
long each has shown no progress. Time in which this process was itself frozen (a suspended host, a
stopped container) is not held against the ranks: between two polls no more passes than intended.
"""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from trainhall.cluster.agent.shim.outcome import last_lines
from trainhall.training.link.failure import Cause, Failure
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.progress import Activity, Part, RankProgress, read
from trainhall.training.link.stall import RankStall, Stall
from trainhall.training.spec import JobSpec

TIMES_THE_MEAN = 10
TIMES_THE_LONGEST = 2
"""A step may take so many times what the job's steps took so far, before it is a hang."""
OTHER_WORK_SECONDS = 1800.0
"""Time limit to evaluate, save, read or end: as long as the others wait in a collective."""
POLLS_PER_LIMIT = 8
MIN_POLL_SECONDS = 0.1
MAX_POLL_SECONDS = 5.0
TASK_SECONDS = 30.0
"""`recovery.hang_seconds` of a task, unless it is given."""
BUSY = 0.5
"""Share of a core: a rank above it computes, one below it waits for others."""


@dataclass(frozen=True)
class RankObservation:
    """One rank as seen from outside."""

    rank: int
    progress: RankProgress | None
    """None: it has published none, or none yet."""
    idle: float
    """Seconds without progress."""
    state: str = ""
    """Process state, as psutil names it."""
    cpu: float = 0.0
    """Cores that it uses."""

    @property
    def activity(self) -> Activity | None:
        return self.progress.activity if self.progress is not None else None

    @property
    def position(self) -> tuple[int, int]:
        """Return (step, parts) done: of ranks with the same task, a lower one lags behind."""
        return (self.progress.step, self.progress.parts) if self.progress is not None else (0, 0)


def limit_of(progress: RankProgress, floor: float, *, compiles: bool = False) -> float:
    """Return how long a step may take until it is a hang, from the steps that the job took.

    Args:
        compiles: a later step may take as long as the first did. For other jobs the first is
            start-up, which takes long on a busy host.
    """
    longest = max(progress.longest_seconds, progress.first_seconds if compiles else 0.0)
    learned = TIMES_THE_LONGEST * longest
    if progress.mean_seconds is not None:
        learned = max(learned, TIMES_THE_MEAN * progress.mean_seconds)
    return max(floor, learned)


def detect_stall(
    ranks: Sequence[RankObservation],
    floor: float,
    regrouping: float | None = None,
    *,
    compiles: bool = False,
) -> Stall | None:
    """Return the stall of a host's ranks; None while they make progress, or may.

    Where ranks regroup in place, ranks that wait for others to join, or have no progress yet, block
    nobody. All ranks of a host may do so, because of a rank of another host.

    Args:
        floor: seconds, the least that is waited.
        regrouping: seconds that it may take to leave a group and join the next, or to take over
            a state; None: the ranks do neither.
        compiles: as in `limit_of`.
    """
    step = _step_limit(ranks, floor, compiles=compiles)
    if step is None:
        return None
    limits = _Limits(step, regrouping)
    stopped = _first(r for r in ranks if r.state == psutil.STATUS_STOPPED and r.idle >= step)
    if stopped is not None:
        return _stall(ranks, limits, stopped)
    # It is overdue to join a group or to end, and waits for no other rank.
    left = _first(r for r in ranks if r.activity is Activity.REGROUPING and limits.exceeded_by(r))
    if left is not None:
        return _stall(ranks, limits, left, is_sure=True)
    needed = [r for r in ranks if not limits.allow_to_wait(r)]
    if not all(limits.exceeded_by(r) for r in needed or ranks):
        return None
    return _stall(ranks, limits, _behind(needed) if needed else None)


@dataclass(frozen=True)
class _Limits:
    """Times for which ranks may show no progress."""

    step: float
    """In a step."""
    regrouping: float | None
    """As in `detect_stall`."""

    def of(self, rank: RankObservation) -> float:
        """Return the limit of what a rank does."""
        match rank.activity:
            case Activity.STEPPING | Activity.JOINING:
                return self.step
            case Activity.STARTING:
                return math.inf  # the coordinator bounds it
            case Activity.REGROUPING | Activity.RECEIVING_STATE:
                return math.inf if self.regrouping is None else max(self.step, self.regrouping)
            case None:
                return math.inf if self.regrouping is None else self.step
            case _:
                return max(self.step, OTHER_WORK_SECONDS)

    def exceeded_by(self, rank: RankObservation) -> bool:
        return rank.idle >= self.of(rank)

    def allow_to_wait(self, rank: RankObservation) -> bool:
        """Return whether a rank waits for its next group, or has reported no progress yet."""
        return self.regrouping is not None and rank.activity in (None, Activity.JOINING)


def _step_limit(ranks: Sequence[RankObservation], floor: float, *, compiles: bool) -> float | None:
    """Return the time limit of a step; None: nothing can be said of these ranks.

    A script may publish no progress, and a rank may be held in a debugger.
    """
    if any(rank.state == psutil.STATUS_TRACING_STOP for rank in ranks):
        return None
    limits = [
        limit_of(rank.progress, floor, compiles=compiles)
        for rank in ranks
        if rank.progress is not None
    ]
    return max(limits, default=None)


def _first(ranks: Iterable[RankObservation]) -> RankObservation | None:
    return min(ranks, key=lambda r: r.rank, default=None)


def _stall(
    ranks: Sequence[RankObservation],
    limits: _Limits,
    behind: RankObservation | None,
    *,
    is_sure: bool = False,
) -> Stall:
    """Return the stall; its limit is that of what the rank behind does, unless it is stopped."""
    limit = limits.step
    if behind is not None and behind.state != psutil.STATUS_STOPPED:
        limit = limits.of(behind)
    return Stall(
        limit=limit,
        behind=behind.rank if behind is not None else None,
        is_sure=is_sure,
        ranks=[_rank_stall(each, waits=limits.allow_to_wait(each)) for each in ranks],
    )


def _behind(ranks: Sequence[RankObservation]) -> RankObservation | None:
    """Return the rank that the others wait for; None if it cannot be identified."""
    first = min(ranks, key=lambda r: r.position)
    if [r.position for r in ranks].count(first.position) == 1:
        return first
    busy = [r for r in ranks if r.cpu >= BUSY]
    return busy[0] if len(busy) == 1 else None


def _rank_stall(rank: RankObservation, *, waits: bool) -> RankStall:
    progress = rank.progress or RankProgress()
    return RankStall(
        rank=rank.rank,
        step=progress.step,
        parts=progress.parts,
        activity=describe_activity(progress),
        idle=rank.idle,
        state=rank.state,
        busy=rank.cpu >= BUSY,
        waits=waits,
    )


_ACTIVITIES = {
    Activity.STARTING: "starting",
    Activity.FIRST_STEP: "in its first step",
    Activity.READING: "reading data",
    Activity.EVALUATING: "evaluating",
    Activity.SAVING: "saving a checkpoint",
    Activity.ENDING: "ending",
    Activity.REGROUPING: "leaving its group",
    Activity.JOINING: "waiting for other ranks to join",
    Activity.RECEIVING_STATE: "receiving the state",
}
_PARTS = {
    Part.DATA: "reading data",
    Part.FORWARD: "in the forward pass",
    Part.BACKWARD: "in the backward pass",
    Part.GRADIENTS: "waiting for gradients",
    Part.OPTIMIZER: "in the optimizer",
    Part.BETWEEN: "between two steps",
}


def describe_activity(progress: RankProgress) -> str:
    """Return a rank's activity, as part of a sentence."""
    return _ACTIVITIES.get(progress.activity) or _PARTS[progress.part]


def hang_floor(spec: JobSpec) -> float | None:
    """Return the shortest time without a step that counts as a hang; None: not watched."""
    given = spec.recovery.hang_seconds
    if given is None:
        return TASK_SECONDS if spec.script is None else None
    return given or None


def may_compile(spec: JobSpec) -> bool:
    """Return whether a step may take as long as the first one; unknown for scripts."""
    return spec.script is not None or spec.training.compile


class HangDetector:
    """Polls the ranks of one host.

    Args:
        floor: seconds, `recovery.hang_seconds`.
        regrouping, compiles: as `detect_stall` takes them.
    """

    def __init__(
        self,
        attempt: Path,
        floor: float,
        regrouping: float | None = None,
        *,
        compiles: bool = False,
    ) -> None:
        self._attempt = attempt
        self._floor = floor
        self._regrouping = regrouping
        self._compiles = compiles
        self.pause = min(max(floor / POLLS_PER_LIMIT, MIN_POLL_SECONDS), MAX_POLL_SECONDS)
        """Seconds between two polls."""
        self._seen: dict[int, RankObservation] = {}
        """By pid."""
        self._cpu: dict[int, float] = {}
        self._polled_at: float | None = None

    def poll(self, now: float, pids: Mapping[int, int]) -> Stall | None:
        """Observe the live ranks (rank → pid); return a stall if they are stuck."""
        passed = 0.0 if self._polled_at is None else min(now - self._polled_at, 2 * self.pause)
        self._polled_at = now
        self._seen = {pid: self._observe(rank, pid, passed) for rank, pid in pids.items()}
        seen = list(self._seen.values())
        return detect_stall(seen, self._floor, self._regrouping, compiles=self._compiles)

    def reset(self) -> None:
        """Forget what the ranks did."""
        self._seen.clear()
        self._polled_at = None

    def _observe(self, rank: int, pid: int, passed: float) -> RankObservation:
        progress = read(self._attempt, pid)
        before = self._seen.get(pid)
        if before is None or before.progress != progress:
            self._cpu.pop(pid, None)
            return RankObservation(rank, progress, 0.0)
        seen = replace(before, rank=rank, idle=before.idle + passed)
        try:
            # Asked of those alone that show no progress: a poll costs a job that runs next to none.
            process = psutil.Process(pid)
            used = sum(process.cpu_times()[:2])
            share = (used - self._cpu[pid]) / passed if pid in self._cpu and passed else 0.0
            self._cpu[pid] = used
            return replace(seen, state=process.status(), cpu=share)
        except psutil.Error:
            return seen  # it ends just now


def failure_of(folder: AttemptFolder, stall: Stall) -> Failure:
    """Return the failure of an attempt on one host: the rank that lags behind, and its stacks."""
    behind = next((r for r in stall.ranks if r.rank == stall.behind), stall.ranks[0])
    return Failure(
        rank=stall.behind,
        message=describe(stall),
        log_tail=last_lines(folder.stderr(behind.rank)),
        cause=Cause.HANG,
        evidence=f"no step for {behind.idle:.3g} s",
        time=time.time() - behind.idle,
    )


def describe(stall: Stall, node: str | None = None) -> str:
    """Describe a stall in one line: who is behind, what it does, and what the others do."""
    where = f" (node {node})" if node else ""
    idle = max((rank.idle for rank in stall.ranks), default=0.0)
    waited = f"no step for {idle:.3g} s (limit: {stall.limit:.3g} s)"
    behind = next((rank for rank in stall.ranks if rank.rank == stall.behind), None)
    if behind is None:
        places = ", ".join(
            f"rank {r.rank} {r.activity} after step {r.step}" for r in stall.ranks[:4]
        )
        more = f" and {len(stall.ranks) - 4} more" if len(stall.ranks) > 4 else ""
        return f"hang: {waited}; no rank is behind the others: {places}{more}"
    text = f"rank {behind.rank}{where} is behind, {behind.activity} after step {behind.step}"
    if behind.state == psutil.STATUS_STOPPED:
        text += "; its process is stopped (state T, by SIGSTOP or a terminal)"
    elif behind.state == psutil.STATUS_DISK_SLEEP:
        text += "; its process waits for a disk or a network file system (state D)"
    elif behind.busy:
        text += "; it is computing"
    others = {r.activity for r in stall.ranks if r.rank != behind.rank}
    rest = f"; the others are {' or '.join(sorted(others))}" if others else ""
    return f"hang: {waited}; {text}{rest}"
