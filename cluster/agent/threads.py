"""Work in threads that every caller waits for."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def finish(function: Callable[..., T], *args: object) -> T:
    """Call it in a thread and be there until it returns, even when cancelled meanwhile.

    A thread can't be ended from outside: a caller cancelled at once would release its locks and
    remove its files while the thread still writes.
    """
    # A future rather than a task: cancelling all tasks does not reach it.
    work = asyncio.get_running_loop().run_in_executor(None, function, *args)
    cancelled = False
    while not work.done():
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        work.exception()  # retrieved: the caller sees the cancellation
        raise asyncio.CancelledError
    return work.result()
