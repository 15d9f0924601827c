"""Curves, packed or not, against the plain list of all points."""

import asyncio
import math
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select, update
from support.examples import share_of
from support.storage.frames import NOW, add_job, frame, revoke, table

from trainhall.db.database import Database
from trainhall.db.models import Attempt, Job, JobProgress, MetricChunk, MetricFrame, Series
from trainhall.monitoring.chunks import CHUNK, Run
from trainhall.monitoring.ingest import Ingest
from trainhall.monitoring.metrics import SeriesData, read_metrics
from trainhall.monitoring.packer import Packer


class MonitoredJob:
    """A job, its ingestion and its packer."""

    def __init__(self, database: Database, **options: int) -> None:
        self.database = database
        self.ingest = Ingest(database, lambda: NOW, lambda _: None)
        settings: dict[str, Any] = {"pack_frames": 1, **options}
        self.packer = Packer(database, lambda: NOW, **settings)
        self.sequences: dict[tuple[int, str], int] = {}

    async def send(self, *tables: Any, attempt: int = 1, writer: str = "w") -> None:
        number = self.sequences.get((attempt, writer), 0) + 1
        self.sequences[attempt, writer] = number
        assert await self.ingest.metrics("job", attempt, writer, frame(number, *tables)) == number

    async def read(self, **options: Any) -> list[SeriesData]:
        return await read_metrics(self.database, "job", **options)

    async def curve(self, **options: Any) -> Run:
        (found,) = await self.read(**options)
        return found.run


@pytest.fixture
async def job(database: Database) -> MonitoredJob:
    await add_job(database, attempts=3)
    return MonitoredJob(database)


def same(found: np.ndarray[Any, Any], expected: Any) -> bool:
    return np.array_equal(found, np.asarray(expected, dtype=found.dtype), equal_nan=True)


@pytest.mark.parametrize("packed", [False, True])
async def test_short_curve_comes_point_by_point(job: MonitoredJob, packed: bool) -> None:
    await job.send(table([1, 2, 3], loss=[3.0, math.nan, math.inf]), table([1], rank=0, loss=[9.0]))
    if packed:
        assert await job.packer.pack_once() == 1
    job_wide, of_rank = await job.read()
    assert (job_wide.name, job_wide.rank) == ("loss", None)
    assert (of_rank.name, of_rank.rank) == ("loss", 0)
    assert same(job_wide.run.steps, [1, 2, 3])
    assert same(job_wide.run.times, [1e9 + 1, 1e9 + 2, 1e9 + 3])
    for values in (job_wide.run.last, job_wide.run.low, job_wide.run.high):
        assert same(values, [3.0, math.nan, math.inf])


async def test_points_are_packed_once_and_read_once(job: MonitoredJob) -> None:
    for step in range(1, 31):
        await job.send(table([step], loss=[float(step)]))
        if step % 7 == 0:
            await job.packer.pack_once()
    assert await job.packer.pack_once() == 2
    assert await job.packer.pack_once() == 0
    assert same((await job.curve()).steps, range(1, 31))


async def test_spike_is_never_lost(job: MonitoredJob) -> None:
    values = np.sin(np.arange(200_000) / 1000)
    values[123_457] = 99.0
    values[45_678] = -77.0
    for start in range(0, 200_000, 20_000):
        part = values[start : start + 20_000]
        await job.send(table(range(start, start + 20_000), loss=part.tolist()))
        await job.packer.pack_once()
    run = await job.curve(max_points=1000)
    assert 500 < len(run) <= 1000
    assert run.high.max() == 99.0
    assert run.low.min() == -77.0
    assert run.steps[-1] == 199_999
    assert run.last[-1] == values[-1]
    assert run.sizes.sum() == 200_000


async def test_zooming_in_gives_the_exact_points(job: MonitoredJob) -> None:
    count = 50_000
    await job.send(table(range(1, count + 1), loss=[float(i * i) for i in range(1, count + 1)]))
    await job.packer.pack_once()
    run = await job.curve(from_step=20_111, to_step=20_777, max_points=1000)
    assert same(run.steps, range(20_111, 20_778))
    assert same(run.last, [float(i * i) for i in range(20_111, 20_778)])
    wide = await job.curve(from_step=101, to_step=40_007, max_points=100)
    assert len(wide) <= 100
    assert wide.low[0] == 101.0**2
    assert wide.high[-1] == 40_007.0**2
    assert wide.steps[-1] == 40_007


async def test_nan_is_kept_and_leaves_the_extremes_alone(job: MonitoredJob) -> None:
    values = [1.0, math.nan, 5.0, 2.0] + [math.nan] * 4
    await job.send(table(range(1, 9), loss=values))
    run = await job.curve(max_points=2)
    assert same(run.last, [2.0, math.nan])
    assert same(run.low, [1.0, math.nan])
    assert same(run.high, [5.0, math.nan])


async def test_names_choose_series(job: MonitoredJob) -> None:
    await job.send(table([1], loss=[1.0], accuracy=[0.5]))
    await job.packer.pack_once()
    await job.send(table([2], loss=[1.0], accuracy=[0.5]))
    assert [(s.name, len(s.run)) for s in await job.read(names=["loss"])] == [("loss", 2)]
    assert await job.read(names=["nothing"]) == []
    assert await job.read(names=[]) == []
    assert [s.name for s in await job.read()] == ["accuracy", "loss"]


@pytest.mark.parametrize("packed", [False, True])
async def test_curves_include_digests_on_request(job: MonitoredJob, packed: bool) -> None:
    digest = float(2**52 - 1)
    tables = table([1], loss=[1.0], chain_length=[2.0]), table([1], chain_link=[digest])
    await job.send(*tables, attempt=3)
    if packed:
        await job.packer.pack_once()
    assert [s.name for s in await job.read()] == ["chain_length", "loss"]
    (link,) = await job.read(names=["chain_link"])
    assert link.run.last.tolist() == [digest]
    async with job.database.transaction() as session:
        progress = await session.get(JobProgress, "job")
    assert progress is not None
    assert progress.metrics == {"loss": 1.0, "chain_length": 2.0}


async def test_max_points_below_one_is_refused(job: MonitoredJob) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        await job.read(max_points=0)


@pytest.mark.parametrize("packed", [False, True])
async def test_newest_attempt_wins_where_steps_overlap(job: MonitoredJob, packed: bool) -> None:
    await job.send(table(range(1, 11), loss=[1.0] * 10), attempt=1)
    await job.send(table(range(6, 21), loss=[2.0] * 15), attempt=2)
    await job.send(table(range(16, 18), loss=[3.0] * 2), attempt=3)
    if packed:
        await job.packer.pack_once()
    run = await job.curve()
    assert same(run.steps, range(1, 18))
    assert same(run.last, [1.0] * 5 + [2.0] * 10 + [3.0] * 2)


@pytest.mark.parametrize("packed", [False, True])
async def test_curves_drop_lost_steps_of_replaced_attempt(job: MonitoredJob, packed: bool) -> None:
    """The first step counts for every series, also for one that the newer attempt lacks so far."""
    await job.send(table([50, 90], eval_loss=[1.0, 2.0]), attempt=1)
    await job.send(table([81], loss=[1.0]), attempt=2)
    if packed:
        await job.packer.pack_once()
    assert same((await job.curve(names=["eval_loss"])).steps, [50])


@pytest.mark.parametrize("packed", [False, True])
async def test_curves_exclude_void_points(job: MonitoredJob, packed: bool) -> None:
    await job.send(table([1, 2], loss=[1.0, 1.0]))
    await revoke(job.database)
    await job.send(table([3, 4], loss=[9.0, 9.0]))
    if packed:
        await job.packer.pack_once()
    assert same((await job.curve()).steps, [1, 2])


@pytest.mark.parametrize("pack_after", [0, 1, 2])
async def test_steps_that_go_back_are_put_in_order(job: MonitoredJob, pack_after: int) -> None:
    await job.send(table([10, 20, 20, 30], loss=[1.0, 2.0, 2.5, 3.0]))
    if pack_after == 1:
        await job.packer.pack_once()
    await job.send(table([15, 30], loss=[7.0, 8.0]))
    if pack_after == 2:
        await job.packer.pack_once()
    run = await job.curve()
    assert same(run.steps, [10, 15, 20, 30])
    assert same(run.last, [1.0, 7.0, 2.5, 8.0])
    assert same((await job.curve(from_step=12, to_step=29)).steps, [15, 20])


async def test_unknown_job_has_no_curves(job: MonitoredJob) -> None:
    assert await read_metrics(job.database, "ghost") == []


@pytest.mark.side_by_side
async def test_two_packers_pack_each_point_once(database_url: str, database: Database) -> None:
    await add_job(database)
    other = Database(database_url)
    jobs = [MonitoredJob(database), MonitoredJob(other)]
    for round_ in range(5):
        for i in range(20):
            step = round_ * 20 + i + 1
            await jobs[0].send(table([step], loss=[float(step)]))
        await asyncio.gather(*(job.packer.pack_once() for job in jobs * 2))
    await jobs[0].packer.pack_once()
    assert same((await jobs[0].curve()).steps, range(1, 101))
    async with database.session() as session:
        assert await session.scalar(select(Series.points)) == 100
    await other.close()


async def test_packer_deletes_old_frames(database: Database) -> None:
    await add_job(database)
    job = MonitoredJob(database, keep_sequences=10)
    for step in range(1, 31):
        await job.send(table([step], loss=[1.0]))
    await job.packer.pack_once()
    async with database.session() as session:
        kept = (await session.scalars(select(MetricFrame.seq).order_by(MetricFrame.seq))).all()
        progress = await session.get(JobProgress, "job")
        assert progress is not None
        assert kept == list(range(21, 31))
        assert progress.stream_trimmed == 20
    assert same((await job.curve()).steps, range(1, 31))


async def test_packer_deletes_all_frames_of_ended_jobs(database: Database) -> None:
    for job_id in ("ended", "just-ended", "job"):
        await add_job(database, job_id)
        ingest = Ingest(database, lambda: NOW, lambda _: None)
        for number in (1, 2):
            await ingest.metrics(job_id, 1, "w", frame(number, table([number], loss=[1.0])))
    packer = Packer(database, lambda: NOW, pack_frames=1)
    await packer.pack_once()
    async with database.transaction() as session:
        for job_id, hours in (("ended", 2.0), ("just-ended", 0.5)):
            job = await session.get(Job, job_id)
            assert job is not None
            job.finished_at = NOW - timedelta(hours=hours)
    for _ in range(2):
        await packer.trim_ended()
    async with database.session() as session:
        kept = await session.execute(select(MetricFrame.job_id, MetricFrame.seq))
        assert sorted(map(tuple, kept)) == [
            ("job", 1), ("job", 2), ("just-ended", 1), ("just-ended", 2),
        ]  # fmt: skip
        progress = await session.get(JobProgress, "ended")
        assert progress is not None
        assert (progress.stream_trimmed, progress.stream_seq) == (2, 2)
    (curve,) = await read_metrics(database, "ended")
    assert same(curve.run.steps, [1, 2])


async def test_packer_leaves_a_small_tail(database: Database) -> None:
    await add_job(database)
    job = MonitoredJob(database, pack_frames=3)
    await job.send(table([1], loss=[1.0]))
    assert await job.packer.pack_once() == 0
    await job.send(table([2], loss=[1.0]))
    await job.send(table([3], loss=[1.0]))
    assert await job.packer.pack_once() == 3


async def test_levels_are_complete_and_chunks_full(job: MonitoredJob) -> None:
    await job.send(table(range(5000), loss=[float(i) for i in range(5000)]))
    await job.packer.pack_once()
    await job.send(table(range(5000, 7000), loss=[float(i) for i in range(2000)]))
    await job.packer.pack_once()
    async with job.database.session() as session:
        rows = await session.execute(
            select(MetricChunk.level, MetricChunk.index, MetricChunk.count).order_by(
                MetricChunk.level, MetricChunk.index
            )
        )
        assert [tuple(row) for row in rows] == [
            *((0, i, CHUNK) for i in range(6)),
            (0, 6, 7000 - 6 * CHUNK),
            (4, 0, 7000 >> 4),
            (8, 0, 7000 >> 8),
            (12, 0, 7000 >> 12),
        ]


VALUES = st.sampled_from([0.0, -1.5, 2.0, math.nan, math.inf, -math.inf, 1e308])
ROUNDS = st.lists(
    st.tuples(
        st.integers(1, 3000),  # points
        st.integers(0, 2**32 - 1),  # seed of the values
        st.booleans(),  # pack afterwards
        st.booleans(),  # begin a new attempt, some steps back
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=share_of(12))
@given(
    rounds=ROUNDS,
    max_points=st.sampled_from([1, 2, 7, 100, 1000, 10_000]),
    span=st.tuples(st.floats(0, 1), st.floats(0, 1)) | st.none(),
)
def test_curves_agree_with_the_list_of_all_points(
    sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory, rounds: Any,
    max_points: int, span: tuple[float, float] | None,
) -> None:  # fmt: skip
    async def scenario() -> None:
        path = tmp_path_factory.mktemp("curves") / "trainhall.db"
        shutil.copyfile(sqlite_template, path)
        database = Database(f"sqlite:///{path}")
        try:
            await add_job(database, attempts=len(rounds))
            await compare(MonitoredJob(database), rounds, max_points, span)
        finally:
            await database.close()

    asyncio.run(scenario())


async def compare(
    job: MonitoredJob, rounds: Any, max_points: int, span: tuple[float, float] | None
) -> None:
    points: dict[int, float] = {}
    attempt, step = 1, 0
    for count, seed, pack, restart in rounds:
        if restart and step:
            attempt += 1
            step = max(step - 500, 0)
            points = {s: v for s, v in points.items() if s <= step}
        rng = np.random.default_rng(seed)
        values = rng.choice([0.0, -1.5, 2.0, math.nan, math.inf, -math.inf, 1e308], count)
        values = np.where(rng.random(count) < 0.5, values, rng.normal(size=count))
        steps = range(step + 1, step + count + 1)
        await job.send(table(steps, loss=values.tolist()), attempt=attempt)
        points.update(zip(steps, values.tolist(), strict=True))
        step += count
        if pack:
            await job.packer.pack_once()
    first, last = (0, step) if span is None else sorted(int(part * step) for part in span)
    wanted = [(s, v) for s, v in sorted(points.items()) if first <= s <= last]
    found = await job.read(from_step=first, to_step=last, max_points=max_points)
    if not wanted:
        assert found == []
        return
    run = found[0].run
    assert len(run) <= max_points
    if len(wanted) <= max_points:
        assert len(run) == len(wanted)
    assert run.sizes.sum() == len(wanted)
    end = np.cumsum(run.sizes)
    for entry in range(len(run)):
        group = wanted[end[entry] - run.sizes[entry] : end[entry]]
        numbers = [v for _, v in group if not math.isnan(v)]
        low = min(numbers, default=math.nan)
        high = max(numbers, default=math.nan)
        assert run.steps[entry] == group[-1][0]
        assert run.times[entry] == 1e9 + group[-1][0]
        assert same(run.last[entry : entry + 1], [group[-1][1]])
        assert same(run.low[entry : entry + 1], [low])
        assert same(run.high[entry : entry + 1], [high])


async def test_first_reported_step_is_kept(job: MonitoredJob) -> None:
    async with job.database.transaction() as session:
        await session.execute(update(Attempt).where(Attempt.number == 2).values(first_step=81))
    await job.send(table([0], loss=[1.0]), attempt=2)
    async with job.database.session() as session:
        attempt = await session.get(Attempt, ("job", 2))
        assert attempt is not None
        assert attempt.first_step == 81
