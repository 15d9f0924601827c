"""Named background tasks with a monitor: when one of them dies, the process ends."""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from trainhall.cluster.waiting import end_tasks

log = structlog.get_logger(__name__)


def end_process(name: str, error: BaseException | None) -> None:
    """Ask the own process to end. A coordinator that only half works would be worse than none."""
    os.kill(os.getpid(), signal.SIGTERM)


class BackgroundTasks:
    def __init__(self, on_fatal: Callable[[str, BaseException | None], None]) -> None:
        self._on_fatal = on_fatal
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Cancel all of them and wait until they have ended."""
        self._stopping = True
        await end_tasks(self._tasks)
        self._tasks.clear()

    def _ended(self, task: asyncio.Task[None]) -> None:
        # A second signal ends the loop, and with it its tasks, before `stop`.
        if self._stopping or task.cancelling():
            return
        error = None if task.cancelled() else task.exception()
        log.critical(
            "background_task_ended",
            task=task.get_name(),
            error=repr(error),
            exc_info=error,
        )
        self._on_fatal(task.get_name(), error)
