"""Base models and string types of a job spec; `true` is not accepted as 1."""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from trainhall.documented import Documented
from trainhall.training.spec.problems import INTEGER, NUMBER, problems_at

MAX_TAGS = 32
MAX_TAG = 64
MAX_NOTES = 10_000
_TAG = re.compile(r"[^\W_](?:[\w .:/=@+-]*[\w.:/=@+-])?")
TAG_RULE = (
    f"a tag has at most {MAX_TAG} letters, digits, spaces and . _ : / = @ + -, and begins with a "
    "letter or digit"
)


class StrictNumbersModel(Documented, BaseModel):
    """Base of models that refuse a boolean where a number belongs, also inside a list. Pydantic
    accepts `True` as 1, as Python does."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_booleans(cls, data: Any) -> Any:
        # Once a model and not once a field: specs are read all the time.
        if isinstance(data, dict):
            numbers = _numbers_of(cls)
            found = [
                (where, value, numbers[where[0]])
                for where, value in _booleans_in(data)
                if where[0] in numbers
            ]
            if found:
                raise problems_at(found)
        return data


def _booleans_in(data: dict[Any, Any]) -> Iterator[tuple[tuple[Any, ...], bool]]:
    for field, value in data.items():
        if isinstance(value, bool):
            yield (field,), value
        elif isinstance(value, list):
            yield from (
                ((field, i), each) for i, each in enumerate(value) if isinstance(each, bool)
            )


@cache
def _numbers_of(model: type[BaseModel]) -> dict[str, str]:
    """Return the fields that accept numbers and no booleans, each with its error message."""
    found = {}
    for name, field in model.model_fields.items():
        kinds = set(_leaves(field.annotation))
        if kinds.isdisjoint((bool, Any, object)) and not kinds.isdisjoint((int, float)):
            found[name] = NUMBER if float in kinds else INTEGER
    return found


def _leaves(annotation: Any) -> list[Any]:
    parts = get_args(annotation)
    return [leaf for part in parts for leaf in _leaves(part)] if parts else [annotation]


def one_line(value: str) -> str:
    """Return the text of a name, with each kind of space, such as a non-breaking one, as a plain
    space.

    Raises:
        ValueError: it has another character that is not shown, such as a line break, or is blank.
    """
    plain = "".join(" " if unicodedata.category(c) == "Zs" else c for c in value)
    hidden = next((c for c in plain if not c.isprintable()), None)
    if hidden is not None:
        name = unicodedata.name(hidden, "a control character")
        raise ValueError(f"may not hold U+{ord(hidden):04X} ({name}), which is not shown")
    if not plain.strip():
        raise ValueError("must have a visible character")
    return plain


def _printable(value: str) -> str:
    try:
        return one_line(value)
    except ValueError as error:
        raise PydanticCustomError("not_printable", "{why}", {"why": str(error)}) from None


def _no_nul(value: str) -> str:
    if "\0" in value:
        raise PydanticCustomError("nul_byte", "may not hold a NUL byte")
    return value


def unique(tags: Iterable[str]) -> list[str]:
    """Leave out repeated tags, also those that differ in case alone."""
    found: dict[str, str] = {}
    for tag in tags:
        found.setdefault(tag.lower(), tag)
    return list(found.values())


def _check_tag(text: str) -> str:
    if len(text) > MAX_TAG or _TAG.fullmatch(text) is None:
        raise PydanticCustomError("tag", TAG_RULE)
    return text


# `isprintable` would refuse non-breaking spaces, and the joiners of emoji.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def check_markdown(text: str) -> str:
    """Refuse control characters, but for tabs and line breaks."""
    text = text.replace("\r\n", "\n")
    if _CONTROL.search(text):
        raise PydanticCustomError("markdown", "may not hold control characters")
    return text


Name = Annotated[str, Field(min_length=1, max_length=128), AfterValidator(_printable)]
Text = Annotated[str, Field(max_length=4096), AfterValidator(_no_nul)]
Tag = Annotated[str, AfterValidator(_check_tag)]
Tags = Annotated[list[Tag], Field(max_length=MAX_TAGS), AfterValidator(unique)]
Notes = Annotated[str, Field(max_length=MAX_NOTES), AfterValidator(check_markdown)]


class SpecModel(StrictNumbersModel):
    """Base of every part of a spec: refuses unknown keys and non-finite numbers; immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
