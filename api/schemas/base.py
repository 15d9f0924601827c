"""Base of all request bodies."""

from pydantic import BaseModel, ConfigDict


class Body(BaseModel):
    """Request body: unknown keys are errors, numbers are finite."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)
