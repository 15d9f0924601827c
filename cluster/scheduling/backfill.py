"""Reserved devices that jobs may use which are expected to end before the devices are needed."""

from collections.abc import Sequence

from trainhall.cluster.scheduling.estimates import expected_seconds
from trainhall.cluster.scheduling.placement import DeviceKey, FreeDevices, FreePool, PlacedNode
from trainhall.cluster.scheduling.reservation import Reservation
from trainhall.cluster.scheduling.supply import Served, Supply
from trainhall.cluster.snapshot.model import JobFacts


class Backfill:
    """Reservations of a pass, and what it lends of them."""

    def __init__(self, supply: Supply) -> None:
        self.reservations: list[Reservation] = []
        """In the order in which they were made."""
        self._supply = supply
        self._lent: set[DeviceKey] = set()
        self._sources: dict[str, list[tuple[int, float]]] = {}
        """By kind: the reservations whose time is known, and in how many seconds it comes."""
        self._pools: dict[tuple[Served, tuple[int, ...]], FreePool] = {}
        """Free devices for short jobs of a group, by the reservations that can wait for them."""

    def reserve(self, reservation: Reservation, seconds: float | None) -> None:
        """Add a reservation.

        Args:
            seconds: until it is needed; None: unknown.
        """
        if seconds is not None:
            sources = self._sources.setdefault(reservation.group.kind, [])
            sources.append((len(self.reservations), seconds))
        self.reservations.append(reservation)
        self._pools.clear()

    def place(self, job: JobFacts, served: Served) -> Sequence[PlacedNode] | None:
        """Place a job on devices that it gives back in time, and on free ones; None: it cannot."""
        seconds = expected_seconds(job, job.sizes[0])
        if seconds is None:
            return None
        dated = self._sources.get(served.group.kind, [])
        sources = tuple([number for number, left in dated if seconds <= left])
        if not sources:
            return None
        pool = self._pools.get((served, sources))
        if pool is None:
            pool = self._pools[served, sources] = self._pool(served, sources)
        return pool.place(job.sizes[0], one_host=served.group.one_host)

    def take(self, placed: Sequence[PlacedNode], kind: str) -> None:
        """Remove granted devices from every pool, wherever they were found."""
        if not self.reservations:
            return
        pools = [self._supply.pool(kind)]
        pools += [pool for (served, _), pool in self._pools.items() if served.group.kind == kind]
        for node in placed:
            self._lent.update((node.node_id, index) for index in node.device_indices)
            for pool in pools:
                pool.take(node.node_id, node.device_indices)

    def _pool(self, served: Served, sources: Sequence[int]) -> FreePool:
        """Return the free devices for a job that ends before these reservations are needed."""
        free = {node_id: served.part.free_of(node_id) for node_id in served.part.node_ids}
        for number in sources:
            for node_id, indices in self.reservations[number].free.items():
                if node_id in free:
                    free[node_id] += tuple(i for i in indices if (node_id, i) not in self._lent)
        names = self._supply.pool(served.group.kind).names
        return FreePool(FreeDevices(n, names[n], indices) for n, indices in free.items())
