"""The live stream: every frame once, in order, to every viewer who keeps up."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import timedelta
from typing import Any, cast

import numpy as np
import orjson
import pytest
from sqlalchemy import update
from support.storage.frames import NOW, add_job, frame, revoke, table

from trainhall.cluster.access.roles import DEFAULT_PROJECT
from trainhall.cluster.lifecycle.reasons import EventCode
from trainhall.db.database import Database
from trainhall.db.events import record_event
from trainhall.db.models import Job
from trainhall.monitoring import live
from trainhall.monitoring.ingest import Ingest
from trainhall.monitoring.live import Frame, Hub, ViewerTooSlowError
from trainhall.monitoring.packer import Packer


class MonitoredJob:
    def __init__(self, database: Database) -> None:
        self.database = database
        self.hub = Hub(database)
        self.ingest = Ingest(database, lambda: NOW, self.hub.wake)
        self.sent: dict[str, int] = {}

    def follow(self, after: int = 0) -> AsyncGenerator[list[Frame], None]:
        return cast(
            AsyncGenerator[list[Frame], None], self.hub.follow("job", after, lambda _: True)
        )

    async def send(self, *tables: Any, writer: str = "w") -> None:
        self.sent[writer] = self.sent.get(writer, 0) + 1
        await self.ingest.metrics("job", 1, writer, frame(self.sent[writer], *tables))

    async def note(self, kind: str = "note", **data: Any) -> None:
        async with self.database.transaction() as session:
            await record_event(
                session,
                "job",
                time=NOW,
                kind=kind,
                code=EventCode.RANK_NOTE,
                reason="why",
                attempt=1,
                data=data,
            )
        self.hub.wake("job")

    async def first(self, count: int, after: int = 0) -> list[dict[str, Any]]:
        """The next so many frames."""
        found: list[dict[str, Any]] = []
        async with asyncio.timeout(20), aclosing(self.follow(after)) as frames_of:
            async for frames in frames_of:
                found += [orjson.loads(one.text) for one in frames]
                if len(found) >= count:
                    break
        return found


@pytest.fixture
async def job(database: Database) -> Any:
    await add_job(database)
    made = MonitoredJob(database)
    yield made
    await made.hub.close()


async def test_live_frames_contain_stored_rows(job: MonitoredJob) -> None:
    await job.note("state", state="running")
    await job.send(table([1, 2], loss=[0.5, float("nan")]), table([1], rank=1, step_seconds=[0.25]))
    await job.ingest.logs("job", 1, 0, "stderr", 0, "café\nopen".encode())
    await job.note("checkpoint", id="c1", step=2)
    await job.note("note", more=1)
    assert await job.first(6) == [
        {
            "seq": 1, "type": "state", "state": "running", "reason": "why", "attempt": 1,
            "time": "2024-05-06T07:08:09.123456Z",
        },
        {
            "seq": 2, "type": "metrics", "rank": None,
            "points": {
                "loss": [
                    [1, "2001-09-09T01:46:41.000000Z", 0.5],
                    [2, "2001-09-09T01:46:42.000000Z", "NaN"],
                ]
            },
        },
        {
            "seq": 3, "type": "metrics", "rank": 1,
            "points": {"step_seconds": [[1, "2001-09-09T01:46:41.000000Z", 0.25]]},
        },
        {
            "seq": 4, "type": "log", "attempt": 1, "rank": 0, "stream": "stderr", "offset": 0,
            "time": "2024-05-06T07:08:09.123456Z", "text": "café\n",
        },
        {"seq": 5, "type": "checkpoint", "id": "c1", "step": 2},
        {
            "seq": 6, "type": "event", "time": "2024-05-06T07:08:09.123456Z", "kind": "note",
            "code": "rank_note", "reason": "why", "attempt": 1, "data": {"more": 1},
        },
    ]  # fmt: skip


async def test_digests_are_left_out(job: MonitoredJob) -> None:
    await job.send(table([1], loss=[0.5]), table([1], chain_link=[7.0]))
    await job.send(table([2], loss=[0.25]))
    frames = await job.first(2)
    assert [(f["seq"], list(f["points"])) for f in frames] == [(1, ["loss"]), (3, ["loss"])]


async def test_viewer_reconnects_within_a_batch(job: MonitoredJob) -> None:
    await job.send(*(table([1], rank=rank, loss=[1.0]) for rank in range(5)))
    assert [f["rank"] for f in await job.first(2, after=3)] == [3, 4]


@pytest.mark.side_by_side
async def test_viewer_receives_new_rows(job: MonitoredJob) -> None:
    watching = asyncio.create_task(job.first(3))
    for step in (1, 2, 3):
        await job.send(table([step], loss=[1.0]))
    assert [f["seq"] for f in await watching] == [1, 2, 3]


async def test_live_stream_omits_void_points(job: MonitoredJob) -> None:
    await job.send(table([1], loss=[1.0]))
    await revoke(job.database)
    await job.send(table([2], loss=[1.0]))
    await job.note()
    assert [f["seq"] for f in await job.first(2)] == [1, 3]


async def test_live_stream_refuses_an_unknown_job(job: MonitoredJob) -> None:
    with pytest.raises(LookupError, match="ghost"):
        await anext(aiter(job.hub.follow("ghost", 0, lambda _: True)))


async def test_foreign_job_is_as_an_unknown_one(job: MonitoredJob) -> None:
    await job.note()
    assert [f["seq"] for f in await job.first(1)] == [1]
    with pytest.raises(LookupError) as unknown:
        await anext(aiter(job.hub.follow("ghost", 0, lambda _: False)))
    asked: list[str] = []

    def refuse(project: str) -> bool:
        asked.append(project)
        return False

    async with aclosing(job.follow()) as allowed:
        await anext(allowed)  # also of a feed that has viewers
        with pytest.raises(LookupError) as foreign:
            await anext(aiter(job.hub.follow("job", 0, refuse)))
    assert str(foreign.value) == str(unknown.value).replace("ghost", "job")
    assert asked == [DEFAULT_PROJECT]


async def test_outdated_viewer_must_reload(
    job: MonitoredJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in range(1, 31):
        await job.send(table([step], loss=[1.0]))
    await Packer(job.database, lambda: NOW, pack_frames=1, keep_sequences=10).pack_once()
    assert await job.first(1, after=5) == [{"seq": 30, "type": "reset"}]
    assert [f["seq"] for f in await job.first(10, after=20)] == list(range(21, 31))
    assert await job.first(1, after=99) == [{"seq": 30, "type": "reset"}]
    monkeypatch.setattr(live, "REPLAY_ROWS", 5)
    assert await job.first(1, after=22) == [{"seq": 30, "type": "reset"}]


async def test_late_viewer_of_an_ended_job_must_reload(job: MonitoredJob) -> None:
    for step in (1, 2, 3):
        await job.send(table([step], loss=[1.0]))
    packer = Packer(job.database, lambda: NOW, pack_frames=1)
    await packer.pack_once()
    async with job.database.transaction() as session:
        await session.execute(update(Job).values(finished_at=NOW - timedelta(hours=2)))
    await packer.trim_ended()
    assert await job.first(1, after=1) == [{"seq": 3, "type": "reset"}]
    await job.note()
    assert [f["seq"] for f in await job.first(1, after=3)] == [4]


async def test_stream_continues_after_reset(job: MonitoredJob) -> None:
    async with aclosing(job.follow(after=7)) as frames_of:
        assert [f.seq for f in await anext(frames_of)] == [0]
        await job.note()
        assert [f.seq for f in await anext(frames_of)] == [1]


async def test_only_the_slow_viewer_is_dropped(
    job: MonitoredJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "QUEUE_BYTES", 2000)
    async with aclosing(job.follow()) as slow, aclosing(job.follow()) as quick:
        await job.note()
        await anext(slow)
        seen = [one.seq for one in await anext(quick)]
        for _ in range(30):
            await job.note()
            while len(seen) < (await progress(job)):
                seen += [one.seq for one in await anext(quick)]
        assert seen == list(range(1, 32))
        with pytest.raises(ViewerTooSlowError, match="too slowly"):
            await anext(slow)


async def progress(job: MonitoredJob) -> int:
    return (await live.read_frames(job.database, "job", 0)).up_to


async def test_unwatched_job_needs_no_reads(job: MonitoredJob) -> None:
    async with aclosing(job.follow()) as frames_of:
        await job.note()
        await anext(frames_of)
        assert len(job.hub._feeds) == 1
    assert job.hub._feeds == {}


@pytest.mark.side_by_side
async def test_concurrent_viewers_share_one_read(
    job: MonitoredJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    await job.send(table([1], loss=[0.5]))
    asked = 0
    project_and_sequence = Hub._project_and_sequence

    async def counted(hub: Hub, job_id: str) -> tuple[str, int]:
        nonlocal asked
        asked += 1
        return await project_and_sequence(hub, job_id)

    monkeypatch.setattr(Hub, "_project_and_sequence", counted)
    viewers = [asyncio.create_task(job.first(1)) for _ in range(20)]
    viewers[0].cancel()  # the others do not depend on the first
    seen = await asyncio.gather(*viewers[1:])
    assert len({frames[0]["seq"] for frames in seen}) == 1
    assert asked == 1


async def test_feed_ends_when_viewers_left_early(
    job: MonitoredJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "POLL_SECONDS", 0.01)
    async with asyncio.timeout(20):
        feed = await job.hub._feed("job")
        await feed.task
        await asyncio.sleep(0)  # its end shows in the next turn of the event loop
    assert not job.hub._feeds
    await job.send(table([1], loss=[0.5]))
    assert (await job.first(1))[0]["type"] == "metrics"


async def test_closing_the_hub_waits_for_feeds_left_alone(
    job: MonitoredJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, ended = asyncio.Event(), False

    async def read(*_: Any) -> Any:
        nonlocal ended
        reading.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _turn in range(5):  # as long as its connection takes to be returned
                await asyncio.sleep(0)
            ended = True

    await job.note()
    async with asyncio.timeout(20):
        async with aclosing(job.follow()) as frames_of:
            await anext(frames_of)
            monkeypatch.setattr(live, "read_frames", read)
            job.hub.wake("job")
            await reading.wait()
        await job.hub.close()
    assert ended


async def test_closing_the_hub_ends_every_stream(job: MonitoredJob) -> None:
    await job.note()
    async with aclosing(job.follow()) as frames_of:
        await anext(frames_of)
        await job.hub.close()
        assert [frames async for frames in frames_of] == []


async def test_polling_finds_rows_of_another_coordinator(
    database_url: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "POLL_SECONDS", 0.05)
    await add_job(database)
    here, there = MonitoredJob(database), MonitoredJob(Database(database_url))
    async with aclosing(here.follow()) as frames_of:
        await there.note()
        async with asyncio.timeout(20):
            assert [f.seq for f in await anext(frames_of)] == [1]
    await here.hub.close()
    await there.database.close()


@pytest.mark.side_by_side
async def test_live_stream_is_exact_under_concurrent_writes(job: MonitoredJob) -> None:
    """Viewers join at any time while writers of every kind commit."""
    total = 3 * 25 + 25 + 25

    async def metrics(writer: str) -> None:
        for step in range(25):
            await job.send(table([step + 1], rank=int(writer), loss=[1.0]), writer=writer)

    async def notes() -> None:
        for _ in range(25):
            await job.note()

    async def logs() -> None:
        for line in range(25):
            await job.ingest.logs("job", 1, 0, "stdout", 2 * line, b"x\n")

    async def view(after: int) -> list[int]:
        seen: list[int] = []
        async with asyncio.timeout(60), aclosing(job.follow(after)) as frames_of:
            async for frames in frames_of:
                seen += [one.seq for one in frames]
                if seen[-1] == total:
                    break
        return seen

    async def view_from(after: int) -> list[int]:
        """Join once the stream is well beyond `after`."""
        async with aclosing(job.follow()) as frames_of:
            while (await anext(frames_of))[-1].seq < after + 20:
                pass
        return await view(after)

    viewers = [asyncio.create_task(view(0)) for _ in range(3)]
    writing = [asyncio.create_task(metrics(str(w))) for w in range(3)]
    writing += [asyncio.create_task(notes()), asyncio.create_task(logs())]
    viewers += [asyncio.create_task(view_from(after)) for after in (0, 3, 10)]
    await asyncio.gather(*writing)
    found = await asyncio.gather(*viewers)
    assert found[:4] == [list(range(1, total + 1))] * 4
    assert found[4] == list(range(4, total + 1))
    assert found[5] == list(range(11, total + 1))


async def test_live_stream_thins_tables_keeping_extremes(job: MonitoredJob) -> None:
    values = np.zeros(10_001)
    values[4321], values[8765], values[17] = 7.0, -7.0, np.nan
    await job.send(table(range(1, 10_002), loss=values.tolist()))
    (event,) = await job.first(1)
    points = event["points"]["loss"]
    assert len(points) <= live.FRAME_ROWS
    steps = [step for step, _, _ in points]
    assert steps == sorted(set(steps))
    assert steps[-1] == 10_001
    assert {4322: 7.0, 8766: -7.0}.items() <= {step: value for step, _, value in points}.items()
