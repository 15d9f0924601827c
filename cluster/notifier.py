"""Wake-ups, which only save waiting for the next tick: everything is level-triggered."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from trainhall.db.documents import NodeAllocation


@dataclass
class Notifier:
    notify_reconciler: Callable[[], None] = lambda: None
    """Has the reconciler decide again."""
    notify_node: Callable[[str], None] = lambda _: None
    """Has the gateway build this node's desired state again."""
    notify_all_nodes: Callable[[], None] = lambda: None
    """The same for every node."""
    notify_node_removed: Callable[[str], None] = lambda _: None
    """Has its credential forgotten, and its connection ended."""
    notify_viewers: Callable[[str], None] = lambda _: None
    """Viewers of this job have something to read."""

    def notify_job(self, job_id: str) -> None:
        """Something of this job changed."""
        self.notify_viewers(job_id)
        self.notify_reconciler()

    def notify_hosts(self, allocation: Iterable[NodeAllocation]) -> None:
        """Note that the assignments of an attempt's hosts changed."""
        for host in allocation:
            self.notify_node(host.node_id)
