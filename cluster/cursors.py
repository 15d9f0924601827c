"""Page cursors: opaque to callers, checked when they come back."""

import base64
import binascii
import json

from trainhall.cluster.errors import InvalidCursor, InvalidValue

MAX_LIMIT = 1000
_MAX_CURSOR = 512


def encode(kind: str, *position: int | str) -> str:
    """A cursor of the list `kind` just behind `position`."""
    raw = json.dumps([kind, *position], separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def decode(kind: str, cursor: str, *types: type[int] | type[str]) -> list[int | str]:
    """The position in a cursor of the list `kind`.

    Raises:
        InvalidCursor: when it is no cursor, or one of another list.
    """
    if len(cursor) > _MAX_CURSOR or not cursor.isascii():
        raise InvalidCursor
    try:
        data = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        raise InvalidCursor from None
    if not isinstance(data, list) or len(data) != len(types) + 1 or data[0] != kind:
        raise InvalidCursor
    position = data[1:]
    for value, expected in zip(position, types, strict=True):
        if type(value) is not expected or (isinstance(value, int) and not 0 <= value < 2**63):
            raise InvalidCursor
        if isinstance(value, str) and "\0" in value:
            raise InvalidCursor
    return position


def decode_number(kind: str, cursor: str) -> int:
    """Like `decode`, for a position of one number."""
    return int(decode(kind, cursor, int)[0])


def check_limit(limit: int) -> int:
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidValue("limit", limit, f"must be from 1 to {MAX_LIMIT}, not {limit}")
    return limit
