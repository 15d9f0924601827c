"""Work on the database whose task is cancelled: its connection is returned."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import event, text

from trainhall.db.database import Database, run_to_end


@pytest.mark.parametrize("kind", ["session", "transaction"])
@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)  # SQLite has one writer
async def test_connection_returns_when_its_task_is_cancelled(database: Database, kind: str) -> None:
    pool = database._reader.pool if kind == "session" else database._writer.pool
    opened, returned = 0, 0

    # A new connection waits once more before it belongs to a session.
    @event.listens_for(pool, "checkout")
    def cancel(*_: Any) -> None:
        nonlocal opened
        opened += 1
        asyncio.get_running_loop().call_soon(task.cancel)

    @event.listens_for(pool, "checkin")
    def count(*_: Any) -> None:
        nonlocal returned
        returned += 1

    async def work() -> None:
        async with getattr(database, kind)() as session:
            await session.execute(text("SELECT 1"))

    task: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    async with getattr(database, kind)() as session:
        await session.execute(text("SELECT 1"))
        task = asyncio.create_task(work())
        await asyncio.wait([task])
        assert task.cancelled()
        assert opened == 2
        assert returned == 1


async def test_each_cancellation_waits_for_the_work() -> None:
    released, ended = asyncio.Event(), False

    async def work() -> None:
        nonlocal ended
        await released.wait()
        ended = True

    caller = asyncio.create_task(run_to_end(work()))
    for _ in range(3):
        await asyncio.sleep(0)
        caller.cancel()
    await asyncio.sleep(0)
    assert not caller.done()
    released.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended


async def test_caller_gets_the_result_or_the_error() -> None:
    async def work() -> int:
        return 3

    async def failing() -> None:
        raise ValueError("broken")

    assert await run_to_end(work()) == 3
    with pytest.raises(ValueError, match="broken"):
        await run_to_end(failing())
