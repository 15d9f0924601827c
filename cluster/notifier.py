"""Wake-ups. They are for speed, never for truth: everything is level-triggered."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from trainhall.db.documents import NodeAllocation


def _ignore(_: str) -> None:
    return None


def _nothing() -> None:
    return None


@dataclass
class Notifier:
    notify_reconciler: Callable[[], None] = _nothing
    """Has the reconciler decide again."""
    notify_node: Callable[[str], None] = _ignore
    """Has the gateway build this node's desired state again."""
    notify_all_nodes: Callable[[], None] = _nothing
    """The same for every node."""
    notify_viewers: Callable[[str], None] = _ignore
    """Viewers of this job have something to read."""

    def notify_job(self, job_id: str) -> None:
        """Something of this job changed."""
        self.notify_viewers(job_id)
        self.notify_reconciler()

    def notify_hosts(self, allocation: Iterable[NodeAllocation]) -> None:
        """Note that the assignments of an attempt's hosts changed."""
        for host in allocation:
            self.notify_node(host.node_id)
