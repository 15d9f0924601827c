"""SQL that differs between SQLite and Postgres: values in JSON columns, and one order of text."""

import json
from typing import Any

from sqlalchemy import (
    Boolean,
    ColumnElement,
    Double,
    Integer,
    Text,
    case,
    cast,
    func,
    literal,
    literal_column,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import InstrumentedAttribute
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

SORTED_CHARACTERS = 64
"""Length of the beginning by which `SortableText` orders."""
_OPEN, _CLOSE = literal_column("'$.\"'", Text()), literal_column("'\"'", Text())
_NUMBERS: list[ColumnElement[str]] = [literal_column("'integer'"), literal_column("'real'")]
_TEXTS: list[ColumnElement[str]] = [literal_column("'string'"), literal_column("'boolean'")]
_TRUTH: dict[str, ColumnElement[str]] = {
    "true": literal_column("'true'"),
    "false": literal_column("'false'"),
}

JsonList = InstrumentedAttribute[list[Any] | None]
JsonColumn = InstrumentedAttribute[dict[str, Any]] | InstrumentedAttribute[dict[str, Any] | None]


class _JsonValue(FunctionElement[Any]):
    """Value under a key of an object in a JSON column; NULL if it is of another type.

    Raises:
        ValueError: the key has a quotation mark, which a path of SQLite cannot have.
    """

    inherit_cache = True

    def __init__(self, document: JsonColumn, key: str, item: int | None = None) -> None:
        """Read the value under a key, or one `item` of the list there."""
        if '"' in key:
            raise ValueError("a key with a quotation mark cannot be read")
        # SQLite compares keys as they are written in the document, which is ASCII.
        written = json.dumps(key)[1:-1]
        items = [] if item is None else [literal_column(str(item), Integer())]
        super().__init__(document, literal(key, Text()), literal(written, Text()), *items)


class JsonNumber(_JsonValue):
    """A number as a float."""

    type = Double()
    name = "json_number"
    inherit_cache = True


class JsonText(_JsonValue):
    """A string as it is, a boolean as `true` or `false`."""

    type = Text()
    name = "json_text"
    inherit_cache = True


class HasKey(_JsonValue):
    """Test for a value of any type."""

    type = Boolean()
    name = "has_key"
    inherit_cache = True


class JsonItems(FunctionElement[str]):
    """Rows of a list of texts in a JSON column, as a table with the column `value`."""

    name = "json_items"
    inherit_cache = True

    def __init__(self, document: JsonList) -> None:
        super().__init__(document)


class SortableText(FunctionElement[str]):
    """Beginning of a text without case; orders alike in both databases."""

    type = Text()
    name = "sortable_text"
    inherit_cache = True

    def __init__(self, value: ColumnElement[str]) -> None:
        super().__init__(func.substr(func.lower(value), 1, SORTED_CHARACTERS))


# SQLite renders them as a statement without a dialect does, in a log or a test.
@compiles(JsonNumber)
def _sqlite_number(element: JsonNumber, compiler: SQLCompiler, **options: Any) -> str:
    kind, value = _in_sqlite(element)
    return compiler.process(case((kind.in_(_NUMBERS), cast(value, Double()))), **options)


@compiles(JsonNumber, "postgresql")
def _postgres_number(element: JsonNumber, compiler: SQLCompiler, **options: Any) -> str:
    kind, value = _in_postgres(element)
    number = case((kind == literal_column("'number'"), cast(value, Double())))
    return compiler.process(number, **options)


@compiles(JsonText)
def _sqlite_text(element: JsonText, compiler: SQLCompiler, **options: Any) -> str:
    kind, value = _in_sqlite(element)
    return compiler.process(
        case(
            (kind == literal_column("'text'"), value),
            *((kind == truth, truth) for truth in _TRUTH),
        ),
        **options,
    )


@compiles(JsonText, "postgresql")
def _postgres_text(element: JsonText, compiler: SQLCompiler, **options: Any) -> str:
    kind, value = _in_postgres(element)
    return compiler.process(case((kind.in_(_TEXTS), value)), **options)


@compiles(HasKey)
def _sqlite_has(element: HasKey, compiler: SQLCompiler, **options: Any) -> str:
    kind, _ = _in_sqlite(element)
    return compiler.process(kind.is_not(None), **options)


@compiles(HasKey, "postgresql")
def _postgres_has(element: HasKey, compiler: SQLCompiler, **options: Any) -> str:
    kind, _ = _in_postgres(element)
    return compiler.process(kind.is_not(None), **options)


@compiles(JsonItems)
def _sqlite_items(element: JsonItems, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(func.json_each(*element.clauses), **options)


@compiles(JsonItems, "postgresql")
def _postgres_items(element: JsonItems, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(func.json_array_elements_text(*element.clauses), **options)


@compiles(SortableText)
def _sqlite_order(element: SortableText, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(*element.clauses, **options)


@compiles(SortableText, "postgresql")
def _postgres_order(element: SortableText, compiler: SQLCompiler, **options: Any) -> str:
    (text,) = element.clauses
    return f'({compiler.process(text, **options)} COLLATE "C")'


def _in_sqlite(element: _JsonValue) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
    """Return the type of the value, and the value."""
    document, _, written, *items = element.clauses
    close = _CLOSE if not items else literal_column(f"'\"[{items[0]}]'", Text())
    path = _OPEN.concat(written).concat(close)
    return func.json_type(document, path), func.json_extract(document, path)


def _in_postgres(element: _JsonValue) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
    document, key, _, *items = element.clauses
    if items:
        document, key = document.op("->")(key), items[0]
    return func.json_typeof(document.op("->")(key)), document.op("->>")(key)
