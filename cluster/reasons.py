"""Why a job waits, in words. What is said here changes only when something happens, since it is
stored with the job; times, which move with every step of those that run, are told on demand
(`trainhall.cluster.forecast`)."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from trainhall.cluster.demand import Group, devices_in_words, kind_in_words
from trainhall.cluster.facts import JobFacts, NodeFacts, NodeState
from trainhall.cluster.placement import PlacedNode
from trainhall.cluster.reservation import Reservation
from trainhall.cluster.supply import Served, count_of, free_devices, may_serve

_SHOWN = 3

Held = Mapping[tuple[str, int], str]


def needs(job: JobFacts, group: Group) -> str:
    least = devices_in_words(job.sizes[0], group.kind)
    or_more = " or more" if len(job.sizes) > 1 else ""
    return f"needs {least}{or_more}{group.condition}"


def with_history(job: JobFacts, reason: str) -> str:
    return f"{job.last_failure}; {reason}" if job.last_failure else reason


def placed_on(placed: Sequence[PlacedNode], kind: str) -> str:
    hosts = (f"{devices_in_words(len(n.device_indices), kind)} of {n.node_name}" for n in placed)
    return f"placed on {', '.join(hosts)}"


def behind(ahead: JobFacts) -> str:
    return f"waits behind job {ahead.id}, which needs {ahead.sizes[0]} and comes first"


def makes_room(job_ids: Sequence[str]) -> str:
    """Of a job for which others pause."""
    return f"{listed('job', job_ids)} {'makes' if len(job_ids) == 1 else 'make'} room for it"


def never(served: Served, all_nodes: Sequence[NodeFacts]) -> str:
    """What is said to a job that the whole cluster could not hold."""
    group = served.group
    joined = [node for node in all_nodes if node.state is not NodeState.PENDING]
    if not joined:
        return _none_joined(all_nodes)
    if group.selector and not served.nodes:
        return (
            f"no node has {'these labels' if len(group.selector) > 1 else 'this label'}: "
            "change resources.selector, or label a node"
        )
    away = [
        f"{node.name} is {'being removed' if node.removing else node.state.value}"
        for node in _away(served)
    ]
    because = f" ({', '.join(sorted(away)[:_SHOWN])})" if away else ""
    capacity = served.capacity
    has = devices_in_words(capacity, group.kind) if capacity else f"no {_one(group.kind)}"
    if group.one_host and capacity:
        subject = "the largest host has"
    elif group.selector:
        one = len(served.nodes) == 1
        subject = f"its host {served.nodes[0].name} has" if one else "its hosts have"
    else:
        subject = "the whole cluster has"
    return f"{subject} {has}{because}: {_advice(served, all_nodes)}"


def not_free(
    served: Served,
    held: Held,
    reservation: Reservation,
    earlier: Collection[Reservation],
    ending: Collection[str],
) -> str:
    """What the first of a group waits for.

    Args:
        earlier: what is kept for others that come first.
        ending: ids of jobs that are about to give back what they hold.
    """  # fmt: skip
    group, nodes = served.group, served.nodes
    where = ""
    if group.one_host and (host := _host_of(reservation, nodes)) is not None:
        nodes, where = [host], f"{host.name} has "
    total = sum(count_of(node, group.kind) for node in nodes if may_serve(node))
    free = sum(len(node.indices) for node in free_devices(nodes, group.kind, held))
    parts = (
        [f"{where}{free} of {total} free"] if where else [f"{free} of {total} {_are(free)} free"]
    )
    parts += _kept(nodes, earlier)
    parts += _holders(nodes, group.kind, held, ending)
    parts += [
        f"node {node.name} is not heard"
        for node in nodes
        if node.state is NodeState.SUSPECT and count_of(node, group.kind)
    ]
    return ", ".join(parts)


def holders(nodes: Iterable[NodeFacts], kind: str, held: Held) -> list[tuple[str, int]]:
    """Jobs that hold devices of these nodes, and how many; the largest first."""
    found: dict[str, int] = {}
    for node in nodes:
        for device in node.devices:
            job_id = held.get((node.id, device.index))
            if device.kind == kind and job_id is not None:
                found[job_id] = found.get(job_id, 0) + 1
    return sorted(found.items(), key=lambda item: (-item[1], item[0]))


def _holders(
    nodes: Sequence[NodeFacts], kind: str, held: Held, ending: Collection[str]
) -> list[str]:
    largest = holders(nodes, kind, held)
    told = [
        f"job {job_id}{', which is ending,' if job_id in ending else ''} holds {number}"
        for job_id, number in largest[:_SHOWN]
    ]
    if len(largest) > _SHOWN:
        rest = sum(number for _, number in largest[_SHOWN:])
        others = len(largest) - _SHOWN
        told.append(f"{others} other job{'s hold' if others > 1 else ' holds'} {rest}")
    return told


def _kept(nodes: Sequence[NodeFacts], earlier: Collection[Reservation]) -> list[str]:
    ids = {node.id for node in nodes}
    kept = []
    for reservation in earlier:
        count = sum(len(i) for node_id, i in reservation.free.items() if node_id in ids)
        if count:
            kept.append(f"{count} {_are(count)} kept for job {reservation.job.id}")
    return kept


def _host_of(reservation: Reservation, nodes: Sequence[NodeFacts]) -> NodeFacts | None:
    return next((node for node in nodes if node.id in reservation.devices), None)


def _none_joined(nodes: Sequence[NodeFacts]) -> str:
    announced = sorted(node.name for node in nodes if not node.removing)
    if not announced:
        return "no node has joined: add one with `trainhall nodes add`"
    names = ", ".join(announced[:_SHOWN])
    are = "was announced and is" if len(announced) == 1 else "were announced and are"
    nodes_are = f"node{'' if len(announced) == 1 else 's'} {names} {are}"
    return f"no node has joined yet: {nodes_are} expected"


def _away(served: Served) -> list[NodeFacts]:
    """Nodes with devices for the group that cannot be counted on."""
    return [
        node
        for node in served.nodes
        if node.state is not NodeState.PENDING
        and not may_serve(node)
        and count_of(node, served.group.kind)
    ]


def _advice(served: Served, all_nodes: Sequence[NodeFacts]) -> str:
    """What would give the job its devices, then what it may ask for that the cluster can hold."""
    ways = ["add a node with `trainhall nodes add`"]
    if any(_is_drained(node) for node in _away(served)):
        ways.insert(0, "take a drain back with `trainhall nodes undrain`")
    other = "cpu" if served.group.kind == "cuda" else "cuda"
    if served.capacity:
        ways.append("ask for fewer workers")
    elif any(may_serve(node) and count_of(node, other) for node in all_nodes):
        ways.append(f"set resources.device to {other}")
    *first, last = ways
    return f"{', '.join(first)}, or {last}" if first else last


def _is_drained(node: NodeFacts) -> bool:
    return not node.removing and node.state in (NodeState.DRAINING, NodeState.DRAINED)


def listed(what: str, names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"{what} {names[0]}"
    rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{what}s {', '.join(names[:_SHOWN])}{rest}"


def _one(kind: str) -> str:
    return kind_in_words(kind, 1)


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
