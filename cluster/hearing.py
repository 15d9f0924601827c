"""When each node was last heard, on the coordinator's monotonic clock: a clock that jumps, or a
coordinator that was down or asleep, never makes a healthy node look silent."""

from trainhall.cluster.ports import Clock


class Hearing:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._listening_since = clock.monotonic()
        self._heard: dict[str, float] = {}

    def heard(self, node_id: str) -> None:
        self._heard[node_id] = self._clock.monotonic()

    def silent_seconds(self, node_id: str) -> float:
        """Since the node was heard, or since this coordinator listens if that is later."""
        last = max(self._heard.get(node_id, self._listening_since), self._listening_since)
        return self._clock.monotonic() - last

    @property
    def listening_seconds(self) -> float:
        """How long this coordinator has been listening without a break."""
        return self._clock.monotonic() - self._listening_since

    def was_deaf(self) -> None:
        """This process did not run for a while: every node's silence begins anew."""
        self._listening_since = self._clock.monotonic()

    def forget(self, node_id: str) -> None:
        self._heard.pop(node_id, None)
