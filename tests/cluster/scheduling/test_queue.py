"""The queue page by page, while jobs come and go."""

import pytest
from support.cluster.simulated import SimulatedCluster

from trainhall.cluster import pagination
from trainhall.cluster.errors import InvalidCursorError


async def test_queue_pages_skip_no_job_between_pages(cluster: SimulatedCluster) -> None:
    queue = cluster.coordinator.queue
    ids = [await cluster.submit(workers=1) for _ in range(5)]
    last = await cluster.submit(workers=1, priority=-1)
    first = await queue.list(limit=2)
    assert ([e.job_id for e in first.items], first.total) == (ids[:2], 6)
    assert first.next_cursor is not None
    # The head of the queue starts, and so does one of the next page.
    for job in ids[:3]:
        await cluster.coordinator.jobs.cancel(job)
    second = await queue.list(limit=2, cursor=first.next_cursor)
    assert ([e.job_id for e in second.items], second.total) == (ids[3:], 3)
    third = await queue.list(limit=2, cursor=second.next_cursor)
    assert ([e.job_id for e in third.items], third.next_cursor) == ([last], None)
    assert [e.position for e in (*second.items, *third.items)] == [1, 2, 3]


async def test_queue_finds_a_job_on_any_page(cluster: SimulatedCluster) -> None:
    ids = [await cluster.submit(workers=1) for _ in range(3)]
    page = await cluster.coordinator.queue.list(limit=1, job_id=ids[2])
    (entry,) = page.items
    assert (entry.job_id, entry.position, page.total, page.next_cursor) == (ids[2], 3, 3, None)
    missing = await cluster.coordinator.queue.list(job_id="nosuchjob")
    assert (missing.items, missing.total) == ([], 3)


async def test_queue_entry_shows_whether_start_is_possible(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", slots=2)
    running = await cluster.submit(workers=2)
    await cluster.run_until(running, "running")
    waits, too_large = await cluster.submit(workers=2), await cluster.submit(workers=4)
    page = await cluster.coordinator.queue.list()
    assert [(e.job_id, e.can_start) for e in page.items] == [(waits, True), (too_large, False)]


async def test_queue_expects_starts_from_completed_jobs(cluster: SimulatedCluster) -> None:
    await cluster.add_node("alpha", slots=1)
    first = await cluster.submit(name="gpt")
    await cluster.run_until(first, "running")
    await cluster.heartbeat(600)
    await cluster.finish(first)
    running = await cluster.submit(name="gpt")
    await cluster.run_until(running, "running")
    began = cluster.clock.now()
    waits = await cluster.submit()
    (entry,) = (await cluster.coordinator.queue.list()).items
    assert entry.job_id == waits
    assert entry.earliest_start is not None
    assert 590 < (entry.earliest_start - began).total_seconds() < 620


@pytest.mark.parametrize("position", [("x", "0", 1), ("1.0", "zero", 1)])
async def test_cursor_that_holds_no_place_is_refused(
    cluster: SimulatedCluster, position: tuple[str, str, int]
) -> None:
    with pytest.raises(InvalidCursorError):
        await cluster.coordinator.queue.list(cursor=pagination.encode("queue", *position))
