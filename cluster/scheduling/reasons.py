"""Reasons for waiting.

They change only when something happens, since they are stored with the job; times, which move
with every step of running jobs, are computed on demand
(`trainhall.cluster.scheduling.forecast`).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from shlex import quote

from trainhall.cluster.lifecycle.reasons import FOREIGN_JOB, Reason, ReasonCode, job_label
from trainhall.cluster.lifecycle.states import NodeState
from trainhall.cluster.quotas import Quota
from trainhall.cluster.scheduling.demand import Group, describe_devices, describe_kind, matches
from trainhall.cluster.scheduling.placement import PlacedNode
from trainhall.cluster.scheduling.reservation import Reservation
from trainhall.cluster.scheduling.supply import Served, count_of, free_devices, may_serve
from trainhall.cluster.snapshot.model import JobFacts, NodeFacts

_SHOWN = 3

Held = Mapping[tuple[str, int], str]


def _needs(job: JobFacts, group: Group) -> str:
    least = describe_devices(job.sizes[0], group.kind)
    or_more = " or more" if len(job.sizes) > 1 else ""
    return f"needs {least}{or_more}{group.condition}"


def placed(nodes: Sequence[PlacedNode], kind: str) -> Reason:
    hosts = [f"{describe_devices(len(n.device_indices), kind)} of {n.node_name}" for n in nodes]
    return Reason.of(ReasonCode.PLACED, devices=", ".join(hosts))


def waits(code: ReasonCode, job: JobFacts, group: Group, **params: str) -> Reason:
    """Return the reason of a job that waits.

    Args:
        params: of the code, beside what the job needs and how its last attempt ended.
    """
    history = f"{job.last_failure}; " if job.last_failure else ""
    return Reason.of(code, history=history, needs=_needs(job, group), **params)


def label(job: JobFacts, reader: JobFacts, detail: str = "") -> str:
    """Return a job in a sentence of another job, which the members of that one's project read."""
    if job.project == reader.project:
        return job_label(job.id, job.name, detail)
    return f"{FOREIGN_JOB} ({detail})" if detail else FOREIGN_JOB


class Labels:
    """Jobs in sentences of other jobs, by id."""

    def __init__(self, jobs: Iterable[JobFacts]) -> None:
        self._all = jobs

    @cached_property
    def _jobs(self) -> Mapping[str, JobFacts]:
        return {job.id: job for job in self._all}

    def of(self, job_id: str, reader: JobFacts) -> str:
        job = self._jobs.get(job_id)
        return "a job that is ending" if job is None else label(job, reader)

    def is_foreign(self, job_id: str, reader: JobFacts) -> bool:
        """Return whether a job is of another project."""
        job = self._jobs.get(job_id)
        return job is not None and job.project != reader.project


def sized_label(job: JobFacts, kind: str, reader: JobFacts) -> str:
    """Return a job in a sentence, with the devices that it needs."""
    return label(job, reader, describe_devices(job.sizes[0], kind))


def preempting(job: JobFacts, group: Group, others: Sequence[JobFacts]) -> Reason:
    """Return the reason of a job for which others are preempted."""
    return waits(
        ReasonCode.WAITING_FOR_PREEMPTION,
        job,
        group,
        jobs=listed([label(other, job) for other in others]),
        are=_are(len(others)),
    )


def over_quota(quota: Quota, held: Mapping[str, int], labels: Labels, job: JobFacts) -> str:
    """Return the reason of a job that others of its quota leave too little.

    Args:
        held: devices that jobs hold of it, by their ids.
    """
    used = sum(held.values())
    return (
        f"{_allowed(quota)}, of which {used} {_are(used)} in use{': ' if held else ''}"
        f"{', '.join(_holding(held.items(), labels, job))}"
    )


def quota_too_small(quota: Quota) -> str:
    """Return the reason of a job that alone would exceed a quota."""
    raised = f"ask the administrator to raise `server.quotas.{quota.what}s.{quota.name}`"
    if quota.devices == 0:
        return f"{_allowed(quota)}: {raised}"
    workers = f"{quota.devices} worker{'' if quota.devices == 1 else 's'}"
    return f"{_allowed(quota)}, so it can never start: request at most {workers}, or {raised}"


def never(served: Served, all_nodes: Sequence[NodeFacts], *, only_one_host: bool) -> str:
    """Return the reason of a job that the whole cluster could not hold.

    Args:
        only_one_host: several hosts together could hold it.
    """
    group = served.group
    if group.closed and len(group.closed) == len(all_nodes):
        return "all nodes are limited to other projects: ask an admin for one"
    all_nodes = [node for node in all_nodes if node.id not in group.closed]
    if not any(_has_joined(node) for node in all_nodes):
        return _none_joined("node", all_nodes)
    if group.in_container and not served.nodes:
        labelled = [node for node in all_nodes if matches(group.selector, node.labels)]
        if any(_has_joined(node) for node in labelled):
            return _no_engine(labelled)
    if group.selector and not served.nodes:
        return _no_labels(dict(sorted(group.selector)), all_nodes)
    if not any(_has_joined(node) for node in served.nodes):
        return _none_joined(f"node with {_labels(group)}", served.nodes)
    return f"{_capacity(served)}{_absent(served)}: {_advice(served, all_nodes, only_one_host)}"


def _capacity(served: Served) -> str:
    """Say who has how many devices."""
    group, capacity = served.group, served.capacity
    if capacity:
        has = describe_devices(capacity, group.kind)
    else:
        has = f"no {_one(group.kind)}{' in service' if _out_of_service(served) else ''}"
    if group.one_host and capacity:
        return f"the largest host has {has}"
    if not group.selector and not group.in_container:
        where = "all nodes of its project have" if group.closed else "the whole cluster has"
        return f"{where} {has}"
    one = len(served.nodes) == 1
    return f"its host {served.nodes[0].name} has {has}" if one else f"its hosts have {has}"


def _absent(served: Served) -> str:
    """List nodes whose devices do not count now, in parentheses."""
    absent = [f"{node.name} {_how(node)}" for node in _out_of_service(served)]
    absent += [f"{node.name} has not joined yet" for node in served.nodes if _is_expected(node)]
    return f" ({', '.join(sorted(absent)[:_SHOWN])})" if absent else ""


def not_free(
    served: Served,
    held: Held,
    reservation: Reservation,
    earlier: Collection[Reservation],
    ending: Collection[str],
    labels: Labels,
) -> str:
    """Return the reason of the first of a group.

    Args:
        earlier: reservations for others that are ahead of it.
        ending: ids of jobs that are about to release their devices.
    """  # fmt: skip
    group, nodes = served.group, served.nodes
    where = ""
    host = None
    if group.one_host:
        host = _host_of(reservation, nodes)
    elif group.selector and len(nodes) == 1:
        host = nodes[0]
    if host is not None:
        nodes, where = [host], f"{host.name} has "
    total = sum(count_of(node, group.kind) for node in nodes if may_serve(node))
    free = sum(len(node.indices) for node in free_devices(nodes, group.kind, held))
    parts = (
        [f"{where}{free} of {total} free"] if where else [f"{free} of {total} {_are(free)} free"]
    )
    parts += _kept(nodes, earlier, reservation.job)
    holders = _holders(nodes, group.kind, held)
    parts += _holding(holders.items(), labels, reservation.job, ending)
    parts += [
        f"node {node.name} is unreachable"
        for node in nodes
        if node.state is NodeState.SUSPECT and count_of(node, group.kind)
    ]
    parts += _taking_no_work(served, reservation.job.sizes[0] if group.one_host else 1)
    return ", ".join(parts)


def _holders(nodes: Iterable[NodeFacts], kind: str, held: Held) -> dict[str, int]:
    """Return how many devices jobs hold that others can get one day, by the jobs' ids."""
    found: dict[str, int] = {}
    for node in nodes:
        for device in node.devices if may_serve(node) else ():
            job_id = held.get((node.id, device.index))
            if device.kind == kind and job_id is not None:
                found[job_id] = found.get(job_id, 0) + 1
    return found


def _holding(
    found: Iterable[tuple[str, int]],
    labels: Labels,
    reader: JobFacts,
    ending: Collection[str] = (),
) -> list[str]:
    """Jobs and how many devices they hold; the largest first, those of other projects together."""
    largest, foreign = [], []
    for job_id, number in sorted(found, key=lambda item: (-item[1], item[0])):
        if labels.is_foreign(job_id, reader):
            foreign.append(number)
        else:
            largest.append((job_id, number))
    parts = [
        f"{labels.of(job_id, reader)}{', which is stopping,' if job_id in ending else ''} holds "
        f"{number}"
        for job_id, number in largest[:_SHOWN]
    ]
    if len(largest) > _SHOWN:
        rest = sum(number for _, number in largest[_SHOWN:])
        others = len(largest) - _SHOWN
        parts.append(f"{others} other job{'s hold' if others > 1 else ' holds'} {rest}")
    if foreign:
        who = FOREIGN_JOB if len(foreign) == 1 else f"{len(foreign)} jobs of other projects"
        parts.append(f"{who} hold{'s' if len(foreign) == 1 else ''} {sum(foreign)}")
    return parts


def _kept(
    nodes: Sequence[NodeFacts], earlier: Collection[Reservation], reader: JobFacts
) -> list[str]:
    ids = {node.id for node in nodes}
    kept = []
    for reservation in earlier:
        count = sum(len(i) for node_id, i in reservation.free.items() if node_id in ids)
        if count:
            kept.append(f"{count} {_are(count)} reserved for {label(reservation.job, reader)}")
    return kept


def _host_of(reservation: Reservation, nodes: Sequence[NodeFacts]) -> NodeFacts | None:
    return next((node for node in nodes if node.id in reservation.devices), None)


def _none_joined(what: str, nodes: Sequence[NodeFacts]) -> str:
    """
    Args:
        what: of which kind they all are.
    """
    registered = sorted(node.name for node in nodes if not node.removing)
    if not registered:
        return f"no {what} has joined: add one with `trainhall nodes add`"
    names = ", ".join(registered[:_SHOWN])
    are = "is" if len(registered) == 1 else "are"
    nodes_are = f"node{'' if len(registered) == 1 else 's'} {names} {are}"
    return f"no {what} has joined yet: {nodes_are} registered, not yet joined"


def _no_engine(nodes: Sequence[NodeFacts]) -> str:
    """
    Args:
        nodes: those that its labels allow; none has an engine.
    """
    names = sorted(node.name for node in nodes if _has_joined(node))
    who = f"node {names[0]}" if len(names) == 1 else f"nodes {', '.join(names[:_SHOWN])}"
    more = " and others" if len(names) > _SHOWN else ""
    has = "has" if len(names) == 1 else "have"
    return (
        f"{who}{more} {has} no container engine: install Podman or Docker there, or leave out "
        "environment.image"
    )


def _no_labels(selector: Mapping[str, str], nodes: Sequence[NodeFacts]) -> str:
    """Describe a selector that matches no node: the label that is on none, and the nearest one."""
    change = "change resources.selector, or label a node with `trainhall nodes label"
    for key, value in selector.items():
        if any(node.labels.get(key) == value for node in nodes):
            continue
        others = sorted({node.labels[key] for node in nodes if key in node.labels})
        keys = sorted({other for node in nodes for other in node.labels} - set(selector))
        near = ""
        if others:
            near = f" ({key} is {_any_of(others)})"
        elif keys:
            near = f" (labels in use: {', '.join(keys[:_SHOWN])}{' …' if keys[_SHOWN:] else ''})"
        label = f"{key}={value}"
        return f"no node has {label}{near}: {change} NODE {quote(label)}`"
    return f"no node has all of these labels, though each is on some: {change}`"


def _any_of(names: Sequence[str]) -> str:
    if len(names) > _SHOWN:
        return f"{', '.join(names[:_SHOWN])} or another"
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def _labels(group: Group) -> str:
    return "these labels" if len(group.selector) > 1 else "this label"


def _has_joined(node: NodeFacts) -> bool:
    return node.state is not NodeState.PENDING


def _is_expected(node: NodeFacts) -> bool:
    return not _has_joined(node) and not node.removing


def _out_of_service(served: Served) -> list[NodeFacts]:
    """Nodes with devices for the group that cannot be counted on."""
    return [
        node
        for node in served.nodes
        if _has_joined(node) and not may_serve(node) and count_of(node, served.group.kind)
    ]


def _how(node: NodeFacts) -> str:
    """Why a node takes no work."""
    return f"is {'being removed' if node.removing else node.state.value}"


def _taking_no_work(served: Served, least: int) -> list[str]:
    """Describe nodes with at least so many devices for the group that may get no work."""
    unavailable = [
        node for node in _out_of_service(served) if count_of(node, served.group.kind) >= least
    ]
    parts = [f"node {node.name} {_how(node)}" for node in unavailable[:_SHOWN]]
    if (rest := len(unavailable) - _SHOWN) > 0:
        parts.append(f"{rest} more node{'s take' if rest > 1 else ' takes'} no work")
    return parts


def _advice(served: Served, all_nodes: Sequence[NodeFacts], only_one_host: bool) -> str:
    """Return advice: how the job would get its devices, then what it could request instead."""
    ways = ["add a node with `trainhall nodes add`"]
    drained = [node.name for node in _out_of_service(served) if _is_drained(node)]
    if len(drained) == 1:
        ways.insert(0, f"undrain it with `trainhall nodes undrain {drained[0]}`")
    elif drained:
        ways.insert(0, "undrain a node with `trainhall nodes undrain`")
    other = "cpu" if served.group.kind == "cuda" else "cuda"
    if only_one_host:
        ways.append("remove resources.one_host")
    if served.capacity:
        ways.append("request fewer workers")
    elif any(may_serve(node) and count_of(node, other) for node in all_nodes):
        ways.append(f"set resources.device to {other}")
    *first, last = ways
    return f"{', '.join(first)}, or {last}" if first else last


def _is_drained(node: NodeFacts) -> bool:
    return not node.removing and node.state in (NodeState.DRAINING, NodeState.DRAINED)


def listed(names: Sequence[str]) -> str:
    rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{rest}"


def _allowed(quota: Quota) -> str:
    devices = f"{quota.devices} device{'' if quota.devices == 1 else 's'}"
    return f"the quota of {quota.what} {quota.name} is {devices}"


def _one(kind: str) -> str:
    return describe_kind(kind, 1)


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
