"""Gang placement: all ranks of an attempt at once, or none. A pure function of what is free."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from trainhall.db.documents import Allocation, NodeAllocation, RankPlacement


@dataclass(frozen=True)
class FreeDevices:
    """The devices of one kind that are free on one node."""

    node_id: str
    node_name: str
    indices: tuple[int, ...]


@dataclass(frozen=True)
class PlacedNode:
    """One host of a placement: its devices, in the order of their local ranks."""

    node_id: str
    node_name: str
    device_indices: tuple[int, ...]


DeviceKey = tuple[str, int]
"""A node's id and the index of one of its devices."""


def devices_of(placed: Iterable[PlacedNode]) -> list[DeviceKey]:
    """Return the devices of a placement, in the order of the ranks on them."""
    return [(node.node_id, index) for node in placed for index in node.device_indices]


class FreePool:
    """Free devices of one kind, for many placements one after the other.

    Each placement takes its own. It looks at few nodes, however many there are.
    """

    def __init__(self, free: Iterable[FreeDevices]) -> None:
        self.free: dict[str, tuple[int, ...]] = {}
        """Free indices, ascending, by node id."""
        self.names: dict[str, str] = {}
        for node in free:
            self.free[node.node_id] = tuple(sorted(node.indices))
            self.names[node.node_id] = node.node_name
        self._parts_of: dict[str, list[PoolPart]] = {node_id: [] for node_id in self.free}
        self._whole = self.part(self.free)

    def part(self, node_ids: Iterable[str]) -> "PoolPart":
        """Return the part on these nodes; devices taken from one part are gone from all."""
        part = PoolPart(self, [n for n in node_ids if n in self.free])
        for node_id in part.node_ids:
            self._parts_of[node_id].append(part)
        return part

    def place(self, count: int, *, one_host: bool = False) -> list[PlacedNode] | None:
        """Place workers anywhere in the pool, as `PoolPart.place` does."""
        return self._whole.place(count, one_host=one_host)

    def take_first(self, node_id: str, count: int) -> tuple[int, ...]:
        """Take the first of a node's free devices, at most so many, which are free no more."""
        before = self.free[node_id]
        after = self.free[node_id] = before[count:]
        for part in self._parts_of[node_id]:
            part.changed(node_id, len(before), len(after))
        return before[:count]

    def take(self, node_id: str, indices: Iterable[int]) -> None:
        """Mark these devices as taken; those that were not free before are skipped."""
        before = self.free.get(node_id, ())
        gone = set(indices)
        after = tuple(index for index in before if index not in gone)
        if len(after) != len(before):
            self.free[node_id] = after
            for part in self._parts_of[node_id]:
                part.changed(node_id, len(before), len(after))


class PoolPart:
    """Some nodes of a pool: all that a selector allows."""

    def __init__(self, pool: FreePool, node_ids: Sequence[str]) -> None:
        self._pool = pool
        self.node_ids = node_ids
        self.left = 0
        """Free devices."""
        self._by_count: dict[int, list[tuple[str, str]]] = {}
        """Heaps of (name, id) by how many are free. A node that has fewer by now is still in the
        heaps of its earlier counts, until it comes to the top there."""
        for node_id in node_ids:
            self.changed(node_id, 0, len(pool.free[node_id]))

    def free_of(self, node_id: str) -> tuple[int, ...]:
        return self._pool.free[node_id]

    def place(self, count: int, *, one_host: bool = False) -> list[PlacedNode] | None:
        """`count` devices on the fewest hosts, then with the best fit; None when there are too few.

        Taking the emptiest hosts first reaches the least number of hosts. The last host is the one
        whose free devices exceed what is left by the least, so that large gaps stay for large jobs.
        Hosts are returned in the order of their node ranks, the one with the most ranks first; the
        ranks of a host are adjacent.
        """
        if count < 1 or self.left < count:
            return None
        chosen: list[PlacedNode] = []
        missing = count
        while missing:
            counts = self._counts()
            best = min([n for n in counts if n >= missing], default=None)
            if best is None and one_host:
                return None
            name, node_id = self._by_count[max(counts) if best is None else best][0]
            taken = self._pool.take_first(node_id, missing)
            chosen.append(PlacedNode(node_id, name, taken))
            missing -= len(taken)
        if len(chosen) == 1:
            return chosen
        return sorted(chosen, key=lambda n: (-len(n.device_indices), n.node_name))

    def most(self, *, one_host: bool = False) -> int:
        """Return the largest count that could be placed."""
        return max(self._counts(), default=0) if one_host else self.left

    def changed(self, node_id: str, before: int, after: int) -> None:
        """Update the part when the number of a node's free devices changed."""
        self.left += after - before
        if after:
            entry = (self._pool.names[node_id], node_id)
            heappush(self._by_count.setdefault(after, []), entry)

    def _counts(self) -> list[int]:
        """Numbers of free devices that nodes have now."""
        found = []
        for count, nodes in list(self._by_count.items()):
            while nodes and len(self._pool.free[nodes[0][1]]) != count:
                heappop(nodes)
            if nodes:
                found.append(count)
            else:
                del self._by_count[count]
        return found


def place(
    count: int, free: Iterable[FreeDevices], *, one_host: bool = False
) -> list[PlacedNode] | None:
    """Return one placement (`PoolPart.place`)."""
    return FreePool(free).place(count, one_host=one_host)


def allocation_of(placed: Sequence[PlacedNode], kind: str) -> Allocation:
    """Return the allocation of a placement: ranks numbered host by host."""
    ranks = itertools.count()
    return Allocation(
        NodeAllocation(
            node.node_id,
            node.node_name,
            node_rank,
            tuple(
                RankPlacement(next(ranks), local_rank, kind, index)
                for local_rank, index in enumerate(node.device_indices)
            ),
        )
        for node_rank, node in enumerate(placed)
    )
