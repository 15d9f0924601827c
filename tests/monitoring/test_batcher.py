"""Items that share batches, on a worker that a test holds."""

import asyncio
from collections.abc import Sequence

import pytest

from trainhall.monitoring.batcher import Batcher


class Worker:
    """Doubles numbers once it may; 0 is refused, and 13 fails its whole batch."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.may_continue = asyncio.Event()

    async def work(self, batch: Sequence[int]) -> Sequence[int | Exception]:
        self.batches.append([*batch])
        await self.may_continue.wait()
        if 13 in batch:
            raise OSError("no more")
        return [2 * n or ValueError("nothing") for n in batch]


@pytest.fixture
def worker() -> Worker:
    return Worker()


@pytest.fixture
def batcher(worker: Worker) -> Batcher[int, int]:
    return Batcher(worker.work, max_bytes=10, max_items=4)


async def submitted(
    batcher: Batcher[int, int], numbers: Sequence[int], size: int = 1
) -> list["asyncio.Task[int]"]:
    tasks = [asyncio.create_task(batcher.submit(number, size)) for number in numbers]
    for _ in range(3):
        await asyncio.sleep(0)
    return tasks


async def test_batcher_shares_the_next_batch(batcher: Batcher[int, int], worker: Worker) -> None:
    first = await submitted(batcher, [1, 2])
    later = await submitted(batcher, [3, 4, 5, 6, 7])
    worker.may_continue.set()
    assert await asyncio.gather(*first, *later) == [2, 4, 6, 8, 10, 12, 14]
    assert worker.batches == [[1, 2], [3, 4, 5, 6], [7]]


async def test_batcher_bounds_the_bytes_of_a_batch(
    batcher: Batcher[int, int], worker: Worker
) -> None:
    worker.may_continue.set()
    tasks = [*await submitted(batcher, [1], size=99), *await submitted(batcher, [2, 3], size=6)]
    assert await asyncio.gather(*tasks) == [2, 4, 6]
    assert worker.batches == [[1], [2], [3]]


async def test_batcher_raises_an_items_error_to_its_sender(
    batcher: Batcher[int, int], worker: Worker
) -> None:
    worker.may_continue.set()
    results = await asyncio.gather(*await submitted(batcher, [1, 0, 2]), return_exceptions=True)
    assert [results[0], results[2]] == [2, 4]
    assert isinstance(results[1], ValueError)


async def test_batcher_fails_waiting_items_and_continues(
    batcher: Batcher[int, int], worker: Worker
) -> None:
    tasks = [*await submitted(batcher, [13]), *await submitted(batcher, [1])]
    worker.may_continue.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [OSError, OSError]
    assert worker.batches == [[13]]
    assert await batcher.submit(2, 1) == 4


async def test_batcher_skips_cancelled_senders(batcher: Batcher[int, int], worker: Worker) -> None:
    under_way, *waiting = [*await submitted(batcher, [1]), *await submitted(batcher, [2, 3])]
    under_way.cancel()
    waiting[0].cancel()
    await asyncio.sleep(0)
    worker.may_continue.set()
    assert await waiting[1] == 6
    assert worker.batches == [[1], [3]]


async def test_batcher_close_cancels_waiting_senders(
    batcher: Batcher[int, int], worker: Worker
) -> None:
    tasks = [*await submitted(batcher, [1]), *await submitted(batcher, [2])]
    await batcher.close()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [asyncio.CancelledError] * 2
    worker.may_continue.set()
    assert await batcher.submit(3, 1) == 6
    await batcher.close()


async def test_batcher_close_cancels_before_the_first_batch(batcher: Batcher[int, int]) -> None:
    task = asyncio.create_task(batcher.submit(1, 1))
    await asyncio.sleep(0)
    await batcher.close()
    with pytest.raises(asyncio.CancelledError):
        await task
