"""Positions of waiting jobs over time, on both databases."""

import itertools
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, delete, insert
from sqlalchemy.exc import OperationalError
from support.cluster.simulated import SimulatedCluster
from support.database import on_sqlite

from trainhall.cluster.errors import NotFoundError
from trainhall.cluster.queue.history import MOST_ROWS, MOST_SHOWN, Span, thinned_out
from trainhall.db.models import Job, QueuePosition


async def sample(cluster: SimulatedCluster, seconds: float = 60.0) -> None:
    cluster.clock.advance(seconds)
    await cluster.coordinator.queue_history.sample()


async def spans(cluster: SimulatedCluster, job_id: str) -> list[tuple[int, float | None]]:
    """Positions of a job, each with the seconds that it had it."""
    found = await cluster.coordinator.queue_history.of_job(job_id)
    return [
        (each.position, (each.until - each.since).total_seconds() if each.until else None)
        for each in found.items
    ]


async def test_position_is_stored_when_it_changes(cluster: SimulatedCluster) -> None:
    jobs = [await cluster.submit() for _ in range(3)]
    for _ in range(2):
        await sample(cluster)
    await cluster.coordinator.jobs.cancel(jobs[0])
    await sample(cluster)
    assert [await spans(cluster, job_id) for job_id in jobs] == [
        [(1, 120)], [(2, 120), (1, None)], [(3, 120), (2, None)],
    ]  # fmt: skip
    (entry, _) = (await cluster.coordinator.queue.list(history=True)).items
    assert entry.history == (await cluster.coordinator.queue_history.of_job(jobs[1])).items
    (entry, _) = (await cluster.coordinator.queue.list()).items
    assert entry.history is None


async def test_changed_positions_are_read_alone(cluster: SimulatedCluster) -> None:
    jobs = [await cluster.submit() for _ in range(3)]
    await sample(cluster)
    await cluster.coordinator.jobs.cancel(jobs[1])
    await sample(cluster)
    now = cluster.clock.now()
    queue = cluster.coordinator.queue
    found = (await queue.list(history=True, history_since=now)).items
    changed = [[(e.position, e.until) for e in entry.history or ()] for entry in found]
    assert changed == [[], [(3, now), (2, None)]]
    later = (await queue.list(history=True, history_since=now + timedelta(seconds=1))).items
    assert [entry.history for entry in later] == [[], []]


async def test_job_that_returns_to_the_queue_has_a_gap(cluster: SimulatedCluster) -> None:
    job_id = await cluster.submit()
    await sample(cluster)
    await cluster.coordinator.jobs.pause(job_id)
    await sample(cluster)
    await cluster.coordinator.jobs.resume(job_id)
    await sample(cluster)
    (before, after) = (await cluster.coordinator.queue_history.of_job(job_id)).items
    assert before.until == after.since - timedelta(seconds=60)


@on_sqlite
async def test_far_back_only_larger_moves_are_stored(cluster: SimulatedCluster) -> None:
    jobs = [await cluster.submit() for _ in range(12)]
    await sample(cluster)
    for job_id in jobs[:2]:
        await cluster.coordinator.jobs.cancel(job_id)
        await sample(cluster)
    assert await spans(cluster, jobs[9]) == [(10, 60), (9, 60), (8, None)]
    assert await spans(cluster, jobs[11]) == [(12, 120), (10, None)]


async def test_restarted_coordinator_continues_positions(cluster: SimulatedCluster) -> None:
    jobs = [await cluster.submit() for _ in range(2)]
    await sample(cluster)
    await cluster.stop_coordinator()
    cluster.start_coordinator()
    await sample(cluster)
    assert await spans(cluster, jobs[1]) == [(2, None)]
    await cluster.coordinator.jobs.cancel(jobs[0])
    await sample(cluster)
    assert await spans(cluster, jobs[1]) == [(2, 120), (1, None)]


async def add_rows(cluster: SimulatedCluster, job_id: str, *, gap: float) -> datetime:
    """Add as many rows as a job may have, each of one second; without a gap between them the last
    one has no end. Returns when they begin."""
    start = cluster.clock.now() - timedelta(seconds=MOST_ROWS * (1 + gap))
    begins = [start + timedelta(seconds=number * (1 + gap)) for number in range(MOST_ROWS)]
    rows: list[dict[str, Any]] = [
        {"job_id": job_id, "since": each, "until": each + timedelta(seconds=1), "position": 9}
        for each in begins
    ]
    if gap == 0:
        rows[-1]["until"] = None
    async with cluster.db.transaction() as session:
        await session.execute(insert(QueuePosition), rows)
    return start


async def test_older_positions_are_joined(cluster: SimulatedCluster) -> None:
    jobs = [await cluster.submit() for _ in range(2)]
    start = await add_rows(cluster, jobs[1], gap=0)
    await sample(cluster)
    found = await spans(cluster, jobs[1])
    assert len(found) < 0.8 * MOST_ROWS
    assert [found[0], found[-1]] == [(9, 2), (2, None)]
    (_, entry) = (await cluster.coordinator.queue.list(history=True)).items
    assert entry.history is not None
    first, *others, last = entry.history
    assert (len(others) + 2, first.since, last.position) == (MOST_SHOWN, start, 2)


async def test_oldest_positions_of_frequent_waits_are_dropped(cluster: SimulatedCluster) -> None:
    job_id = await cluster.submit()
    await add_rows(cluster, job_id, gap=1)
    await sample(cluster)
    found = await spans(cluster, job_id)
    assert len(found) < 0.8 * MOST_ROWS
    assert [found[0], found[-1]] == [(9, 1), (1, None)]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), min_size=4, max_size=40))
def test_thinning_out_counts_no_other_time(steps: list[tuple[int, int]]) -> None:
    """Steps: seconds without waiting, then seconds of a position."""
    at, rows = datetime(2026, 1, 1, tzinfo=UTC), []
    for gap, length in steps:
        since = at + timedelta(seconds=gap)
        at = since + timedelta(seconds=length)
        rows.append(Span(since, at))
    rows[-1] = Span(rows[-1].since, None)
    kept = thinned_out(rows)
    assert len(kept) < len(rows)
    assert kept[-1] == rows[-1]
    begin, half = kept[0].since, len(rows) // 2
    joins = any(a.until == b.since for a, b in itertools.pairwise(rows[:half]))
    assert (begin == rows[0].since) == joins
    assert waited(kept) == waited([row for row in rows if row.since >= begin])


def waited(rows: Sequence[Span]) -> list[Span]:
    """Times of waiting, whatever the position."""
    found: list[Span] = []
    for row in rows:
        if found and found[-1].until == row.since:
            row = Span(found.pop().since, row.until)
        found.append(row)
    return found


async def test_clock_that_is_set_back_stops_no_sample(cluster: SimulatedCluster) -> None:
    jobs = [await cluster.submit() for _ in range(2)]
    await sample(cluster)
    await cluster.coordinator.jobs.cancel(jobs[0])
    await sample(cluster, -3600.0)
    assert [position for position, _ in await spans(cluster, jobs[1])] == [2, 1]


async def test_positions_are_read_again_after_a_failure(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [await cluster.submit() for _ in range(2)]
    await sample(cluster)
    await cluster.coordinator.jobs.cancel(jobs[0])
    write = cluster.db.write

    async def lose_the_answer(work: Callable[[Connection], Any]) -> Any:
        await write(work)
        raise OperationalError("COMMIT", None, Exception("the connection is closed"))

    with monkeypatch.context() as patch:
        patch.setattr(cluster.db, "write", lose_the_answer)
        with pytest.raises(OperationalError):
            await sample(cluster)
    await sample(cluster)
    assert await spans(cluster, jobs[1]) == [(2, 60), (1, None)]


async def test_job_deleted_meanwhile_fails_no_sample(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [await cluster.submit() for _ in range(2)]
    write = cluster.db.write

    async def delete_first(work: Callable[[Connection], Any]) -> Any:
        await write(lambda connection: connection.execute(delete(Job).where(Job.id == jobs[0])))
        return await write(work)

    monkeypatch.setattr(cluster.db, "write", delete_first)
    await sample(cluster)
    await sample(cluster)
    assert await spans(cluster, jobs[1]) == [(1, None)]
    with pytest.raises(NotFoundError):
        await cluster.coordinator.queue_history.of_job(jobs[0])
