"""When each node was last heard, on the coordinator's monotonic clock: a clock that jumps, or a
coordinator that was down or asleep, never makes a healthy node look silent."""

import math

import structlog

from trainhall.cluster.ports import Clock

log = structlog.get_logger(__name__)


class Hearing:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._listening_since = self._awake_at = clock.monotonic()
        self._deaf_after = math.inf
        self._heard: dict[str, float] = {}
        self._reported: set[str] = set()

    def start(self, deaf_after_seconds: float) -> None:
        """Begin to listen: every node's silence begins here.

        Args:
            deaf_after_seconds: from now on this is asked something at least so often; where it was
                not, the process did not run, and every node's silence begins anew.
        """
        self._deaf_after = deaf_after_seconds
        self._listening_since = self._awake_at = self._clock.monotonic()

    def heard(self, node_id: str) -> None:
        self._heard[node_id] = self._now()

    def reported(self, node_id: str) -> None:
        """What the node has and runs is stored, as it is since this coordinator listens."""
        self._reported.add(node_id)

    def has_reported(self, node_id: str) -> bool:
        return node_id in self._reported

    def silent_seconds(self, node_id: str) -> float:
        """Since the node was heard, or since this coordinator listens if that is later."""
        now = self._now()
        return now - max(self._heard.get(node_id, self._listening_since), self._listening_since)

    @property
    def listening_seconds(self) -> float:
        """How long this coordinator has been listening without a break."""
        now = self._now()
        return now - self._listening_since

    def forget(self, node_id: str) -> None:
        self._heard.pop(node_id, None)
        self._reported.discard(node_id)

    def _now(self) -> float:
        # At every question and not from time to time: a process may be stopped at any instruction,
        # and the very next one may be about to give a node up.
        now = self._clock.monotonic()
        if now - self._awake_at > self._deaf_after:
            log.warning(
                "the coordinator did not run for a while", seconds=round(now - self._awake_at, 1)
            )
            self._listening_since = now
        self._awake_at = now
        return now
