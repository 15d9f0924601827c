"""Gang placement: all ranks of an attempt at once, or none. A pure function of what is free."""

from collections.abc import Sequence
from dataclasses import dataclass


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


def place(count: int, free: Sequence[FreeDevices]) -> list[PlacedNode] | None:
    """`count` devices on the fewest hosts, then with the best fit; None when there are too few.

    Taking the emptiest hosts first reaches the least number of hosts. The last host is the one
    whose free devices exceed what is left by the least, so that large gaps stay for large jobs.
    Hosts come back in the order of their node ranks, the one with the most ranks first; the ranks
    of a host are adjacent.
    """
    open_nodes = sorted(
        (node for node in free if node.indices), key=lambda n: (-len(n.indices), n.node_name)
    )
    if count < 1 or sum(len(node.indices) for node in open_nodes) < count:
        return None
    chosen: list[PlacedNode] = []
    left = count
    while left:
        fitting = [node for node in open_nodes if len(node.indices) >= left]
        if fitting:
            node = min(fitting, key=lambda n: (len(n.indices), n.node_name))
        else:
            node = open_nodes[0]
        open_nodes.remove(node)
        taken = tuple(sorted(node.indices))[:left]
        chosen.append(PlacedNode(node.node_id, node.node_name, taken))
        left -= len(taken)
    return sorted(chosen, key=lambda n: (-len(n.device_indices), n.node_name))


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
