"""Descriptions of a model's fields from the docstrings below them, read when a schema is made.

Pydantic's `use_attribute_docstrings` reads the source of every class when it is defined, a fifth of
what importing the coordinator takes; and most processes never make a schema.
"""

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

from pydantic import GetJsonSchemaHandler
from pydantic_core import CoreSchema


class Documented:
    """Mixed into models and dataclasses, of a module's top level, whose fields have docstrings."""

    __slots__ = ()

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        schema = handler(core_schema)
        described = handler.resolve_ref_schema(schema).get("properties", {})
        for model in cls.__mro__:  # a field's own class comes before those that it inherits from
            for name, text in _docstrings(model.__module__).get(model.__name__, {}).items():
                if name in described:
                    described[name].setdefault("description", text)
        return schema


@cache
def _docstrings(module: str) -> dict[str, dict[str, str]]:
    """Return the docstrings of the fields of a module's classes, by the classes' names."""
    try:
        source = inspect.getsource(sys.modules[module])
    except (OSError, TypeError):  # a module without source, such as `builtins`
        return {}
    body = ast.parse(source).body
    return {node.name: dict(_of_fields(node)) for node in body if isinstance(node, ast.ClassDef)}


def _of_fields(model: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, below in zip(model.body, model.body[1:], strict=False):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, inspect.cleandoc(text)
