"""Devices of the cluster and the free ones among them, while a pass grants some."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainhall.cluster.lifecycle.reasons import Reason
from trainhall.cluster.lifecycle.states import NodeState
from trainhall.cluster.scheduling.demand import Group, OpenNodes, group_of
from trainhall.cluster.scheduling.placement import FreeDevices, FreePool, PlacedNode, PoolPart
from trainhall.cluster.scheduling.reservation import Reservation
from trainhall.cluster.snapshot.model import ClusterFacts, JobFacts, NodeFacts


@dataclass(eq=False)
class Served:
    """Supply for the jobs of one group, and the first of them that waits."""

    group: Group
    nodes: Sequence[NodeFacts]
    """Nodes that its selector allows and that are open to its project, in any state."""
    part: PoolPart
    """Free devices, on nodes that may be given new work."""
    capacity: int
    """Devices that could serve a job of it one day without anyone's help: those of ready and
    suspect nodes; under `one_host` those of the largest."""
    total: int
    """The same without `one_host`."""
    reservation: Reservation | None = None
    reasons: dict[tuple[tuple[int, ...], str | None, str | None], Reason] = field(
        default_factory=dict
    )
    """Reasons that many jobs share, by their sizes, the ends of their last attempts and their
    project."""


class Supply:
    def __init__(self, facts: ClusterFacts) -> None:
        self.nodes = facts.nodes
        self.held: dict[tuple[str, int], str] = {
            (grant.node_id, grant.device_index): grant.job_id for grant in facts.grants
        }
        """The job that holds a device, by node id and index."""
        self._open = OpenNodes(facts.nodes)
        self._pools: dict[str, FreePool] = {}
        self._served: dict[Group, Served] = {}
        self._plain: dict[tuple[str, bool, frozenset[str]], Served] = {}
        """Supply of jobs without a selector or a container: a queue is long, with few groups."""

    def for_job(self, job: JobFacts) -> Served:
        if job.selector or job.in_container:
            return self.of(group_of(job, self._open))
        key = (job.device, job.one_host, self._open.closed_to(job.project)[0])
        served = self._plain.get(key)
        if served is None:
            served = self._plain[key] = self.of(group_of(job, self._open))
        return served

    def of(self, group: Group) -> Served:
        served = self._served.get(group)
        if served is None:
            served = self._served[group] = self._serve(group)
        return served

    def pool(self, kind: str) -> FreePool:
        if kind not in self._pools:
            self._pools[kind] = FreePool(free_devices(self.nodes, kind, self.held))
        return self._pools[kind]

    def grant(self, job: JobFacts, placed: Sequence[PlacedNode]) -> None:
        for node in placed:
            for index in node.device_indices:
                self.held[node.node_id, index] = job.id

    def _serve(self, group: Group) -> Served:
        nodes = [node for node in self.nodes if group.allows(node)]
        sizes = [count_of(node, group.kind) for node in nodes if may_serve(node)]
        return Served(
            group,
            nodes,
            self.pool(group.kind).part(node.id for node in nodes),
            max(sizes, default=0) if group.one_host else sum(sizes),
            sum(sizes),
        )


def takes_work(node: NodeFacts) -> bool:
    return node.state is NodeState.READY and not node.removing


def may_serve(node: NodeFacts) -> bool:
    """Return whether it takes work, or will once it reports again."""
    return node.state in (NodeState.READY, NodeState.SUSPECT) and not node.removing


def count_of(node: NodeFacts, kind: str) -> int:
    return sum(1 for device in node.devices if device.kind == kind)


def free_devices(
    nodes: Sequence[NodeFacts], kind: str, held: Mapping[tuple[str, int], str]
) -> list[FreeDevices]:
    """Return the free devices for new work.

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
        if takes_work(node)
    ]
