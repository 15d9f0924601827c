"""What is run past SQLAlchemy tells the same as what SQLAlchemy runs."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import bindparam, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.simulator.database import Disk, SimulatedDatabase
from trainhall.cluster.simulator.loop import Process
from trainhall.db.models import Device, JobProgress, Node, NodeEvent

NOW = datetime(2026, 1, 1, 12, 30, tzinfo=UTC)
_LABELS = select(Node.name, Node.labels, Node.removing, Node.created_at).order_by(Node.name)
_IN_STATES = (
    select(Node, func.length(Node.name))
    .where(Node.state.in_(["ready", "lost"]), Node.name != bindparam("but"))
    .order_by(Node.name)
)
_SINCE = select(Node.id).where(Node.created_at >= bindparam("since"))
_LIST = select(Node.id).where(Node.name.in_(bindparam("names", expanding=True))).order_by(Node.id)
_RENAME = (
    update(Node)
    .where(Node.id == bindparam("at_node"))
    .values(name=bindparam("other"), labels=bindparam("told"))
    .returning(Node.name, Node.labels)
    .execution_options(synchronize_session=False)
)


def node(name: str, **more: Any) -> Node:
    columns: dict[str, Any] = {"state": "ready", "labels": {}, "removing": False, **more}
    return Node(id=name, name=name, state_at=NOW, reason="new", created_at=NOW, **columns)


@pytest.fixture
def database() -> Iterator[SimulatedDatabase]:
    disk = Disk(random.Random(1), on_commit=lambda: None)
    yield SimulatedDatabase(disk, Process("coordinator"))
    assert not disk.connection.in_transaction


async def fill(database: SimulatedDatabase) -> None:
    async with database.transaction() as session:
        for each in (node("a", labels={"rack": [1, None]}), node("b", removing=True)):
            session.add(each)


async def rows_of(session: AsyncSession, statement: Any, **given: Any) -> list[list[Any]]:
    """What three runs of a statement tell: SQLAlchemy's own, and two past it."""
    return [[tuple(row) for row in await session.execute(statement, given)] for _ in range(3)]


async def test_columns_and_objects_are_the_same(database: SimulatedDatabase) -> None:
    await fill(database)
    for context in (database.session, database.transaction):
        async with context() as session:
            by_alchemy, *planned = await rows_of(session, _LABELS)
            assert by_alchemy == [
                ("a", {"rack": [1, None]}, False, NOW), ("b", {}, True, NOW),
            ]  # fmt: skip
            assert planned == [by_alchemy] * 2
            for run in await rows_of(session, _IN_STATES, but="b"):
                ((found, length),) = run
                assert (found.id, found.labels, found.created_at) == (
                    "a",
                    {"rack": [1, None]},
                    NOW,
                )
                assert length == 1
            assert await rows_of(session, _SINCE, since=NOW) == [[("a",), ("b",)]] * 3
            assert await rows_of(session, _LIST, names=["b", "c", "a"]) == [[("a",), ("b",)]] * 3
            assert await rows_of(session, _LIST, names=["b"]) == [[("b",)]] * 3
            row = (await session.execute(_LABELS)).first()
            assert row is not None
            assert (row.name, row.removing) == ("a", False)


async def test_a_row_is_one_object_in_a_session(database: SimulatedDatabase) -> None:
    await fill(database)
    async with database.transaction() as session:
        first = await session.get(Node, "a")
        assert first is not None
        assert await session.get(Node, "a") is first
        assert (await session.get(Node, "c"), await session.get(Device, ("a", 1))) == (
            None,
            None,
        )
        first.reason = "changed"
        for run in await rows_of(session, _IN_STATES, but="b"):
            assert run[0][0] is first
        assert first.reason == "changed"
        # Another look at a locked row tells what is there now, and is no change of its own.
        for name in ("x", "y", "z"):
            given = {"at_node": "a", "other": name, "told": {"n": name}}
            result = await session.execute(_RENAME, given)
            assert result.one() == (name, {"n": name})
            again = await session.get(Node, "a", with_for_update=True)
            assert again is not None
            assert again is first
            assert (first.name, first.labels, first.reason) == (name, {"n": name}, "changed")
    async with database.session() as session:
        read = await session.get(Node, "a")
        assert read is not None
        assert (read.name, read.reason) == ("z", "changed")
        assert await session.get(Node, "a") is read


async def test_what_a_session_added_is_found(database: SimulatedDatabase) -> None:
    count = select(func.count()).select_from(NodeEvent).where(NodeEvent.node_id == bindparam("at"))

    await fill(database)
    async with database.transaction() as session:
        for number in range(1, 4):
            session.add(NodeEvent(node_id="a", time=NOW, state="ready", reason="again"))
            assert await session.scalar(count, {"at": "a"}) == number
        assert await session.scalar(select(JobProgress.step)) is None


async def test_connections_run_the_same(database: SimulatedDatabase) -> None:
    await fill(database)
    for _ in range(3):
        rows = await database.read(lambda c: c.execute(_LABELS).all())
        assert [tuple(row)[:2] for row in rows] == [("a", {"rack": [1, None]}), ("b", {})]
        changed = await database.write(
            lambda c: c.execute(_RENAME, {"at_node": "b", "other": "c", "told": {}}).one()
        )
        assert tuple(changed) == ("c", {})
        await database.write(
            lambda c: c.execute(_RENAME, {"at_node": "b", "other": "b", "told": {}}).one()
        )
