"""A job's demand for devices, and its wording."""

from collections.abc import Iterable, Mapping
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

    def allows(self, node: NodeFacts) -> bool:
        return matches(self.selector, node.labels)

    @property
    def condition(self) -> str:
        """Return the condition on a number of devices: ` on one host with zone=a`."""
        where = " on one host" if self.one_host else ""
        if self.selector:
            labels = ", ".join(f"{key}={value}" for key, value in sorted(self.selector))
            where += f" with {labels}" if where else f" on hosts with {labels}"
        return where


def matches(selector: Iterable[tuple[str, str]], labels: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in selector)


def group_of(job: JobFacts, auto: str) -> Group:
    """`auto` is the kind that this word stands for in the cluster as it is."""
    kind = auto if job.device == "auto" else job.device
    selector = frozenset(job.selector.items()) if job.selector else _NO_SELECTOR
    return Group(kind, selector, job.one_host)


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
