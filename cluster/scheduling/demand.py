"""A job's demand for devices, and its wording."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trainhall.cluster.snapshot.model import JobFacts, NodeFacts

_NO_SELECTOR: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Group:
    """Jobs of one group are served by the same nodes in the same way."""

    kind: str
    """cpu or cuda."""
    selector: frozenset[tuple[str, str]] = _NO_SELECTOR
    one_host: bool = False
    in_container: bool = False
    """Their ranks run in containers."""
    closed: frozenset[str] = frozenset()
    """Ids of nodes that are limited to other projects."""

    def allows(self, node: NodeFacts) -> bool:
        return (
            node.id not in self.closed
            and (node.has_containers or not self.in_container)
            and matches(self.selector, node.labels)
        )

    @property
    def condition(self) -> str:
        """Return the condition on a number of devices: ` on one host with zone=a`."""
        where = " on one host" if self.one_host else ""
        if self.selector:
            labels = ", ".join(f"{key}={value}" for key, value in sorted(self.selector))
            where += f" with {labels}" if where else f" on hosts with {labels}"
        if self.in_container:
            joined = " and" if self.selector else " with" if where else " on hosts with"
            where += f"{joined} a container engine"
        return where


def matches(selector: Iterable[tuple[str, str]], labels: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in selector)


def is_open(node: NodeFacts, project: str | None) -> bool:
    """Return whether a node gets jobs of a project."""
    return node.projects is None or project in node.projects


class OpenNodes:
    """Nodes that get jobs of each project."""

    def __init__(self, nodes: Sequence[NodeFacts]) -> None:
        self._nodes = nodes
        self._is_limited = any(node.projects is not None for node in nodes)
        self._known: dict[str | None, tuple[frozenset[str], str]] = {}

    def closed_to(self, project: str | None) -> tuple[frozenset[str], str]:
        """Return the ids of the nodes that are limited to other projects, and the kind of device
        that `auto` stands for on the others."""
        key = project if self._is_limited else None
        found = self._known.get(key)
        if found is None:
            closed = [node for node in self._nodes if self._is_limited and not is_open(node, key)]
            ids = frozenset(node.id for node in closed)
            auto = resolve_device("auto", (n for n in self._nodes if n.id not in ids))
            found = self._known[key] = (ids, auto)
        return found


def group_of(job: JobFacts, nodes: OpenNodes) -> Group:
    """Return the group of a job in the cluster as it is."""
    closed, auto = nodes.closed_to(job.project)
    kind = auto if job.device == "auto" else job.device
    selector = frozenset(job.selector.items()) if job.selector else _NO_SELECTOR
    return Group(kind, selector, job.one_host, job.in_container, closed)


def resolve_device(device: str, nodes: Iterable[NodeFacts]) -> str:
    """`auto` is GPUs where the cluster has any, else CPU slots."""
    if device != "auto":
        return device
    has_gpu = any(d.kind == "cuda" for node in nodes for d in node.devices)
    return "cuda" if has_gpu else "cpu"


def describe_devices(count: int, kind: str) -> str:
    return f"{count} {describe_kind(kind, count)}"


def describe_kind(kind: str, count: int) -> str:
    name = "GPU" if kind == "cuda" else "CPU slot"
    return name if count == 1 else name + "s"
