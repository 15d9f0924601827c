"""Preemption: the fewest jobs to preempt so that one of higher priority can start.

An elastic job that regroups in place continues with fewer workers; only if that is not enough do
jobs pause. The cheapest to preempt come first, and a job that turns out not to be needed is spared.
For a job that needs one host, the host is the one on which the fewest workers are lost.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from trainhall.cluster.lifecycle.states import AttemptState
from trainhall.cluster.snapshot.model import AttemptFacts, JobFacts

Devices = Mapping[str, tuple[int, ...]]
"""Indices by node id."""


@dataclass(frozen=True)
class Candidate:
    """A job that could be preempted."""

    job: JobFacts
    attempt: AttemptFacts
    devices: Devices
    """Devices that it holds and the other may have."""
    keeps: int | None = None
    """Number of workers that it continues with; None: it pauses."""

    @property
    def smaller(self) -> tuple[int, ...]:
        """The sizes that it could shrink to in place, ascending."""
        attempt = self.attempt
        if not (attempt.in_place and attempt.begun and attempt.state is AttemptState.RUNNING):
            return ()
        return self.job.sizes[: bisect_left(self.job.sizes, self._size)]

    @property
    def stops_job(self) -> bool:
        """All that it holds counts: for each rank less that it keeps it gives one device more."""
        return sum(map(len, self.devices.values())) == self._size

    @property
    def _size(self) -> int:
        return sum(len(host.devices) for host in self.attempt.hosts)

    def shrunk(self, size: int) -> "Candidate":
        """Return the same, continuing with its first `size` ranks."""
        devices = dict(self.devices)
        left = size
        for host in self.attempt.hosts:
            kept = host.devices[:left]
            if not kept:
                break
            left -= len(kept)
            given = tuple(i for i in devices.pop(host.node_id, ()) if i not in kept)
            if given:
                devices[host.node_id] = given
        return Candidate(self.job, self.attempt, devices, keeps=size)


def preempted(
    count: int, free: Mapping[str, int], candidates: Iterable[Candidate], *, one_host: bool
) -> list[Candidate] | None:
    """Return the jobs to preempt for `count` devices to be free, none of which could be spared.

    None when all of them together are too few.

    Args:
        count: more than what is free.
        free: devices that the job may have without preemption, by node id.
    """
    if not one_host:
        return _irreducible(count, free, candidates, one_host=False)
    on: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        for node_id in candidate.devices:
            on.setdefault(node_id, []).append(candidate)
    found = []
    for node_id, its in sorted(on.items()):
        if free.get(node_id, 0) + sum(len(c.devices[node_id]) for c in its) >= count:
            near = {other: free.get(other, 0) for c in its for other in c.devices}
            if (chosen := _irreducible(count, near, its, one_host=True)) is not None:
                found.append(chosen)
    return min(found, key=_price, default=None)


def _price(chosen: Sequence[Candidate]) -> tuple[float, int, int, int]:
    """Return the cost of preempting these jobs.

    In order: the highest priority that pauses, how many pause, how many give anything, and how
    much.
    """
    pausing = [c.job.priority for c in chosen if c.keeps is None]
    given = [sum(map(len, c.devices.values())) for c in chosen]
    return (max(pausing, default=-math.inf), len(pausing), len(given), sum(given))


def _irreducible(
    count: int, free: Mapping[str, int], candidates: Iterable[Candidate], *, one_host: bool
) -> list[Candidate] | None:
    """Enough of them, the cheapest first, without those who turn out not to be needed."""
    freed = _FreedDevices(count, free, one_host=one_host)
    by_cost = sorted(candidates, key=_cost)
    chosen: dict[str, Candidate] = {}
    shrinking = (c.shrunk(sizes[0]) for c in by_cost if (sizes := c.smaller))
    for candidate in chain(shrinking, by_cost):
        if freed.is_enough:
            break
        freed.change(chosen.get(candidate.job.id), candidate)
        chosen[candidate.job.id] = candidate
    if not freed.is_enough:
        return None
    for candidate in reversed(by_cost):
        given = chosen.get(candidate.job.id)
        if given is not None:
            least = _least(freed, candidate, given)
            if least is None:
                del chosen[candidate.job.id]
            else:
                chosen[candidate.job.id] = least
    return [chosen[c.job.id] for c in by_cost if c.job.id in chosen]


def _least(freed: "_FreedDevices", candidate: Candidate, given: Candidate) -> Candidate | None:
    """Return the least that one must give while the others give what they do; None: nothing."""
    if candidate.stops_job and freed.is_exact:
        return given
    freed.change(given, None)
    if freed.is_enough:
        return None
    # The larger the size, the less is given: below some size it is enough, above it is not.
    sizes = candidate.smaller
    enough = bisect_left(sizes, True, key=lambda size: not freed.suffices(candidate.shrunk(size)))
    least = candidate.shrunk(sizes[enough - 1]) if enough else candidate
    freed.change(None, least)
    return least


def _cost(candidate: Candidate) -> tuple[int, bool, float, int]:
    """Lower priorities first, then what can save, then what has run for the least time."""
    attempt = candidate.attempt
    began = attempt.started_at.timestamp() if attempt.started_at else 0.0
    loses_work = attempt.script and not attempt.begun
    return (candidate.job.priority, loses_work, -began, -candidate.job.number)


class _FreedDevices:
    """Free devices by node, and whether they are enough."""

    def __init__(self, count: int, free: Mapping[str, int], *, one_host: bool) -> None:
        self._count = count
        self._one_host = one_host
        self._free = dict(free)
        self._total = sum(free.values())
        self._large = sum(1 for number in free.values() if number >= count)
        """Hosts that would be enough by themselves."""

    @property
    def is_enough(self) -> bool:
        return self._large > 0 if self._one_host else self._total >= self._count

    @property
    def is_exact(self) -> bool:
        """Return whether it is enough, and any device less would not be."""
        return not self._one_host and self._total == self._count

    def suffices(self, candidate: Candidate) -> bool:
        """Return whether it is enough together with the devices of this one."""
        self.change(None, candidate)
        enough = self.is_enough
        self.change(candidate, None)
        return enough

    def change(self, before: Candidate | None, after: Candidate | None) -> None:
        """Replace what one job can give: `after` instead of `before`."""
        for candidate, sign in ((before, -1), (after, 1)):
            for node_id, indices in candidate.devices.items() if candidate else ():
                was = self._free.get(node_id, 0)
                now = self._free[node_id] = was + sign * len(indices)
                self._large += (now >= self._count) - (was >= self._count)
                self._total += now - was
