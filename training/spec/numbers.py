"""Base of models with numbers: `true` is not accepted as 1."""

from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel, model_validator

from trainhall.training.spec.problems import problems_at
from trainhall.training.spec.wording import INTEGER, NUMBER


class StrictNumbersModel(BaseModel):
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
