"""Owner and project in lists: the options that filter by them, and their columns."""

from collections.abc import Sequence
from typing import Annotated

import typer

from trainhall.cli.base import output as out
from trainhall.cli.base.errors import UsageError

ME = "me"

OfUser = Annotated[
    str | None,
    typer.Option("--user", metavar="NAME", help=f"Only those of this user; {ME} is you."),
]
Mine = Annotated[bool, typer.Option("--mine", help="Only your own.")]
OfProject = Annotated[
    str | None, typer.Option("--project", metavar="NAME", help="Only those of this project.")
]

_OWNER = out.Column("OWNER", lambda item: str(item["user"] or out.BLANK), spare=2)
_PROJECT = out.Column("PROJECT", lambda item: str(item["project"] or out.BLANK), spare=2)


def owner_filter(user: str | None, mine: bool, project: str | None) -> out.Json:
    """Return the parameters of a list that these options ask for.

    Raises:
        UsageError: they contradict each other.
    """
    if mine and user is not None:
        raise UsageError("--mine and --user exclude each other")
    return {"user": ME if mine else user, "project": project}


def owner_terms(user: str | None, mine: bool, project: str | None) -> list[str]:
    """Return the terms of a query for jobs that these options ask for.

    Raises:
        UsageError: they contradict each other.
    """
    asked = owner_filter(user, mine, project)
    return [f"{field}={_quoted(name)}" for field, name in asked.items() if name is not None]


def _quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def owner_columns(items: Sequence[out.Json], *, wide: bool = False) -> list[out.Column]:
    """Return the columns of owner and project; without `wide` those in which the items differ."""
    columns = {"user": _OWNER, "project": _PROJECT}
    return [
        column for key, column in columns.items() if wide or len({item[key] for item in items}) > 1
    ]
