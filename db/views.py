"""Views: what is read from rows, in the shape in which the REST API returns it.

A view is built once, where its rows are read. The OpenAPI document describes it by its docstrings.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer

from trainhall.documented import Documented

Item = TypeVar("Item")


class View(Documented, BaseModel):
    """Base of all views."""

    # Most are only parts of others: a validator of their own would be 40 KB that nothing uses.
    model_config = ConfigDict(from_attributes=True, defer_build=True)

    @classmethod
    def of(cls, row: object, **others: Any) -> Self:
        """Build a view of a row; `others` are the fields that the row does not have as they are."""
        names, values = _own_fields(cls, frozenset(others))
        return cls.model_validate(dict(zip(names, values(row), strict=True), **others))


@cache
def _own_fields(
    view: type[View], others: frozenset[str]
) -> tuple[list[str], Callable[[object], tuple[Any, ...]]]:
    names = [name for name in view.model_fields if name not in others]
    return names, attrgetter(*names)


VALUE = ConfigDict(json_schema_serialization_defaults_required=True)
"""`__pydantic_config__` of dataclasses that are parts of views."""


def rfc3339(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


Time = Annotated[
    datetime,
    PlainSerializer(rfc3339, return_type=str, when_used="json"),
    Field(json_schema_extra={"format": "date-time"}),
]
"""RFC 3339 in UTC."""

MetricValue = float | str | None
"""Number; NaN and infinities as the strings `NaN`, `Infinity`, `-Infinity`."""

JsonObject = dict[str, Any]


class Page(View, Generic[Item]):
    """One page of a list."""

    items: list[Item]
    next_cursor: str | None
    """Hand it back as `cursor` for the next page; null on the last one."""
