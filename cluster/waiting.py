"""Waiting for events and tasks, so that no cancellation is lost and no task is left behind."""

import asyncio
import contextlib
from collections.abc import Collection, Coroutine
from typing import Any


async def wait_until_set(event: asyncio.Event, seconds: float | None) -> None:
    """Wait until the event is set, or so many seconds have passed; None: without a limit."""
    # Not `wait_for`, which on Python 3.11 may swallow a cancellation that races the event.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def run_until_one_ends(*work: Coroutine[Any, Any, None]) -> None:
    """Run side by side; the first to end ends all, and what it raised is raised here."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await end_tasks(tasks)


async def end_tasks(tasks: Collection[asyncio.Future[Any]]) -> None:
    """Cancel tasks and wait until they have ended, whatever they raise."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
