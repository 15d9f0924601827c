"""The all-reduce algorithms by name."""

from collections.abc import Sequence

from trainhall.distributed.collectives.algorithms.halving_doubling import HalvingDoubling
from trainhall.distributed.collectives.algorithms.hierarchical import Hierarchical
from trainhall.distributed.collectives.algorithms.naive import Naive
from trainhall.distributed.collectives.algorithms.parameter_server import ParameterServer
from trainhall.distributed.collectives.algorithms.ring import Ring, RingOfTwo
from trainhall.distributed.collectives.algorithms.tree import Tree
from trainhall.distributed.collectives.errors import ScheduleError
from trainhall.distributed.collectives.schedule import Schedule

NAMES = ("ring", "tree", "halving_doubling", "hierarchical", "parameter_server", "naive")


def all_reduce(
    name: str,
    world_size: int,
    *,
    hosts: Sequence[Sequence[int]] | None = None,
    servers: int | None = None,
) -> Schedule:
    """Return the schedule of an algorithm.

    Args:
        hosts: the ranks of each host, for `hierarchical`; by default one host has them all.
        servers: how many ranks serve, for `parameter_server`; by default one per host.

    Raises:
        ScheduleError: there is no such algorithm, or it cannot be laid out so.
    """
    by_host = tuple(map(tuple, hosts)) if hosts is not None else (tuple(range(world_size)),)
    match name:
        case "ring":
            return RingOfTwo() if world_size == 2 else Ring(world_size)
        case "tree":
            return Tree(world_size)
        case "halving_doubling":
            return HalvingDoubling(world_size)
        case "hierarchical":
            return Hierarchical(world_size, by_host)
        case "parameter_server":
            return ParameterServer(world_size, len(by_host) if servers is None else servers)
        case "naive":
            return Naive(world_size)
        case _:
            raise ScheduleError(f"there is no algorithm {name!r}; there are {', '.join(NAMES)}")
