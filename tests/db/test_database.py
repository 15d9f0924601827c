"""The database as every part of the coordinator sees it, on SQLite and on Postgres."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, QueuePool, delete, func, insert, select, text, update
from sqlalchemy.exc import DatabaseError, DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.lifecycle.reasons import EventCode
from trainhall.db import stream
from trainhall.db.database import Database, DatabaseUrlError, is_full, is_read_only
from trainhall.db.events import record_event
from trainhall.db.migrations import HEAD, runner
from trainhall.db.models import Base, Event, Job, JobProgress, MetricFrame

NOW = datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)


ANY_JOB = {
    "name": "n", "spec": {}, "priority": 0, "state": "queued", "reason": "", "world_size": 1,
    "attempt": 0, "generation": 0, "restarts": 0, "restarts_step": 0,
    "created_at": NOW, "queued_at": NOW,
}  # fmt: skip


def job(job_id: str, number: int = 1) -> list[Base]:
    return [
        Job(id=job_id, number=number, **ANY_JOB),
        JobProgress(job_id=job_id),
    ]


async def add_job(database: Database, job_id: str = "a") -> None:
    async with database.transaction() as session:
        row, progress = job(job_id)
        session.add(row)
        await session.flush()
        session.add(progress)


async def test_models_and_migrations_agree(empty_database_url: str) -> None:
    # Imported here: Alembic is a cost that no other test should pay.
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory

    def differences(connection: Connection) -> Any:
        runner.upgrade(connection)
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return compare_metadata(context, Base.metadata)

    database = Database(empty_database_url)
    async with database.transaction() as session:
        connection = await session.connection()
        assert await connection.run_sync(differences) == []
    await database.close()
    assert ScriptDirectory.from_config(runner.config()).get_current_head() == HEAD


async def test_several_coordinators_may_migrate_at_once(empty_database_url: str) -> None:
    databases = [Database(empty_database_url) for _ in range(3)]
    await asyncio.gather(*(database.migrate() for database in databases))
    async with databases[0].session() as session:
        assert (await session.scalars(text("SELECT version_num FROM alembic_version"))).all() == [
            HEAD
        ]
    for database in databases:
        await database.close()


async def test_upgrade_keeps_the_jobs_of_the_first_tables(empty_database_url: str) -> None:
    from alembic import command

    database = Database(empty_database_url)
    async with database.transaction() as session:
        connection = await session.connection()
        await connection.run_sync(lambda sync: command.upgrade(runner.config(sync), "0001"))
        spec = {
            "task": {"name": "digits"}, "parallelism": {"strategy": "ddp"},
            "user": "maria", "parameters": {"lr": 0.1},
        }  # fmt: skip
        values = {**ANY_JOB, "spec": spec}
        await connection.execute(insert(Job).values(id="a", number=1, **values))
        await connection.execute(insert(JobProgress).values(job_id="a"))
    await database.migrate()
    async with database.session() as session:
        job = (await session.scalars(select(Job))).one()
        assert (job.id, job.experiment_id) == ("a", None)
        copies = (job.user, job.project, job.task, job.strategy, job.parameters)
        assert copies == ("maria", "default", "digits", "ddp", {"lr": 0.1})
        assert (await session.scalars(select(JobProgress.job_id))).all() == ["a"]
    await database.close()


async def test_upgrade_gives_everything_a_project(empty_database_url: str) -> None:
    from alembic import command

    database = Database(empty_database_url)
    time = int(NOW.timestamp() * 1e6)
    job = (
        'INSERT INTO jobs (id, number, name, "user", project, spec, code, priority, state, reason, '
        "reason_code, attempt, generation, restarts, restarts_step, pauses_after, world_size, "
        "archived, created_at, queued_at) VALUES (:id, :number, 'n', 'maria', :project, '{}', "
        f":code, 0, 'queued', '', '', 0, 0, 0, 0, 0, 1, false, {time}, {time})"
    )
    experiment = (
        "INSERT INTO experiments (id, number, name, kind, spec, code, state, reason, reason_code, "
        "metric, goal, objective_at, parallel, created_at) VALUES ('e', 1, 'e', 'sweep', :spec, "
        f"'c2', 'running', '', '', 'loss', 'min', 'last', 1, {time})"
    )
    others = (
        f"INSERT INTO idempotency_keys VALUES ('nightly', 'abc', 'b', NULL, {time})",
        f"INSERT INTO saved_views (name, view, created_at) VALUES ('mine', '{{}}', {time})",
        f"INSERT INTO users (id, name, is_admin, created_at) VALUES ('u', 'root', true, {time})",
        "INSERT INTO api_tokens (id, sha256, user_id, name, created_at) "
        f"VALUES ('t', 'abc', 'u', 'ci', {time})",
    )
    async with database.transaction() as session:
        connection = await session.connection()
        await connection.run_sync(lambda sync: command.upgrade(runner.config(sync), "0006"))
        for number, (name, project, code) in enumerate(
            [("a", None, None), ("b", "vision", "c1"), ("c", "lab/nlp", None)]
        ):
            row = {"id": name, "number": number, "project": project, "code": code}
            await session.execute(text(job), row)
        await session.execute(text(experiment), {"spec": '{"job": {"project": "speech"}}'})
        for statement in others:
            await session.execute(text(statement))
    await database.migrate()
    async with database.session() as session:

        async def read(columns: str, table: str) -> list[Any]:
            rows = await session.execute(text(f"SELECT {columns} FROM {table} ORDER BY 1"))
            return [tuple(row) for row in rows]

        assert await read("id, project", "jobs") == [
            ("a", "default"), ("b", "vision"), ("c", "lab-nlp")
        ]  # fmt: skip
        assert await read("id, project", "experiments") == [("e", "speech")]
        assert await read("name, created_at", "projects") == [
            ("default", time), ("lab-nlp", time), ("speech", time), ("vision", time)
        ]  # fmt: skip
        assert await read("sha256, project", "project_code") == [("c1", "vision"), ("c2", "speech")]
        assert await read('key, "user", job_id', "idempotency_keys") == [("nightly", "", "b")]
        assert await read('name, "user"', "saved_views") == [("mine", "")]
        assert await read("name, kind", "users") == [("root", "person")]
        assert await read("name, user_id", "api_tokens") == [("ci", "u")]
    await database.close()


async def test_times_keep_their_microseconds_and_zone(database: Database) -> None:
    await add_job(database)
    async with database.session() as session:
        assert (await session.scalars(select(Job.created_at))).one() == NOW


async def record_note(session: AsyncSession, reason: str = "", **rest: Any) -> None:
    code = EventCode.RANK_NOTE
    await record_event(session, "a", time=NOW, kind="note", code=code, reason=reason, **rest)


async def test_concurrent_events_get_consecutive_sequences(database: Database) -> None:
    await add_job(database)

    async def record() -> None:
        async with database.transaction() as session:
            await record_note(session)

    await asyncio.gather(*(record() for _ in range(20)))
    async with database.session() as session:
        found = (await session.scalars(select(Event.seq).order_by(Event.seq))).all()
    assert list(found) == list(range(1, 21))


async def test_failed_transaction_leaves_no_gap(database: Database) -> None:
    await add_job(database)

    async def fail() -> None:
        async with database.transaction() as session:
            await record_note(session)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await fail()
    async with database.transaction() as session:
        assert [await stream.allocate(session, "a") for _ in range(3)] == [1, 2, 3]


async def test_unknown_job_has_no_stream(database: Database) -> None:
    with pytest.raises(LookupError, match="ghost"):
        async with database.transaction() as session:
            await stream.allocate(session, "ghost")


async def test_readers_do_not_wait_for_the_writer(database: Database) -> None:
    await add_job(database)
    async with database.transaction() as writing:
        await record_note(writing)
        await writing.flush()
        async with database.session() as reading:
            assert (await reading.scalars(select(Event))).all() == []


async def test_reader_sees_one_snapshot(database: Database) -> None:
    await add_job(database)
    async with database.session() as reading:
        assert (await reading.scalars(select(Event))).all() == []
        async with database.transaction() as writing:
            await record_note(writing)
        assert (await reading.scalars(select(Event))).all() == []


async def test_event_keeps_any_text(database: Database) -> None:
    await add_job(database)
    data = {"loss": float("nan"), "best": [float("inf"), -float("inf"), 1.5], "text": "\0\ud800"}
    async with database.transaction() as session:
        await record_note(session, reason="a\0b\ud800", data=data)
    async with database.session() as session:
        event = (await session.scalars(select(Event))).one()
    assert event.reason == "a\ufffdb?"
    assert event.data == {
        "loss": "NaN", "best": ["Infinity", "-Infinity", 1.5], "text": "\ufffd?",
    }  # fmt: skip


async def test_work_in_a_thread_commits_or_rolls_back(database: Database) -> None:
    def add(connection: Connection) -> str:
        rows = [{"id": n, **ANY_JOB, "number": i} for i, n in enumerate("ab")]
        connection.execute(insert(Job), rows)
        return "added"

    def add_and_fail(connection: Connection) -> None:
        connection.execute(delete(Job))
        raise RuntimeError

    def count(connection: Connection) -> int:
        return connection.scalar(select(func.count()).select_from(Job)) or 0

    assert await database.write(add) == "added"
    with pytest.raises(RuntimeError):
        await database.write(add_and_fail)
    assert await database.read(count) == 2


async def test_cancelled_write_is_over_before_the_next(database: Database) -> None:
    """A thread cannot be stopped, so a cancelled caller waits for its end."""
    await add_job(database)
    entered, leave = threading.Event(), threading.Event()

    def slow(connection: Connection) -> None:
        connection.execute(update(Job).values(name="slow"))
        entered.set()
        leave.wait(20)

    writing = asyncio.create_task(database.write(slow))
    await asyncio.to_thread(entered.wait, 20)
    writing.cancel()
    after = asyncio.create_task(database.write(lambda c: c.scalar(select(Job.name))))
    leave.set()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert await after in ("slow", "n")
    assert await database.read(lambda c: c.scalar(select(Job.name))) == "slow"


async def test_sqlite_is_set_up_to_last(sqlite_template: Path) -> None:
    database = Database(f"sqlite:///{sqlite_template}")

    def settings(connection: Connection) -> list[Any]:
        names = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout", "auto_vacuum")
        return [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names]

    async with database.session() as session:
        by_session = await (await session.connection()).run_sync(settings)
    assert await database.read(settings) == await database.write(settings) == by_session
    assert by_session[:3] == ["wal", 2, 1]
    assert by_session[3] >= 5000
    assert by_session[4] == 2  # incremental
    await database.close()


async def test_database_reclaim_returns_free_pages(database: Database) -> None:
    await add_job(database)
    if database.dialect == "postgresql":
        await database.reclaim()  # no concern of ours
        return

    def pages(connection: Connection) -> int:
        return int(connection.exec_driver_sql("PRAGMA page_count").scalar_one())

    def fill(connection: Connection) -> None:
        blob = b"x" * 1024 * 1024
        connection.execute(
            insert(MetricFrame),
            [{"job_id": "a", "seq": i, "attempt": 1, "payload": blob, "tables": 1}
             for i in range(24)],
        )  # fmt: skip

    await database.write(fill)
    full = await database.read(pages)
    await database.reclaim()
    assert await database.read(pages) == full
    await database.write(lambda c: c.execute(delete(MetricFrame)).close())
    await database.reclaim()
    # 16 MiB of 24 stay for the next rows.
    assert 4096 <= await database.read(pages) < 4096 + 200 < full


async def test_non_database_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "trainhall.db"
    path.write_bytes(b"no database at all, but long enough to look at" * 100)
    database = Database(f"sqlite:///{path}")
    with pytest.raises(DatabaseError, match="not a database"):
        await database.migrate()
    await database.close()


async def test_cancelled_statement_leaves_connection_usable() -> None:
    database = Database("sqlite://")
    await database.migrate()
    numbers = "SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 300000"
    slow = f"WITH RECURSIVE n(i) AS ({numbers}) SELECT i FROM n"

    async def count() -> None:
        async with database.transaction() as session:
            await session.execute(text(slow))

    task = asyncio.create_task(count())
    await asyncio.sleep(0.01)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await add_job(database)
    async with database.session() as session:
        assert (await session.scalars(select(Job.id))).all() == ["a"]
    await database.close()


async def test_temporary_database_is_removed_on_close() -> None:
    database = Database("sqlite://")
    await database.migrate()
    folder = Path(str(database.url.database)).parent
    assert folder.exists()
    await database.close()
    assert not folder.exists()


@pytest.mark.parametrize("url", ["", "nonsense", "mysql://localhost/x"])
def test_unsupported_url_is_refused(url: str) -> None:
    with pytest.raises(DatabaseUrlError, match="sqlite:///path"):
        Database(url)


async def test_deadlocked_work_is_retried(database: Database) -> None:
    if database.dialect != "postgresql":
        pytest.skip("SQLite lets one writer in at a time")
    async with database.transaction() as session:
        for number, job_id in enumerate(("a", "b"), 1):
            session.add_all(job(job_id, number))
            await session.flush()
    both_hold_one = threading.Barrier(2)
    runs: list[str] = []

    def crossing(first: str, second: str) -> Callable[[Connection], None]:
        def work(connection: Connection) -> None:
            again = first in runs
            runs.append(first)
            connection.execute(text("SET LOCAL deadlock_timeout = '10ms'"))
            for job_id in (first, second):
                connection.execute(
                    update(JobProgress)
                    .where(JobProgress.job_id == job_id)
                    .values(step=JobProgress.step + 1)
                )
                if job_id == first and not again:
                    both_hold_one.wait(20)

        return work

    await asyncio.gather(database.write(crossing("a", "b")), database.write(crossing("b", "a")))
    assert len(runs) > 2
    async with database.session() as session:
        assert (await session.scalars(select(JobProgress.step))).all() == [2, 2]


async def test_connection_timeout_is_a_regular_error(
    database: Database,
) -> None:
    pool = database._reader.pool
    assert isinstance(pool, QueuePool)
    pool._timeout = 0.01

    async def ask(session: AsyncSession) -> None:
        await session.execute(text("SELECT 1"))

    async with contextlib.AsyncExitStack() as held:
        for _ in range(pool.size() + max(pool._max_overflow, 0)):
            await ask(await held.enter_async_context(database.session()))
        with pytest.raises(DBAPIError):
            async with database.session() as session:
                await ask(session)


_SLOW = text(
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000) "
    "SELECT i FROM n WHERE i % 400000 = 0"
)


async def test_cancelled_transaction_leaves_no_lock(tmp_path: Path) -> None:
    """Else a coordinator that stops waits for itself, until its patience ends."""
    db = Database(f"sqlite:///{tmp_path}/trainhall.db")
    begun = asyncio.Event()

    async def write() -> None:
        async with db.transaction() as session:
            begun.set()
            await session.execute(_SLOW)

    for twice in (False, True):
        begun.clear()
        writer = asyncio.create_task(write())
        await begun.wait()
        await asyncio.sleep(0)
        writer.cancel()
        if twice:
            await asyncio.sleep(0)
            writer.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await writer
        async with asyncio.timeout(10), db.transaction() as session:
            await session.execute(text("SELECT 1"))
        assert caught.value is not None
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        _, pending = await asyncio.wait(others, timeout=10)
        assert not pending
    await db.close()


async def test_full_database_is_known_by_its_error(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'trainhall.db'}")
    await database.migrate()
    async with database.transaction() as session:
        await session.execute(text("PRAGMA max_page_count = 1"))  # no more than it has
        with pytest.raises(DBAPIError) as caught:
            await session.execute(text("CREATE TABLE large AS SELECT zeroblob(1000000) AS content"))
    assert is_full(caught.value)
    assert not is_read_only(caught.value)
    await database.close()
