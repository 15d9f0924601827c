"""The one place that opens a database: SQLite by default, Postgres by its URL, one behaviour."""

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, QueuePool, create_engine, event, make_url, text
from sqlalchemy.engine import URL
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.pool import AsyncAdaptedQueuePool, NullPool

from trainhall.db.migrations import HEAD
from trainhall.db.types import dump_json

T = TypeVar("T")

_THREADS = 4
"""Threads (and connections of their own) for `Database.read` and `Database.write`."""
_TRIES = 4
"""Tries for work whose transaction Postgres undoes in favour of another one."""
_UNDONE = ("40P01", "40001")
"""Postgres: deadlock_detected, serialization_failure."""
_BUSY_TIMEOUT_MS = 30_000
_SLICE_PAGES = 2_048
"""Pages of 4 KiB that one transaction of `Database.reclaim` releases, in about 50 ms."""
_SLICES = 8
_KEPT_PAGES = 4_096
_MIGRATION_LOCK = 0x7472_6169_6E68_616C  # "trainhal": an advisory lock of our own


async def run_to_end(work: Coroutine[Any, Any, T] | asyncio.Future[T]) -> T:
    """Run work to its end even if the caller is cancelled, which is raised afterwards.

    A connection that is opened for a cancelled task is not closed. The caller may be cancelled
    more than once, as by a `gather` that is cancelled itself.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return task.result()
    if not task.cancelled():
        task.exception()  # else it is reported as one that was never retrieved
    raise cancelled


class DatabaseUrlError(ValueError):
    """A database URL that cannot be used."""


class Database:
    """A database, with readers that never wait for the writer.

    On SQLite one writer at a time is let in, each transaction an immediate one, so that none fails
    half-way for want of the lock. On Postgres transactions run side by side (read committed; what
    must be serial locks its row) and readers see one snapshot.

    Args:
        url: `sqlite:///path`, `sqlite://` (a temporary file that `close` removes) or
            `postgresql://user@host/name`.
        temporary_below: the folder for the temporary file; the system's own if it is left out.

    Raises:
        DatabaseUrlError: for any other URL.
    """

    def __init__(self, url: str, *, temporary_below: Path | None = None) -> None:
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self.url = self._resolve(url, temporary_below)
        self.dialect = self.url.get_backend_name()
        # SQLite lets one writer in: ours queue here instead of polling for the file's lock.
        self._turn = asyncio.Lock() if self.dialect == "sqlite" else contextlib.nullcontext()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="database")
        if self.dialect == "sqlite":
            self._reader = self._sqlite_async(begin="BEGIN", connections=8)
            self._writer = self._sqlite_async(begin="BEGIN IMMEDIATE", connections=1)
            self._thread_reader = self._sqlite_sync(begin="BEGIN", connections=_THREADS)
            self._thread_writer = self._sqlite_sync(begin="BEGIN IMMEDIATE", connections=1)
        else:
            self._writer = create_async_engine(
                self.url, pool_size=10, max_overflow=10, json_serializer=dump_json
            )
            self._thread_writer = create_engine(
                self.url, pool_size=_THREADS, max_overflow=0, json_serializer=dump_json
            )
            snapshot: dict[str, Any] = {
                "isolation_level": "REPEATABLE READ",
                "postgresql_readonly": True,
            }
            self._reader = self._writer.execution_options(**snapshot)
            self._thread_reader = self._thread_writer.execution_options(**snapshot)
        self._readers = async_sessionmaker(self._reader, expire_on_commit=False, autoflush=False)
        self._writers = async_sessionmaker(self._writer, expire_on_commit=False)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[AsyncSession]:
        """Open a session for reading, from one snapshot. What it changes is lost."""
        with _report_busy_pool_as_refusal():
            async with self._readers() as session:
                # SQLAlchemy loses one whose task is cancelled while it is set up.
                await run_to_end(session.connection())
                yield session

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncSession]:
        """Open a session that commits at the end, or rolls back on an exception."""
        with _report_busy_pool_as_refusal():
            async with self._turn, self._writers.begin() as session:
                await run_to_end(session.connection())
                yield session

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a thread, on one snapshot: one hop, however many statements it has."""
        return await self._run(self._thread_reader, work)

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a thread, in a transaction that commits at its end; one hop, as `read`.

        Where Postgres undoes the transaction for the sake of another one (a deadlock, a failed
        serialization), `work` runs again, a few times: it must change nothing but the database.
        """
        async with self._turn:
            for _ in range(_TRIES - 1):
                try:
                    return await self._run(self._thread_writer, work)
                except DBAPIError as error:
                    if not was_undone(error):
                        raise
            return await self._run(self._thread_writer, work)

    async def _run(self, engine: Engine, work: Callable[[Connection], T]) -> T:
        def run() -> T:
            with engine.begin() as connection:
                return work(connection)

        # A thread cannot be stopped, and the next writer must not meet its transaction.
        return await run_to_end(asyncio.get_running_loop().run_in_executor(self._threads, run))

    async def check(self) -> None:
        """Check that the database can be read and written.

        Raises:
            DBAPIError: it cannot.
        """
        async with self.transaction() as session:
            # The row is written, though it stays as it is.
            await session.execute(text("UPDATE coordinator_lease SET renewals = renewals"))

    async def has_table(self, name: str) -> bool:
        """Return whether there is a table of that name, whatever the version that made it."""
        async with self.session() as session:
            connection = await session.connection()
            return await connection.run_sync(lambda sync: sync.dialect.has_table(sync, name))

    async def migrate(self) -> None:
        """Bring the tables up to date. Safe while other coordinators start on the same database."""
        if self.dialect == "sqlite":
            await asyncio.to_thread(_set_up_file, self.url)
        async with self._writer.connect() as connection:
            if await connection.run_sync(_revision) == HEAD:
                return
        async with self._turn, self._writer.begin() as connection:
            if self.dialect == "postgresql":
                await connection.execute(
                    text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK}
                )
            await connection.run_sync(_upgrade)

    async def reclaim(self) -> None:
        """Return free pages of a SQLite file to the file system, at most 64 MiB at a call.

        Some stay for the next rows. Postgres reuses its free pages by itself.
        """
        if self.dialect != "sqlite":
            return
        for _ in range(_SLICES):
            if await self.read(_free_pages) <= _KEPT_PAGES:
                return
            await self.write(_release_pages)

    async def close(self) -> None:
        """Close every connection. Nothing may be under way any more."""
        self._threads.shutdown()
        self._thread_reader.dispose()
        self._thread_writer.dispose()
        await self._reader.dispose()
        await self._writer.dispose()
        if self._temporary is not None:
            self._temporary.cleanup()

    def _resolve(self, text_url: str, temporary_below: Path | None) -> URL:
        try:
            url = make_url(text_url)
        except ArgumentError:
            raise DatabaseUrlError(
                f"{text_url!r} is not a database URL; use sqlite:///path or "
                "postgresql://user@host/name"
            ) from None
        backend = url.get_backend_name()
        if backend in ("postgresql", "postgres"):
            return url.set(drivername="postgresql+psycopg")
        if backend != "sqlite":
            raise DatabaseUrlError(
                f"database {backend!r} is not supported; use sqlite:///path or "
                "postgresql://user@host/name"
            )
        path = url.database
        if path in (None, "", ":memory:"):
            # Connections of a pool do not share a real in-memory database.
            self._temporary = tempfile.TemporaryDirectory(
                prefix="trainhall-db-", dir=temporary_below
            )
            path = str(Path(self._temporary.name) / "trainhall.db")
        Path(str(path)).parent.mkdir(parents=True, exist_ok=True)
        return url.set(drivername="sqlite+aiosqlite", database=str(path))

    def _sqlite_async(self, *, begin: str, connections: int) -> AsyncEngine:
        engine = create_async_engine(
            self.url,
            poolclass=AsyncAdaptedQueuePool,
            pool_size=connections,
            max_overflow=0,
            pool_timeout=60,
            json_serializer=dump_json,
        )
        vars(engine.sync_engine.dialect).update(do_terminate=_end)
        _set_up_sqlite(engine.sync_engine, begin, durable=self._temporary is None)
        return engine

    def _sqlite_sync(self, *, begin: str, connections: int) -> Engine:
        engine = create_engine(
            self.url.set(drivername="sqlite"),
            poolclass=QueuePool,
            pool_size=connections,
            max_overflow=0,
            pool_timeout=60,
            json_serializer=dump_json,
            connect_args={"check_same_thread": False},  # the pool hands it from thread to thread
        )
        _set_up_sqlite(engine, begin, durable=self._temporary is None)
        return engine


@contextlib.contextmanager
def _report_busy_pool_as_refusal() -> Iterator[None]:
    """Raise the timeout of a busy pool as the error of a database that does not answer: callers
    handle both alike."""
    try:
        yield
    except PoolTimeout as error:
        raise OperationalError(None, None, error) from error


def was_undone(error: DBAPIError) -> bool:
    """Return whether Postgres undid a transaction in favour of another: a retry may succeed."""
    return _sqlstate(error) in _UNDONE


def is_full(error: DBAPIError) -> bool:
    """Return whether the database, or the disk that it is on, is full."""
    return _sqlstate(error) == "53100" or _sqlite_name(error) == "SQLITE_FULL"


def is_read_only(error: DBAPIError) -> bool:
    """Return whether the database lets nobody write."""
    return _sqlstate(error) == "25006" or _sqlite_name(error).startswith("SQLITE_READONLY")


def _sqlstate(error: DBAPIError) -> str | None:
    return getattr(error.orig, "sqlstate", None)


def _sqlite_name(error: DBAPIError) -> str:
    return getattr(error.orig, "sqlite_errorname", None) or ""


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _end(connection: DBAPIConnection) -> None:
    """Close the connection of a cancelled task.

    SQLAlchemy would close it in a task of its own, which never ends where a second cancellation
    stops the connection's thread meanwhile. A closed one with an open cursor keeps its lock.
    """
    try:
        connection.rollback()
    finally:
        connection.close()


def _set_up_sqlite(engine: Engine, begin: str, *, durable: bool) -> None:
    @event.listens_for(engine, "connect")
    def set_up(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # we begin transactions ourselves
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}")
        # A temporary file outlives no crash, so nothing of it needs to reach the disk.
        cursor.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()
        # Its own knows the letters of ASCII alone.
        connection.create_function("lower", 1, _lower, deterministic=True)

    @event.listens_for(engine, "begin")
    def start(connection: Connection) -> None:
        connection.exec_driver_sql(begin)


def _free_pages(connection: Connection) -> int:
    return int(connection.exec_driver_sql("PRAGMA freelist_count").scalar_one())


def _release_pages(connection: Connection) -> None:
    driver: Any = connection.connection.driver_connection
    for _ in range(min(_SLICE_PAGES, _free_pages(connection) - _KEPT_PAGES)):
        # One at a time: the driver takes one step of a statement without columns, which is a page.
        driver.execute("PRAGMA incremental_vacuum(1)")


def _set_up_file(url: URL) -> None:
    """Set the modes that the file keeps. SQLite's own waiting for locks does not cover this."""
    engine = create_engine(
        url.set(drivername="sqlite"),
        poolclass=NullPool,
        isolation_level="AUTOCOMMIT",
        connect_args={"timeout": 0},
    )
    deadline = time.monotonic() + _BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            with engine.connect() as connection:
                # Before the first page is written; later it would take a VACUUM of the whole file.
                connection.exec_driver_sql("PRAGMA auto_vacuum = INCREMENTAL")
                connection.exec_driver_sql("PRAGMA journal_mode = WAL")
            return
        except OperationalError as error:
            if "locked" not in str(error.orig) or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def _revision(connection: Connection) -> str | None:
    """Return the revision of the tables, or None where there are none; without Alembic's slow
    import."""
    if not connection.dialect.has_table(connection, "alembic_version"):
        return None
    try:
        return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    except DatabaseError:
        return None


def _upgrade(connection: Connection) -> None:
    # Asked again, now that no other coordinator can do the same.
    revision = _revision(connection)
    # Imported here alone: a database that is up to date needs neither, and an empty one no Alembic,
    # whose import is a tenth of a second and 10 MB.
    if revision is None:
        from trainhall.db.migrations import fresh

        fresh.create(connection)
    elif revision != HEAD:
        from trainhall.db.migrations import runner

        runner.upgrade(connection)
