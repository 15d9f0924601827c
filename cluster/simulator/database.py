"""The coordinator's database in memory: SQLite as in production, on one connection, no threads.

It outlives the coordinators that open it. A coordinator is killed only between transactions, where
its tasks wait: that a transaction is whole or not at all is SQLite's own promise.
"""

import asyncio
import functools
import random
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

import orjson
from sqlalchemy import Connection, Select, StaticPool, create_engine, inspect, make_url
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session, sessionmaker

from trainhall.cluster.simulator.loop import Process
from trainhall.cluster.simulator.statements import Objects, Plan, Row, Statements
from trainhall.db.database import Database
from trainhall.db.models import Base
from trainhall.db.types import dump_json

T = TypeVar("T")


class InlineSession:
    """What is used of an `AsyncSession`, on a database that answers at once.

    SQLAlchemy's own runs everything in a greenlet, which costs more than it does. What a session
    does for objects costs several times what reading plain columns does, so those go past it, and
    all that is run again and again goes past SQLAlchemy.

    Args:
        begin: begins the session of SQLAlchemy's: for what is only read there is mostly no need.
    """

    def __init__(self, disk: "Disk", begin: Callable[[], Session], *, reads: bool) -> None:
        self._disk = disk
        self._begin = begin
        self._begun: Session | None = None
        self._reads = reads
        self._objects = Objects(None if reads else self._session)

    @property
    def _session(self) -> Session:
        if self._begun is None:
            self._begun = self._begin()
        return self._begun

    def add(self, instance: Base) -> None:
        self._session.add(instance)

    async def connection(self) -> "InlineConnection":
        return InlineConnection(PlannedConnection(self._session.connection(), self._disk))

    async def execute(self, statement: Any, *args: Any, **options: Any) -> Any:
        plan = self._disk.statements.plan(statement)
        if plan is None:
            return self._for(statement, options).execute(statement, *args, **options)
        return plan.result(self._run(plan, *args), self._objects, populate=False)

    async def scalar(self, statement: Any, *args: Any, **options: Any) -> Any:
        plan = self._disk.statements.plan(statement)
        if plan is None:
            return self._for(statement, options).scalar(statement, *args, **options)
        return next(iter(self._scalars(plan, *args)), None)

    async def scalars(self, statement: Any, *args: Any, **options: Any) -> Any:
        plan = self._disk.statements.plan(statement)
        if plan is None:
            return self._for(statement, options).scalars(statement, *args, **options)
        return plan.result(self._run(plan, *args), self._objects, populate=False).scalars()

    async def get(
        self,
        entity: type[Base],
        key: Any,
        *,
        with_for_update: object = None,
        populate_existing: bool = False,
    ) -> Any:
        """A lock nobody waits for here: it only means that the row is read again."""
        fresh = populate_existing or with_for_update is not None
        values = key if isinstance(key, tuple) else (key,)
        known = None if fresh else self._objects.find(inspect(entity), values)
        if known is not None and not inspect(known).expired_attributes:
            return known
        plan = self._disk.statements.by_key(entity)
        rows = self._run(plan, {f"key_{i}": value for i, value in enumerate(values)})
        return next(iter(plan.scalars(rows, self._objects, populate=fresh)), None)

    async def refresh(self, *args: Any, **options: Any) -> None:
        self._session.refresh(*args, **options)

    async def flush(self) -> None:
        self._session.flush()

    async def delete(self, instance: object) -> None:
        self._session.delete(instance)

    def close(self) -> None:
        if self._begun is not None:
            self._begun.close()

    def _run(self, plan: Plan, given: Mapping[str, Any] | None = None) -> list[Row]:
        if not self._reads:
            self._session.flush()
        return plan.run(self._disk.connection, given or {})

    def _scalars(self, plan: Plan, given: Mapping[str, Any] | None = None) -> list[Any]:
        return plan.scalars(self._run(plan, given), self._objects, populate=False)

    def _for(self, statement: Any, options: dict[str, Any]) -> Session | Connection:
        """Who runs a statement: the session, unless it asks for columns alone."""
        entities = not isinstance(statement, Select) or any(
            column.is_selectable for column in statement._raw_columns
        )
        if entities or options:
            return self._session
        if self._session.autoflush:
            self._session.flush()
        return self._session.connection()


class PlannedConnection:
    """What is used of a connection of SQLAlchemy's."""

    def __init__(self, connection: Connection, disk: "Disk") -> None:
        self._connection = connection
        self._disk = disk
        self.dialect = connection.dialect

    def execute(self, statement: Any, parameters: Any = None) -> Any:
        # A list is run for each of its elements.
        if not isinstance(parameters, list):
            plan = self._disk.statements.plan(statement, objects=False)
            if plan is not None:
                rows = plan.run(self._disk.connection, parameters or {})
                return plan.result(rows, Objects(None), populate=False)
        return self._connection.execute(statement, parameters)

    def scalar(self, statement: Any, parameters: Any = None) -> Any:
        return self.execute(statement, parameters).scalar()

    def scalars(self, statement: Any, parameters: Any = None) -> Any:
        return self.execute(statement, parameters).scalars()


class InlineConnection:
    def __init__(self, connection: PlannedConnection) -> None:
        self._connection = connection

    async def execute(self, *args: Any, **options: Any) -> Any:
        return self._connection.execute(*args, **options)


class Disk:
    """The file of the database, how long its disk takes, and who looks on.

    Args:
        on_commit: called after each commit.
    """

    def __init__(self, chance: random.Random, on_commit: Callable[[], None]) -> None:
        self.connection, self.alchemy, self.statements = _database()
        self.connection.deserialize(_empty_tables())
        self.connection.execute("PRAGMA foreign_keys = ON")
        self.on_commit = on_commit
        self.slow_seconds = 0.0
        """The longest that a transaction takes at present, at either of its ends."""
        self.failing = 0.0
        """The share of transactions that the disk refuses at present."""
        self._chance = chance

    def planned(self) -> Connection:
        return cast(Connection, PlannedConnection(self.alchemy, self))

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
        self._reading = sessionmaker(disk.alchemy, expire_on_commit=False, autoflush=False)
        self._writing = sessionmaker(disk.alchemy, expire_on_commit=False)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[AsyncSession]:
        self._check()
        session = InlineSession(self._disk, self._reading, reads=True)
        try:
            yield cast(AsyncSession, session)
        finally:
            session.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncSession]:
        async with self._turn:
            await self._disk.turn()
            self._check()
            self._disk.refuse_sometimes()
            with self._writing.begin() as session:
                inline = InlineSession(self._disk, lambda: session, reads=False)
                yield cast(AsyncSession, inline)
            self._disk.on_commit()
            await self._disk.turn()

    async def read(self, work: Callable[[Connection], T]) -> T:
        self._check()
        with self._disk.alchemy.begin():
            return work(self._disk.planned())

    async def write(self, work: Callable[[Connection], T]) -> T:
        async with self._turn:
            await self._disk.turn()
            self._check()
            self._disk.refuse_sometimes()
            with self._disk.alchemy.begin():
                result = work(self._disk.planned())
            self._disk.on_commit()
            await self._disk.turn()
            return result

    async def reclaim(self) -> None:
        """Release nothing: the file lies in memory."""

    def _check(self) -> None:
        if not self._process.alive:
            raise asyncio.CancelledError


@functools.cache
def _database() -> tuple[sqlite3.Connection, Connection, Statements]:
    """Of this process, for one run after the other: compiling the statements takes longest.

    One connection, and the same through SQLAlchemy.
    """
    # A transaction begins with what it changes first: nobody else reads or writes meanwhile.
    connection = sqlite3.connect(
        ":memory:", isolation_level="IMMEDIATE", check_same_thread=False, cached_statements=1000
    )
    engine = create_engine(
        "sqlite://",
        poolclass=StaticPool,
        creator=lambda: connection,
        json_serializer=dump_json,
        json_deserializer=orjson.loads,
    )
    return connection, engine.connect(), Statements(engine.dialect)


@functools.cache
def _empty_tables() -> bytes:
    """Of the models, which a test holds against the migrations."""
    connection = sqlite3.connect(":memory:")
    engine = create_engine("sqlite://", poolclass=StaticPool, creator=lambda: connection)
    Base.metadata.create_all(engine)
    data: Any = connection.serialize()
    connection.close()
    return bytes(data)
