"""Device history: one sample of each device every half minute, kept for two days.

The coordinator receives device readings every second or two. Those of `SECONDS` become one row a
node: mean utilisation and power, largest memory and temperature of each device.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from sqlalchemy import Connection, delete, insert, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.db.database import Database
from trainhall.db.models import DeviceReading, Node
from trainhall.db.views import VALUE, Time
from trainhall.documented import Documented

SECONDS = 30.0
KEPT = timedelta(days=2)


class Use(Protocol):
    """Current use of a device; None where the host cannot measure it."""

    @property
    def index(self) -> int: ...
    @property
    def utilization(self) -> float | None: ...
    @property
    def memory_used(self) -> int | None: ...
    @property
    def temperature(self) -> float | None: ...
    @property
    def power(self) -> float | None: ...


@dataclass(frozen=True, slots=True)
class DevicePoint(Documented):
    """Use of a device in the interval up to `time`."""

    __pydantic_config__ = VALUE
    time: Time
    utilization: float | None
    """Mean, 0 to 100."""
    memory_used: int | None
    """Largest, bytes."""
    temperature: float | None
    """Largest, degrees Celsius."""
    power: float | None
    """Mean, watts."""


@dataclass(frozen=True, slots=True)
class DeviceHistory(Documented):
    """Use of one device of a node."""

    __pydantic_config__ = VALUE
    index: int
    points: list[DevicePoint]
    """Oldest first."""


@dataclass
class _Window:
    since: datetime
    uses: dict[int, list[Use]] = field(default_factory=dict)


class DeviceRecorder:
    """Gathers readings, and stores them when there is half a minute of them."""

    def __init__(self) -> None:
        self._windows: dict[str, _Window] = {}

    async def record(
        self, session: AsyncSession, now: datetime, readings: Iterable[tuple[str, Use]]
    ) -> None:
        """Take what devices do right now, as pairs of a node's id and a device's use."""
        for node_id, use in readings:
            window = self._windows.setdefault(node_id, _Window(now))
            window.uses.setdefault(use.index, []).append(use)
        due = [
            node_id
            for node_id, window in self._windows.items()
            # The time of day may be set back, and not come again for hours.
            if not 0 <= (now - window.since).total_seconds() < SECONDS
        ]
        if not due:
            return
        known = set(await session.scalars(select(Node.id).where(Node.id.in_(due))))
        rows = []
        for node_id in due:
            window = self._windows.pop(node_id)
            if node_id in known:
                devices = [_summed(index, uses) for index, uses in sorted(window.uses.items())]
                rows.append({"node_id": node_id, "time": now, "devices": devices})
        if rows:
            await session.execute(insert(DeviceReading), rows)


def _summed(index: int, uses: Sequence[Use]) -> list[float | int | None]:
    return [
        index,
        _mean([use.utilization for use in uses]),
        _largest([use.memory_used for use in uses]),
        _largest([use.temperature for use in uses]),
        _mean([use.power for use in uses]),
    ]


async def forget(session: AsyncSession, now: datetime) -> None:
    """Remove what is too old."""
    await session.execute(delete(DeviceReading).where(DeviceReading.time < now - KEPT))


async def read_history(
    database: Database, node_id: str, since: datetime, until: datetime, max_points: int
) -> list[DeviceHistory]:
    """Return the history of a node's devices, each with at most `max_points` points."""

    def read(connection: Connection) -> Sequence[Any]:
        return connection.execute(
            select(DeviceReading.time, DeviceReading.devices)
            .where(
                DeviceReading.node_id == node_id,
                DeviceReading.time >= since,
                DeviceReading.time <= until,
            )
            .order_by(DeviceReading.time)
        ).all()

    rows = await database.read(read)
    points: dict[int, list[DevicePoint]] = {}
    size = max(1, -(-len(rows) // max_points))
    for start in range(0, len(rows), size):
        group = rows[start : start + size]
        found: dict[int, list[list[Any]]] = {}
        for _, devices in group:
            for index, *numbers in devices:
                found.setdefault(index, []).append(numbers)
        for index, numbers in found.items():
            utilization, memory, temperature, power = zip(*numbers, strict=True)
            points.setdefault(index, []).append(
                DevicePoint(
                    time=group[-1].time,
                    utilization=_mean(utilization),
                    memory_used=_largest(memory),
                    temperature=_largest(temperature),
                    power=_mean(power),
                )
            )
    return [DeviceHistory(index, own) for index, own in sorted(points.items())]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 2) if known else None


def _largest(values: Sequence[Any]) -> Any:
    return max((value for value in values if value is not None), default=None)
