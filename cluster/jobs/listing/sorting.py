"""Orders of jobs, and the cursors within them: after a value and a job's number."""

import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Double,
    Text,
    UnaryExpression,
    and_,
    literal,
    or_,
)
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.types import TypeEngine

from trainhall.cluster import pagination
from trainhall.cluster.access.principal import Principal
from trainhall.cluster.errors import InvalidCursorError, InvalidValueError
from trainhall.cluster.jobs.listing.fields import (
    INTEGERS,
    STATE_ORDER,
    TEXTS,
    TIMES,
    Field,
    FieldError,
    number_of,
    parse_field,
    suggestion,
    text_of,
    with_aggregate,
)
from trainhall.cluster.jobs.listing.keys import METRICS, PARAMETERS, SORT_KEYS
from trainhall.db.models import Job
from trainhall.db.queries.json_values import SortableText

_LIST = "jobs"
_INT64 = 2**63

_TYPES: dict[str, TypeEngine[Any]] = {
    "integer": BigInteger(),
    "number": Double(),
    "text": Text(),
}

Value = float | int | str | None


@dataclass(frozen=True)
class Key:
    """Expression to order by; jobs without a value are last."""

    expression: ColumnElement[Any]
    kind: Literal["integer", "number", "text"]
    nullable: bool = False

    def order(self, *, descending: bool) -> UnaryExpression[Any]:
        ordered = self.expression.desc() if descending else self.expression.asc()
        return ordered.nulls_last() if self.nullable else ordered

    def written(self, value: Any) -> str:
        """Write a value for a cursor; a missing one as no text."""
        if value is None:
            return ""
        return f"={float(value)!r}" if self.kind == "number" else f"={value}"

    def read(self, text: str) -> Value:
        """Read a value of a cursor.

        Raises:
            ValueError: it was not written here.
        """
        if text == "" and self.nullable:
            return None
        if text[:1] != "=":
            raise ValueError(text)
        if self.kind == "text":
            return text[1:]
        if self.kind == "number":
            number = float(text[1:])
            if not math.isfinite(number):
                raise ValueError(text)
            return number
        integer = int(text[1:])
        if not -_INT64 <= integer < _INT64:
            raise ValueError(text)
        return integer

    def literal(self, value: Value) -> ColumnElement[Any]:
        return literal(value, _TYPES[self.kind])


@dataclass(frozen=True)
class Order:
    """Order of a list: by keys, then by number."""

    name: str
    """The sort key as it was given; empty for the newest first."""
    keys: tuple[Key, ...] = ()
    descending: bool = True
    """Direction of `keys`."""
    newest_first: bool = True

    @property
    def columns(self) -> list[ColumnElement[Any]]:
        return [
            *(key.order(descending=self.descending) for key in self.keys),
            Job.number.desc() if self.newest_first else Job.number.asc(),
        ]

    def cursor(self, number: int, values: tuple[Any, ...]) -> str:
        """Return the cursor after a job with these values of `keys`."""
        written = [key.written(value) for key, value in zip(self.keys, values, strict=True)]
        return pagination.encode(self._list, *written, number)

    def after(self, cursor: str) -> ColumnElement[bool]:
        """Return the condition that a job is after a cursor.

        Raises:
            InvalidCursorError: it was not handed out by this order.
        """
        types: list[type[int] | type[str]] = [str] * len(self.keys)
        *written, number = pagination.decode(self._list, cursor, *types, int)
        try:
            values = [key.read(str(text)) for key, text in zip(self.keys, written, strict=True)]
        except ValueError:
            raise InvalidCursorError from None
        found = Job.number < number if self.newest_first else Job.number > number
        for key, value in reversed(list(zip(self.keys, values, strict=True))):
            found = self._after(key, value, found)
        return found

    def _after(self, key: Key, value: Value, then: ColumnElement[bool]) -> ColumnElement[bool]:
        column = key.expression
        if value is None:
            return and_(column.is_(None), then)
        given = key.literal(value)
        beyond = column < given if self.descending else column > given
        missing = [column.is_(None)] if key.nullable else []
        return or_(beyond, *missing, and_(column == given, then))

    @property
    def _list(self) -> str:
        return f"{_LIST} by {self.name}" if self.name else _LIST


NEWEST_FIRST = Order("")


async def order_of(
    session: AsyncSession, caller: Principal, sort: str | None, now: datetime
) -> Order:
    """Return the order of a sort key.

    Raises:
        InvalidValueError: there is no such key; the message says which there are.
    """
    if not sort:
        return NEWEST_FIRST
    name = sort.removeprefix("-")
    descending = sort != name
    if name == "created_at":
        # Jobs are numbered in the order of their submission, which is an index.
        return Order("" if descending else sort, newest_first=descending)
    return Order(sort, await _keys(session, caller, name, sort, now), descending)


async def _keys(
    session: AsyncSession, caller: Principal, name: str, sort: str, now: datetime
) -> tuple[Key, ...]:
    if name in SORT_KEYS:
        return (_own_key(name, now),)
    try:
        field = parse_field(name) if name.startswith((PARAMETERS, METRICS)) else None
        if field is not None and name.isprintable():
            return _json_keys(await with_aggregate(session, caller, field), now)
        near = await suggestion(session, caller, name, list(SORT_KEYS))
        message = f"must be one of {', '.join(SORT_KEYS)}, parameters.NAME, metrics.NAME{near}"
    except FieldError as error:
        message = f"{name} {error}"
    raise InvalidValueError("sort", sort, message)


def _own_key(name: str, now: datetime) -> Key:
    if name == "name":
        return Key(SortableText(Job.name.expression), "text")
    if name == "state":
        return Key(STATE_ORDER, "integer")
    if name in TEXTS:
        return Key(SortableText(TEXTS[name]), "text", nullable=True)
    if name in INTEGERS:
        return Key(INTEGERS[name], "integer")
    if name in TIMES:
        return Key(TIMES[name], "integer", nullable=True)
    computed = number_of(Field(name), now)
    assert computed is not None
    return Key(computed, "number", nullable=True)


def _json_keys(field: Field, now: datetime) -> tuple[Key, ...]:
    """Order numbers, then text."""
    number, text = number_of(field, now), text_of(field)
    assert number is not None
    keys = [Key(number, "number", nullable=True)]
    if text is not None:
        keys.append(Key(SortableText(text), "text", nullable=True))
    return tuple(keys)
