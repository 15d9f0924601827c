"""Base of all responses."""

from datetime import UTC, datetime
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer

Item = TypeVar("Item")


class Schema(BaseModel):
    """Base of every response: read from a view's attributes, described by its docstrings."""

    model_config = ConfigDict(from_attributes=True, use_attribute_docstrings=True)


class Body(BaseModel):
    """Base of every request: unknown keys are errors, numbers are finite."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


def rfc3339(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


Time = Annotated[
    datetime,
    PlainSerializer(rfc3339, return_type=str, when_used="json"),
    Field(json_schema_extra={"format": "date-time"}),
]
"""RFC 3339 in UTC."""

MetricValue = float | str | None
"""A number; NaN and infinities as the texts `NaN`, `Infinity`, `-Infinity`."""

JsonObject = dict[str, Any]


class ListPage(Schema, Generic[Item]):
    """One page of a list."""

    items: list[Item]
    next_cursor: str | None
    """Hand it back as `cursor` for the next page; null on the last one."""
