"""The coordinator's database in memory: SQLite as in production, on one connection, no threads.

It outlives the coordinators that open it. A coordinator is killed only between transactions, where
its tasks wait: that a transaction is whole or not at all is SQLite's own promise.
"""

import asyncio
import functools
import random
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, StaticPool, create_engine, event, make_url
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.util import await_only

from trainhall.cluster.simulator.loop import Process
from trainhall.db.database import Database
from trainhall.db.models import Base
from trainhall.db.types import dump_json

T = TypeVar("T")


class InlineDialect(SQLiteDialect_pysqlite):
    """SQLite in an asynchronous engine, without the thread that waits for a disk."""

    driver = "inline"
    is_async = True
    supports_statement_cache = True

    def do_execute(self, cursor: Any, statement: str, parameters: Any, context: Any = None) -> None:
        await_only(_nothing())  # SQLAlchemy insists that an asynchronous driver waits
        cursor.execute(statement, parameters)

    def do_executemany(
        self, cursor: Any, statement: str, parameters: Any, context: Any = None
    ) -> None:
        await_only(_nothing())  # SQLAlchemy insists that an asynchronous driver waits
        cursor.executemany(statement, parameters)


async def _nothing() -> None:
    return


registry.register("sqlite.inline", __name__, "InlineDialect")


class Disk:
    """The file of the database, how long its disk takes, and who looks on.

    Args:
        on_commit: called after each commit.
    """

    def __init__(self, chance: random.Random, on_commit: Callable[[], None]) -> None:
        self.connection, self.engine, self.thread_engine = _engines()
        self.connection.deserialize(_empty_tables())
        self.connection.execute("PRAGMA foreign_keys = ON")
        self.on_commit = on_commit
        self.slow_seconds = 0.0
        """The longest that a transaction takes at present, at either of its ends."""
        self.failing = 0.0
        """The share of transactions that the disk refuses at present."""
        self._chance = chance

    async def turn(self) -> None:
        """A moment in which others go on, and a process may be killed."""
        await asyncio.sleep(self._chance.uniform(0.0, self.slow_seconds or 0.002))

    def refuse_sometimes(self) -> None:
        """
        Raises:
            OperationalError: the disk fails.
        """
        if self.failing and self._chance.random() < self.failing:
            raise OperationalError("BEGIN", {}, sqlite3.OperationalError("disk I/O error"))


class SimulatedDatabase(Database):
    """One coordinator's view of the disk; once its process was killed it changes nothing more."""

    def __init__(self, disk: Disk, process: Process) -> None:
        self.url = make_url("sqlite+inline://")
        self.dialect = "sqlite"
        self._turn = asyncio.Lock()
        self._disk = disk
        self._process = process
        self._readers = async_sessionmaker(disk.engine, expire_on_commit=False, autoflush=False)
        self._writers = async_sessionmaker(disk.engine, expire_on_commit=False)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[AsyncSession]:
        self._check()
        session = self._readers()
        try:
            yield session
        finally:
            await session.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncSession]:
        async with self._turn:
            await self._disk.turn()
            self._check()
            self._disk.refuse_sometimes()
            session = self._writers()
            try:
                await session.begin()
                yield session
                await session.commit()
            finally:
                await session.close()
            self._disk.on_commit()
            await self._disk.turn()

    async def read(self, work: Callable[[Connection], T]) -> T:
        self._check()
        with self._disk.thread_engine.begin() as connection:
            return work(connection)

    async def write(self, work: Callable[[Connection], T]) -> T:
        async with self._turn:
            await self._disk.turn()
            self._check()
            self._disk.refuse_sometimes()
            with self._disk.thread_engine.begin() as connection:
                result = work(connection)
            self._disk.on_commit()
            await self._disk.turn()
            return result

    def _check(self) -> None:
        if not self._process.alive:
            raise asyncio.CancelledError


@functools.cache
def _engines() -> tuple[sqlite3.Connection, AsyncEngine, Engine]:
    """Of this process, for one run after the other: compiling the statements takes longest."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)

    def engine(url: str) -> Engine:
        made = create_engine(
            url, poolclass=StaticPool, creator=lambda: connection, json_serializer=dump_json
        )
        event.listen(made, "begin", _begin)
        return made

    return connection, AsyncEngine(engine("sqlite+inline://")), engine("sqlite://")


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


@functools.cache
def _empty_tables() -> bytes:
    """Of the models, which a test holds against the migrations."""
    connection = sqlite3.connect(":memory:")
    engine = create_engine("sqlite://", poolclass=StaticPool, creator=lambda: connection)
    Base.metadata.create_all(engine)
    data: Any = connection.serialize()
    connection.close()
    return bytes(data)
