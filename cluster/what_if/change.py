"""Changes to the cluster as it is: nodes, quotas, priorities."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from trainhall.cluster.lifecycle.states import NodeState
from trainhall.cluster.options import ClusterOptions
from trainhall.cluster.quotas import Quotas
from trainhall.cluster.snapshot.model import DeviceFacts, NodeFacts
from trainhall.cluster.what_if.workload import Work


@dataclass(frozen=True)
class AddedNodes:
    nodes: int
    devices: int
    """Number of each node's devices."""
    device: str | None = None
    """cpu or cuda; None: cuda if the cluster has any."""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Change:
    add: Sequence[AddedNodes] = ()
    remove: frozenset[str] = frozenset()
    """Names of nodes."""
    quotas: Quotas = field(default_factory=Quotas)
    """They replace those of the same project or user; the others stay."""
    project_priorities: Mapping[str, int] = field(default_factory=dict)
    user_priorities: Mapping[str, int] = field(default_factory=dict)
    """Priorities of all their jobs; that of the user counts before that of the project."""

    def nodes(self, nodes: Sequence[NodeFacts]) -> tuple[NodeFacts, ...]:
        usual = "cuda" if any(d.kind == "cuda" for n in nodes for d in n.devices) else "cpu"
        added = [
            _node(f"added-{group}-{number}", each, each.device or usual)
            for group, each in enumerate(self.add, start=1)
            for number in range(1, each.nodes + 1)
        ]
        return (*(node for node in nodes if node.name not in self.remove), *added)

    def options(self, options: ClusterOptions) -> ClusterOptions:
        present, wanted = options.quotas, self.quotas
        quotas = Quotas(
            projects={**present.projects, **wanted.projects},
            users={**present.users, **wanted.users},
        )
        return replace(options, quotas=quotas)

    def work(self, work: Sequence[Work]) -> tuple[Work, ...]:
        return tuple(
            replace(each, job=replace(each.job, priority=self._priority(each))) for each in work
        )

    def _priority(self, work: Work) -> int:
        job = work.job
        of_project = self.project_priorities.get(job.project or "", job.priority)
        return self.user_priorities.get(job.user or "", of_project)


def _node(name: str, added: AddedNodes, kind: str) -> NodeFacts:
    return NodeFacts(
        id=name,
        name=name,
        state=NodeState.READY,
        removing=False,
        seconds_since_heartbeat=0.0,
        devices=tuple(DeviceFacts(index, kind) for index in range(added.devices)),
        labels=added.labels,
    )
