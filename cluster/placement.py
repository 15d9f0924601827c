"""Gang placement: all ranks of an attempt at once, or none. A pure function of what is free."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush


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


class FreePool:
    """What is free of one kind, for many placements one after the other, each of which takes its
    own. A placement looks at few nodes, however many there are."""

    def __init__(self, free: Iterable[FreeDevices]) -> None:
        self._left = 0
        self._by_count: dict[int, list[tuple[str, str, tuple[int, ...]]]] = {}
        """Heaps of (name, id, free indices) by how many are free."""
        for node in free:
            self._add(node.node_name, node.node_id, tuple(sorted(node.indices)))

    def place(self, count: int) -> list[PlacedNode] | None:
        """`count` devices on the fewest hosts, then with the best fit; None when there are too few.

        Taking the emptiest hosts first reaches the least number of hosts. The last host is the one
        whose free devices exceed what is left by the least, so that large gaps stay for large jobs.
        Hosts come back in the order of their node ranks, the one with the most ranks first; the
        ranks of a host are adjacent.
        """
        if count < 1 or self._left < count:
            return None
        chosen: list[PlacedNode] = []
        missing = count
        while missing:
            best = min((n for n in self._by_count if n >= missing), default=None)
            name, node_id, indices = self._take(max(self._by_count) if best is None else best)
            taken, rest = indices[:missing], indices[missing:]
            chosen.append(PlacedNode(node_id, name, taken))
            missing -= len(taken)
            self._add(name, node_id, rest)  # a rest is there of the last host only
        if len(chosen) == 1:
            return chosen
        return sorted(chosen, key=lambda n: (-len(n.device_indices), n.node_name))

    def _add(self, name: str, node_id: str, indices: tuple[int, ...]) -> None:
        if indices:
            heappush(self._by_count.setdefault(len(indices), []), (name, node_id, indices))
            self._left += len(indices)

    def _take(self, count: int) -> tuple[str, str, tuple[int, ...]]:
        """The first by name of the nodes with so many free."""
        nodes = self._by_count[count]
        node = heappop(nodes)
        if not nodes:
            del self._by_count[count]
        self._left -= count
        return node


def place(count: int, free: Iterable[FreeDevices]) -> list[PlacedNode] | None:
    """One placement (`FreePool.place`)."""
    return FreePool(free).place(count)


def allocation_of(placed: Sequence[PlacedNode], kind: str) -> list[dict[str, object]]:
    """A placement as `Attempt.allocation` keeps it: ranks numbered host by host."""
    allocation: list[dict[str, object]] = []
    rank = 0
    for node_rank, node in enumerate(placed):
        ranks = []
        for local_rank, index in enumerate(node.device_indices):
            ranks.append(
                {
                    "rank": rank,
                    "local_rank": local_rank,
                    "device_kind": kind,
                    "device_index": index,
                }
            )
            rank += 1
        allocation.append(
            {
                "node_id": node.node_id,
                "node_name": node.node_name,
                "node_rank": node_rank,
                "ranks": ranks,
            }
        )
    return allocation
