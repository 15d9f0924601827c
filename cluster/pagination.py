"""Pages of a list, and the cursors between them."""

from collections.abc import Sequence
from typing import Any, TypeVar

from sqlalchemy import Row, Select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from trainhall.cluster.errors import InvalidCursorError, InvalidValueError
from trainhall.db.queries import cursors

MAX_LIMIT = 1000
encode = cursors.encode
T = TypeVar("T")


def decode(kind: str, cursor: str, *types: type[int] | type[str]) -> list[int | str]:
    """Return the position in a cursor of the list `kind`.

    Raises:
        InvalidCursorError: it is no cursor, or one of another list.
    """
    try:
        return cursors.decode(kind, cursor, *types)
    except ValueError:
        raise InvalidCursorError from None


def decode_number(kind: str, cursor: str) -> int:
    """Like `decode`, for a position of one number."""
    return int(decode(kind, cursor, int)[0])


def check_limit(limit: int) -> int:
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidValueError("limit", limit, f"must be from 1 to {MAX_LIMIT}, not {limit}")
    return limit


def page_of(
    kind: str, items: Sequence[T], limit: int, cursor: str | None
) -> tuple[list[T], str | None]:
    """Return one page of a list that is at hand as a whole, and the cursor of the next one.

    Raises:
        InvalidCursorError: the cursor was not handed out by the list `kind`.
    """
    start = decode_number(kind, cursor) if cursor is not None else 0
    end = start + limit
    return list(items[start:end]), encode(kind, end) if end < len(items) else None


async def page_by_name(
    session: AsyncSession,
    query: Select[*tuple[Any, ...]],
    kind: str,
    name: InstrumentedAttribute[str],
    limit: int,
    cursor: str | None,
) -> tuple[Sequence[Row[*tuple[Any, ...]]], str | None]:
    """Return the rows of one page of a query in the order of a name, and the cursor of the next.

    Args:
        query: of things that have the name, and of what more is to be selected with each.

    Raises:
        InvalidCursorError: the cursor was not handed out by the list `kind`.
        InvalidValueError: the limit is out of range.
    """
    check_limit(limit)
    if cursor is not None:
        query = query.where(name > str(decode(kind, cursor, str)[0]))
    rows = (await session.execute(query.order_by(name).limit(limit + 1))).all()
    following = encode(kind, rows[limit - 1][0].name) if len(rows) > limit else None
    return rows[:limit], following
