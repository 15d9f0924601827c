"""Pages of lists that are short enough to be at hand as a whole."""

from collections.abc import Sequence
from typing import TypeVar

from trainhall.cluster import pagination

T = TypeVar("T")


def page_of(
    kind: str, items: Sequence[T], limit: int, cursor: str | None
) -> tuple[Sequence[T], str | None]:
    """The items of one page, and the cursor of the next one.

    Raises:
        InvalidCursorError: the cursor was not handed out by the list `kind`.
    """
    start = pagination.decode_number(kind, cursor) if cursor is not None else 0
    end = start + limit
    return items[start:end], pagination.encode(kind, end) if end < len(items) else None
