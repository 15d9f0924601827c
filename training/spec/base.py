"""Base model and string types of a job spec."""

from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from trainhall.training.spec.numbers import StrictNumbersModel


def _printable(value: str) -> str:
    if not value.isprintable():
        raise PydanticCustomError("not_printable", "may not hold control characters or line breaks")
    return value


def _no_nul(value: str) -> str:
    if "\0" in value:
        raise PydanticCustomError("nul_byte", "may not hold a NUL byte")
    return value


Name = Annotated[str, Field(min_length=1, max_length=128), AfterValidator(_printable)]
Text = Annotated[str, Field(max_length=4096), AfterValidator(_no_nul)]


class SpecModel(StrictNumbersModel):
    """Base of every part of a spec: refuses unknown keys and non-finite numbers; immutable."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )
