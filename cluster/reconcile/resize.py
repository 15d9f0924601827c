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

from trainhall.cluster.lifecycle.reasons import SIGNALLED, Reason, ReasonCode, describe, job_label
from trainhall.cluster.lifecycle.states import AttemptState, JobState, NodeState
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.reconcile.decisions import Decision, Regroup, StopAttempt
from trainhall.cluster.reconcile.restart_policy import after_failure, node_lost
from trainhall.cluster.reconcile.spare_capacity import SpareCapacity
from trainhall.cluster.scheduling.placement import PlacedNode
from trainhall.cluster.snapshot.model import (
    AttemptFacts,
    HostFacts,
    JobFacts,
)
from trainhall.training.link.failure import Failure
from trainhall.training.link.status import Fallen, Outcome


@dataclass(frozen=True)
class _Losses:
    """What an attempt has lost, or is about to."""

    hosts: tuple[HostFacts, ...] = ()
    """All their ranks go."""
    fallen: tuple[tuple[HostFacts, Fallen], ...] = ()
    """Ranks that failed on hosts that stay."""
    failure: Failure | None = None
    """The first that was reported."""
    lost: Failure | None = None
    """Of the first node that is lost or was removed: it costs no restart."""
    why: str = ""

    def __bool__(self) -> bool:
        return bool(self.hosts or self.fallen)


def decide_size(
    now: datetime,
    attempt: AttemptFacts,
    job: JobFacts,
    spare: SpareCapacity,
    options: ClusterOptions,
) -> Decision | None:
    """What an active attempt asks for because it lost ranks or could have more; None: nothing, or
    nothing that is different for it than for any other attempt."""
    if attempt.not_understood is not None:
        return None
    losses = _collect_losses(now, attempt, job, spare)
    if losses:
        return _react_to_losses(attempt, job, losses, spare)
    if _size(attempt) not in job.sizes:
        return _resize(attempt, job, spare)
    return _grow(now, attempt, job, spare, options)


def _collect_losses(
    now: datetime, attempt: AttemptFacts, job: JobFacts, spare: SpareCapacity
) -> _Losses:
    if not attempt.in_place:
        return _Losses()
    hosts: list[HostFacts] = []
    fallen: list[tuple[HostFacts, Fallen]] = []
    failures: list[Failure] = []
    lost: list[Failure] = []
    why: list[str] = []
    for host in attempt.hosts:
        node, report = spare.nodes.get(host.node_id), host.report
        name = f"node {host.node_name}"
        if report is not None and report.outcome is Outcome.FAILED:
            hosts.append(host)
            ended = report.failure or Failure(message="failed without a message")
            failures.append(ended.model_copy(update={"node": host.node_name}))
            why.append(f"{describe(ended)} ({name})")
        elif report is not None and report.outcome is not None:
            continue  # it is at its end
        elif node is None or node.state is NodeState.LOST:
            hosts.append(host)
            lost.append(node_lost(now, host.node_name, node, job.step))
            why.append(lost[-1].message)
        elif attempt.stepped and (node.removing or node.state is NodeState.DRAINING):
            hosts.append(host)
            why.append(f"{name} is being drained")
        elif report is not None and report.generation == attempt.generation:
            for rank in report.fallen:
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


def _react_to_losses(
    attempt: AttemptFacts, job: JobFacts, losses: _Losses, spare: SpareCapacity
) -> Decision | None:
    regroup = _regroup_after(attempt, job, losses, spare)
    if regroup is not None:
        return regroup
    if losses.fallen and attempt.goal != "stop":
        # Its host waits for an answer: what ends by itself elsewhere has to be ended here.
        failure = losses.fallen[0][1].failure
        reason = Reason.of(
            ReasonCode.RANK_FAILED, failure=describe(failure), others="its other ranks stop"
        )
        return StopAttempt(attempt.token, "stop", reason, failure)
    return None


def _regroup_after(
    attempt: AttemptFacts, job: JobFacts, losses: _Losses, spare: SpareCapacity
) -> Regroup | None:
    if not _can_regroup(attempt, job):
        return None
    if any(h.report is not None and h.report.outcome is Outcome.COMPLETED for h in attempt.hosts):
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
    found = _fit_without(attempt, job, kept, missing, spare, gone, fresh)
    if found is None and not missing <= fresh:
        found = _fit_without(attempt, job, kept, missing & fresh, spare, gone, fresh)
    if found is None:
        return None
    size = sum(len(node.device_indices) for node in found)
    reason = Reason.of(
        ReasonCode.REGROUPED,
        losses=losses.why,
        change=_size_change_text(_size(attempt), size),
        cost="" if restarts is None else f"; restart {restarts} of {job.max_restarts}",
    )
    return Regroup(
        token=attempt.token,
        placed=tuple(found),
        device=attempt.device,
        reason=reason,
        restarts=restarts,
        restarts_step=step,
        failure=losses.failure or losses.lost,
    )


def _fit_without(
    attempt: AttemptFacts,
    job: JobFacts,
    kept: Sequence[PlacedNode],
    missing: Set[tuple[str, int]],
    spare: SpareCapacity,
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
        and not any(h.report is not None and h.report.agent_stopped for h in attempt.hosts)
        and _hosts_regroup(attempt)
        # Its ranks end by themselves where a host is not heard, and those of the others first.
        and attempt.isolation_seconds is None
    )


def _hosts_regroup(attempt: AttemptFacts) -> bool:
    """Its hosts say that their ranks regroup; an agent of an older version does not."""
    return all(
        h.report is not None and (h.report.outcome or h.report.in_place) for h in attempt.hosts
    )


def _enlarged(
    attempt: AttemptFacts,
    job: JobFacts,
    kept: Sequence[PlacedNode],
    spare: SpareCapacity,
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
        return _keep_first_ranks(kept, size, fresh)
    return _with_more(kept, free, size - have, spare)


def _with_more(
    kept: Sequence[PlacedNode], free: dict[str, list[int]], count: int, spare: SpareCapacity
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


def _keep_first_ranks(
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


def _resize(attempt: AttemptFacts, job: JobFacts, spare: SpareCapacity) -> Decision | None:
    # A script that tells nothing is one that never begins, and ends by a signal as it does then.
    ready = attempt if attempt.begun or not attempt.script else replace(attempt, begun=True)
    if not _is_settled(ready, job):
        return None
    found = _enlarged(attempt, job, placed(attempt), spare)
    if found is None:
        return None
    size = sum(len(node.device_indices) for node in found)
    change = _size_change_text(_size(attempt), size)
    return _change(attempt, found, Reason.of(ReasonCode.RESIZED, change=change, how=""))


def _grow(
    now: datetime,
    attempt: AttemptFacts,
    job: JobFacts,
    spare: SpareCapacity,
    options: ClusterOptions,
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
    change = _size_change_text(size, larger)
    reason = Reason.of(ReasonCode.GREW, count=larger - size, change=change, how="")
    return _change(attempt, found, reason)


def _change(attempt: AttemptFacts, wanted: Sequence[PlacedNode], reason: Reason) -> Decision:
    """Have a healthy attempt go on with other devices: in place, or by its next attempt."""
    if attempt.in_place:
        return Regroup(attempt.token, tuple(wanted), attempt.device, reason)
    how = "it saves first" if attempt.saves else SIGNALLED
    stopping = Reason(reason.code, {**reason.params, "how": f": {how}"})
    return StopAttempt(attempt.token, "pause", stopping)


def _is_settled(attempt: AttemptFacts, job: JobFacts) -> bool:
    """It takes steps, every host under the present generation."""
    return (
        attempt.begun
        and attempt.stepped
        and attempt.goal == "run"
        and attempt.state is AttemptState.RUNNING
        and job.state is JobState.RUNNING
        and all(
            host.report is not None
            and host.report.phase == "running"
            and host.report.generation == attempt.generation
            and not host.report.leaving
            for host in attempt.hosts
        )
        and (not attempt.in_place or _hosts_regroup(attempt))
    )


def shrink(attempt: AttemptFacts, job: JobFacts, size: int, waiting: JobFacts) -> Decision | None:
    """Have an elastic job make room: go on with `size` workers, its first ones. None: not now.

    In place the others leave at the next step that all agree on, and nothing else happens; another
    job saves, and is placed anew at a size that is free.
    """
    if size not in job.sizes or size >= _size(attempt) or not _is_settled(attempt, job):
        return None
    reason = preempted(waiting, f"; {_size_change_text(_size(attempt), size)}")
    return _change(attempt, _keep_first_ranks(placed(attempt), size), reason)


def preempted(waiting: JobFacts, change: str = "") -> Reason:
    """The reason of a job that gives devices to another one."""
    return Reason.of(
        ReasonCode.PREEMPTED,
        job=job_label(waiting.id, waiting.name),
        for_job=waiting.id,
        priority=waiting.priority,
        change=change,
        how="",
    )


def placed(attempt: AttemptFacts) -> list[PlacedNode]:
    """The devices of an attempt, host by host, in the order of its ranks."""
    return [PlacedNode(h.node_id, h.node_name, h.devices) for h in attempt.hosts]


def _missing(held: Iterable[PlacedNode], spare: SpareCapacity) -> Set[tuple[str, int]]:
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


def _size_change_text(before: int, after: int) -> str:
    workers = f"{after} worker{'s' if after != 1 else ''}"
    if after == before:
        return f"continues with {workers}"
    return f"continues with {workers} instead of {before}"


def has_left(
    attempt: AttemptFacts, host: HostFacts | None, node_id: str, device_index: int
) -> bool:
    """Whether a device that an active attempt holds was given up by it, and nothing runs there.

    Args:
        host: the attempt's host on that node; None where it has none any more.
    """
    if host is not None and device_index in host.devices:
        return False
    report = host.report if host is not None else attempt.left.get(node_id)
    if report is None:
        return False
    if report.outcome is not None or report.phase in ("exited", "gone"):
        return True
    return report.generation == attempt.generation and device_index not in report.leaving
