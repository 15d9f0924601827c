"""Commands about groups: add, ls, members, rm."""

from typing import Annotated

import typer

from trainhall.cli.accounts.members import add_named, change_members
from trainhall.cli.accounts.names import print_named, segment
from trainhall.cli.base import output as out
from trainhall.cli.base.connect import connect
from trainhall.cli.base.options import DEFAULT_URL, Format, Output, Url

groups = typer.Typer(help="Groups of users, which have roles together.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the group.")]


@groups.command("add")
def add(name: Name, url: Url = DEFAULT_URL) -> None:
    """Add a group without members.

    \b
    Examples:
      trainhall groups add vision-lab
    """
    add_named("groups", name, url)


@groups.command("list", hidden=True)
@groups.command("ls")
def list_groups(output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """List your groups, and those of your projects; admins see all.

    \b
    Examples:
      trainhall groups ls
    """
    with connect(url) as client:
        found = list(client.items("/groups"))
    columns = [
        out.Column("NAME", lambda g: g["name"]),
        out.Column("MEMBERS", lambda g: str(g["members"]), right=True),
        out.Column("CREATED", lambda g: out.moment(g["created_at"])),
    ]
    print_named(found, columns, output, empty="No groups.")


@groups.command("members")
def members(
    name: Name,
    add_users: Annotated[
        list[str] | None, typer.Option("--add", metavar="USER", help="Add this user.")
    ] = None,
    remove_users: Annotated[
        list[str] | None, typer.Option("--remove", metavar="USER", help="Remove this user.")
    ] = None,
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Add and remove users of a group, and list them.

    \b
    Examples:
      trainhall groups members vision-lab --add maria --add otto
    """
    added = [(user, None) for user in add_users or ()]
    found = change_members("groups", name, url, add=added, remove=remove_users or ())
    columns = [
        out.Column("USER", lambda m: m["user"]),
        out.Column("FROM", lambda m: "OpenID provider" if m["by_provider"] else ""),
    ]
    print_named(found, columns, output, empty="No members.", key="user")


@groups.command("rm")
def remove(name: Name, url: Url = DEFAULT_URL) -> None:
    """Delete a group: its members lose the roles that they have by it.

    \b
    Examples:
      trainhall groups rm vision-lab
    """
    with connect(url) as client:
        client.request("DELETE", f"/groups/{segment(name)}")
    out.notice(f"Deleted {out.one_line(name)}.")
