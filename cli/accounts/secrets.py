"""Commands about secrets of jobs: set, ls, rm."""

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainhall.cli.accounts.names import check_name, print_named, segment
from trainhall.cli.base import output as out
from trainhall.cli.base.connect import connect
from trainhall.cli.base.errors import UsageError
from trainhall.cli.base.options import DEFAULT_URL, Format, Output, Url

if TYPE_CHECKING:
    from trainhall.cli.base.client import Client

secrets = typer.Typer(help="Secrets that jobs get as environment variables.", no_args_is_help=True)
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the environment variable, as HF_TOKEN.")
]
OfProject = Annotated[
    str | None,
    typer.Option(
        "--project",
        metavar="NAME",
        help="Project whose jobs get it.",
        show_default="TRAINHALL_PROJECT, else your only one, for admins default",
    ),
]
OfProjects = Annotated[
    str | None, typer.Option("--project", metavar="NAME", help="Only those of this project.")
]
_OWN = ("/users/me/secrets", "your own jobs")
Own = Annotated[bool, typer.Option("--user", help="Yours: for your jobs in every project.")]


@secrets.command("set")
def set_secret(
    name: Name, project: OfProject = None, user: Own = False, url: Url = DEFAULT_URL
) -> None:
    """Set a secret: its value is asked for, or read from standard input.

    No one can read it back, but members of the project can print it by a job. A final line break is
    not part of it. `secrets: [NAME]` in a spec gives it to the job's ranks; a user's
    own comes before the project's.

    \b
    Examples:
      trainhall secrets set HF_TOKEN --project vision
      trainhall secrets set WANDB_API_KEY --user < key.txt
    """
    _check_variable(name)
    with connect(url) as client:
        folder, owner = _owner(client, project, user)
        client.request("PUT", f"{folder}/{segment(name)}", json={"value": _value(name)})
    out.notice(f"Set {out.one_line(name)} for {owner}.")


@secrets.command("list", hidden=True)
@secrets.command("ls")
def list_secrets(
    project: OfProjects = None,
    user: Annotated[bool, typer.Option("--user", help="Only your own.")] = False,
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """List the secrets of your projects and your own, never with their values.

    \b
    Examples:
      trainhall secrets ls
      trainhall secrets ls --project vision -o json
    """
    found: list[Any] = []
    with connect(url) as client:
        if user or project is not None:
            places = [_owner(client, project, user)]
        else:
            places = [_of_project(name) for name in _allowed(client)] + [_OWN]
        for folder, owner in places:
            found += [{**item, "for": owner} for item in client.items(folder)]
    columns = [
        out.Column("NAME", lambda s: s["name"]),
        out.Column("FOR", lambda s: s["for"]),
        out.Column("SET", lambda s: out.moment(s["updated_at"])),
        out.Column("BY", lambda s: s["updated_by"]),
    ]
    print_named(found, columns, output, empty="No secrets.")


@secrets.command("rm")
def remove(
    name: Name, project: OfProject = None, user: Own = False, url: Url = DEFAULT_URL
) -> None:
    """Remove a secret. Jobs that run keep it; jobs that need it and start later fail.

    \b
    Examples:
      trainhall secrets rm HF_TOKEN --project vision
    """
    with connect(url) as client:
        folder, owner = _owner(client, project, user)
        client.request("DELETE", f"{folder}/{segment(name)}")
    out.notice(f"Removed {out.one_line(name)} of {owner}.")


def _check_variable(name: str) -> None:
    """Check the name before a value is asked for."""
    from trainhall.training.spec.variables.secrets import check_name as check_variable

    check_name(name)
    try:
        check_variable(name)
    except ValueError as error:
        hint = "; the value is asked for, never an argument" if "=" in name else ""
        shown = name.partition("=")[0]
        raise UsageError(f"{shown!r} {error}{hint}") from None


def _owner(client: "Client", project: str | None, user: bool) -> tuple[str, str]:
    """Return the path of the secrets that are meant, and in words whose they are.

    Raises:
        UsageError: several projects may be meant.
    """
    from trainhall.cli.base.client import PROJECT_VARIABLE

    if user and project is not None:
        raise UsageError("--project and --user exclude each other")
    if user:
        return _OWN
    project = project or os.environ.get(PROJECT_VARIABLE)
    if project is None:
        allowed = ["default"] if client.get("/auth/me")["admin"] else _allowed(client)
        if len(allowed) != 1:
            known = ", ".join(map(out.one_line, allowed)) or "none"
            raise UsageError(f"give --project NAME ({known}), or --user for your own jobs")
        project = allowed[0]
    return _of_project(project)


def _of_project(name: str) -> tuple[str, str]:
    return f"/projects/{segment(name)}/secrets", f"project {out.one_line(name)}"


def _allowed(client: "Client") -> list[str]:
    """Return the projects whose secrets the caller may list."""
    projects = client.get("/auth/me")["projects"]
    return [each["name"] for each in projects if each["role"] != "viewer"]


def _value(name: str) -> str:
    if sys.stdin.isatty():
        value: str = typer.prompt(f"Value of {name}", hide_input=True, err=True)
    else:
        raw = sys.stdin.buffer.read()
        try:
            value = raw.decode()
        except UnicodeDecodeError:
            raise UsageError("the value on standard input is not text in UTF-8") from None
        value = value.removesuffix("\n").removesuffix("\r")
    if not value:
        raise UsageError(f"the value of {name} is empty; nothing was set")
    return value
