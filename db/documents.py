"""The JSON columns of attempts as values.

A value that another version stored is read as far as it is understood: unknown keys are dropped,
missing ones have their defaults.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from pydantic import GetCoreSchemaHandler, TypeAdapter
from pydantic_core import core_schema, to_jsonable_python
from sqlalchemy import JSON, Dialect
from sqlalchemy.types import TypeDecorator

from trainhall.db.views import VALUE
from trainhall.documented import Documented

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RankPlacement(Documented):
    """Rank of an attempt and its device."""

    __pydantic_config__ = VALUE
    rank: int
    local_rank: int = 0
    device_kind: str = "cpu"
    """`cpu` or `cuda`."""
    device_index: int = 0


@dataclass(frozen=True, slots=True)
class NodeAllocation(Documented):
    """Devices of one node that are granted to an attempt."""

    __pydantic_config__ = VALUE
    node_id: str = ""
    node_name: str = ""
    node_rank: int = 0
    ranks: tuple[RankPlacement, ...] = ()


class Allocation(tuple[NodeAllocation, ...]):
    """Hosts of an attempt, in the order of their node ranks."""

    __slots__ = ()

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        hosts = handler.generate_schema(tuple[NodeAllocation, ...])
        return core_schema.no_info_after_validator_function(cls, hosts)

    @property
    def world_size(self) -> int:
        return sum(len(host.ranks) for host in self)

    @property
    def device_kind(self) -> str:
        """Kind of all its devices: cpu or cuda."""
        return next((rank.device_kind for host in self for rank in host.ranks), "cpu")

    @property
    def gpus(self) -> int:
        return len(self.devices) if self.device_kind == "cuda" else 0

    @property
    def devices(self) -> frozenset[tuple[str, int]]:
        """Return the devices, each by node id and index."""
        return frozenset((host.node_id, rank.device_index) for host in self for rank in host.ranks)

    @property
    def node_ids(self) -> list[str]:
        return [host.node_id for host in self]

    @property
    def node_names(self) -> list[str]:
        return [host.node_name for host in self]

    def host(self, node_id: str) -> NodeAllocation | None:
        return next((host for host in self if host.node_id == node_id), None)


@dataclass(frozen=True, slots=True)
class GenerationRecord:
    """One generation of an attempt."""

    generation: int
    time: datetime
    """When it was decided."""
    reason: str
    world_size: int
    allocation: Allocation
    failure: dict[str, Any] | None = None
    """The failure that it was regrouped after, as `trainhall.training.link.failure` writes it."""
    reason_code: str = ""


@dataclass(frozen=True, slots=True)
class GenerationStart:
    """The first step of a generation. Times are seconds since the epoch."""

    loaded: float | None = None
    """When its ranks had their state."""
    stepped: float | None = None
    """When they had taken their first step."""
    step: int | None = None
    """The first step; None: none was taken yet."""
    restart_step: int | None = None
    """The step from which it resumed, from a checkpoint; None: its ranks kept their state."""
    since: int | None = None
    """With `restart_step`: the earliest generation in which one of its processes began."""


@dataclass(frozen=True, slots=True)
class UnrecordedCheckpoints:
    """Checkpoints that an earlier attempt may have committed without anybody reporting them."""

    attempt: int
    generation: int
    after_step: int
    """The last step of it that is known; -1: none is."""


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """Folder of an attempt's checkpoints, and the checkpoints that it may start from."""

    folder: str | None = None
    """The job's folder on shared storage; None: each host has a folder of its own."""
    upload: bool = True
    """Agents upload what is committed to the coordinator's store."""
    resume: tuple[str, ...] = ()
    """Names of the checkpoints to start from, best first."""
    unrecorded: UnrecordedCheckpoints | None = None
    """Better checkpoints that may be in the folder."""


class Document(TypeDecorator[T], Generic[T]):
    """JSON column that is read as a value. To change it, assign another value.

    Args:
        kind: type of the value.
    """

    impl = JSON
    cache_ok = True

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.kind = kind
        self._values: TypeAdapter[T] = TypeAdapter(kind)

    def process_bind_param(self, value: T | None, dialect: Dialect) -> Any:
        return None if value is None else to_jsonable_python(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> T | None:
        return None if value is None else self._values.validate_python(value)
