"""Times in queries and bodies of requests."""

import re
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BeforeValidator

_TIME = re.compile(r"\d{4}-\d\d-\d\d.*([Zz]|[+-]\d\d:?\d\d)$", re.ASCII)
_DECODED_ZONE = re.compile(r"\d:\d\d(:[\d.]+)? \d\d:?\d\d$", re.ASCII)


def _dated(value: object) -> object:
    """Refuse numbers, which pydantic would take for seconds since 1970: the document has none. A
    date or a time without a zone gets a remedy, too."""
    if not isinstance(value, str) or not _TIME.match(value):
        # In a query, + stands for a space.
        is_decoded = isinstance(value, str) and _DECODED_ZONE.search(value)
        remedy = "; in a URL write + as %2B" if is_decoded else ""
        raise ValueError(
            f"must be a time with a zone in RFC 3339, such as 2026-01-31T12:00:00Z{remedy}"
        )
    return value


def _in_range(time: datetime) -> datetime:
    try:
        return time.astimezone(UTC)
    except OverflowError:
        raise ValueError("is out of range; give a time in the years 1 to 9999 of UTC") from None


Time = Annotated[AwareDatetime, BeforeValidator(_dated), AfterValidator(_in_range)]
