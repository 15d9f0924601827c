"""Work on the database that outlives the cancellation of whoever asked for it."""

import asyncio

import pytest

from trainhall.db.database import run_to_end


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


async def test_result_and_error_are_the_work_s() -> None:
    async def work() -> int:
        return 3

    async def failing() -> None:
        raise ValueError("broken")

    assert await run_to_end(work()) == 3
    with pytest.raises(ValueError, match="broken"):
        await run_to_end(failing())
