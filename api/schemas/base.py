"""Base of all request bodies."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from trainhall.documented import Documented
from trainhall.training.spec.base import one_line


class Body(Documented, BaseModel):
    """Request body: unknown keys are errors, numbers are finite."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, defer_build=True)


def _stripped(value: str) -> str:
    return one_line(value).strip()


Name = Annotated[str, Field(min_length=1, max_length=128), AfterValidator(_stripped)]
"""Name for people."""
