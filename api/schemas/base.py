"""Base of all request bodies."""

from pydantic import BaseModel, ConfigDict

from trainhall.documented import Documented


class Body(Documented, BaseModel):
    """Request body: unknown keys are errors, numbers are finite."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
