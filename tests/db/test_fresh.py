"""An empty database gets from the models what all migrations together would have made."""

import re
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, text

from trainhall.db.database import Database
from trainhall.db.migrations import fresh, runner

_SCHEMAS = {
    "sqlite": (
        "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL",
    ),
    "postgresql": (
        "SELECT table_name, column_name, data_type, character_maximum_length, is_nullable, "
        "column_default FROM information_schema.columns WHERE table_schema = 'public'",
        "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint "
        "WHERE connamespace = 'public'::regnamespace AND contype <> 'n'",
        "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
        "SELECT sequencename, data_type::text FROM pg_sequences WHERE schemaname = 'public'",
    ),
}  # fmt: skip


async def test_fresh_tables_are_those_of_the_migrations(empty_database_url: str) -> None:
    database = Database(empty_database_url)
    migrated = await _made_by(database, runner.upgrade)
    made = await _made_by(database, fresh.create)
    assert made == migrated
    assert len(made[0]) > 50
    await database.close()


async def _made_by(
    database: Database, make: Callable[[Connection], None]
) -> tuple[set[Any], set[Any]]:
    """Return the schema, and the rows, that `make` leaves; the database stays empty."""
    async with database.transaction() as session:
        connection = await session.connection()
        await connection.run_sync(make)
        described = await connection.run_sync(_describe)
        await session.rollback()
    return described


def _describe(connection: Connection) -> tuple[set[Any], set[Any]]:
    schema = {
        tuple(_any_order(value) for value in row)
        for query in _SCHEMAS[connection.dialect.name]
        for row in connection.execute(text(query))
    }
    rows = {
        (name, *(str(value) for column, value in row.items() if column != "created_at"))
        for name in ("alembic_version", *fresh.METADATA.tables)
        for row in connection.execute(text(f'SELECT * FROM "{name}"')).mappings()
    }
    return schema, rows


def _any_order(value: Any) -> Any:
    """Return a statement that makes a table as its parts: migrations append their columns."""
    if not str(value).startswith("CREATE TABLE"):
        return value
    begin, parts = " ".join(value.split()).split("(", 1)
    return begin.strip(), frozenset(re.split(r", (?![^(]*\))", parts.removesuffix(")").strip()))
