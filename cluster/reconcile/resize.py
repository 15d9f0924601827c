"""Elastic jobs: how one resumes when ranks fail, nodes leave or devices come free. Pure functions.

What regroups in place (`AttemptFacts.in_place`) resumes under the next generation of its attempt:
processes that live keep their devices and what they have in memory. Everything else changes its
size in the one way that every job has: it saves, its attempt ends, and the next one starts at the
size that is free.

The rules that say when are those of `rules`; here is which devices it has then.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from trainhall.cluster.lifecycle.reasons import SIGNALLED, Reason, ReasonCode, describe
from trainhall.cluster.lifecycle.states import AttemptState, JobState, NodeState
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.reconcile.decisions import Decision, Regroup, StopAttempt
from trainhall.cluster.reconcile.restart_policy import after_failure, node_lost
from trainhall.cluster.reconcile.spare_capacity import SpareCapacity
from trainhall.cluster.scheduling.placement import DeviceKey, PlacedNode, devices_of
from trainhall.cluster.scheduling.reasons import label
from trainhall.cluster.scheduling.scheduler import shortage
from trainhall.cluster.snapshot.model import AttemptFacts, ClusterFacts, HostFacts, JobFacts
from trainhall.training.link.failure import Failure
from trainhall.training.link.status import FailedRank, Outcome


@dataclass(frozen=True)
class Losses:
    """The ranks that an attempt in place has lost, or is about to."""

    hosts: tuple[HostFacts, ...] = ()
    """All their ranks go."""
    ranks: tuple[tuple[HostFacts, FailedRank], ...] = ()
    """Ranks that failed on hosts that stay."""
    failure: Failure | None = None
    """The first that was reported."""
    lost: Failure | None = None
    """Failure of the first node that is lost or was removed: it costs no restart."""
    why: str = ""

    def __bool__(self) -> bool:
        return bool(self.hosts or self.ranks)

    @property
    def node_ids(self) -> set[str]:
        return {host.node_id for host in self.hosts}

    @property
    def devices(self) -> set[DeviceKey]:
        """Devices on hosts that stay whose new ranks would begin without the state."""
        return {(host.node_id, rank.device_index) for host, rank in self.ranks}


def collect_losses(
    now: datetime, attempt: AttemptFacts, job: JobFacts, spare: SpareCapacity
) -> Losses:
    if not attempt.in_place or attempt.not_understood is not None:
        return Losses()
    hosts: list[HostFacts] = []
    ranks: list[tuple[HostFacts, FailedRank]] = []
    failures: list[Failure] = []
    lost: list[Failure] = []
    why: list[str] = []
    for host in attempt.hosts:
        node, report = spare.nodes.get(host.node_id), host.report
        name = f"node {host.node_name}"
        if host.outcome is Outcome.FAILED:
            hosts.append(host)
            failures.append(host.failure)
            why.append(f"{describe(host.failure)} ({name})")
        elif host.outcome is not None:
            continue  # it is at its end
        elif node is None or node.state is NodeState.LOST:
            hosts.append(host)
            lost.append(node_lost(now, host.node_name, node, job.step))
            why.append(lost[-1].message)
        elif attempt.stepped and node.is_leaving:
            # Before that its ranks may be the only ones that have the state.
            hosts.append(host)
            why.append(f"{name} is being drained")
        elif report is not None and report.generation == attempt.generation:
            for rank in report.failed_ranks:
                ranks.append((host, rank))
                failures.append(rank.failure.model_copy(update={"node": host.node_name}))
                why.append(describe(rank.failure))
    return Losses(
        tuple(hosts),
        tuple(ranks),
        next(iter(failures), None),
        next(iter(lost), None),
        "; ".join(dict.fromkeys(why)),
    )


def regroup_after(
    attempt: AttemptFacts, job: JobFacts, losses: Losses, spare: SpareCapacity
) -> Regroup | None:
    if not _can_regroup(attempt, job):
        return None
    if len(losses.ranks) + sum(len(host.ranks) for host in losses.hosts) == attempt.size:
        return None  # no rank left has the state
    restarts = step = None
    if losses.failure is not None:
        before = attempt.failed_before or job.failed_before
        after = after_failure(replace(job, failed_before=before), losses.failure)
        if not after.will_retry:
            return None
        if not after.is_free:
            restarts, step = after.restarts, after.step
    found = _fit_after(attempt, job, losses, spare)
    if found is None:
        return None
    reason = Reason.of(
        ReasonCode.REGROUPED,
        losses=losses.why,
        change=_size_change_text(attempt, found),
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


def _can_regroup(attempt: AttemptFacts, job: JobFacts) -> bool:
    """Return whether a rank has taken a step and holds the state, and no end is due."""
    return (
        attempt.begun
        and _is_wanted(attempt, job)
        and not any(h.report is not None and h.report.agent_stopped for h in attempt.hosts)
        # The others will complete, or pause, too.
        and not any(h.outcome in (Outcome.COMPLETED, Outcome.PAUSED) for h in attempt.hosts)
        and _hosts_regroup(attempt)
        # Its ranks end on their own where a host is unreachable, and those of the others first.
        and attempt.isolation_seconds is None
    )


def _is_wanted(attempt: AttemptFacts, job: JobFacts) -> bool:
    runs = attempt.state is AttemptState.RUNNING and job.state is JobState.RUNNING
    return runs and attempt.goal == "run"


def _hosts_regroup(attempt: AttemptFacts) -> bool:
    """Return whether its hosts report ranks that regroup; old agents do not."""
    return all(
        h.report is not None and (h.report.outcome or h.report.in_place) for h in attempt.hosts
    )


def _fit_after(
    attempt: AttemptFacts, job: JobFacts, losses: Losses, spare: SpareCapacity
) -> list[PlacedNode] | None:
    """Return the devices with which the job can resume; None: it cannot."""
    kept = [node for node in placed(attempt) if node.node_id not in losses.node_ids]
    missing = {key for key in devices_of(kept) if not spare.exists(key)}
    # It leaves the devices that its hosts do not have any more; where it could not resume then, at
    # least those on which nothing lives. One that was resized may keep the size that it has until
    # devices are free for another.
    unresized = replace(job, sizes=(attempt.size,))
    for left in (missing, missing & losses.devices):
        remaining = _without(kept, left)
        if set(devices_of(remaining)) <= losses.devices:
            continue  # no rank left has the state
        for sizes in (job, unresized):
            if found := _fit(attempt, sizes, remaining, spare, losses):
                return found
    return None


def _fit(
    attempt: AttemptFacts,
    job: JobFacts,
    kept: Sequence[PlacedNode],
    spare: SpareCapacity,
    losses: Losses = Losses(),
) -> list[PlacedNode] | None:
    """Return the largest size possible with what the job keeps and what is free; None: none."""
    present, gone = {node.node_id for node in kept}, losses.node_ids
    free = {
        node_id: indices
        for node_id, indices in spare.of(job, attempt.device).items()
        # A host that it is still leaving cannot join again yet.
        if node_id in present
        or (node_id not in gone and not job.one_host and not spare.has_of(job, node_id))
    }
    have = len(devices_of(kept))
    more = sum(len(indices) for indices in free.values())
    most = have + spare.allows(job, more, lost=attempt.size - have)
    size = max((n for n in job.sizes if n <= most), default=None)
    if not have or size is None:
        return None
    if size < have:
        return _keep_first_ranks(kept, size, losses.devices)
    return _with_more(kept, free, size - have, spare)


def _with_more(
    kept: Sequence[PlacedNode], free: dict[str, list[int]], count: int, spare: SpareCapacity
) -> list[PlacedNode]:
    """Add first from hosts already there, then from those with the most free.

    Hosts keep their order, so that the first keeps opening the ranks' store. A host of which
    nothing is left may give others of its devices.
    """
    nodes = {node.node_id: node for node in kept}
    order = sorted(free, key=lambda n: (n not in nodes, -len(free[n]), spare.nodes[n].name))
    for node_id in order:
        given = tuple(free[node_id][:count])
        count -= len(given)
        node = nodes.get(node_id) or PlacedNode(node_id, spare.nodes[node_id].name, ())
        nodes[node_id] = replace(node, device_indices=node.device_indices + given)
    return [node for node in nodes.values() if node.device_indices]


def _keep_first_ranks(
    kept: Sequence[PlacedNode], size: int, fresh: Collection[DeviceKey] = ()
) -> list[PlacedNode]:
    """Return the first `size` ranks, so that few hosts, the last ones, release devices; ranks that
    have the state go before fresh ones."""
    ordered = sorted(devices_of(kept), key=lambda device: device in fresh)
    return [node for node in _without(kept, ordered[size:]) if node.device_indices]


def _without(nodes: Sequence[PlacedNode], devices: Collection[DeviceKey]) -> list[PlacedNode]:
    return [
        replace(
            node,
            device_indices=tuple(
                i for i in node.device_indices if (node.node_id, i) not in devices
            ),
        )
        for node in nodes
    ]


def resize(attempt: AttemptFacts, job: JobFacts, spare: SpareCapacity) -> Decision | None:
    """Give an attempt that a user resized the largest size that it may have now."""
    if attempt.size in job.sizes or not _can_resize(attempt, job):
        return None
    found = _fit(attempt, job, placed(attempt), spare)
    if found is None:
        return None
    change = _size_change_text(attempt, found)
    return _change(attempt, found, ReasonCode.RESIZED, change=change, user=job.asked_by)


def _can_resize(attempt: AttemptFacts, job: JobFacts) -> bool:
    # A script that reports nothing never begins, and ends by a signal as it does then.
    ready = attempt if attempt.begun or not attempt.script else replace(attempt, begun=True)
    return _is_settled(ready, job)


def why_not_resized(
    now: datetime,
    attempt: AttemptFacts,
    job: JobFacts,
    spare: SpareCapacity,
    options: ClusterOptions,
) -> Reason | None:
    """Return the reason of a job that a user resized and that has another size; None where its
    reason tells of something else."""
    waits = job.reason_code in {ReasonCode.RESIZE_REQUESTED, ReasonCode.RUNNING}
    if attempt.size in job.sizes or not waits:
        return None
    if attempt.goal == "pause" and attempt.reason_code == ReasonCode.RESIZED:
        return Reason.stored(attempt.reason_code, attempt.reason)
    if not _is_wanted(attempt, job):
        return None
    size, sizes = attempt.size, " to ".join(map(str, dict.fromkeys((job.sizes[0], job.sizes[-1]))))
    change = f"{sizes} worker{'s' if sizes != '1' else ''} instead of {size}"
    alone = replace(job, state=JobState.QUEUED, restarts=0)
    never = shortage(now, ClusterFacts(nodes=tuple(spare.nodes.values())), options, alone)
    if never is not None:
        until = f"it keeps {size}; on the cluster as it is now, it will never have that size: "
        until += never
    elif _can_resize(attempt, job):
        until = f"it keeps {size} until devices are free"
    else:
        until = f"it keeps {size} until its ranks have finished a step"
    change = f"{change}; {until}"
    return Reason.of(ReasonCode.RESIZE_REQUESTED, change=change, user=job.asked_by)


def grow(
    now: datetime,
    attempt: AttemptFacts,
    job: JobFacts,
    spare: SpareCapacity,
    options: ClusterOptions,
) -> Decision | None:
    """Grow an elastic attempt onto free devices once it has had its size for a while."""
    changed, wait = attempt.running_at, options.grow_by_restart_after_seconds
    if attempt.in_place:
        changed, wait = attempt.regrouped_at, options.grow_after_seconds
    if changed is None or (now - changed).total_seconds() < wait:
        return None
    if attempt.size not in job.sizes[:-1] or not _is_settled(attempt, job):
        return None
    found = _fit(attempt, job, placed(attempt), spare)
    count = len(devices_of(found or ())) - attempt.size
    if found is None or count <= 0:
        return None
    change = _size_change_text(attempt, found)
    return _change(attempt, found, ReasonCode.GREW, change=change, count=count)


def _change(
    attempt: AttemptFacts, wanted: Sequence[PlacedNode], code: ReasonCode, **params: Any
) -> Decision:
    """Move a healthy attempt to other devices: in place, or by its next attempt."""
    if attempt.in_place:
        reason = Reason(code, params | {"how": ""})
        return Regroup(attempt.token, tuple(wanted), attempt.device, reason)
    how = ": it saves first" if attempt.saves else f": {SIGNALLED}"
    return StopAttempt(attempt.token, "pause", Reason(code, params | {"how": how}))


def _is_settled(attempt: AttemptFacts, job: JobFacts) -> bool:
    """Return whether it takes steps, with every host under the present generation."""
    return (
        attempt.begun
        and attempt.stepped
        and _is_wanted(attempt, job)
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
    """Shrink an elastic job to its first `size` workers; return None if it cannot now.

    In place the others leave at the next step that all agree on; any other job saves, and is
    scheduled again at a size that is free.
    """
    if size not in job.sizes or size >= attempt.size or not _is_settled(attempt, job):
        return None
    kept = _keep_first_ranks(placed(attempt), size)
    reason = preempted(job, waiting, f"; {_size_change_text(attempt, kept)}")
    return _change(attempt, kept, reason.code, **reason.params)


def preempted(job: JobFacts, waiting: JobFacts, change: str = "") -> Reason:
    """Return the reason of a job that gives devices to another one."""
    own = {"for_job": waiting.id} if waiting.project == job.project else {}
    return Reason.of(
        ReasonCode.PREEMPTED,
        job=label(waiting, job),
        **own,
        priority=waiting.priority,
        change=change,
        how="",
    )


def placed(attempt: AttemptFacts) -> list[PlacedNode]:
    """Return the devices of an attempt, host by host, in the order of its ranks."""
    return [PlacedNode(h.node_id, h.node_name, h.devices) for h in attempt.hosts]


def _size_change_text(attempt: AttemptFacts, after: Sequence[PlacedNode]) -> str:
    size = len(devices_of(after))
    instead = f" instead of {attempt.size}" if size != attempt.size else ""
    return f"continues with {size} worker{'s' if size != 1 else ''}{instead}"


def has_left(
    attempt: AttemptFacts, host: HostFacts | None, node_id: str, device_index: int
) -> bool:
    """Return whether an active attempt has released a device, and nothing runs there.

    Args:
        host: the attempt's host on that node; None where it has none any more.
    """
    if host is not None and device_index in host.devices:
        return False
    report = host.report if host is not None else attempt.left.get(node_id)
    if report is None:
        return False
    if report.is_over:
        return True
    return report.generation == attempt.generation and device_index not in report.leaving
