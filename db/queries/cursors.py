"""Page cursors: opaque to callers, checked when they are received again."""

import base64
import json

MAX_LENGTH = 1024
_MAX_NUMBER = 2**62
"""A page may count on from a number, and a column holds 63 bits."""


def encode(kind: str, *position: int | str) -> str:
    """Make a cursor of the list `kind` just after `position`."""
    raw = json.dumps([kind, *position], separators=(",", ":"), ensure_ascii=False).encode()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def decode(kind: str, cursor: str, *types: type[int] | type[str]) -> list[int | str]:
    """Return the position in a cursor of the list `kind`.

    Raises:
        ValueError: it is no cursor, or one of another list.
    """
    if len(cursor) > MAX_LENGTH:
        raise ValueError("a cursor is shorter")
    padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
    try:
        found = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except RecursionError:
        raise ValueError("a cursor is a flat list") from None
    if not isinstance(found, list) or len(found) != len(types) + 1 or found[0] != kind:
        raise ValueError(f"no cursor of {kind}")
    position = found[1:]
    for value, expected in zip(position, types, strict=True):
        if type(value) is not expected:
            raise ValueError(f"{value!r} is not of the type {expected.__name__}")
        if "\0" in value if isinstance(value, str) else not 0 <= value < _MAX_NUMBER:
            raise ValueError(f"{value!r} is not a position")
        if isinstance(value, str):
            value.encode()  # a half of a surrogate pair is a ValueError
    return position
