"""A rank's environment: torchrun's environment variables, read once and checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

STORE_PREFIX = "TRAINHALL_STORE_PREFIX"


class RankEnvironmentError(RuntimeError):
    """The process was not started as a rank."""


@dataclass(frozen=True, kw_only=True)
class RankEnvironment:
    """The names and meaning of `torchrun`'s variables of the same names, and the store's prefix."""

    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    master_addr: str
    master_port: int
    store_prefix: str = ""
    """Before the namespace of all keys in the store; random where Trainhall starts a task's ranks.
    """

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> "RankEnvironment":
        """Read the environment of a rank.

        Raises:
            RankEnvironmentError: naming the variable that is missing or no number.
        """
        found = cls(
            rank=_number(environ, "RANK"),
            local_rank=_number(environ, "LOCAL_RANK"),
            world_size=_number(environ, "WORLD_SIZE"),
            local_world_size=_number(environ, "LOCAL_WORLD_SIZE"),
            master_addr=required(environ, "MASTER_ADDR"),
            master_port=_number(environ, "MASTER_PORT"),
            store_prefix=environ.get(STORE_PREFIX, ""),
        )
        if not 0 <= found.rank < found.world_size:
            raise RankEnvironmentError(
                f"RANK={found.rank} must lie between 0 and WORLD_SIZE={found.world_size} - 1"
            )
        return found


def ranks_by_host(places: Sequence[tuple[int, int]]) -> tuple[tuple[int, ...], ...]:
    """Return the ranks of each host. Hosts may have different numbers of ranks.

    Args:
        places: of each rank its LOCAL_RANK and LOCAL_WORLD_SIZE. As `torchrun` and Trainhall do,
            the launcher numbers ranks host by host.

    Raises:
        RankEnvironmentError: there are no such hosts.
    """
    hosts: list[tuple[int, ...]] = []
    at = 0
    while at < len(places):
        size = places[at][1]
        ranks = range(at, at + max(size, 1))
        found = list(places[ranks.start : ranks.stop])
        if found != [(local, size) for local in range(size)]:
            launched = ", ".join(
                f"rank {rank} has {local} of {of}"
                for rank, (local, of) in zip(ranks, found, strict=False)
            )
            raise RankEnvironmentError(
                f"LOCAL_RANK and LOCAL_WORLD_SIZE of {len(places)} ranks make no hosts: a host of "
                f"{size} would have the ranks {ranks.start} to {ranks.stop - 1}, numbered from 0, "
                f"but {launched}"
            )
        hosts.append(tuple(ranks))
        at = ranks.stop
    return tuple(hosts)


def required(environ: Mapping[str, str], name: str) -> str:
    """Return the value of a variable that every rank has.

    Raises:
        RankEnvironmentError: it is not set.
    """
    value = environ.get(name)
    if not value:
        raise RankEnvironmentError(
            f"{name} is not set: ranks are started by Trainhall's shim (or another launcher that "
            "sets torchrun's variables), not by hand"
        )
    return value


def _number(environ: Mapping[str, str], name: str) -> int:
    text = required(environ, name)
    try:
        return int(text)
    except ValueError:
        raise RankEnvironmentError(f"{name}={text!r} is not an integer") from None
