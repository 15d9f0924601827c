"""Elastic jobs: how one goes on when ranks fall, nodes go or devices come free. Pure functions.

What regroups in place (`AttemptFacts.in_place`) goes on under the next generation of its attempt:
processes that live keep their devices and what they have in memory. Everything else changes its
size in the one way that every job has: it saves, its attempt ends, and the next one starts at the
size that is free.

The rules, in order, for an attempt in place:

1.  A rank that fell is replaced on its own device, at once.
2.  Where a node is lost, drains or is removed, or a host has failed, its ranks are placed on free
    devices that nobody else waits for; the job takes the largest size that it can then have. A node
    that drains is left once the present generation has taken a step: before that its ranks may be
    the only ones that have the state.
3.  With no such size the attempt ends as any other does.
4.  Has the job been resized, and may not have the size that it has, it takes the largest that it
    may, as soon as there is room; until then it keeps what it has.
5.  It grows to the largest size that free devices allow which no waiting job could use, once
    `grow_after_seconds` have passed since its last change.

Every other job follows rule 4 by a save and its next attempt. An elastic one grows so too, once
`grow_by_restart_after_seconds` have passed since its attempt began to run, and only if it can save.
"""

from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

from trainhall.cluster.decide_attempt import SIGNALLED, describe
from trainhall.cluster.decisions import Decision, Regroup, StopAttempt
from trainhall.cluster.facts import (
    AttemptFacts,
    ClusterFacts,
    HostFacts,
    JobFacts,
    NodeFacts,
    NodeState,
)
from trainhall.cluster.lifecycle import WAITING_STATES, AttemptState, JobState
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.restarts import after_failure, node_lost
from trainhall.cluster.scheduling.placement import PlacedNode
from trainhall.cluster.scheduling.quota_use import QuotaUse
from trainhall.cluster.scheduling.quotas import Quota, Quotas
from trainhall.training.link import Failure, Fallen, Outcome
from trainhall.training.spec import JobSpec


def sizes_of(spec: JobSpec) -> list[int] | None:
    """`Job.sizes`: the world sizes that an elastic job can have; None of any other."""
    return list(spec.possible_workers) if spec.resources.is_elastic else None


class Spare:
    """Devices that no attempt holds and no waiting job could use, while a pass gives some away."""

    def __init__(self, facts: ClusterFacts, quotas: Quotas) -> None:
        self._facts = facts
        self._quotas = quotas
        self._wanted: dict[tuple[str, str], bool] = {}

    # Read only where a job is elastic: most passes have none to look at.

    @cached_property
    def nodes(self) -> dict[str, NodeFacts]:
        return {node.id: node for node in self._facts.nodes}

    @cached_property
    def _held(self) -> set[tuple[str, int]]:
        return {(grant.node_id, grant.device_index) for grant in self._facts.grants}

    @cached_property
    def _busy_with(self) -> set[tuple[str, str]]:
        return {(grant.node_id, grant.job_id) for grant in self._facts.grants}

    @cached_property
    def _quota_use(self) -> QuotaUse:
        return QuotaUse(self._quotas, self._facts)

    @cached_property
    def _waiting(self) -> list[tuple[JobFacts, str]]:
        """Jobs that wait, each with the kind of device that it waits for."""
        has_gpus = any(d.kind == "cuda" for node in self._facts.nodes for d in node.devices)
        auto = "cuda" if has_gpus else "cpu"
        return [
            (job, auto if job.device == "auto" else job.device)
            for job in self._facts.jobs
            if job.state in WAITING_STATES
        ]

    @cached_property
    def _quota_waits(self) -> set[Quota]:
        """Those of which a waiting job could use something."""
        return {
            quota
            for job, kind in self._waiting
            if self._can_hold(job, kind)
            for quota in self._quotas.of(job.project, job.user)
        }

    def of(self, job: JobFacts, kind: str) -> dict[str, list[int]]:
        """Indices of the devices that `job` may take, by node id, in the order of node names."""
        found: dict[str, list[int]] = {}
        for node in self.nodes.values():
            if not _takes_work(node) or not _fits(job, node) or self._is_wanted(node, kind):
                continue
            free = [
                d.index
                for d in node.devices
                if d.kind == kind and (node.id, d.index) not in self._held
            ]
            if free:
                found[node.id] = sorted(free)
        return found

    def has_of(self, job: JobFacts, node_id: str) -> bool:
        """Whether an attempt of the job holds devices of a node."""
        return (node_id, job.id) in self._busy_with

    def allows(self, job: JobFacts, more: int, lost: int) -> int:
        """How many of so many more devices the job's quotas leave it, beside what other jobs that
        wait could use of them.

        Args:
            lost: devices that it is about to lose, and may have others for.
        """
        room = self._quota_use.room(job)
        if room is None:
            return more
        if not self._quota_waits.isdisjoint(self._quotas.of(job.project, job.user)):
            room = 0
        return min(more, room + lost)

    def take(self, job: JobFacts, placed: Iterable[PlacedNode]) -> None:
        wanted = {(node.node_id, i) for node in placed for i in node.device_indices}
        self._quota_use.take(job, len(wanted - self._held))
        self._held.update(wanted)

    def _is_wanted(self, node: NodeFacts, kind: str) -> bool:
        key = (node.id, kind)
        if key not in self._wanted:
            self._wanted[key] = any(
                its_kind == kind and _fits(job, node) and self._can_hold(job, kind)
                for job, its_kind in self._waiting
            )
        return self._wanted[key]

    def _can_hold(self, job: JobFacts, kind: str) -> bool:
        """Cluster and quotas are large enough for it: what is kept free for it will serve it."""
        capacity = sum(
            sum(1 for d in node.devices if d.kind == kind)
            for node in self.nodes.values()
            if node.state in (NodeState.READY, NodeState.SUSPECT)
            and not node.removing
            and _fits(job, node)
        )
        return job.sizes[0] <= capacity and self._quota_use.too_small(job) is None


def _takes_work(node: NodeFacts) -> bool:
    return node.state is NodeState.READY and not node.removing


def _fits(job: JobFacts, node: NodeFacts) -> bool:
    return all(node.labels.get(name) == value for name, value in job.selector.items())


@dataclass(frozen=True)
class _Losses:
    """What an attempt has lost, or is about to."""

    hosts: tuple[HostFacts, ...] = ()
    """All their ranks go."""
    fallen: tuple[tuple[HostFacts, Fallen], ...] = ()
    """Ranks that failed on hosts that stay."""
    failure: Failure | None = None
    """The first that was told."""
    lost: Failure | None = None
    """Of the first node that is lost or was removed: it costs no restart."""
    why: str = ""

    def __bool__(self) -> bool:
        return bool(self.hosts or self.fallen)


def decide_size(
    now: datetime, attempt: AttemptFacts, job: JobFacts, spare: Spare, options: ClusterOptions
) -> Decision | None:
    """What an active attempt asks for because it lost ranks or could have more; None: nothing, or
    nothing that is different for it than for any other attempt."""
    if attempt.not_understood is not None:
        return None
    losses = _losses_of(now, attempt, job, spare)
    if losses:
        return _answer(attempt, job, losses, spare)
    if _size(attempt) not in job.sizes:
        return _resize(attempt, job, spare)
    return _grow(now, attempt, job, spare, options)


def _losses_of(now: datetime, attempt: AttemptFacts, job: JobFacts, spare: Spare) -> _Losses:
    if not attempt.in_place:
        return _Losses()
    hosts: list[HostFacts] = []
    fallen: list[tuple[HostFacts, Fallen]] = []
    failures: list[Failure] = []
    lost: list[Failure] = []
    why: list[str] = []
    for host in attempt.hosts:
        node, told = spare.nodes.get(host.node_id), host.told
        name = f"node {host.node_name}"
        if told is not None and told.outcome is Outcome.FAILED:
            hosts.append(host)
            ended = told.failure or Failure(message="failed without saying why")
            failures.append(ended.model_copy(update={"node": host.node_name}))
            why.append(f"{describe(ended)} ({name})")
        elif told is not None and told.outcome is not None:
            continue  # it is at its end
        elif node is None or node.state is NodeState.LOST:
            hosts.append(host)
            lost.append(node_lost(now, host.node_name, node, job.step))
            why.append(lost[-1].message)
        elif attempt.stepped and (node.removing or node.state is NodeState.DRAINING):
            hosts.append(host)
            why.append(f"{name} is drained")
        elif told is not None and told.generation == attempt.generation:
            for rank in told.fallen:
                fallen.append((host, rank))
                failures.append(rank.failure.model_copy(update={"node": host.node_name}))
                why.append(describe(rank.failure))
    return _Losses(
        tuple(hosts),
        tuple(fallen),
        next(iter(failures), None),
        next(iter(lost), None),
        "; ".join(dict.fromkeys(why)),
    )


def _answer(attempt: AttemptFacts, job: JobFacts, losses: _Losses, spare: Spare) -> Decision | None:
    regroup = _regroup_after(attempt, job, losses, spare)
    if regroup is not None:
        return regroup
    if losses.fallen and attempt.goal != "stop":
        # Its host waits for an answer: what ends by itself elsewhere has to be ended here.
        failure = losses.fallen[0][1].failure
        reason = f"{describe(failure)}; its other ranks stop"
        return StopAttempt(attempt.token, "stop", reason, failure)
    return None


def _regroup_after(
    attempt: AttemptFacts, job: JobFacts, losses: _Losses, spare: Spare
) -> Regroup | None:
    if not _can_regroup(attempt, job):
        return None
    if any(h.told is not None and h.told.outcome is Outcome.COMPLETED for h in attempt.hosts):
        return None  # the others are about to end too
    if len(losses.fallen) + sum(len(host.ranks) for host in losses.hosts) == _size(attempt):
        return None  # nobody is left who has the state
    restarts = step = None
    if losses.failure is not None:
        before = attempt.failed_before or job.failed_before
        after = after_failure(replace(job, failed_before=before), losses.failure)
        if not after.goes_on:
            return None
        if not after.is_free:
            restarts, step = after.restarts, after.step
    gone = {host.node_id for host in losses.hosts}
    kept = [node for node in placed(attempt) if node.node_id not in gone]
    fresh = {(host.node_id, rank.device_index) for host, rank in losses.fallen}
    missing = _missing(kept, spare)
    # It leaves the devices that its hosts do not have any more; where it could not go on then, at
    # least those on which nothing lives.
    found = _without(attempt, job, kept, missing, spare, gone, fresh)
    if found is None and not missing <= fresh:
        found = _without(attempt, job, kept, missing & fresh, spare, gone, fresh)
    if found is None:
        return None
    size = sum(len(node.device_indices) for node in found)
    told = f"{losses.why}; {_goes_on(_size(attempt), size)}"
    if restarts is not None:
        told += f"; restart {restarts} of {job.max_restarts}"
    return Regroup(
        token=attempt.token,
        placed=tuple(found),
        device=attempt.device,
        reason=told,
        restarts=restarts,
        restarts_step=step,
        failure=losses.failure or losses.lost,
    )


def _without(
    attempt: AttemptFacts,
    job: JobFacts,
    kept: Sequence[PlacedNode],
    missing: Set[tuple[str, int]],
    spare: Spare,
    gone: Collection[str],
    fresh: Set[tuple[str, int]],
) -> list[PlacedNode] | None:
    """How it goes on without the missing ones of the devices that it keeps; None: it cannot."""
    # A host of which nothing is left may give others of its devices.
    left = [
        replace(
            node,
            device_indices=tuple(
                i for i in node.device_indices if (node.node_id, i) not in missing
            ),
        )
        for node in kept
    ]
    if all((node.node_id, i) in fresh for node in left for i in node.device_indices):
        return None  # nobody is left who has the state
    found = _enlarged(attempt, job, left, spare, gone, fresh)
    if found is not None:
        return found
    # One that was resized, and has no room for that yet, may keep the size that it has.
    as_it_is = replace(job, sizes=(_size(attempt),))
    return _enlarged(attempt, as_it_is, left, spare, gone, fresh)


def _can_regroup(attempt: AttemptFacts, job: JobFacts) -> bool:
    """Somebody has taken a step and holds the state, and nobody wants it to end."""
    return (
        attempt.in_place
        and attempt.begun
        and attempt.goal == "run"
        and attempt.state is AttemptState.RUNNING
        and job.state is JobState.RUNNING
        and not any(h.told is not None and h.told.agent_stopped for h in attempt.hosts)
        and _takes_it_up(attempt)
        # Its ranks end by themselves where a host is not heard, and those of the others first.
        and attempt.isolation_seconds is None
    )


def _takes_it_up(attempt: AttemptFacts) -> bool:
    """Its hosts say that their ranks regroup; an agent of an older version does not."""
    return all(h.told is not None and (h.told.outcome or h.told.in_place) for h in attempt.hosts)


def _enlarged(
    attempt: AttemptFacts,
    job: JobFacts,
    kept: Sequence[PlacedNode],
    spare: Spare,
    gone: Collection[str] = (),
    fresh: Collection[tuple[str, int]] = (),
) -> list[PlacedNode] | None:
    """The largest size that the job can have with what it keeps and what is free; None: none.

    Args:
        gone: hosts that it leaves.
        fresh: devices (node id, index) of what it keeps whose ranks would begin without the state.
    """
    present = {node.node_id for node in kept}
    free = {
        node_id: indices
        for node_id, indices in spare.of(job, attempt.device).items()
        # A host that it is still leaving cannot be joined anew yet.
        if node_id in present
        or (node_id not in gone and not job.one_host and not spare.has_of(job, node_id))
    }
    have = sum(len(node.device_indices) for node in kept)
    lost = _size(attempt) - have
    most = have + spare.allows(job, sum(len(indices) for indices in free.values()), lost)
    size = max((n for n in job.sizes if n <= most), default=None)
    if not have or size is None:
        return None
    if size < have:
        return _first(kept, size, fresh)
    return _with_more(kept, free, size - have, spare)


def _with_more(
    kept: Sequence[PlacedNode], free: dict[str, list[int]], count: int, spare: Spare
) -> list[PlacedNode]:
    """Hosts that are there already give first, then those with the most that is free.

    Hosts keep their order, so that the first goes on to open the ranks' store.
    """
    present = {node.node_id for node in kept}
    order = sorted(free, key=lambda n: (n not in present, -len(free[n]), spare.nodes[n].name))
    given: dict[str, tuple[int, ...]] = {}
    for node_id in order:
        given[node_id] = tuple(free[node_id][:count])
        count -= len(given[node_id])
    found = [
        replace(node, device_indices=node.device_indices + given.pop(node.node_id, ()))
        for node in kept
    ]
    found += [
        PlacedNode(node_id, spare.nodes[node_id].name, indices)
        for node_id, indices in given.items()
    ]
    return [node for node in found if node.device_indices]


def _first(
    kept: Sequence[PlacedNode], size: int, fresh: Collection[tuple[str, int]] = ()
) -> list[PlacedNode]:
    """The first `size` ranks: what is given up lies on as few hosts as can be, the last ones. But
    whoever has the state goes before those that are fresh."""
    places = [(node.node_id, index) for node in kept for index in node.device_indices]
    chosen = set(sorted(places, key=lambda place: place in fresh)[:size])
    found = [
        replace(
            node,
            device_indices=tuple(i for i in node.device_indices if (node.node_id, i) in chosen),
        )
        for node in kept
    ]
    return [node for node in found if node.device_indices]


def _resize(attempt: AttemptFacts, job: JobFacts, spare: Spare) -> Decision | None:
    # A script that tells nothing is one that never begins, and ends by a signal as it does then.
    ready = attempt if attempt.begun or not attempt.script else replace(attempt, begun=True)
    if not _is_settled(ready, job):
        return None
    found = _enlarged(attempt, job, placed(attempt), spare)
    if found is None:
        return None
    size = sum(len(node.device_indices) for node in found)
    return _change(attempt, found, f"a user resized it; {_goes_on(_size(attempt), size)}")


def _grow(
    now: datetime, attempt: AttemptFacts, job: JobFacts, spare: Spare, options: ClusterOptions
) -> Decision | None:
    size = _size(attempt)
    if job.sizes[-1] <= size or not _is_settled(attempt, job):
        return None
    changed = attempt.regrouped_at if attempt.in_place else attempt.running_at
    wait = options.grow_after_seconds
    if not attempt.in_place:
        wait = options.grow_by_restart_after_seconds
    if changed is None or (now - changed).total_seconds() < wait:
        return None
    found = _enlarged(attempt, job, placed(attempt), spare)
    larger = sum(len(node.device_indices) for node in found or ())
    if found is None or larger <= size:
        return None
    reason = f"{larger - size} devices came free; {_goes_on(size, larger)}"
    return _change(attempt, found, reason)


def _change(attempt: AttemptFacts, wanted: Sequence[PlacedNode], reason: str) -> Decision:
    """Have a healthy attempt go on with other devices: in place, or by its next attempt."""
    if attempt.in_place:
        return Regroup(attempt.token, tuple(wanted), attempt.device, reason)
    how = "it saves first" if attempt.saves else SIGNALLED
    return StopAttempt(attempt.token, "pause", f"{reason}: {how}")


def _is_settled(attempt: AttemptFacts, job: JobFacts) -> bool:
    """It takes steps, every host under the present generation."""
    return (
        attempt.begun
        and attempt.stepped
        and attempt.goal == "run"
        and attempt.state is AttemptState.RUNNING
        and job.state is JobState.RUNNING
        and all(
            host.told is not None
            and host.told.phase == "running"
            and host.told.generation == attempt.generation
            and not host.told.leaving
            for host in attempt.hosts
        )
        and (not attempt.in_place or _takes_it_up(attempt))
    )


def shrink(attempt: AttemptFacts, job: JobFacts, size: int, reason: str) -> Decision | None:
    """Have an elastic job make room: go on with `size` workers, its first ones. None: not now.

    In place the others leave at the next step that all agree on, and nothing else happens; another
    job saves, and is placed anew at a size that is free.
    """
    if size not in job.sizes or size >= _size(attempt) or not _is_settled(attempt, job):
        return None
    told = f"{reason}; {_goes_on(_size(attempt), size)}"
    return _change(attempt, _first(placed(attempt), size), told)


def placed(attempt: AttemptFacts) -> list[PlacedNode]:
    """The devices of an attempt, host by host, in the order of its ranks."""
    return [PlacedNode(h.node_id, h.node_name, h.devices) for h in attempt.hosts]


def _missing(held: Iterable[PlacedNode], spare: Spare) -> Set[tuple[str, int]]:
    """Those of some devices that their hosts do not have any more."""
    there = {
        (node.node_id, device.index)
        for node in held
        if node.node_id in spare.nodes
        for device in spare.nodes[node.node_id].devices
    }
    return {(node.node_id, i) for node in held for i in node.device_indices} - there


def _size(attempt: AttemptFacts) -> int:
    return sum(len(host.devices) for host in attempt.hosts)


def _goes_on(before: int, after: int) -> str:
    workers = f"{after} worker{'s' if after != 1 else ''}"
    if after == before:
        return f"goes on with {workers}"
    return f"goes on with {workers} instead of {before}"


def has_left(
    attempt: AttemptFacts, host: HostFacts | None, node_id: str, device_index: int
) -> bool:
    """Whether a device that an active attempt holds was given up by it, and nothing runs there.

    Args:
        host: the attempt's host on that node; None where it has none any more.
    """
    if host is not None and device_index in host.devices:
        return False
    told = host.told if host is not None else attempt.left.get(node_id)
    if told is None:
        return False
    if told.outcome is not None or told.phase in ("exited", "gone"):
        return True
    return told.generation == attempt.generation and device_index not in told.leaving
