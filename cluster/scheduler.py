"""Who runs next, and why the others wait. A pure function of the state of the cluster.

Jobs wait in one order: higher priority first, then the time of queueing. What is behind does not
overtake what waits for the same kind of device, so a large job is never starved by small ones. Two
kinds of waiting jobs are passed by, since holding devices back would not help them: those that the
whole cluster could not hold, and those whose restart has to wait a little.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from trainhall.cluster.facts import (
    ClusterFacts,
    JobFacts,
    NodeFacts,
    NodeState,
)
from trainhall.cluster.lifecycle import WAITING_STATES, JobState
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.placement import FreeDevices, FreePool, PlacedNode
from trainhall.cluster.views import Needs

_SHOWN_HOLDERS = 3


@dataclass(frozen=True)
class QueueEntry:
    """One waiting job: either it is placed now, or `reason` says what it waits for."""

    job: JobFacts
    position: int
    needs: Needs
    reason: str
    placed: tuple[PlacedNode, ...] | None
    earliest_start: datetime | None = None


def queue_order(job: JobFacts) -> tuple[int, datetime, int]:
    return (-job.priority, job.queued_at, job.number)


def schedule(now: datetime, facts: ClusterFacts, options: ClusterOptions) -> list[QueueEntry]:
    """The queue in order; those entries that are placed use up the free devices, in that order."""
    held = {(grant.node_id, grant.device_index): grant.job_id for grant in facts.grants}
    blocked_by: dict[str, JobFacts] = {}
    entries: list[QueueEntry] = []
    kinds = {kind: _capacity(facts.nodes, kind) for kind in ("cpu", "cuda")}
    free = {kind: FreePool(free_devices(facts.nodes, kind, held)) for kind in kinds}
    cluster_has = {kind: _cluster_has(kind, kinds[kind], facts.nodes) for kind in kinds}
    auto = resolve_device("auto", facts.nodes)
    waiting = sorted((j for j in facts.jobs if j.state in WAITING_STATES), key=queue_order)
    for position, job in enumerate(waiting, start=1):
        kind = auto if job.device == "auto" else job.device
        start = not_before(job, options)
        placed: list[PlacedNode] | None = None
        if start is not None and start > now:
            when = start.strftime("%H:%M:%S")
            reason = f"restarts at {when} UTC; needs {_devices(job.workers, kind)}"
        elif kinds[kind] < job.workers:
            reason = f"needs {_devices(job.workers, kind)}; {cluster_has[kind]}"
        elif kind in blocked_by:
            ahead = blocked_by[kind]
            reason = (
                f"needs {_devices(job.workers, kind)}; waits behind job {ahead.id}, "
                f"which needs {ahead.workers} and comes first"
            )
        elif (placed := free[kind].place(job.workers)) is None:
            reason = _not_free(job.workers, kind, facts.nodes, held)
            blocked_by[kind] = job
        else:
            for node in placed:
                for index in node.device_indices:
                    held[node.node_id, index] = job.id
        if placed is not None:
            reason = f"placed on {_places(placed, kind)}"
        else:
            reason = _with_history(job, reason)
        entries.append(
            QueueEntry(
                job,
                position,
                Needs(device=kind, count=job.workers),
                reason,
                tuple(placed) if placed is not None else None,
                start if start is not None and start > now else None,
            )
        )
    return entries


def shortage(
    now: datetime, facts: ClusterFacts, options: ClusterOptions, *, workers: int, device: str
) -> str | None:
    """Why the nodes as they are could not hold such a job, were it alone; None when they could."""
    alone = JobFacts(
        id="", number=0, priority=0, state=JobState.QUEUED, reason="", attempt=0, workers=workers,
        device=device, queued_at=now, restarts=0, restarts_step=0, max_restarts=0, step=0,
    )  # fmt: skip
    (entry,) = schedule(now, ClusterFacts(nodes=facts.nodes, jobs=(alone,)), options)
    return entry.reason if entry.placed is None else None


def resolve_device(device: str, nodes: Iterable[NodeFacts]) -> str:
    """`auto` is GPUs where the cluster has any, else CPU slots."""
    if device != "auto":
        return device
    has_gpu = any(d.kind == "cuda" for node in nodes for d in node.devices)
    return "cuda" if has_gpu else "cpu"


def not_before(job: JobFacts, options: ClusterOptions) -> datetime | None:
    """When a restart may begin: the first at once, then ever later, so that nothing spins."""
    if job.last_ended_at is None or job.restarts < 2:
        return None
    wait = min(
        options.restart_backoff_seconds * 2.0 ** min(job.restarts - 2, 32),
        options.restart_backoff_limit_seconds,
    )
    return job.last_ended_at + timedelta(seconds=wait)


def free_devices(
    nodes: Iterable[NodeFacts], kind: str, held: Mapping[tuple[str, int], str]
) -> list[FreeDevices]:
    """What new work may be placed on: free devices of nodes that are ready.

    Args:
        held: the job that holds a device, by node id and index.
    """
    return [
        FreeDevices(
            node.id,
            node.name,
            tuple(
                d.index for d in node.devices if d.kind == kind and (node.id, d.index) not in held
            ),
        )
        for node in nodes
        if node.state is NodeState.READY and not node.removing
    ]


def _capacity(nodes: Iterable[NodeFacts], kind: str) -> int:
    """Devices that could serve one day without anyone's help: those of ready and suspect nodes."""
    return sum(
        1
        for node in nodes
        if node.state in (NodeState.READY, NodeState.SUSPECT) and not node.removing
        for device in node.devices
        if device.kind == kind
    )


def _cluster_has(kind: str, capacity: int, nodes: Sequence[NodeFacts]) -> str:
    """What is said to a job that the whole cluster could not hold."""
    joined = [node for node in nodes if node.state is not NodeState.PENDING]
    if not joined:
        announced = sorted(node.name for node in nodes if not node.removing)
        if announced:
            names = ", ".join(announced[:_SHOWN_HOLDERS])
            are = (
                "node {} was announced and is"
                if len(announced) == 1
                else "nodes {} were announced and are"
            )
            return f"no node has joined yet: {are.format(names)} expected"
        return "no node has joined: add one with `trainhall nodes add`"
    away = [
        f"{node.name} is {'being removed' if node.removing else node.state.value}"
        for node in joined
        if node.removing or node.state in (NodeState.LOST, NodeState.DRAINING)
    ]
    because = f" ({', '.join(sorted(away)[:_SHOWN_HOLDERS])})" if away else ""
    has = _devices(capacity, kind) if capacity else f"no {_word(kind, 1)}"
    return (
        f"the whole cluster has {has}{because}: "
        f"add a node with `trainhall nodes add`, or {_instead(kind, capacity, nodes)}"
    )


def _instead(kind: str, capacity: int, nodes: Iterable[NodeFacts]) -> str:
    """What a job may ask for that the cluster can hold: fewer devices, or the other kind."""
    other = "cpu" if kind == "cuda" else "cuda"
    if not capacity and _capacity(nodes, other):
        return f"set resources.device to {other}"
    return "ask for fewer workers"


def _not_free(
    count: int,
    kind: str,
    nodes: Sequence[NodeFacts],
    held: Mapping[tuple[str, int], str],
) -> str:
    total = _capacity(nodes, kind)
    free = sum(len(node.indices) for node in free_devices(nodes, kind, held))
    holders: dict[str, int] = {}
    kinds = {(n.id, d.index): d.kind for n in nodes for d in n.devices}
    for place, job_id in held.items():
        if kinds.get(place) == kind:
            holders[job_id] = holders.get(job_id, 0) + 1
    largest = sorted(holders.items(), key=lambda item: (-item[1], item[0]))
    told = [f"job {job_id} holds {number}" for job_id, number in largest[:_SHOWN_HOLDERS]]
    if len(largest) > _SHOWN_HOLDERS:
        rest = sum(number for _, number in largest[_SHOWN_HOLDERS:])
        told.append(f"{len(largest) - _SHOWN_HOLDERS} other jobs hold {rest}")
    told.extend(
        f"node {node.name} is not heard"
        for node in nodes
        if node.state is NodeState.SUSPECT and any(d.kind == kind for d in node.devices)
    )
    parts = ", ".join([f"{free} of {total} {'is' if free == 1 else 'are'} free", *told])
    return f"needs {_devices(count, kind)}; {parts}"


def _with_history(job: JobFacts, reason: str) -> str:
    return f"{job.last_failure}; {reason}" if job.last_failure else reason


def _places(placed: Sequence[PlacedNode], kind: str) -> str:
    return ", ".join(
        f"{_devices(len(node.device_indices), kind)} of {node.node_name}" for node in placed
    )


def _devices(count: int, kind: str) -> str:
    return f"{count} {_word(kind, count)}"


def _word(kind: str, count: int) -> str:
    name = "GPU" if kind == "cuda" else "CPU slot"
    return name if count == 1 else name + "s"
