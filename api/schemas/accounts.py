"""Requests about accounts."""

from typing import Annotated

from pydantic import AwareDatetime, BeforeValidator, Field

from trainhall.api.schemas.base import Body, Name
from trainhall.cluster.accounts.service import CODE_SECONDS, MAX_CODE


def _text(value: object) -> object:
    """Refuse numbers, which would be taken for seconds since 1970: the document has none."""
    if not isinstance(value, str):
        raise ValueError("must be a time with a zone in RFC 3339, such as 2026-01-31T12:00:00Z")
    return value


class LoginCode(Body):
    """Code of a login link."""

    code: Annotated[str, Field(min_length=1, max_length=MAX_CODE)]
    """The text after `#code=`."""


class NewLink(Body):
    """Login link to make."""

    seconds: Annotated[float, Field(strict=True, gt=0, le=600)] = CODE_SECONDS
    """Time for which it works."""


class NewToken(Body):
    """API token to create."""

    name: Name
    """For people; unique among the user's tokens."""
    expires_at: Annotated[AwareDatetime, BeforeValidator(_text)] | None = None
    """When it ends; left out or null: in 90 days."""
