"""The time of each node's last heartbeat, on the coordinator's monotonic clock: a clock that jumps,
or a coordinator that was down or asleep, never makes a healthy node look unreachable."""

import math

import structlog

from trainhall.cluster.ports import Clock

log = structlog.get_logger(__name__)


class HeartbeatMonitor:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._listening_since = self._last_checked = clock.monotonic()
        self._stall_threshold = math.inf
        self._last_heartbeat: dict[str, float] = {}
        self._reported: set[str] = set()

    def start(self, stall_threshold_seconds: float) -> None:
        """Begin to listen: every node's time without a heartbeat is counted from here.

        Args:
            stall_threshold_seconds: longest time between two calls of this monitor from now on.
                After a longer one the process did not run, and every node's count starts again.
        """
        self._stall_threshold = stall_threshold_seconds
        self._listening_since = self._last_checked = self._clock.monotonic()

    def record(self, node_id: str) -> None:
        self._last_heartbeat[node_id] = self._now()

    def mark_reported(self, node_id: str) -> None:
        """Note that what the node has and runs is stored, as of since this coordinator listens."""
        self._reported.add(node_id)

    def has_reported(self, node_id: str) -> bool:
        return node_id in self._reported

    def seconds_since(self, node_id: str) -> float:
        """Count from the last heartbeat, or from when this coordinator began to listen if later."""
        now = self._now()
        return now - max(
            self._last_heartbeat.get(node_id, self._listening_since), self._listening_since
        )

    @property
    def listening_seconds(self) -> float:
        """Seconds for which this coordinator has been listening without a break."""
        now = self._now()
        return now - self._listening_since

    def forget(self, node_id: str) -> None:
        self._last_heartbeat.pop(node_id, None)
        self._reported.discard(node_id)

    def _now(self) -> float:
        # At every question and not from time to time: a process may be stopped at any instruction,
        # and the very next one may be about to declare a node lost.
        now = self._clock.monotonic()
        if now - self._last_checked > self._stall_threshold:
            log.warning(
                "coordinator_stalled",
                stalled_s=round(now - self._last_checked, 1),
            )
            self._listening_since = now
        self._last_checked = now
        return now
