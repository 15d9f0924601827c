"""Parameters of a job: the values that a user or a sweep varies, by name."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import (
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import PydanticCustomError

from trainhall.training.spec.base import Text

VARIABLE = "TRAINHALL_PARAMETERS"
"""Environment variable of every rank that holds the parameters as JSON."""
MAX_PARAMETERS = 256
"""Most parameters of a job."""
MAX_NAME = 64
"""Most characters of a parameter's name."""
_NAME = rf"[A-Za-z_][A-Za-z0-9_-]{{0,{MAX_NAME - 1}}}"
_REFERENCE = re.compile(r"(\$?)\$\{((?:data\.)?" + _NAME + r")\}")
"""A parameter, or a data set as `data.NAME`; the names of parameters have no dot."""


def _one_error(message: str) -> WrapValidator:
    """Refuse in one sentence: of a union pydantic has an error for each type, of a key none that a
    user understands."""

    def validate(value: Any, inner: ValidatorFunctionWrapHandler) -> Any:
        try:
            return inner(value)
        except ValidationError:
            raise PydanticCustomError("parameter", message) from None

    return WrapValidator(validate)


_Name = Annotated[
    str,
    Field(pattern=f"^{_NAME}$"),
    _one_error(f"must be a letter or _, then at most {MAX_NAME - 1} letters, digits, _ or -"),
]
Value = StrictBool | StrictInt | StrictFloat | Text
_Value = Annotated[
    Value, _one_error("must be a string of at most 4,096 characters, a finite number or a boolean")
]
Parameters = Annotated[dict[_Name, _Value], Field(max_length=MAX_PARAMETERS)]


def substitute(arguments: Iterable[str], values: Mapping[str, Value]) -> list[str]:
    """Return the arguments with `${name}` replaced by the value of that name, and `$${name}` by
    `${name}`.

    Names that have no value stay as they are; a submission with such a name is refused.
    """

    def value_of(match: re.Match[str]) -> str:
        escaped, name = match.groups()
        if escaped:
            return match[0][1:]
        return as_text(values[name]) if name in values else match[0]

    return [_REFERENCE.sub(value_of, argument) for argument in arguments]


def names_used(argument: str) -> list[str]:
    """Return the names that an argument has as `${name}`, in their order."""
    return [name for escaped, name in _REFERENCE.findall(argument) if not escaped]


def as_text(value: Value) -> str:
    """Return a value as an argument holds it: a string as it is, all else as in JSON."""
    return value if isinstance(value, str) else json.dumps(value)
