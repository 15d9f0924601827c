"""Base of all request bodies."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from trainhall.documented import Documented


class Body(Documented, BaseModel):
    """Request body: unknown keys are errors, numbers are finite."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


def _plain(value: str) -> str:
    if not value.isprintable() or not value.strip():
        raise ValueError("must have a visible character, and no control characters")
    return value.strip()


Name = Annotated[str, Field(min_length=1, max_length=128), AfterValidator(_plain)]
"""Name for people."""
