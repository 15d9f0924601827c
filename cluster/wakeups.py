"""Who is to look again. Waking is for speed, never for truth: everything is level-triggered."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


def _nobody(_: str) -> None:
    return None


def _nothing() -> None:
    return None


@dataclass
class Wakeups:
    reconcile: Callable[[], None] = _nothing
    """The reconciler derives its decisions anew."""
    node: Callable[[str], None] = _nobody
    """The gateway builds what it tells this node anew."""
    every_node: Callable[[], None] = _nothing
    """The same for every node."""
    stream: Callable[[str], None] = _nobody
    """Viewers of this job have something to read."""

    def job(self, job_id: str) -> None:
        """Something of this job changed."""
        self.stream(job_id)
        self.reconcile()

    def hosts(self, allocation: Iterable[dict[str, Any]]) -> None:
        """What the hosts of an attempt are told changed."""
        for host in allocation:
            self.node(str(host["node_id"]))
