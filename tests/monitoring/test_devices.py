"""What devices did: gathered for half a minute, stored, read in fewer points, forgotten."""

from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest
from sqlalchemy import delete, func, select
from support.storage.frames import NOW

from trainhall.db.database import Database
from trainhall.db.models import DeviceReading, Node
from trainhall.monitoring.devices import (
    KEPT,
    SECONDS,
    DeviceHistory,
    DevicePoint,
    DeviceRecorder,
    forget,
    read_history,
)


@dataclass(frozen=True)
class Use:
    index: int
    utilization: float | None = None
    memory_used: int | None = None
    temperature: float | None = None
    power: float | None = None


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


@pytest.fixture
async def nodes(database: Database) -> list[str]:
    names = ["a", "b"]
    async with database.transaction() as session:
        for name in names:
            session.add(
                Node(
                    id=name,
                    name=name,
                    state="ready",
                    reason="",
                    address="",
                    created_at=NOW,
                    state_at=NOW,
                )
            )
    return names


async def record(database: Database, recorder: DeviceRecorder, second: float, *uses: Use) -> None:
    async with database.transaction() as session:
        await recorder.record(session, at(second), [("a", use) for use in uses])


async def history(database: Database, points: int = 100, since: float = 0) -> list[DeviceHistory]:
    return await read_history(database, "a", at(since), at(1e6), points)


async def test_half_a_minute_becomes_one_point(database: Database, nodes: list[str]) -> None:
    recorder = DeviceRecorder()
    for second in range(int(SECONDS)):
        use = Use(0, 100.0 * (second % 2), 1000 + second, 50.0 + second % 7, 300.0)
        await record(database, recorder, second, use, Use(1))
    assert await history(database) == []
    await record(database, recorder, SECONDS, Use(0, 0.0, 1, 1.0, 300.0), Use(1))
    (first, other) = await history(database)
    assert first.index == 0
    assert first.points == [DevicePoint(at(SECONDS), 48.39, 1029, 56.0, 300.0)]
    assert other.points == [DevicePoint(at(SECONDS), None, None, None, None)]


async def test_clock_that_is_set_back_ends_the_interval(
    database: Database, nodes: list[str]
) -> None:
    recorder = DeviceRecorder()
    await record(database, recorder, 7200, Use(0, 20.0))
    await record(database, recorder, 3600, Use(0, 40.0))
    (device,) = await history(database)
    assert [(point.time, point.utilization) for point in device.points] == [(at(3600), 30.0)]


async def test_device_history_keeps_peaks_when_thinned(
    database: Database, nodes: list[str]
) -> None:
    async with database.transaction() as session:
        for i in range(100):
            peak = 90.0 if i == 37 else 50.0
            session.add(
                DeviceReading(
                    node_id="a", time=at(i * SECONDS), devices=[[0, float(i), i, peak, None]]
                )
            )
    (device,) = await history(database, points=10)
    assert len(device.points) == 10
    assert device.points[0] == DevicePoint(at(9 * SECONDS), 4.5, 9, 50.0, None)
    assert max(point.temperature or 0 for point in device.points) == 90.0
    (late,) = await history(database, since=95 * SECONDS)
    assert [point.memory_used for point in late.points] == [95, 96, 97, 98, 99]
    assert await read_history(database, "b", at(0), at(1e6), 10) == []


async def test_node_that_went_takes_its_history_along(database: Database, nodes: list[str]) -> None:
    recorder = DeviceRecorder()
    await record(database, recorder, 0, Use(0, 1.0))
    async with database.transaction() as session:
        await session.execute(delete(Node).where(Node.id == "a"))
    await record(database, recorder, SECONDS, Use(0, 1.0))
    assert await history(database) == []


async def test_device_history_deletes_old_readings(database: Database, nodes: list[str]) -> None:
    async with database.transaction() as session:
        session.add(DeviceReading(node_id="a", time=NOW, devices=[]))
        session.add(DeviceReading(node_id="b", time=NOW + KEPT, devices=[]))
    async with database.transaction() as session:
        await forget(session, NOW + KEPT + timedelta(seconds=1))
        assert await session.scalar(select(func.count()).select_from(DeviceReading)) == 1
