"""A client for a command, imported when the command runs: help needs no HTTP library."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainhall.cli.base.client import Client


def connect(url: str) -> "Client":
    """Connect a client to the coordinator at `url`; close it, or use it in a `with`."""
    from trainhall.cli.base.client import Client

    return Client(url)
