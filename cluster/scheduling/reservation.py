"""Devices that are kept for the first job that has to wait, so that small ones never starve it.

Jobs behind it may start on what is not kept; on what is kept, they may if they are expected to
end before it is needed (backfill with a reservation: Lifka, "The ANL/IBM SP Scheduling System",
1995, which is known as EASY).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from trainhall.cluster.scheduling.demand import Group
from trainhall.cluster.scheduling.placement import DeviceKey, FreeDevices, FreePool, place
from trainhall.cluster.snapshot.model import JobFacts

Devices = dict[str, tuple[int, ...]]
"""Indices by node id."""


@dataclass(frozen=True)
class Reservation:
    job: JobFacts
    group: Group
    nodes: frozenset[str]
    """Ids of those that could serve the job."""
    devices: Devices
    """Devices kept for it, free already or not."""
    at: datetime | None
    """When it is expected to start; None: unknown, and every free device is kept."""
    free: Devices = field(default_factory=dict)
    """Devices of it that are free until then; lent ones are left out."""


class Timeline:
    """Devices of one kind: those that are free now and when each of the others comes free.

    Args:
        pool: what is free; what is reserved is taken from it.
        coming: when each of the others comes free, by node id and index; None: unknown.
    """

    def __init__(self, pool: FreePool, coming: Mapping[DeviceKey, datetime | None]) -> None:
        self._pool = pool
        self._coming: dict[str, dict[int, datetime | None]] = {}
        for (node_id, index), when in coming.items():
            if node_id in pool.free:
                self._coming.setdefault(node_id, {})[index] = when

    def earliest(
        self, now: datetime, count: int, node_ids: Sequence[str], *, one_host: bool
    ) -> tuple[Devices, datetime | None]:
        """Return the devices that are free together first, and when.

        The time is None when some of them become free at an unknown time.
        """
        left = {node_id: len(self._pool.free[node_id]) for node_id in node_ids}
        if max(left.values(), default=0) >= count if one_host else sum(left.values()) >= count:
            return self._place(count, node_ids, now, one_host=one_host), now
        total = sum(left.values())
        coming = sorted(
            (when, node_id)
            for node_id in node_ids
            for when in self._coming.get(node_id, {}).values()
            if when is not None
        )
        for when, node_id in coming:
            left[node_id] += 1
            total += 1
            if (left[node_id] if one_host else total) >= count:
                return self._place(count, node_ids, when, one_host=one_host), when
        return self._free_ones(count, node_ids, one_host=one_host), None

    def keep(self, devices: Devices) -> Devices:
        """Keep these devices for a job; return those of them that are free."""
        free = {}
        for node_id, indices in devices.items():
            if now_free := tuple(i for i in indices if i in self._pool.free[node_id]):
                free[node_id] = now_free
            self._pool.take(node_id, indices)
            coming = self._coming.get(node_id, {})
            for index in indices:
                coming.pop(index, None)
        return free

    def keep_all(self, node_ids: Iterable[str]) -> None:
        """Keep all of these nodes: it is unknown what is left for others."""
        for node_id in node_ids:
            self._pool.take(node_id, self._pool.free[node_id])
            self._coming.pop(node_id, None)

    def expect(self, device: DeviceKey, when: datetime) -> None:
        """Expect a device then that would come free at an unknown time; not one that is kept."""
        node_id, index = device
        coming = self._coming.get(node_id, {})
        if index in coming:
            coming[index] = when

    def give_back(self, devices: Mapping[str, tuple[int, ...]], when: datetime) -> None:
        """They come free then."""
        for node_id, indices in devices.items():
            self._coming.setdefault(node_id, {}).update(dict.fromkeys(indices, when))

    def _place(
        self, count: int, node_ids: Sequence[str], when: datetime, *, one_host: bool
    ) -> Devices:
        free = []
        for node_id in node_ids:
            coming = self._coming.get(node_id, {})
            then = [index for index, at in coming.items() if at is not None and at <= when]
            indices = (*self._pool.free[node_id], *then)
            free.append(FreeDevices(node_id, self._pool.names[node_id], indices))
        placed = place(count, free, one_host=one_host)
        assert placed is not None
        return {node.node_id: node.device_indices for node in placed}

    def _free_ones(self, count: int, node_ids: Sequence[str], *, one_host: bool) -> Devices:
        """Return the devices that are free already among those that the job will get.

        On one host, those of the host that needs the fewest more.
        """
        free = self._pool.free
        if one_host:
            large = [
                node_id
                for node_id in node_ids
                if len(free[node_id]) + len(self._coming.get(node_id, {})) >= count
            ]
            # What is kept of it grows only, so that the next pass comes to the same host.
            large.sort(key=lambda node_id: (-len(free[node_id]), self._pool.names[node_id]))
            node_ids = large[:1]
        return {node_id: free[node_id] for node_id in node_ids if free[node_id]}
