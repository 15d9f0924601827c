"""Background tasks: the end of one ends the process, unless it was requested."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from trainhall.cluster.background_tasks import BackgroundTasks


class Ended:
    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.event = asyncio.Event()

    def __call__(self, name: str, error: BaseException | None) -> None:
        self.calls.append((name, repr(error)))
        self.event.set()


async def forever() -> None:
    await asyncio.Event().wait()


async def failing() -> None:
    raise ValueError("broken")


async def awaiting_a_cancelled_future() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


@pytest.mark.parametrize(
    ("work", "error"),
    [(failing, "ValueError('broken')"), (awaiting_a_cancelled_future, "None")],
)
async def test_task_that_ends_by_itself_is_fatal(
    work: Callable[[], Coroutine[Any, Any, None]], error: str
) -> None:
    ended = Ended()
    tasks = BackgroundTasks(ended)
    tasks.start("work", work())
    async with asyncio.timeout(10):
        await ended.event.wait()
    assert ended.calls == [("work", error)]
    await tasks.stop()


async def test_requested_end_is_not_fatal() -> None:
    ended = Ended()
    tasks = BackgroundTasks(ended)
    tasks.start("work", forever())
    await tasks.stop()
    assert ended.calls == []


def test_end_of_the_loop_is_not_fatal() -> None:
    ended = Ended()

    async def run() -> None:
        BackgroundTasks(ended).start("work", forever())
        await asyncio.sleep(0)

    asyncio.run(run())
    assert ended.calls == []
