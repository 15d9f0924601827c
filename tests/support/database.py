"""Databases that cost a test little: in the loop's own thread, statements compiled once.

The real `Database` hops to a thread and back at every statement on SQLite, and waits for a socket
in the loop on Postgres, which is most of what a test of a coordinator costs. Files, servers,
transactions and SQL are the same here; how threads, SQLAlchemy's `AsyncSession` and transactions
side by side behave is left to tests marked so, to started coordinators and to tests of the
database itself.
"""

import asyncio
import atexit
import functools
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
from sqlalchemy import Connection, Engine, bindparam, create_engine, event, make_url, select
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import sessionmaker

from trainhall.cluster.access.roles import DEFAULT_PROJECT
from trainhall.cluster.simulator.database import Inline
from trainhall.db.database import Database
from trainhall.db.models import Base, Job, JobProgress
from trainhall.db.types import dump_json

T = TypeVar("T")

on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
"""For a test of which each statement runs on Postgres in another."""

# A test that waits asks often: a whole view of the job would cost it ten times as much.
_STATE = select(Job.state).where(Job.id == bindparam("job_id"))
_STEP = select(JobProgress.step).where(JobProgress.job_id == bindparam("job_id"))
_compiled: dict[type[Dialect], tuple[Dialect, dict[Any, Any]]] = {}
_kept: dict[str, Engine] = {}
"""Engines of databases on Postgres by URL, with open connections from test to test: behind a new
one stands a new process, which reads the catalog and plans each statement again."""


def open_database(url: str, *, side_by_side: bool = False) -> Database:
    """One for a test in which no one else writes to it.

    Args:
        side_by_side: several tasks of the test write to it at once. SQLite lets one in anyway.
    """
    if side_by_side and not url.startswith("sqlite"):
        made = Database(url)
        for engine in (made._writer.sync_engine, made._thread_writer):
            _compile_once(engine)
        return made
    return InlineDatabase(url)


async def state_of(db: Database, job_id: str) -> str | None:
    async with db.session() as session:
        return await session.scalar(_STATE, {"job_id": job_id})


async def step_of(db: Database, job_id: str) -> int:
    async with db.session() as session:
        return await session.scalar(_STEP, {"job_id": job_id}) or 0


class InlineDatabase(Database):
    """No one else may write to it meanwhile: waiting for a lock stops the loop."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        if self.dialect == "sqlite":
            for engine in (self._thread_reader, self._thread_writer):
                event.listen(engine, "connect", _never_wait_for_disk)
                _compile_once(engine)
        else:
            snapshot = self._thread_reader.get_execution_options()
            self._thread_writer = _kept_engine(url)
            self._thread_reader = self._thread_writer.execution_options(**snapshot)
        self._inline_readers = sessionmaker(
            self._thread_reader, expire_on_commit=False, autoflush=False
        )
        self._inline_writers = sessionmaker(self._thread_writer, expire_on_commit=False)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[AsyncSession]:
        with self._inline_readers() as session:
            yield cast(AsyncSession, Inline(session))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncSession]:
        async with self._turn:
            with self._inline_writers.begin() as session:
                yield cast(AsyncSession, Inline(session))

    async def _run(self, engine: Engine, work: Callable[[Connection], T]) -> T:
        with engine.begin() as connection:
            return work(connection)

    async def close(self) -> None:
        if self.dialect == "sqlite":
            await super().close()
        else:  # the engine is kept
            self._threads.shutdown()
            await self._writer.dispose()


class ApplicationDatabase(InlineDatabase):
    """For an application, of which several tasks write: in turn, on Postgres, too."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._turn = asyncio.Lock()


def make_emptying(url: str) -> None:
    """Let `empty_tables` have a procedure in a Postgres database that has the tables."""
    tables = "; ".join(f'DELETE FROM "{t.name}"' for t in reversed(Base.metadata.sorted_tables))
    # As the migration leaves it.
    tables += (
        "; INSERT INTO projects (name, limits, configured, created_at) "
        f"VALUES ('{DEFAULT_PROJECT}', '{{}}', '{{}}', 0)"
    )
    with _kept_engine(url).begin() as connection:
        connection.exec_driver_sql(
            f"CREATE PROCEDURE empty_tables() LANGUAGE plpgsql AS $$ BEGIN {tables}; END $$"
        )


def empty_tables(url: str) -> None:
    """Delete every row of a Postgres database but the default project, in one statement that stays
    planned."""
    with _kept_engine(url).begin() as connection:
        # A process of the test before may be about to end.
        connection.exec_driver_sql("SET LOCAL lock_timeout = 0")
        connection.exec_driver_sql("CALL empty_tables()")


def close_kept_engines() -> None:
    """Close the connections that tests on Postgres have left open."""
    while _kept:
        _kept.popitem()[1].dispose()


@functools.cache
def migrated_file() -> Path:
    """A SQLite file with empty tables, to be copied."""
    folder = tempfile.mkdtemp(prefix="trainhall-tests-")
    atexit.register(shutil.rmtree, folder)
    path = Path(folder) / "trainhall.db"
    with ThreadPoolExecutor(1) as thread:  # a loop may run in this one
        thread.submit(asyncio.run, migrate(f"sqlite:///{path}")).result()
    return path


async def migrate(url: str) -> None:
    """Make the tables."""
    database = Database(url)
    await database.migrate()
    await database.close()


def _kept_engine(url: str) -> Engine:
    if url not in _kept:
        driver = make_url(url).set(drivername="postgresql+psycopg")
        engine = create_engine(driver, json_serializer=dump_json)
        event.listen(engine, "connect", _never_wait_for_locks)
        _compile_once(engine)
        _kept[url] = engine
    return _kept[url]


def _never_wait_for_disk(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA synchronous = OFF")


def _never_wait_for_locks(connection: Any, _record: object) -> None:
    """Another task of the same loop would hold it, and could not go on."""
    connection.execute("SET lock_timeout = '1s'")
    connection.commit()


def _compile_once(engine: Engine) -> None:
    """Have it know the statements that earlier engines of this process have compiled."""

    @event.listens_for(engine, "engine_connect")
    def share(connection: Connection) -> None:
        # They are known by the dialect, which has learned by now what the server is like.
        connection.dialect, statements = _compiled.setdefault(
            type(connection.dialect), (connection.dialect, {})
        )
        connection.execution_options(compiled_cache=statements)
