"""Commands about users: add, ls, set, rm."""

import sys
from typing import Annotated, Any

import typer

from trainhall.cli.accounts.names import print_named, segment
from trainhall.cli.base import output as out
from trainhall.cli.base.confirm import confirm_deletion
from trainhall.cli.base.connect import connect
from trainhall.cli.base.errors import UsageError
from trainhall.cli.base.options import DEFAULT_URL, Format, Output, Url

users = typer.Typer(help="Users: people, and service accounts.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the user.")]
PasswordStdin = Annotated[
    bool,
    typer.Option(
        "--password-stdin", help="Read the password from standard input, or from the terminal."
    ),
]


@users.command("add")
def add(
    name: Name,
    password_stdin: PasswordStdin = False,
    admin: Annotated[bool, typer.Option("--admin", help="May do everything.")] = False,
    service: Annotated[
        bool, typer.Option("--service", help="A service account: it has tokens and no login.")
    ] = False,
    project: Annotated[
        str | None,
        typer.Option("--project", help="Project that the service account belongs to."),
    ] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Add a user, without a role in any project.

    \b
    Examples:
      trainhall users add maria --password-stdin < password.txt
      trainhall users add ci-vision --service --project vision
    """
    body: dict[str, Any] = {"name": name, "kind": "service" if service else "person"}
    if admin:
        body["admin"] = True
    if project is not None:
        body["project"] = project
    if password_stdin:
        body["password"] = _password(f"Password of {name}", repeat=True)
    with connect(url) as client:
        made = client.request("POST", "/users", json=body)
    out.notice(f"Added {out.one_line(made['name'])}.")


@users.command("list", hidden=True)
@users.command("ls")
def list_users(
    removed: Annotated[bool, typer.Option("--removed", help="Those who were removed.")] = False,
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """List the members of your projects; admins see all users.

    \b
    Examples:
      trainhall users ls
    """
    with connect(url) as client:
        found = list(client.items("/users", removed="true" if removed else None))
    columns = [
        out.Column("NAME", lambda u: u["name"]),
        out.Column("KIND", lambda u: u["kind"]),
        out.Column("ADMIN", lambda u: "yes" if u["admin"] else ""),
        out.Column("PROJECT", lambda u: u["project"] or ""),
        out.Column("CREATED", lambda u: out.moment(u["created_at"])),
    ]
    print_named(found, columns, output, empty="No users.")


@users.command("set")
def change(
    name: Name,
    admin: Annotated[
        bool | None, typer.Option("--admin/--no-admin", help="Make an admin, or no longer one.")
    ] = None,
    password_stdin: PasswordStdin = False,
    restore: Annotated[
        bool, typer.Option("--restore", help="Restore a removed user, without roles.")
    ] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Change a user.

    To change your own password, give the old one in the first line, the new one in the second.

    \b
    Examples:
      trainhall users set maria --admin
      trainhall users set maria --password-stdin
    """
    body: dict[str, Any] = {}
    if admin is not None:
        body["admin"] = admin
    if restore:
        body["removed"] = False
    if not (body or password_stdin):
        raise UsageError("give what to change: --admin, --no-admin, --password-stdin, --restore")
    with connect(url) as client:
        if password_stdin:
            if client.get("/auth/me")["user"] == name:
                old = _password("Old password (empty: there is none)", required=False)
                body |= {"old_password": old} if old else {}
            body["password"] = _password(f"New password of {name}", repeat=True)
        client.request("PATCH", f"/users/{segment(name)}", json=body)
    out.notice(f"Changed {out.one_line(name)}.")


@users.command("rm")
def remove(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Remove a user: sessions, tokens, roles and groups end at once, jobs continue.

    The name stays taken. `trainhall users set NAME --restore` restores the user.

    \b
    Examples:
      trainhall users rm maria
    """
    if not yes:
        confirm_deletion(f"the sessions, tokens and roles of {out.one_line(name)}")
    with connect(url) as client:
        client.request("DELETE", f"/users/{segment(name)}")
    shown = out.one_line(name)
    out.notice(f"Removed {shown}. Their jobs continue: `trainhall ls --user {shown}` lists them.")


def _password(prompt: str, *, repeat: bool = False, required: bool = True) -> str:
    if sys.stdin.isatty():
        default = None if required else ""
        return str(
            typer.prompt(
                prompt, hide_input=True, err=True, confirmation_prompt=repeat, default=default,
                show_default=False,
            )
        )  # fmt: skip
    line = sys.stdin.readline().rstrip("\r\n")
    if required and not line:
        raise UsageError("standard input has no password")
    return line
