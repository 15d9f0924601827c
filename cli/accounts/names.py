"""Names of users, groups and projects on the command line."""

from typing import Any
from urllib.parse import quote

from trainhall.cli.base import output as out
from trainhall.cli.base.errors import UsageError
from trainhall.cli.base.options import Format


def segment(name: str) -> str:
    """Quote a name as one segment of a path.

    Raises:
        UsageError: no name looks like that.
    """
    check_name(name)
    return quote(name, safe="")


def check_name(name: str) -> None:
    """Check that something may have a name.

    Raises:
        UsageError: no name looks like that.
    """
    if name in ("", ".", "..") or "/" in name:
        raise UsageError(f"{name!r} is not a name")


def print_named(
    items: list[Any], columns: list[out.Column], output: Format, *, empty: str, key: str = "name"
) -> None:
    """Print things whose names are their ids."""
    if output is Format.NAME:
        items = [{"id": item[key]} for item in items]
    out.print_items(items, columns, output, empty=empty)
