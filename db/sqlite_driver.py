"""SQLite behind asyncio with one hop to a thread for each statement.

aiosqlite takes four: to make a cursor, to execute, to fetch and to close. SQLAlchemy always reads
all rows, so the four are one here. A hop costs more than most statements do, and on a busy machine
each may wait until the thread gets a turn.
"""

import sqlite3
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any

import aiosqlite

_CHUNK_ROWS = 64
"""aiosqlite's own default; nothing here reads in chunks."""


def connect(database: str, **options: Any) -> "Connection":
    """For `async_creator_fn` of an engine; to be awaited."""
    connection = Connection(lambda: sqlite3.connect(database, **options), _CHUNK_ROWS)
    # As SQLAlchemy does itself: one that was not closed must not keep the process. Before
    # aiosqlite 0.22 the connection was the thread.
    thread: Any = getattr(connection, "_thread", connection)
    thread.daemon = True
    return connection


class Connection(aiosqlite.Connection):
    def cursor(self) -> "Cursor":  # type: ignore[override]  # SQLAlchemy asks no more of it
        return Cursor(self)


class Cursor:
    """Interface that SQLAlchemy uses of aiosqlite's cursor. It holds results and no resource."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._in_thread: Callable[..., Awaitable[None]] = connection._execute
        self._rows: list[Any] = []
        self.description: Any = None
        self.rowcount = -1
        self.lastrowid: int | None = None
        self.arraysize = 1

    async def __aenter__(self) -> "Cursor":
        return self

    def __await__(self) -> Generator[Any, None, "Cursor"]:
        # SQLAlchemy 2.0 awaits a cursor where later versions enter it.
        return self.__aenter__().__await__()

    async def execute(self, statement: str, parameters: Sequence[Any] = ()) -> None:
        await self._in_thread(self._run, "execute", statement, parameters)

    async def executemany(self, statement: str, parameters: Sequence[Sequence[Any]]) -> None:
        await self._in_thread(self._run, "executemany", statement, parameters)

    async def fetchall(self) -> list[Any]:
        return self._rows

    async def close(self) -> None:
        """Nothing is open: should the caller be cancelled meanwhile, the thread sees to it."""

    def _run(self, how: str, statement: str, parameters: Sequence[Any]) -> None:
        cursor = self._connection._conn.cursor()
        try:
            getattr(cursor, how)(statement, parameters)
            self.description = cursor.description
            self._rows = cursor.fetchall() if self.description else []
            self.rowcount, self.lastrowid = cursor.rowcount, cursor.lastrowid
        finally:
            cursor.close()
