"""The coordinator's database: SQLite as in production, on one connection and without threads.

It outlives the coordinators that open it. A coordinator is killed only between transactions, where
its tasks wait: that a transaction is whole or not at all is SQLite's own promise.
"""

import asyncio
import functools
import random
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

import orjson
from sqlalchemy import Connection, StaticPool, create_engine, make_url
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session, sessionmaker

from trainhall.cluster.simulator.loop import Process
from trainhall.db.database import Database
from trainhall.db.models import Base
from trainhall.db.types import dump_json

T = TypeVar("T")


class Inline:
    """Subset of an `AsyncSession`, on a database that answers at once.

    SQLAlchemy's own run everything in a greenlet, which costs more than it does.
    """

    def __init__(self, wrapped: Session | Connection) -> None:
        self._wrapped: Any = wrapped
        self.sync_session = wrapped

    def add(self, instance: Base) -> None:
        self._wrapped.add(instance)

    def add_all(self, instances: Iterable[Base]) -> None:
        self._wrapped.add_all(instances)

    async def connection(self) -> "Inline":
        return Inline(self._wrapped.connection())

    async def run_sync(self, work: Callable[..., T], *args: Any) -> T:
        return work(self._wrapped, *args)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._wrapped, name)

        async def call(*args: Any, **options: Any) -> Any:
            return method(*args, **options)

        return call


class Disk:
    """The file of the database, how long its disk takes, and its observer.

    Args:
        on_commit: called after each commit.
        path: a file that has its tables; None: empty tables in memory.
    """

    def __init__(
        self,
        chance: random.Random,
        on_commit: Callable[[], None] = lambda: None,
        path: str | None = None,
    ) -> None:
        if path is None:
            self.connection, self.alchemy = _database()
            self.connection.deserialize(_empty_tables())
        else:
            self.connection, self.alchemy = _connect(path)
            self.connection.execute("PRAGMA synchronous = OFF")
        self.connection.execute("PRAGMA foreign_keys = ON")
        self.on_commit = on_commit
        self.slow_seconds = 0.0
        """The longest that a transaction takes at present, at either of its ends."""
        self.failing = 0.0
        """The share of transactions that the disk refuses at present."""
        self._chance = chance

    def close(self) -> None:
        self.alchemy.close()
        self.connection.close()

    async def turn(self) -> None:
        """Let others run for a moment, in which a process may be killed."""
        await asyncio.sleep(self._chance.uniform(0.0, self.slow_seconds or 0.002))

    def refuse_sometimes(self) -> None:
        """Raise OperationalError, sometimes: the disk fails."""
        if self.failing and self._chance.random() < self.failing:
            raise OperationalError("BEGIN", {}, sqlite3.OperationalError("disk I/O error"))


class SimulatedDatabase(Database):
    """One coordinator's view of the disk; once its process was killed it changes nothing more."""

    def __init__(self, disk: Disk, process: Process) -> None:
        self.url = make_url("sqlite://")
        self.dialect = "sqlite"
        self._turn = asyncio.Lock()
        self._disk = disk
        self._process = process
        self._reading = sessionmaker(disk.alchemy, expire_on_commit=False, autoflush=False)
        self._writing = sessionmaker(disk.alchemy, expire_on_commit=False)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[AsyncSession]:
        self._check()
        with self._reading() as session:
            yield cast(AsyncSession, Inline(session))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncSession]:
        async with self._turn:
            await self._disk.turn()
            self._check()
            self._disk.refuse_sometimes()
            with self._writing.begin() as session:
                yield cast(AsyncSession, Inline(session))
            self._disk.on_commit()
            await self._disk.turn()

    async def read(self, work: Callable[[Connection], T]) -> T:
        self._check()
        with self._disk.alchemy.begin():
            return work(self._disk.alchemy)

    async def write(self, work: Callable[[Connection], T]) -> T:
        async with self._turn:
            await self._disk.turn()
            self._check()
            self._disk.refuse_sometimes()
            with self._disk.alchemy.begin():
                result = work(self._disk.alchemy)
            self._disk.on_commit()
            await self._disk.turn()
            return result

    async def reclaim(self) -> None:
        """Release nothing: the file lies in memory."""

    def _check(self) -> None:
        if not self._process.alive:
            raise asyncio.CancelledError


@functools.cache
def _database() -> tuple[sqlite3.Connection, Connection]:
    """Return this process's database for all runs: compiling the statements takes longest."""
    return _connect(":memory:")


def _connect(path: str) -> tuple[sqlite3.Connection, Connection]:
    """Return one connection, and the same through SQLAlchemy."""
    # A transaction begins with what it changes first: no one else reads or writes meanwhile.
    connection = sqlite3.connect(
        path, isolation_level="IMMEDIATE", check_same_thread=False, cached_statements=1000
    )
    engine = create_engine(
        "sqlite://",
        poolclass=StaticPool,
        creator=lambda: connection,
        json_serializer=dump_json,
        json_deserializer=orjson.loads,
    )
    return connection, engine.connect()


@functools.cache
def _empty_tables() -> bytes:
    """Return the tables of the models, which a test compares with the migrations."""
    connection = sqlite3.connect(":memory:")
    engine = create_engine("sqlite://", poolclass=StaticPool, creator=lambda: connection)
    Base.metadata.create_all(engine)
    data: Any = connection.serialize()
    connection.close()
    return bytes(data)
