"""Next jobs, and reasons for the others to wait. A pure function of the state of the cluster.

One after the other, in the queue's order (`queue_order`), every waiting job is

1. skipped if it may not start yet: its restart is delayed, the cluster could never hold it, or a
   quota is used up. It blocks no other job;
2. placed if enough is free for the whole of it (`placement`); an elastic job as large as possible
   beside the demand of waiting jobs of its priority;
3. else, as the first of its group (of jobs that the same nodes serve in the same way), given a
   reservation (`reservation`), and jobs of lower priority are preempted for it (`preemption`);
4. else waits behind that one, unless it is sure to end before the devices that it takes are needed.
"""

from bisect import bisect_right
from collections.abc import Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from trainhall.cluster.lifecycle.reasons import Reason, ReasonCode, clock_time
from trainhall.cluster.lifecycle.states import WAITING_STATES, JobState
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.queue.order import queue_order
from trainhall.cluster.scheduling import reasons
from trainhall.cluster.scheduling.backfill import Backfill
from trainhall.cluster.scheduling.demand import Group
from trainhall.cluster.scheduling.placement import DeviceKey, PlacedNode, devices_of
from trainhall.cluster.scheduling.preemption import Candidate, preempted
from trainhall.cluster.scheduling.quota_use import QuotaUse
from trainhall.cluster.scheduling.reservation import Reservation, Timeline
from trainhall.cluster.scheduling.running import Running
from trainhall.cluster.scheduling.supply import Served, Supply
from trainhall.cluster.scheduling.views import Needs
from trainhall.cluster.snapshot.model import ClusterFacts, JobFacts


class QueueEntry(NamedTuple):
    """One waiting job: either it is placed now, or it has a reason to wait."""

    job: JobFacts
    position: int
    needs: Needs
    waits: Reason | None
    placed: tuple[PlacedNode, ...] | None
    earliest_start: datetime | None = None
    preempted: tuple[Candidate, ...] = ()
    """Jobs that are to pause or to shrink, so that this one can start."""
    never: bool = False
    """True if it cannot start while cluster and quotas are as they are."""
    waits_its_turn: bool = False
    """True if it waits for devices, not for a time or a quota."""
    over_quota: bool = False
    """True if it waits for others to release devices of its quotas."""
    forecast: str = ""
    """Expected start, in words (`trainhall.cluster.scheduling.forecast`)."""

    @property
    def reason(self) -> Reason:
        """Return the reason to wait, or the placement, whose text is made where it is read."""
        if self.waits is not None:
            return self.waits
        return reasons.placed(self.placed or (), self.needs.device)

    @property
    def text(self) -> str:
        """Return the reason for people, with the forecast."""
        return f"{self.reason.text}; {self.forecast}" if self.forecast else self.reason.text


def schedule(now: datetime, facts: ClusterFacts, options: ClusterOptions) -> list[QueueEntry]:
    """Return the queue in order; those entries that are placed use up the free devices, in that
    order."""
    return Pass(now, facts, options).run()


def shortage(
    now: datetime, facts: ClusterFacts, options: ClusterOptions, job: JobFacts
) -> str | None:
    """Why the nodes as they are could not hold such a job, were it alone; None when they could."""
    (entry,) = schedule(now, ClusterFacts(nodes=facts.nodes, jobs=(job,)), options)
    return entry.text if entry.placed is None else None


def not_before(now: datetime, job: JobFacts, options: ClusterOptions) -> datetime | None:
    """When a restart may begin: the first at once, then ever later, so that nothing spins."""
    if job.last_ended_at is None or job.restarts < 2:
        return None
    if now < job.last_ended_at:
        return None  # the time of day was set back, and may not come again for hours
    wait = min(
        options.restart_backoff_seconds * 2.0 ** min(job.restarts - 2, 32),
        options.restart_backoff_limit_seconds,
    )
    return job.last_ended_at + timedelta(seconds=wait)


@dataclass
class Pass:
    """One pass over the queue. What is granted and kept on the way is gone for those behind."""

    now: datetime
    facts: ClusterFacts
    options: ClusterOptions

    def __post_init__(self) -> None:
        self.supply = Supply(self.facts)
        self.backfill = Backfill(self.supply)
        self.quotas = QuotaUse(self.options.quotas, self.facts)
        self._waiting: list[JobFacts] = []
        """The queue."""
        self._quota_waits: set[tuple[str, str]] = set()
        """Projects and users with a job that waits for their quota."""
        self._needs: dict[tuple[str, int], Needs] = {}
        self._never: dict[tuple[Group, bool], str] = {}
        self._timelines: dict[str, Timeline] = {}
        self.running = Running(self.now, self.facts)
        self.labels = reasons.Labels(self.facts.jobs)
        self._returning = [
            job
            for job in self.facts.jobs
            if job.id in self.running.ending and job.state in (JobState.STARTING, JobState.RUNNING)
        ]
        """Jobs that pause or restart without a user having asked: back in the queue soon."""

    def run(self) -> list[QueueEntry]:
        waiting = [job for job in self.facts.jobs if job.state in WAITING_STATES]
        waiting.sort(key=lambda job: queue_order(job, self.options))
        self._waiting = waiting
        return [self._consider(job, position) for position, job in enumerate(waiting, start=1)]

    def _consider(self, job: JobFacts, position: int) -> QueueEntry:
        served = self.supply.for_job(job)
        kind = served.group.kind
        least, key = job.sizes[0], (job.sizes, job.last_failure, job.project)
        start = not_before(self.now, job, self.options)
        if start is not None and start > self.now:
            time = clock_time(start, self.now, seconds=True)
            reason = reasons.waits(ReasonCode.RESTART_BACKOFF, job, served.group, time=time)
            return self._waits(job, position, kind, reason, earliest_start=start)
        if served.capacity < least:
            if key not in served.reasons:
                why = self._why_never(served, least)
                reason = reasons.waits(ReasonCode.NEVER_FITS, job, served.group, why=why)
                served.reasons[key] = reason
            return self._waits(job, position, kind, served.reasons[key], never=True)
        headroom = self.quotas.headroom(job)
        if headroom is not None and headroom < least:
            return self._over_quota(job, position, served)
        placed = self._place(job, position, served, headroom)
        if placed is None and served.reservation is not None:
            placed = self.backfill.place(job, served)
        if placed is not None:
            return self._placed(job, position, placed, kind)
        if served.reservation is None:
            return self._reserve(job, position, served)
        if key not in served.reasons:
            ahead = reasons.sized_label(served.reservation.job, kind, job)
            reason = reasons.waits(ReasonCode.WAITING_FOR_JOB, job, served.group, ahead=ahead)
            served.reasons[key] = reason
        return self._waits(job, position, kind, served.reasons[key], waits_its_turn=True)

    def _place(
        self, job: JobFacts, position: int, served: Served, headroom: int | None
    ) -> Sequence[PlacedNode] | None:
        """Place as many workers as possible on devices that are free and not kept for others."""
        one_host = served.group.one_host
        most = served.part.most(one_host=one_host)
        if headroom is not None:
            most = min(most, headroom)
        least, largest = job.sizes[0], min(most, job.sizes[-1])
        if least < largest:
            free = served.part.most(one_host=False)
            left = self._wanted_behind(job, position, served, free - least)
            most = max(least, min(most, free - left))
        fitting = bisect_right(job.sizes, most)
        return served.part.place(job.sizes[fitting - 1], one_host=one_host) if fitting else None

    def _wanted_behind(self, job: JobFacts, position: int, served: Served, most: int) -> int:
        """Return how many of a job's possible devices could let waiting jobs behind it start.

        Only jobs of its priority count, and no more than `most`. It would not give such devices
        back.
        """
        wanted = 0
        node_ids = set(served.part.node_ids)
        for other in self._waiting[position:]:
            if wanted >= most:
                break
            if other.priority >= job.priority and self._could_start(other, served, node_ids):
                wanted += other.sizes[0]
        return min(wanted, most)

    def _could_start(self, job: JobFacts, served: Served, node_ids: Set[str]) -> bool:
        """Return whether nothing but devices keeps a job from starting on these nodes."""
        if not self._could_take(job, served.group, node_ids):
            return False
        start = not_before(self.now, job, self.options)
        headroom = self.quotas.headroom(job)
        return (
            (start is None or start <= self.now)
            and self.supply.for_job(job).capacity >= job.sizes[0]
            and (headroom is None or headroom >= job.sizes[0])
        )

    def _placed(
        self, job: JobFacts, position: int, placed: Sequence[PlacedNode], kind: str
    ) -> QueueEntry:
        count = len(devices_of(placed))
        self.supply.grant(job, placed)
        self.backfill.take(placed, kind)
        self.quotas.take(job, count)
        return QueueEntry(job, position, self._need(kind, count), None, tuple(placed))

    def _over_quota(self, job: JobFacts, position: int, served: Served) -> QueueEntry:
        self._quota_waits.update(self._accounts(job))
        quota = self.quotas.reason(job)
        never = self.quotas.too_small(job) is not None
        code = ReasonCode.QUOTA_TOO_SMALL if never else ReasonCode.QUOTA_EXCEEDED
        reason = reasons.waits(code, job, served.group, quota=quota)
        kind = served.group.kind
        return self._waits(job, position, kind, reason, never=never, over_quota=not never)

    def _reserve(self, job: JobFacts, position: int, served: Served) -> QueueEntry:
        """Reserve devices for the first of its group that has to wait."""
        group, one_host = served.group, served.group.one_host
        earlier = tuple(self.backfill.reservations)
        helpers = self._preempt(job, served, earlier)
        self._returning += [helper.job for helper in helpers if helper.keeps is None]
        timeline = self.timeline(group.kind)
        for helper in helpers:
            timeline.give_back(helper.devices, self.now)
        devices, at = timeline.earliest(
            self.now, job.sizes[0], served.part.node_ids, one_host=one_host
        )
        free = timeline.keep(devices)
        nodes = frozenset(served.part.node_ids)
        reservation = Reservation(job, group, nodes, devices, at, free)
        served.reservation = reservation
        self.backfill.reserve(reservation, None if at is None else (at - self.now).total_seconds())
        if helpers:
            reason = reasons.preempting(job, group, [helper.job for helper in helpers])
        else:
            held, ending = self.supply.held, self.running.ending
            taken = reasons.not_free(served, held, reservation, earlier, ending, self.labels)
            reason = reasons.waits(ReasonCode.WAITING_FOR_DEVICES, job, group, devices=taken)
        return self._waits(
            job, position, group.kind, reason, preempted=tuple(helpers), waits_its_turn=True
        )

    def _preempt(
        self, job: JobFacts, served: Served, earlier: Sequence[Reservation]
    ) -> list[Candidate]:
        """Return the jobs to preempt for the job.

        There are none if it could not start even so, or if a job ahead of it in the queue could
        take their devices.
        """
        if not self.options.preemption or self._is_preceded(job, served, earlier):
            return []
        group, order = served.group, queue_order(job, self.options)
        devices = {(n.id, d.index) for n in served.nodes for d in n.devices if d.kind == group.kind}
        free = self._free_soon(served, devices)
        enough = max(free.values(), default=0) if group.one_host else sum(free.values())
        if enough >= job.sizes[0]:
            return []

        def allows(other: JobFacts) -> bool:
            return (
                other.priority < job.priority
                # Otherwise it would take back at once what it gave.
                and order < queue_order(other, self.options)
                and self._quota_waits.isdisjoint(self._accounts(other))
            )

        candidates = self.running.candidates(allows, set(served.part.node_ids), devices)
        return preempted(job.sizes[0], free, candidates, one_host=group.one_host) or []

    def _is_preceded(self, job: JobFacts, served: Served, earlier: Sequence[Reservation]) -> bool:
        """Return whether a job ahead of this one could take devices freed for it."""
        group, node_ids = served.group, set(served.part.node_ids)
        if any(r.group.kind == group.kind and r.nodes & node_ids for r in earlier):
            return True
        order = queue_order(job, self.options)
        return any(
            queue_order(other, self.options) < order and self._could_take(other, group, node_ids)
            for other in self._returning
        )

    def _free_soon(self, served: Served, devices: Set[DeviceKey]) -> dict[str, int]:
        """Return the devices of each node that are free, or that ranks are leaving."""
        free = {node_id: len(served.part.free_of(node_id)) for node_id in served.part.node_ids}
        for device in self.running.leaving:
            if device[0] in free and device in devices:
                free[device[0]] += 1
        return free

    def _could_take(self, job: JobFacts, group: Group, node_ids: Set[str]) -> bool:
        """Return whether devices freed on these nodes for the group serve this job, too."""
        served = self.supply.for_job(job)
        return served.group.kind == group.kind and not node_ids.isdisjoint(served.part.node_ids)

    def timeline(self, kind: str) -> Timeline:
        if kind not in self._timelines:
            devices = {
                (n.id, d.index) for n in self.facts.nodes for d in n.devices if d.kind == kind
            }
            coming = {d: when for d, when in self.running.coming.items() if d in devices}
            self._timelines[kind] = Timeline(self.supply.pool(kind), coming)
        return self._timelines[kind]

    def _why_never(self, served: Served, least: int) -> str:
        key = (served.group, least <= served.total)
        why = self._never.get(key)
        if why is None:
            why = reasons.never(served, self.facts.nodes, only_one_host=key[1])
            self._never[key] = why
        return why

    def _accounts(self, job: JobFacts) -> set[tuple[str, str]]:
        quotas = self.options.quotas.of(job.project, job.user)
        return {(quota.what, quota.name) for quota in quotas}

    def _need(self, kind: str, count: int) -> Needs:
        need = self._needs.get((kind, count))
        if need is None:
            need = self._needs[kind, count] = Needs(device=kind, count=count)
        return need

    def _waits(
        self, job: JobFacts, position: int, kind: str, reason: Reason, *,
        earliest_start: datetime | None = None, preempted: tuple[Candidate, ...] = (),
        never: bool = False, waits_its_turn: bool = False, over_quota: bool = False,
    ) -> QueueEntry:  # fmt: skip
        return QueueEntry(
            job, position, self._need(kind, job.sizes[0]), reason, None,
            earliest_start, preempted, never, waits_its_turn, over_quota,
        )  # fmt: skip
