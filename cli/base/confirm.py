"""The question before something is deleted for good."""

import sys

import typer

from trainhall.cli.base.errors import CliError, UsageError


def confirm_deletion(what: str) -> None:
    """Ask whether to delete `what`.

    Raises:
        UsageError: there is no terminal to ask on.
        CliError: the answer is no.
    """
    if not sys.stdin.isatty():
        raise UsageError(f"{what} would be deleted for good; confirm with --yes")
    if not typer.confirm(f"Delete {what} for good?", err=True):
        raise CliError("nothing was deleted")
