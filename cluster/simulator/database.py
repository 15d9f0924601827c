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
from typing import Any, TypeVar, cast

from sqlalchemy import (
    Connection,
    Engine,
    Select,
    StaticPool,
    bindparam,
    create_engine,
    event,
    inspect,
    make_url,
    select,
)
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.orm.util import identity_key

from trainhall.cluster.simulator.loop import Process
from trainhall.db.database import Database
from trainhall.db.models import Base
from trainhall.db.types import dump_json

T = TypeVar("T")


class InlineSession:
    """What is used of an `AsyncSession`, on a database that answers at once.

    SQLAlchemy's own runs everything in a greenlet, which costs more than it does. What a session
    does for objects costs several times what reading plain columns does, so those go past it.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._connection = session.connection()
        self.add = session.add

    async def connection(self) -> "InlineConnection":
        return InlineConnection(self._connection)

    async def execute(self, statement: Any, *args: Any, **options: Any) -> Any:
        return self._for(statement, options).execute(statement, *args, **options)

    async def scalar(self, statement: Any, *args: Any, **options: Any) -> Any:
        return self._for(statement, options).scalar(statement, *args, **options)

    async def scalars(self, statement: Any, *args: Any, **options: Any) -> Any:
        return self._for(statement, options).scalars(statement, *args, **options)

    async def get(
        self,
        entity: type[Base],
        key: Any,
        *,
        with_for_update: object = None,
        populate_existing: bool = False,
    ) -> Any:
        """The session's own builds its statement anew each time. A lock nobody waits for here: it
        only means that the row is read again."""
        fresh = populate_existing or with_for_update is not None
        values = key if isinstance(key, tuple) else (key,)
        if not fresh and identity_key(entity, values) in self._session.identity_map:
            return self._session.get(entity, key)
        statement = _by_key(entity)
        return self._session.scalar(
            statement,
            {f"key_{i}": value for i, value in enumerate(values)},
            execution_options={"populate_existing": fresh},
        )

    async def refresh(self, *args: Any, **options: Any) -> None:
        self._session.refresh(*args, **options)

    async def flush(self) -> None:
        self._session.flush()

    async def delete(self, instance: object) -> None:
        self._session.delete(instance)

    def _for(self, statement: Any, options: dict[str, Any]) -> Session | Connection:
        """Who runs a statement: the session, unless it asks for columns alone."""
        entities = not isinstance(statement, Select) or any(
            column.is_selectable for column in statement._raw_columns
        )
        if entities or options:
            return self._session
        if self._session.autoflush:
            self._session.flush()
        return self._connection


@functools.cache
def _by_key(entity: type[Base]) -> Select[Any]:
    """The statement that reads the row of a primary key, its values given in the key's order."""
    key = inspect(entity).primary_key
    return select(entity).where(*(c == bindparam(f"key_{i}") for i, c in enumerate(key)))


class InlineConnection:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def execute(self, *args: Any, **options: Any) -> Any:
        return self._connection.execute(*args, **options)


class Disk:
    """The file of the database, how long its disk takes, and who looks on.

    Args:
        on_commit: called after each commit.
    """

    def __init__(self, chance: random.Random, on_commit: Callable[[], None]) -> None:
        self.connection, self.engine = _engine()
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
        self.url = make_url("sqlite://")
        self.dialect = "sqlite"
        self._turn = asyncio.Lock()
        self._disk = disk
        self._process = process
        self._reading = sessionmaker(disk.engine, expire_on_commit=False, autoflush=False)
        self._writing = sessionmaker(disk.engine, expire_on_commit=False)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[AsyncSession]:
        self._check()
        with self._reading() as session:
            yield cast(AsyncSession, InlineSession(session))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncSession]:
        async with self._turn:
            await self._disk.turn()
            self._check()
            self._disk.refuse_sometimes()
            with self._writing.begin() as session:
                yield cast(AsyncSession, InlineSession(session))
            self._disk.on_commit()
            await self._disk.turn()

    async def read(self, work: Callable[[Connection], T]) -> T:
        self._check()
        with self._disk.engine.begin() as connection:
            return work(connection)

    async def write(self, work: Callable[[Connection], T]) -> T:
        async with self._turn:
            await self._disk.turn()
            self._check()
            self._disk.refuse_sometimes()
            with self._disk.engine.begin() as connection:
                result = work(connection)
            self._disk.on_commit()
            await self._disk.turn()
            return result

    def _check(self) -> None:
        if not self._process.alive:
            raise asyncio.CancelledError


@functools.cache
def _engine() -> tuple[sqlite3.Connection, Engine]:
    """Of this process, for one run after the other: compiling the statements takes longest."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    engine = create_engine(
        "sqlite://", poolclass=StaticPool, creator=lambda: connection, json_serializer=dump_json
    )
    # Its first use sets the connection up, and closes it where a cursor is open meanwhile.
    engine.connect().close()
    event.listen(engine, "begin", _begin)
    return connection, engine


def _begin(connection: Connection) -> None:
    cast(sqlite3.Connection, connection.connection.driver_connection).execute("BEGIN IMMEDIATE")


@functools.cache
def _empty_tables() -> bytes:
    """Of the models, which a test holds against the migrations."""
    connection = sqlite3.connect(":memory:")
    engine = create_engine("sqlite://", poolclass=StaticPool, creator=lambda: connection)
    Base.metadata.create_all(engine)
    data: Any = connection.serialize()
    connection.close()
    return bytes(data)
