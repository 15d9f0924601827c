"""The root of all commands: what an option refuses is told in the words of a job spec's faults."""

from typing import Any

import typer
from typer.core import TyperGroup


class Root(TyperGroup):
    """Wherever Typer checks values with pydantic, its message leaves out the value, and tells of an
    "Input" what no user has to know."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            errors = getattr(error.__cause__, "errors", None)
            if errors is not None:
                error.message = _describe_error(errors()[0])
            raise


def _describe_error(error: dict[str, Any]) -> str:
    from trainhall.training.spec.wording import display_value, error_message

    message, given = error_message(error), error["input"]
    # Typer's own words for choices have the value.
    return message if repr(given) in message else f"{message} (given: {display_value(given)})"
