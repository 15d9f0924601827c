"""Batching: what is submitted while one batch is under way shares the next."""

import asyncio
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


@dataclass
class _Waiting(Generic[T, R]):
    item: T
    size: int
    result: "asyncio.Future[R]"


class Batcher(Generic[T, R]):
    """Hands items to `work` in batches, one at a time.

    Args:
        work: handles a batch, and returns the result or the error of each item, in order. What it
            raises is the error of everything that waits.
        max_bytes: a batch has one item, and more as long as it holds no more than this.
        max_items: the most items of a batch.
    """

    def __init__(
        self,
        work: Callable[[Sequence[T]], Awaitable[Sequence[R | Exception]]],
        *,
        max_bytes: int,
        max_items: int = sys.maxsize,
    ) -> None:
        self._work = work
        self._max_bytes = max_bytes
        self._max_items = max_items
        self._waiting: deque[_Waiting[T, R]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def submit(self, item: T, size: int) -> R:
        """Return the result of an item of `size` bytes, or raise its error."""
        waiting = _Waiting[T, R](item, size, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._task is None:
            # It begins once all that is submitted in this turn of the loop is there.
            self._task = asyncio.create_task(self._run(), name="batches")
        return await waiting.result

    async def close(self) -> None:
        """Cancel the batch that is under way, and every waiter."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._cancel(self._waiting)  # where the task had not begun
            self._task = None

    async def _run(self) -> None:
        batch: list[_Waiting[T, R]] = []
        try:
            while batch := self._next_batch():
                results = await self._work([waiting.item for waiting in batch])
                for waiting, result in zip(batch, results, strict=True):
                    _settle(waiting, result)
        except Exception as error:
            self._settle_all(batch, error)
        except BaseException:
            self._cancel([*batch, *self._waiting])
            raise
        finally:
            self._task = None

    def _next_batch(self) -> list[_Waiting[T, R]]:
        batch: list[_Waiting[T, R]] = []
        left = self._max_bytes
        while self._waiting and len(batch) < self._max_items:
            if self._waiting[0].result.done():  # its submitter has left
                self._waiting.popleft()
                continue
            left -= self._waiting[0].size
            if batch and left < 0:
                break
            batch.append(self._waiting.popleft())
        return batch

    def _cancel(self, waiting: Iterable[_Waiting[T, R]]) -> None:
        for each in waiting:
            each.result.cancel()
        self._waiting.clear()

    def _settle_all(self, batch: Sequence[_Waiting[T, R]], error: Exception) -> None:
        for waiting in (*batch, *self._waiting):
            _settle(waiting, error)
        self._waiting.clear()


def _settle(waiting: _Waiting[T, R], result: R | Exception) -> None:
    if waiting.result.done():
        return
    if isinstance(result, Exception):
        waiting.result.set_exception(result)
    else:
        waiting.result.set_result(result)
