"""What a launcher tells a rank: torchrun's environment variables, read once and checked."""

from collections.abc import Mapping
from dataclasses import dataclass


class BadEnvironment(RuntimeError):
    """The process was not started as a rank."""


@dataclass(frozen=True, kw_only=True)
class RankEnvironment:
    """The names and meaning of `torchrun`'s variables of the same names."""

    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    master_addr: str
    master_port: int

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> "RankEnvironment":
        """Read the environment of a rank.

        Raises:
            BadEnvironment: naming the variable that is missing or no number.
        """
        found = cls(
            rank=_number(environ, "RANK"),
            local_rank=_number(environ, "LOCAL_RANK"),
            world_size=_number(environ, "WORLD_SIZE"),
            local_world_size=_number(environ, "LOCAL_WORLD_SIZE"),
            master_addr=required(environ, "MASTER_ADDR"),
            master_port=_number(environ, "MASTER_PORT"),
        )
        if not 0 <= found.rank < found.world_size:
            raise BadEnvironment(
                f"RANK={found.rank} must lie between 0 and WORLD_SIZE={found.world_size} - 1"
            )
        return found


def required(environ: Mapping[str, str], name: str) -> str:
    """The value of a variable that every rank has.

    Raises:
        BadEnvironment: it is not set.
    """
    value = environ.get(name)
    if not value:
        raise BadEnvironment(
            f"{name} is not set: ranks are started by Trainhall's shim (or another launcher that "
            "sets torchrun's variables), not by hand"
        )
    return value


def _number(environ: Mapping[str, str], name: str) -> int:
    text = required(environ, name)
    try:
        return int(text)
    except ValueError:
        raise BadEnvironment(f"{name}={text!r} is no whole number") from None
