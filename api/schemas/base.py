"""Base of all request bodies."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from trainhall.documented import Documented
from trainhall.training.spec.base import one_line


class Body(Documented, BaseModel):
    """Request body: unknown keys are errors, numbers are finite."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


def _plain(value: str) -> str:
    value = one_line(value).strip()
    if not value:
        raise ValueError("must have a visible character")
    return value


Name = Annotated[str, Field(min_length=1, max_length=128), AfterValidator(_plain)]
"""Name for people."""
