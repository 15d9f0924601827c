"""Free devices that no waiting job could use."""

from collections.abc import Iterable
from functools import cached_property

from trainhall.cluster.lifecycle.states import WAITING_STATES
from trainhall.cluster.quotas import Quota, Quotas
from trainhall.cluster.scheduling.demand import OpenNodes, group_of, is_open, matches
from trainhall.cluster.scheduling.placement import DeviceKey, PlacedNode, devices_of
from trainhall.cluster.scheduling.quota_use import QuotaUse
from trainhall.cluster.scheduling.supply import count_of, may_serve, takes_work
from trainhall.cluster.snapshot.model import ClusterFacts, JobFacts, NodeFacts


class SpareCapacity:
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
    def _held(self) -> set[DeviceKey]:
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
        nodes = OpenNodes(self._facts.nodes)
        return [
            (job, group_of(job, nodes).kind)
            for job in self._facts.jobs
            if job.state in WAITING_STATES
        ]

    @cached_property
    def _quota_waits(self) -> set[Quota]:
        """Return the quotas of which a waiting job could use something."""
        return {
            quota
            for job, kind in self._waiting
            if self._can_hold(job, kind)
            for quota in self._quotas.of(job.project, job.user)
        }

    def of(self, job: JobFacts, kind: str) -> dict[str, list[int]]:
        """Return the indices of the devices for `job`, by node id, in the order of node names."""
        found: dict[str, list[int]] = {}
        for node in self.nodes.values():
            if not takes_work(node) or not _fits(job, node) or self._is_wanted(node, kind):
                continue
            free = [
                d.index
                for d in node.devices
                if d.kind == kind and (node.id, d.index) not in self._held
            ]
            if free:
                found[node.id] = sorted(free)
        return found

    def exists(self, device: DeviceKey) -> bool:
        """Return whether its node (still) has a device."""
        node_id, index = device
        return node_id in self.nodes and any(d.index == index for d in self.nodes[node_id].devices)

    def has_of(self, job: JobFacts, node_id: str) -> bool:
        """Return whether an attempt of the job holds devices of a node."""
        return (node_id, job.id) in self._busy_with

    def allows(self, job: JobFacts, more: int, lost: int) -> int:
        """Return how many of `more` devices the quotas leave it, beside waiting jobs' possible use.

        Args:
            lost: devices that it is about to lose, and may have others for.
        """
        headroom = self._quota_use.headroom(job)
        if headroom is None:
            return more
        if not self._quota_waits.isdisjoint(self._quotas.of(job.project, job.user)):
            headroom = 0
        return min(more, headroom + lost)

    def take(self, job: JobFacts, placed: Iterable[PlacedNode]) -> None:
        wanted = set(devices_of(placed))
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
        """Return whether cluster and quotas are large enough: what is kept free will serve it."""
        capacity = sum(
            count_of(node, kind)
            for node in self.nodes.values()
            if may_serve(node) and _fits(job, node)
        )
        return job.sizes[0] <= capacity and self._quota_use.too_small(job) is None


def _fits(job: JobFacts, node: NodeFacts) -> bool:
    return is_open(node, job.project) and matches(job.selector.items(), node.labels)
