"""Every frame once, however often and in whatever order it is sent."""

import asyncio
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select, text, update
from support.examples import share_of
from support.storage.frames import NOW, add_job, commit_checkpoints, frame, revoke, table

from trainhall.cluster.lifecycle.jobs import lock_job
from trainhall.db.database import Database
from trainhall.db.documents import GenerationStart
from trainhall.db.models import Attempt, JobProgress, MetricFrame, Writer
from trainhall.monitoring.codec import frame_headers
from trainhall.monitoring.errors import DamagedFrameError, UnknownAttemptError
from trainhall.monitoring.ingest import Ingest
from trainhall.monitoring.lineage import Origin
from trainhall.monitoring.metrics import read_metrics


class Woken(list[str]):
    def __call__(self, job_id: str) -> None:
        self.append(job_id)


def ingest_of(database: Database, woken: Any = lambda _: None) -> Ingest:
    return Ingest(database, lambda: NOW, woken)


async def progress_of(database: Database, job_id: str = "job") -> JobProgress:
    async with database.session() as session:
        found = await session.get(JobProgress, job_id)
        assert found is not None
        return found


async def stored_sequences(database: Database) -> list[int]:
    async with database.session() as session:
        rows = await session.scalars(select(MetricFrame.payload).order_by(MetricFrame.seq))
        return [header.sequence for body in rows for header in frame_headers(body)]


async def test_batch_is_one_row_and_updates_job(database: Database) -> None:
    await add_job(database)
    woken = Woken()
    body = frame(1, table([1, 2], loss=[3.0, 2.0]), table([1, 2], rank=1, step_seconds=[9.0, 9.0]))
    body += frame(2, table([3], loss=[math.nan], accuracy=[math.inf]))
    assert await ingest_of(database, woken).metrics("job", 1, "0-ab", body) == 2
    progress = await progress_of(database)
    assert progress.step == 3
    assert progress.metrics == {"loss": "NaN", "accuracy": "Infinity"}
    assert progress.stream_seq == 3
    assert woken == ["job"]
    async with database.session() as session:
        (row,) = (await session.scalars(select(MetricFrame))).all()
        assert (row.seq, row.tables, row.payload, row.superseded) == (3, 3, body, False)
        attempt = await session.get(Attempt, ("job", 1))
        assert attempt is not None
        assert attempt.first_step == 1


async def test_tracked_attempt_begins_with_what_it_logs_first(database: Database) -> None:
    """The number of an epoch would hide the steps that earlier attempts have measured."""
    await add_job(database)
    body = frame(1, table([0, 301], loss=[1.0, 2.0]), table([3], accuracy=[0.5]))
    await ingest_of(database).metrics("job", 1, "tracking-files-0-ab", body)
    async with database.session() as session:
        attempt = await session.get(Attempt, ("job", 1))
        assert attempt is not None
        assert attempt.first_step == 301


async def test_last_values_are_those_of_the_newest_step(database: Database) -> None:
    await add_job(database)
    late = table([125, 10], loss=[0.02, 5.0])
    body = frame(1, late, table([11], loss=[4.0], lr=[0.1]))
    assert await ingest_of(database).metrics("job", 1, "0-ab", body) == 1
    progress = await progress_of(database)
    assert progress.step == 125
    assert progress.metrics == {"loss": 0.02, "lr": 0.1}


async def test_last_value_is_that_of_its_own_newest_step(database: Database) -> None:
    """A script may count epochs in one metric and steps in another."""
    await add_job(database)
    tables = [table([1], eval=[0.5]), table([40], loss=[3.0]), table([2], eval=[0.7])]
    await ingest_of(database).metrics("job", 1, "0-ab", frame(1, *tables))
    progress = await progress_of(database)
    assert (progress.step, progress.metrics) == (40, {"eval": 0.7, "loss": 3.0})


async def test_repeated_batch_changes_nothing(database: Database) -> None:
    await add_job(database)
    woken = Woken()
    ingest = ingest_of(database, woken)
    body = frame(1, table([1], loss=[3.0]))
    assert [await ingest.metrics("job", 1, "w", body) for _ in range(3)] == [1, 1, 1]
    assert await stored_sequences(database) == [1]
    assert (await progress_of(database)).stream_seq == 1
    assert woken == ["job"]


async def test_ingest_takes_the_rest_of_overlapping_batch(database: Database) -> None:
    await add_job(database)
    ingest = ingest_of(database)
    frames = [frame(i, table([i], loss=[float(i)])) for i in range(1, 5)]
    await ingest.metrics("job", 1, "w", b"".join(frames[:2]))
    assert await ingest.metrics("job", 1, "w", b"".join(frames)) == 4
    assert await stored_sequences(database) == [1, 2, 3, 4]


async def test_ingest_stores_nothing_after_a_gap(database: Database) -> None:
    await add_job(database)
    ingest = ingest_of(database)
    assert await ingest.metrics("job", 1, "w", frame(2, table([2], loss=[0.0]))) == 0
    assert await ingest.metrics("job", 1, "w", frame(1, table([1], loss=[0.0]))) == 1
    assert await ingest.metrics("job", 1, "w", frame(3, table([3], loss=[0.0]))) == 1
    assert await stored_sequences(database) == [1]


async def test_ingest_of_empty_body_returns_position(database: Database) -> None:
    await add_job(database)
    ingest = ingest_of(database)
    await ingest.metrics("job", 1, "w", frame(1, table([1], loss=[0.0])))
    assert await ingest.metrics("job", 1, "w", b"") == 1


async def test_names_beyond_the_limit_are_left_out(database: Database) -> None:
    """The SDK refuses them; who writes its own frames could make any number of curves."""
    await add_job(database)
    ingest = ingest_of(database)
    many: Any = {f"m{number}": [0.5] for number in range(990)}
    assert await ingest.metrics("job", 1, "a", frame(1, table([1], loss=[3.0], **many))) == 1
    more: Any = {f"n{number}": [0.5] for number in range(50)}
    body = frame(1, table([2], loss=[2.0], **more)) + frame(2, table([3], rank=1, extra=[1.0]))
    assert await ingest.metrics("job", 1, "b", body) == 2
    assert await ingest.metrics("job", 1, "b", frame(3, table([4], extra=[1.0], loss=[1.0]))) == 3
    names = set((await progress_of(database)).metrics)
    assert len(names) == 1000
    assert {"loss", "m0", "m989", "n8"} <= names
    (loss,) = await read_metrics(database, "job", names=["loss"])
    assert loss.run.last.tolist() == [3.0, 2.0, 1.0]
    assert not await read_metrics(database, "job", names=["n9", "extra"])
    # Another coordinator knows the names that are stored.
    again = ingest_of(database)
    assert await again.metrics("job", 1, "c", frame(1, table([5], loss=[0.5], late=[1.0]))) == 1
    assert not await read_metrics(database, "job", names=["late"])


async def test_unknown_attempts_and_damage_are_refused(database: Database) -> None:
    await add_job(database)
    ingest = ingest_of(database)
    body = frame(1, table([1], loss=[0.0]))
    with pytest.raises(UnknownAttemptError, match="attempt 2"):
        await ingest.metrics("job", 2, "w", body)
    with pytest.raises(UnknownAttemptError, match="ghost"):
        await ingest.metrics("ghost", 1, "w", body)
    with pytest.raises(DamagedFrameError):
        await ingest.metrics("job", 1, "w", body[:-1])
    assert await stored_sequences(database) == []


@pytest.mark.side_by_side
async def test_one_refused_item_does_not_affect_others(database: Database) -> None:
    await add_job(database)
    ingest = ingest_of(database)
    body = frame(1, table([1], loss=[0.0]))
    answers = await asyncio.gather(
        ingest.metrics("ghost", 1, "w", body),
        ingest.metrics("job", 1, "w", body),
        ingest.metrics("job", 7, "w", body),
        ingest.metrics("job", 1, "v", body),
        ingest.logs("job", 1, 0, "stdout", 0, b"hello\n"),
        return_exceptions=True,
    )
    assert [type(a) if isinstance(a, Exception) else a for a in answers] == [
        UnknownAttemptError, 1, UnknownAttemptError, 1, 6,
    ]  # fmt: skip


async def test_ingest_after_revocation_is_void(database: Database) -> None:
    await add_job(database)
    ingest = ingest_of(database)
    await ingest.metrics("job", 1, "w", frame(1, table([1], loss=[1.0])))
    await revoke(database)
    assert await ingest.metrics("job", 1, "w", frame(2, table([2], loss=[2.0]))) == 2
    assert (await progress_of(database)).metrics == {"loss": 1.0}
    (curve,) = await read_metrics(database, "job")
    assert curve.run.steps.tolist() == [1]


async def test_late_rows_before_next_attempt_count(
    database: Database,
) -> None:
    """A host fell silent behind a checkpoint, before it had shipped what its ranks had measured.
    The next attempt begins at that checkpoint, so no other attempt measures these steps."""
    await add_job(database)
    ingest = ingest_of(database)
    await ingest.metrics("job", 1, "w", frame(1, table([1, 2], loss=[1.0, 2.0])))
    await commit_checkpoints(database, steps=[2, 4])
    await revoke(database)
    late = frame(2, table([3, 4, 5, 6], loss=[3.0, 4.0, 5.0, 6.0]))
    assert await ingest.metrics("job", 1, "w", late) == 2
    progress = await progress_of(database)
    assert (progress.step, progress.metrics) == (2, {"loss": 2.0}), (
        "a revoked token changes nothing"
    )
    (curve,) = await read_metrics(database, "job")
    assert curve.run.steps.tolist() == [1, 2, 3, 4]
    assert curve.run.last.tolist() == [1.0, 2.0, 3.0, 4.0]


async def test_late_metrics_of_a_revoked_attempt_begin_nothing(database: Database) -> None:
    """Its first step would cut off the curve of the attempt before it."""
    await add_job(database)
    await revoke(database)
    assert await ingest_of(database).metrics("job", 1, "w", frame(1, table([7], loss=[1.0]))) == 1
    async with database.session() as session:
        attempt = await session.get(Attempt, ("job", 1))
        assert attempt is not None
        assert attempt.first_step is None


async def regrouping(database: Database, began: dict[int, GenerationStart]) -> None:
    """An attempt whose ranks regroup in place, with what is known of its generations."""
    await add_job(database)
    async with database.transaction() as session:
        newest = max(began)
        await session.execute(update(Attempt).values(in_place=True, generation=newest, began=began))


async def test_late_rows_do_not_reset_the_step(
    database: Database,
) -> None:
    """A host was cut off, and lost in the end: the others went on from the step it had come to."""
    await regrouping(database, {2: GenerationStart(step=3)})
    ingest = ingest_of(database)
    await ingest.metrics("job", 1, "0-old", frame(1, table([1], loss=[1.0])))
    await ingest.metrics("job", 1, "0-new", frame(1, table([3], loss=[3.0])), Origin(2))
    late = frame(2, table([2], loss=[2.0], eval_loss=[9.0]))
    assert await ingest.metrics("job", 1, "0-old", late, Origin(1)) == 2
    progress = await progress_of(database)
    assert (progress.step, progress.metrics) == (3, {"loss": 3.0, "eval_loss": 9.0})
    curves = {each.name: each.run for each in await read_metrics(database, "job")}
    assert curves["loss"].steps.tolist() == [1, 2, 3]
    assert curves["loss"].last.tolist() == [1.0, 2.0, 3.0]


async def test_attempt_from_earlier_step_resets_progress(
    database: Database,
) -> None:
    """The one before had come further than its checkpoints. What another rank has measured is
    shipped before rank 0 has reported its start."""
    await add_job(database, attempts=2)
    async with database.transaction() as session:
        await session.execute(update(Attempt).values(in_place=True))
        await session.execute(update(JobProgress).values(step=6, metrics={"loss": 6.0}))
    ingest = ingest_of(database)
    await ingest.metrics("job", 2, "1-w", frame(1, table([1, 2], rank=1, step_seconds=[1.0, 1.0])))
    await ingest.metrics("job", 2, "0-w", frame(1, table([1, 2, 3], loss=[9.0, 8.0, 7.0])))
    progress = await progress_of(database)
    assert (progress.step, progress.metrics) == (3, {"loss": 7.0})


async def test_script_restarting_its_count_resets_progress(database: Database) -> None:
    await add_job(database)
    ingest = ingest_of(database)
    await ingest.metrics("job", 1, "w", frame(1, table([9], loss=[1.0])))
    await ingest.metrics("job", 1, "w", frame(2, table([1], loss=[2.0])))
    progress = await progress_of(database)
    assert (progress.step, progress.metrics) == (1, {"loss": 2.0})


async def test_repeated_steps_void_those_of_earlier_generation(
    database: Database,
) -> None:
    """All who had the state were gone, and those that came began at a checkpoint of step 4."""
    await regrouping(database, {3: GenerationStart(restart_step=5)})
    ingest = ingest_of(database)
    await ingest.metrics("job", 1, "0-new", frame(1, table([5, 6], loss=[50.0, 60.0])), Origin(3))
    for writer, generation in (("0-old", 1), ("0-older", 2)):
        assert await ingest.metrics(
            "job", 1, writer, frame(1, table([4], loss=[4.0])), Origin(generation)
        )
        late = frame(2, table([5, 6, 7], loss=[5.0, 6.0, 7.0]))
        assert await ingest.metrics("job", 1, writer, late, Origin(generation)) == 2
    # One that came later regrouped with those that had restarted.
    await ingest.metrics("job", 1, "0-newer", frame(1, table([7], loss=[70.0])), Origin(4))
    progress = await progress_of(database)
    assert (progress.step, progress.metrics) == (7, {"loss": 70.0})
    (curve,) = await read_metrics(database, "job")
    assert curve.run.steps.tolist() == [4, 5, 6, 7]
    assert curve.run.last.tolist() == [4.0, 50.0, 60.0, 70.0]


async def test_older_attempt_keeps_last_values_unchanged(database: Database) -> None:
    await add_job(database, attempts=2)
    ingest = ingest_of(database)
    await ingest.metrics("job", 2, "w", frame(1, table([50], loss=[5.0])))
    await ingest.metrics("job", 1, "w", frame(1, table([90], loss=[9.0])))
    progress = await progress_of(database)
    assert (progress.step, progress.metrics) == (50, {"loss": 5.0})


@pytest.mark.side_by_side
async def test_two_coordinators_store_each_frame_once(
    database: Database, database_url: str
) -> None:
    await add_job(database)
    other = Database(database_url)
    ingests = [ingest_of(database), ingest_of(other)]
    frames = [frame(i, table([i], loss=[float(i)])) for i in range(1, 21)]

    async def send(ingest: Ingest) -> None:
        acked = 0
        while acked < 20:
            acked = await ingest.metrics("job", 1, "w", b"".join(frames[acked : acked + 3]))

    await asyncio.gather(*(send(ingest) for ingest in ingests * 2))
    await other.close()
    assert await stored_sequences(database) == list(range(1, 21))


@settings(max_examples=share_of(15))
@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 6), st.integers(0, 6), st.booleans()),
        max_size=30,
    )
)
def test_ingest_counts_each_point_once(
    sqlite_template: Path,
    tmp_path_factory: pytest.TempPathFactory,
    sends: list[tuple[int, int, int, bool]],
) -> None:
    """Batches of two writers, any of them sent again or early; a lost answer is sent again."""

    async def scenario() -> None:
        path = tmp_path_factory.mktemp("sends") / "trainhall.db"
        shutil.copyfile(sqlite_template, path)
        database = Database(f"sqlite:///{path}")
        try:
            await add_job(database)
            ingest = ingest_of(database)
            frames = [
                [frame(i + 1, table([10 * w + i], rank=w, loss=[float(i)])) for i in range(7)]
                for w in (0, 1)
            ]
            stored = [0, 0]
            for writer, start, end, at_once in sends:
                body = b"".join(frames[writer][min(start, end) : max(start, end)])
                calls = [ingest.metrics("job", 1, str(writer), body) for _ in range(1 + at_once)]
                if min(start, end) <= stored[writer]:
                    stored[writer] = max(stored[writer], max(start, end))
                answers = await asyncio.gather(*calls)
                assert answers == [stored[writer]] * len(calls)
            for writer in (0, 1):
                body = b"".join(frames[writer])
                assert await ingest.metrics("job", 1, str(writer), body) == 7
            curves = await read_metrics(database, "job")
            assert {c.rank: c.run.steps.tolist() for c in curves} == {
                0: list(range(7)), 1: list(range(10, 17)),
            }  # fmt: skip
        finally:
            await database.close()

    asyncio.run(scenario())


@pytest.mark.side_by_side
async def test_new_writer_locks_in_one_order(database: Database) -> None:
    await add_job(database)
    async with database.transaction() as session:
        await lock_job(session, "job")  # as the acceptance of a rank's events begins
        metrics = asyncio.create_task(
            ingest_of(database).metrics("job", 1, "0-ab", frame(1, table([1], loss=[1.0])))
        )
        if database.dialect == "postgresql":
            # The first to look for a deadlock is its victim: here that would be this transaction.
            await session.execute(text("SET LOCAL deadlock_timeout = '10ms'"))
            blocked = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
            async with asyncio.timeout(20):
                while not await session.scalar(blocked):  # noqa: ASYNC110 - locks send no event
                    await asyncio.sleep(0.005)
        session.add(
            Writer(job_id="job", attempt=1, name="0-ab", metric_sequence=0, event_sequence=1)
        )
        await session.flush()
    assert await metrics == 1
    async with database.session() as session:
        writer = await session.get(Writer, ("job", 1, "0-ab"))
        assert writer is not None
        assert (writer.metric_sequence, writer.event_sequence) == (1, 1)
