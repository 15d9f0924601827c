"""Groups and projects, and their members, on the command line."""

from collections.abc import Iterable
from typing import Any

from trainhall.cli.accounts.names import segment
from trainhall.cli.base import output as out
from trainhall.cli.base.connect import connect


def add_named(kind: str, name: str, url: str) -> None:
    """Add a group or a project, and say so.

    Args:
        kind: groups or projects.
    """
    with connect(url) as client:
        made = client.request("POST", f"/{kind}", json={"name": name})
    out.notice(f"Added {out.one_line(made['name'])}.")


def change_members(
    kind: str,
    name: str,
    url: str,
    *,
    add: Iterable[tuple[str, Any]],
    remove: Iterable[str],
) -> list[Any]:
    """Add and remove members of a group or a project; return all that it has then.

    Args:
        kind: groups or projects.
        add: members, and the body of the request that adds each; None: it has none.

    Raises:
        UsageError: a name is none; nothing is changed.
    """
    path = f"/{kind}/{segment(name)}/members"
    added = [(segment(member), body) for member, body in add]
    removed = [segment(member) for member in remove]
    with connect(url) as client:
        for member, body in added:
            client.request("PUT", f"{path}/{member}", json=body)
        for member in removed:
            client.request("DELETE", f"{path}/{member}")
        return list(client.items(path))
