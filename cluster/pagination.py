"""Pages of a list, and the cursors between them."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from trainhall.cluster.errors import InvalidCursorError, InvalidValueError
from trainhall.db import cursors

MAX_LIMIT = 1000
encode = cursors.encode


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


T = TypeVar("T")


@dataclass(frozen=True)
class Page(Generic[T]):
    items: list[T]
    next_cursor: str | None
    """Hand it back for the next page; None on the last one."""
