"""Commands about projects: add, ls, members, set, rm."""

from typing import Annotated, Any

import typer

from trainhall.cli.accounts.members import add_named, change_members
from trainhall.cli.accounts.names import print_named, segment
from trainhall.cli.base import output as out
from trainhall.cli.base.confirm import confirm_deletion
from trainhall.cli.base.connect import connect
from trainhall.cli.base.errors import UsageError
from trainhall.cli.base.options import DEFAULT_URL, Format, Output, Url

projects = typer.Typer(help="Projects, and the roles in them.", no_args_is_help=True)
_LIMITS = ("priority", "devices", "paths")
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the project.")]


@projects.command("add")
def add(name: Name, url: Url = DEFAULT_URL) -> None:
    """Add a project without members.

    \b
    Examples:
      trainhall projects add vision
    """
    add_named("projects", name, url)


@projects.command("list", hidden=True)
@projects.command("ls")
def list_projects(output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """List your projects; admins see all.

    \b
    Examples:
      trainhall projects ls
    """
    with connect(url) as client:
        found = list(client.items("/projects"))
    columns = [
        out.Column("NAME", lambda p: p["name"]),
        out.Column("YOUR ROLE", lambda p: p["role"]),
        out.Column("LIMITS", lambda p: _limits(p["limits"])),
        out.Column("CREATED", lambda p: out.moment(p["created_at"])),
    ]
    print_named(found, columns, output, empty="No projects.")


@projects.command("members")
def members(
    name: Name,
    add_members: Annotated[
        list[str] | None,
        typer.Option("--add", metavar="MEMBER=ROLE", help="Set a role, as maria=member."),
    ] = None,
    remove_members: Annotated[
        list[str] | None, typer.Option("--remove", metavar="MEMBER", help="Take the role away.")
    ] = None,
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Set and take away roles in a project, and list them.

    A member is a user, or group:NAME. Roles are viewer, member and maintainer.

    \b
    Examples:
      trainhall projects members vision --add maria=maintainer --add group:vision-lab=member
      trainhall projects members vision --remove maria
    """
    added = [(member, {"role": role}) for member, role in map(_role, add_members or ())]
    found = change_members("projects", name, url, add=added, remove=remove_members or ())
    columns = [
        out.Column("MEMBER", lambda m: m["member"]),
        out.Column("KIND", lambda m: m["kind"]),
        out.Column("ROLE", lambda m: m["role"]),
    ]
    print_named(found, columns, output, empty="No members.", key="member")


@projects.command("set")
def change(
    name: Name,
    limits: Annotated[
        list[str],
        typer.Option(
            "--limit",
            metavar="NAME=VALUE",
            help="Set priority, devices or paths; null takes the limit away. May be repeated.",
        ),
    ],
    url: Url = DEFAULT_URL,
) -> None:
    """Change the limits of a project.

    priority is the highest of a job, devices the most of one job; under the folders of paths lie
    checkpoint.path, code, scripts, interpreters and data. Quotas limit what a project holds at
    once.

    \b
    Examples:
      trainhall projects set vision --limit priority=0 --limit 'paths=[/data/vision]'
      trainhall projects set vision --limit devices=null
    """
    body = {"limits": dict(_limit(text) for text in limits)}
    with connect(url) as client:
        client.request("PATCH", f"/projects/{segment(name)}", json=body)
    out.notice(f"Changed {out.one_line(name)}.")


@projects.command("rm")
def remove(
    name: Name,
    with_contents: Annotated[
        bool,
        typer.Option("--with-contents", help="Delete its jobs, experiments and reports, too."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Delete a project, with its roles and service accounts.

    \b
    Examples:
      trainhall projects rm vision
      trainhall projects rm vision --with-contents
    """
    if with_contents and not yes:
        confirm_deletion(f"all jobs, experiments and reports of project {out.one_line(name)}")
    asked = {"contents": "delete"} if with_contents else {}
    with connect(url) as client:
        client.request("DELETE", f"/projects/{segment(name)}", params=asked)
    out.notice(f"Deleted {out.one_line(name)}.")


def _role(text: str) -> tuple[str, str]:
    member, separator, role = text.rpartition("=")
    if not separator:
        raise UsageError(f"{text!r} has no role; write it as maria=member")
    return member, role


def _limit(text: str) -> tuple[str, Any]:
    import yaml

    name, separator, value = text.partition("=")
    if not separator:
        raise UsageError(f"{text!r} has no value; write it as priority=0")
    if name not in _LIMITS:
        raise UsageError(f"{name!r} is no limit; use {', '.join(_LIMITS)}")
    try:
        return name, yaml.safe_load(value)
    except yaml.YAMLError:
        raise UsageError(f"{value!r} is not a value; write it as in YAML") from None


def _limits(limits: dict[str, Any]) -> str:
    parts = [f"{name}={_shown(value)}" for name, value in limits.items() if value is not None]
    return ", ".join(parts)


def _shown(value: Any) -> str:
    return f"[{', '.join(value)}]" if isinstance(value, list) else str(value)
