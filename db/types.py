"""Column types that read the same on SQLite and Postgres."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import BigInteger, Dialect, Integer
from sqlalchemy.types import TypeDecorator

from trainhall.db.sanitize import sanitize_json

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

BigInt = BigInteger().with_variant(Integer, "sqlite")
"""64 bits everywhere. SQLite gives an autoincrementing key to INTEGER alone."""


class UtcTime(TypeDecorator[datetime]):
    """An aware UTC datetime, kept as microseconds since the epoch: exact and sortable."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        if value is None:
            return None
        return micros(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        return None if value is None else _EPOCH + timedelta(microseconds=value)


def micros(time: datetime) -> int:
    """Return a time as `UtcTime` stores it.

    Raises:
        ValueError: it has no zone.
    """
    if time.tzinfo is None:
        raise ValueError("a time without a zone cannot be stored")
    return (time - _EPOCH) // timedelta(microseconds=1)


def dump_json(value: Any) -> str:
    """JSON as both databases take it: NaN and infinities become text, since JSON has none."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(sanitize_json(value), allow_nan=False, separators=(",", ":"))
