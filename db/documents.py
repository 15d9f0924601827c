"""The JSON columns of attempts as values: what stands in each is parsed here and nowhere else.

A value that another version stored is read as far as it is understood: unknown keys are dropped,
missing ones have their defaults.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, Self, TypeVar

from sqlalchemy import JSON, Dialect
from sqlalchemy.types import TypeDecorator

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RankPlacement:
    rank: int
    local_rank: int
    device_kind: str
    """cpu or cuda."""
    device_index: int

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> Self:
        rank = stored.get("rank", 0)
        index = stored.get("device_index", 0)
        return cls(rank, stored.get("local_rank", 0), stored.get("device_kind", "cpu"), index)

    def as_json(self) -> dict[str, Any]:
        return {
            "rank": self.rank,
            "local_rank": self.local_rank,
            "device_kind": self.device_kind,
            "device_index": self.device_index,
        }


@dataclass(frozen=True, slots=True)
class HostAllocation:
    node_id: str
    node_name: str
    node_rank: int
    ranks: tuple[RankPlacement, ...]

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> Self:
        node_id = stored.get("node_id", "")
        name, node_rank = stored.get("node_name", node_id), stored.get("node_rank", 0)
        return cls(
            node_id, name, node_rank, tuple(map(RankPlacement.parse, stored.get("ranks", ())))
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "node_id": self.node_id,
            "node_name": self.node_name,
            "node_rank": self.node_rank,
            "ranks": [rank.as_json() for rank in self.ranks],
        }


class Allocation(tuple[HostAllocation, ...]):
    """The hosts of an attempt, in the order of their node ranks."""

    __slots__ = ()

    @classmethod
    def parse(cls, stored: Iterable[Mapping[str, Any]]) -> Self:
        return cls(map(HostAllocation.parse, stored))

    def as_json(self) -> list[dict[str, Any]]:
        return [host.as_json() for host in self]

    @property
    def world_size(self) -> int:
        return sum(len(host.ranks) for host in self)

    @property
    def device_kind(self) -> str:
        """Kind of all its devices: cpu or cuda."""
        return next((rank.device_kind for host in self for rank in host.ranks), "cpu")

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

    def host(self, node_id: str) -> HostAllocation | None:
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

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> Self:
        allocation = Allocation.parse(stored.get("allocation", ()))
        return cls(
            generation=stored.get("generation", 1),
            time=datetime.fromisoformat(stored["time"]) if "time" in stored else _EPOCH,
            reason=stored.get("reason", ""),
            world_size=stored.get("world_size", allocation.world_size),
            allocation=allocation,
            reason_code=stored.get("reason_code", ""),
            failure=stored.get("failure"),
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "generation": self.generation,
            "time": self.time.isoformat(),
            "reason": self.reason,
            "reason_code": self.reason_code,
            "world_size": self.world_size,
            "allocation": self.allocation.as_json(),
            "failure": self.failure,
        }


_EPOCH = datetime.fromtimestamp(0, UTC)


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

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> Self:
        names = ("loaded", "stepped", "step", "restart_step", "since")
        return cls(*(stored.get(name) for name in names))

    def as_json(self) -> dict[str, Any]:
        values = {
            "loaded": self.loaded,
            "stepped": self.stepped,
            "step": self.step,
            "restart_step": self.restart_step,
            "since": self.since,
        }
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class UnrecordedCheckpoints:
    """Checkpoints that an earlier attempt may have committed without anybody reporting them."""

    attempt: int
    generation: int
    after_step: int
    """The last step of it that is known; -1: none is."""

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> Self:
        step = stored.get("after_step", -1)
        return cls(stored.get("attempt", 0), stored.get("generation", 0), step)

    def as_json(self) -> dict[str, Any]:
        step = self.after_step
        return {"attempt": self.attempt, "generation": self.generation, "after_step": step}


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

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> Self:
        unrecorded = stored.get("unrecorded")
        return cls(
            folder=stored.get("folder"),
            upload=stored.get("upload", True),
            resume=tuple(stored.get("resume", ())),
            unrecorded=UnrecordedCheckpoints.parse(unrecorded) if unrecorded else None,
        )

    def as_json(self) -> dict[str, Any]:
        unrecorded = self.unrecorded.as_json() if self.unrecorded is not None else None
        return {
            "folder": self.folder,
            "upload": self.upload,
            "resume": list(self.resume),
            "unrecorded": unrecorded,
        }


def parse_generations(stored: Iterable[Mapping[str, Any]]) -> tuple[GenerationRecord, ...]:
    return tuple(map(GenerationRecord.parse, stored))


def dump_generations(generations: Iterable[GenerationRecord]) -> list[dict[str, Any]]:
    return [each.as_json() for each in generations]


def parse_starts(stored: Mapping[str, Mapping[str, Any]]) -> dict[int, GenerationStart]:
    return {int(number): GenerationStart.parse(each) for number, each in stored.items()}


def dump_starts(starts: Mapping[int, GenerationStart]) -> dict[str, Any]:
    return {str(number): each.as_json() for number, each in starts.items()}


class Document(TypeDecorator[T], Generic[T]):
    """A JSON column that is read as a value. To change it, assign another value.

    Args:
        parse: makes the value of what is stored.
        dump: makes JSON of the value.
    """

    impl = JSON
    cache_ok = True

    def __init__(self, parse: Callable[[Any], T], dump: Callable[[T], Any]) -> None:
        super().__init__()
        self.parse = parse
        self.dump = dump

    def process_bind_param(self, value: T | None, dialect: Dialect) -> Any:
        return None if value is None else self.dump(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> T | None:
        return None if value is None else self.parse(value)
