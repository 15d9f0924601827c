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

from trainhall.cluster.lifecycle.reasons import EventCode
from trainhall.db.database import Database
from trainhall.db.events import record_event
from trainhall.db.models import Job
from trainhall.monitoring import live
from trainhall.monitoring.ingest import Ingest
from trainhall.monitoring.live import Frame, Hub, ViewerTooSlowError
from trainhall.monitoring.packer import Packer


class Hall:
    def __init__(self, database: Database) -> None:
        self.database = database
        self.hub = Hub(database)
        self.ingest = Ingest(database, lambda: NOW, self.hub.wake)
        self.sent: dict[str, int] = {}

    def follow(self, after: int = 0) -> AsyncGenerator[list[Frame], None]:
        return cast(AsyncGenerator[list[Frame], None], self.hub.follow("job", after))

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
async def hall(database: Database) -> Any:
    await add_job(database)
    made = Hall(database)
    yield made
    await made.hub.close()


async def test_live_frames_contain_stored_rows(hall: Hall) -> None:
    await hall.note("state", state="running")
    await hall.send(
        table([1, 2], loss=[0.5, float("nan")]), table([1], rank=1, step_seconds=[0.25])
    )
    await hall.ingest.logs("job", 1, 0, "stderr", 0, "café\nopen".encode())
    await hall.note("checkpoint", id="c1", step=2)
    await hall.note("note", more=1)
    assert await hall.first(6) == [
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


async def test_digests_are_left_out(hall: Hall) -> None:
    await hall.send(table([1], loss=[0.5]), table([1], chain_link=[7.0]))
    await hall.send(table([2], loss=[0.25]))
    frames = await hall.first(2)
    assert [(f["seq"], list(f["points"])) for f in frames] == [(1, ["loss"]), (3, ["loss"])]


async def test_viewer_reconnects_within_a_batch(hall: Hall) -> None:
    await hall.send(*(table([1], rank=rank, loss=[1.0]) for rank in range(5)))
    assert [f["rank"] for f in await hall.first(2, after=3)] == [3, 4]


async def test_viewer_receives_new_rows(hall: Hall) -> None:
    watching = asyncio.create_task(hall.first(3))
    for step in (1, 2, 3):
        await hall.send(table([step], loss=[1.0]))
    assert [f["seq"] for f in await watching] == [1, 2, 3]


async def test_live_stream_omits_void_points(hall: Hall) -> None:
    await hall.send(table([1], loss=[1.0]))
    await revoke(hall.database)
    await hall.send(table([2], loss=[1.0]))
    await hall.note()
    assert [f["seq"] for f in await hall.first(2)] == [1, 3]


async def test_live_stream_refuses_an_unknown_job(hall: Hall) -> None:
    with pytest.raises(LookupError, match="ghost"):
        await anext(aiter(hall.hub.follow("ghost", 0)))


async def test_outdated_viewer_must_reload(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in range(1, 31):
        await hall.send(table([step], loss=[1.0]))
    await Packer(hall.database, lambda: NOW, pack_frames=1, keep_sequences=10).pack_once()
    assert await hall.first(1, after=5) == [{"seq": 30, "type": "reset"}]
    assert [f["seq"] for f in await hall.first(10, after=20)] == list(range(21, 31))
    assert await hall.first(1, after=99) == [{"seq": 30, "type": "reset"}]
    monkeypatch.setattr(live, "REPLAY_ROWS", 5)
    assert await hall.first(1, after=22) == [{"seq": 30, "type": "reset"}]


async def test_late_viewer_of_an_ended_job_must_reload(hall: Hall) -> None:
    for step in (1, 2, 3):
        await hall.send(table([step], loss=[1.0]))
    packer = Packer(hall.database, lambda: NOW, pack_frames=1)
    await packer.pack_once()
    async with hall.database.transaction() as session:
        await session.execute(update(Job).values(finished_at=NOW - timedelta(hours=2)))
    await packer.trim_ended()
    assert await hall.first(1, after=1) == [{"seq": 3, "type": "reset"}]
    await hall.note()
    assert [f["seq"] for f in await hall.first(1, after=3)] == [4]


async def test_stream_continues_after_reset(hall: Hall) -> None:
    async with aclosing(hall.follow(after=7)) as frames_of:
        assert [f.seq for f in await anext(frames_of)] == [0]
        await hall.note()
        assert [f.seq for f in await anext(frames_of)] == [1]


async def test_only_the_slow_viewer_is_dropped(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "QUEUE_BYTES", 2000)
    async with aclosing(hall.follow()) as slow, aclosing(hall.follow()) as quick:
        await hall.note()
        await anext(slow)
        seen = [one.seq for one in await anext(quick)]
        for _ in range(30):
            await hall.note()
            while len(seen) < (await progress(hall)):
                seen += [one.seq for one in await anext(quick)]
        assert seen == list(range(1, 32))
        with pytest.raises(ViewerTooSlowError, match="too slowly"):
            await anext(slow)


async def progress(hall: Hall) -> int:
    return (await live.read_frames(hall.database, "job", 0)).up_to


async def test_unwatched_job_needs_no_reads(hall: Hall) -> None:
    async with aclosing(hall.follow()) as frames_of:
        await hall.note()
        await anext(frames_of)
        assert len(hall.hub._feeds) == 1
    assert hall.hub._feeds == {}


async def test_concurrent_viewers_share_one_read(
    hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    await hall.send(table([1], loss=[0.5]))
    asked = 0
    last_sequence = Hub._last_sequence

    async def counted(hub: Hub, job_id: str) -> int:
        nonlocal asked
        asked += 1
        return await last_sequence(hub, job_id)

    monkeypatch.setattr(Hub, "_last_sequence", counted)
    viewers = [asyncio.create_task(hall.first(1)) for _ in range(20)]
    viewers[0].cancel()  # the others do not depend on whoever came first
    seen = await asyncio.gather(*viewers[1:])
    assert len({frames[0]["seq"] for frames in seen}) == 1
    assert asked == 1


async def test_feed_ends_when_viewers_left_early(
    hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "POLL_SECONDS", 0.01)
    async with asyncio.timeout(20):
        feed = await hall.hub._feed("job")
        await feed.task
        await asyncio.sleep(0)  # its end is told in the next turn of the event loop
    assert not hall.hub._feeds
    await hall.send(table([1], loss=[0.5]))
    assert (await hall.first(1))[0]["type"] == "metrics"


async def test_closing_the_hub_ends_every_stream(hall: Hall) -> None:
    await hall.note()
    async with aclosing(hall.follow()) as frames_of:
        await anext(frames_of)
        await hall.hub.close()
        assert [frames async for frames in frames_of] == []


async def test_polling_finds_rows_of_another_coordinator(
    database_url: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "POLL_SECONDS", 0.05)
    await add_job(database)
    here, there = Hall(database), Hall(Database(database_url))
    async with aclosing(here.follow()) as frames_of:
        await there.note()
        async with asyncio.timeout(20):
            assert [f.seq for f in await anext(frames_of)] == [1]
    await here.hub.close()
    await there.database.close()


async def test_live_stream_is_exact_under_concurrent_writes(hall: Hall) -> None:
    """Viewers join at any time while writers of every kind commit."""
    total = 3 * 25 + 25 + 25

    async def metrics(writer: str) -> None:
        for step in range(25):
            await hall.send(table([step + 1], rank=int(writer), loss=[1.0]), writer=writer)

    async def notes() -> None:
        for _ in range(25):
            await hall.note()

    async def logs() -> None:
        for line in range(25):
            await hall.ingest.logs("job", 1, 0, "stdout", 2 * line, b"x\n")

    async def view(after: int) -> list[int]:
        seen: list[int] = []
        async with asyncio.timeout(60), aclosing(hall.follow(after)) as frames_of:
            async for frames in frames_of:
                seen += [one.seq for one in frames]
                if seen[-1] == total:
                    break
        return seen

    async def view_from(after: int) -> list[int]:
        """Join once the stream is well beyond `after`."""
        async with aclosing(hall.follow()) as frames_of:
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


async def test_live_stream_thins_tables_keeping_extremes(hall: Hall) -> None:
    values = np.zeros(10_001)
    values[4321], values[8765], values[17] = 7.0, -7.0, np.nan
    await hall.send(table(range(1, 10_002), loss=values.tolist()))
    (event,) = await hall.first(1)
    points = event["points"]["loss"]
    assert len(points) <= live.FRAME_ROWS
    steps = [step for step, _, _ in points]
    assert steps == sorted(set(steps))
    assert steps[-1] == 10_001
    assert {4322: 7.0, 8766: -7.0}.items() <= {step: value for step, _, value in points}.items()
