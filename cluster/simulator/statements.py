"""Statements that are run again and again, past what SQLAlchemy does for each run of one.

SQLAlchemy says what a statement is in SQL, and what its values go through on their way to the
database and back. That is kept; a run is then little more than what SQLite does.
"""

import sqlite3
import weakref
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, cast

from sqlalchemy import Dialect, Select, Update, bindparam, inspect, select
from sqlalchemy.engine import IteratorResult
from sqlalchemy.engine.result import SimpleResultMetaData
from sqlalchemy.orm import Mapper, Session, make_transient_to_detached
from sqlalchemy.orm.attributes import set_committed_value
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.types import TypeEngine

from trainhall.db.models import Base

Row = tuple[Any, ...]
_Convert = Callable[[Any], Any] | None
"""Makes a value of Python's one of the database's, or the other way; None: it is one already."""

_UNKNOWN: Any = object()


class Statements:
    """The plans of one database's statements."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._run_once: weakref.WeakSet[Any] = weakref.WeakSet()
        self._by_key: dict[type[Base], Plan] = {}
        self._plans: MutableMapping[Any, Plan | None] = weakref.WeakKeyDictionary()

    def by_key(self, entity: type[Base]) -> "Plan":
        """Reads the row of a primary key; its values are given as `key_0`, `key_1`…, in order."""
        found = self._by_key.get(entity)
        if found is None:
            key = enumerate(inspect(entity).primary_key)
            statement = select(entity).where(*(c == bindparam(f"key_{i}") for i, c in key))
            found = self._by_key[entity] = Plan(statement, self._dialect)
        return found

    def plan(self, statement: Any, *, objects: bool = True) -> "Plan | None":
        """How to run a statement that was run before; None where SQLAlchemy has to do it.

        Most statements are built for one run, and a plan would cost more than it saves.

        Args:
            objects: it is run by a session, which may hold objects of the rows that it changes.
        """
        found = self._plans.get(statement, _UNKNOWN)
        if found is not _UNKNOWN:
            return cast("Plan | None", found)
        if statement not in self._run_once:
            self._run_once.add(statement)
            return None
        plan = self._plans[statement] = self._made(statement, objects=objects)
        return plan

    def _made(self, statement: Any, *, objects: bool) -> "Plan | None":
        if isinstance(statement, Update):
            # Otherwise the session brings the objects that it holds in line with it.
            options = statement.get_execution_options()
            is_plain = not objects or options.get("synchronize_session") is False
        else:
            is_plain = isinstance(statement, Select)
        if not is_plain:
            return None
        compiled = cast(SQLCompiler, statement.compile(dialect=self._dialect))
        if any(bound.expanding and bound.required for bound in compiled.binds.values()):
            return None  # each length of a list is another text
        return Plan(statement, self._dialect)


class Plan:
    """A statement in SQL, its parameters, and what its rows become."""

    def __init__(self, statement: Any, dialect: Dialect) -> None:
        names: list[str] = []
        self._columns: list[_Column | _Entity] = []
        if isinstance(statement, Select):
            expressions: list[Any] = []
            for each in statement.column_descriptions:
                names.append(each["name"])
                if each["expr"] is each["entity"]:
                    entity = _Entity(inspect(each["entity"]), len(expressions), dialect)
                    self._columns.append(entity)
                    expressions += entity.attributes
                else:
                    self._columns.append(_Column(each["type"], len(expressions), dialect))
                    expressions.append(each["expr"])
            statement = statement.with_only_columns(*expressions, maintain_column_froms=True)
        else:
            for at, column in enumerate(statement.exported_columns):
                names.append(column.key)
                self._columns.append(_Column(column.type, at, dialect))
        self._names = SimpleResultMetaData(names)
        compiled = cast(SQLCompiler, statement.compile(dialect=dialect))
        required = {name: bound for name, bound in compiled.binds.items() if bound.required}
        expanded = compiled.construct_expanded_state(dict.fromkeys(required))
        self._sql = expanded.statement
        self._given: list[tuple[int, str, _Convert]] = []
        self._parameters: list[Any] = []
        for at, name in enumerate(expanded.positiontup or ()):
            value, bound = expanded.parameters[name], compiled.binds.get(name)
            # The elements of a list have none, and they are text and numbers.
            convert = _to_database(bound.type, dialect) if bound is not None else None
            if name in required:
                self._given.append((at, required[name].key, convert))
            elif convert is not None:
                value = convert(value)
            self._parameters.append(value)

    def run(self, connection: sqlite3.Connection, given: Mapping[str, Any]) -> list[Row]:
        """
        Args:
            given: the values of the statement's own parameters.
        """
        parameters = self._parameters
        if self._given:
            parameters = parameters.copy()
            for at, key, convert in self._given:
                value = given[key]
                parameters[at] = value if convert is None else convert(value)
        return connection.execute(self._sql, parameters).fetchall()

    def scalars(self, rows: list[Row], objects: "Objects", *, populate: bool) -> list[Any]:
        """The first value of each row."""
        return self._columns[0].read(rows, objects, populate=populate)

    def result(self, rows: list[Row], objects: "Objects", *, populate: bool) -> IteratorResult[Any]:
        columns = [each.read(rows, objects, populate=populate) for each in self._columns]
        return IteratorResult(self._names, iter(list(zip(*columns, strict=True))))


class Objects:
    """What a session has loaded: a row is one object in it, however often it is read.

    Args:
        session: what takes objects up that may be changed; None where they are only read.
    """

    def __init__(self, session: Session | None) -> None:
        self._session = session
        self._read: dict[Any, Any] = {}

    def find(self, mapper: Mapper[Any], key: Sequence[Any]) -> Any:
        """The object of a primary key, if it is there already."""
        identity = mapper.identity_key_from_primary_key(tuple(key))
        if self._session is None:
            return self._read.get(identity)
        return self._session.identity_map.get(identity)

    def add(self, mapper: Mapper[Any], key: Sequence[Any], instance: Any) -> None:
        if self._session is None:
            self._read[mapper.identity_key_from_primary_key(tuple(key))] = instance
        else:
            make_transient_to_detached(instance)
            self._session.add(instance)


class _Column:
    def __init__(self, type_: TypeEngine[Any], at: int, dialect: Dialect) -> None:
        self._at = at
        self._convert = _from_database(type_, dialect)

    def read(self, rows: list[Row], objects: Objects, *, populate: bool) -> list[Any]:
        at, convert = self._at, self._convert
        if convert is None:
            return [row[at] for row in rows]
        return [convert(row[at]) for row in rows]


class _Entity:
    def __init__(self, mapper: Mapper[Base], at: int, dialect: Dialect) -> None:
        self._mapper = mapper
        columns = [mapper.get_property_by_column(column) for column in mapper.columns]
        self.attributes = [getattr(mapper.class_, each.key) for each in columns]
        self._fields = [
            (at + i, each.key, _from_database(each.columns[0].type, dialect))
            for i, each in enumerate(columns)
        ]
        places: dict[Any, int] = {column: at + i for i, column in enumerate(mapper.columns)}
        self._key = [places[column] for column in mapper.primary_key]

    def read(self, rows: list[Row], objects: Objects, *, populate: bool) -> list[Any]:
        return [self._instance(row, objects, populate=populate) for row in rows]

    def _instance(self, row: Row, objects: Objects, *, populate: bool) -> Any:
        key = [row[at] for at in self._key]
        known = objects.find(self._mapper, key)
        if known is None:
            known = self._mapper.class_manager.new_instance()
            known.__dict__.update(self._values(row))
            objects.add(self._mapper, key, known)
        elif populate:
            for name, value in self._values(row).items():
                set_committed_value(known, name, value)
        elif expired := inspect(known).expired_attributes:
            for name, value in self._values(row).items():
                if name in expired:
                    set_committed_value(known, name, value)
        return known

    def _values(self, row: Row) -> dict[str, Any]:
        return {
            name: row[at] if convert is None else convert(row[at])
            for at, name, convert in self._fields
        }


def _to_database(type_: TypeEngine[Any], dialect: Dialect) -> _Convert:
    return type_.dialect_impl(dialect).bind_processor(dialect)


def _from_database(type_: TypeEngine[Any], dialect: Dialect) -> _Convert:
    return type_.dialect_impl(dialect).result_processor(dialect, None)
