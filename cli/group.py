"""The root of all commands: their groups in the help, and the words for rejected options."""

from typing import Any

import typer
from typer.core import TyperGroup


class Root(TyperGroup):
    """Typer's own messages on rejected values leave out the value and speak of an "Input"."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            errors = getattr(error.__cause__, "errors", None)
            if errors is not None:
                error.message = _describe_error(errors()[0])
            raise

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one list per `rich_help_panel`: Typer's plain help would put all in one."""
        panels: dict[str, list[tuple[str, str]]] = {}
        width = formatter.width - 6 - max(map(len, self.commands))
        for name, command in self.commands.items():
            if not command.hidden:
                panel = getattr(command, "rich_help_panel", None) or "Commands"
                row = (name, command.get_short_help_str(width))
                panels.setdefault(str(panel), []).append(row)
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)


def _describe_error(error: dict[str, Any]) -> str:
    from trainhall.training.spec.problems import display_value, error_message

    message, given = error_message(error), error["input"]
    # Typer's own words for choices have the value.
    return message if repr(given) in message else f"{message} (given: {display_value(given)})"
