"""Commands about logins: open, login, logout, whoami; and API tokens: create, ls, rm."""

import secrets
import socket
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainhall.api.host.credentials import (
    remove_token,
    store_token,
    stored_token,
    stored_token_id,
)
from trainhall.cli.accounts.browser import open_link
from trainhall.cli.accounts.names import check_name
from trainhall.cli.base import output as out
from trainhall.cli.base.connect import connect
from trainhall.cli.base.credentials import token_for, token_of_own_coordinator
from trainhall.cli.base.errors import CliError, NotAllowedError, NotFoundError, UsageError
from trainhall.cli.base.options import DEFAULT_URL, Format, Output, Url
from trainhall.cli.base.quantities import duration
from trainhall.cluster.accounts.secrets import MAX_TOKEN_SECONDS, is_token

if TYPE_CHECKING:
    from trainhall.cli.base.client import Client

_LINK = "/login#code="

tokens = typer.Typer(
    help="API tokens: what a program sends instead of a login.", no_args_is_help=True
)


def open_dashboard(
    url: Url = DEFAULT_URL,
    print_only: Annotated[
        bool, typer.Option("--print", help="Only print the link; start no browser.")
    ] = False,
) -> None:
    """Open the dashboard in a browser, logged in.

    Over SSH, without a desktop and for another program, the link is printed that does so. It works
    once, within a minute.

    \b
    Examples:
      trainhall open
      docker compose exec coordinator trainhall open
    """
    with connect(url) as client:
        made = client.request("POST", "/auth/codes")
    link = f"{client.url}{_LINK}{made['code']}"
    if not print_only and open_link(link):
        out.notice("Opened the dashboard in a browser; `trainhall open --print` prints a link.")
        return
    print(link)
    out.notice("It works once, within a minute.")


def login(
    at: Annotated[
        str | None,
        typer.Argument(metavar="URL", help="URL of the coordinator.", show_default="--url"),
    ] = None,
    code: Annotated[
        bool,
        typer.Option("--code", help="Show a code for a browser on any host, as over SSH."),
    ] = False,
    paste: Annotated[
        bool, typer.Option("--paste", help="Ask for an API token, or a link of `trainhall open`.")
    ] = False,
    print_header: Annotated[
        bool,
        typer.Option(
            "--print-header",
            help="Print the header for curl: curl -H @<(trainhall login --print-header) …",
        ),
    ] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Log the commands of this user in, by a browser, a code, an API token or a link.

    A browser opens where there is one, else a code is shown. Without a terminal, standard input has
    an API token or the link of `trainhall open`. The token is kept in
    ~/.config/trainhall/credentials.

    \b
    Examples:
      trainhall login https://lab:8000
      trainhall login --code https://lab:8000
      curl -H @<(trainhall login --print-header) http://127.0.0.1:8000/api/v1/training/jobs
    """
    url = (at or url).rstrip("/")
    if print_header:
        token = token_for(url) or token_of_own_coordinator(url)
        if token is None:
            raise NotAllowedError(f"you are not logged in to {url}: run `trainhall login {url}`")
        print(f"Authorization: Bearer {token}")
        return
    if code and paste:
        raise UsageError("give either --code or --paste")
    token_id = None
    if code or (not paste and sys.stdin.isatty()):
        from trainhall.cli.accounts.browser_login import new_token

        token_id, token = new_token(url, by_code=code)
    else:
        url, token_id, token = _pasted(url, keeps_url=at is not None)
    with _client(url, token) as client:
        me = client.get("/auth/me")
    try:
        store_token(url, token, token_id=token_id)
    except (OSError, RuntimeError) as error:
        raise CliError(f"the credential cannot be stored: {error}") from None
    out.notice(f"Logged in to {url} as {out.one_line(me['user'])}.")


def logout(url: Url = DEFAULT_URL) -> None:
    """Forget the stored credential of a coordinator, and revoke it if `login` made it.

    An API token that was pasted stays valid.

    \b
    Examples:
      trainhall logout --url http://lab:8000
    """
    token_id, failed = stored_token_id(url), None
    if token_id is not None:
        try:
            with _client(url, stored_token(url) or "") as client:
                client.request("DELETE", f"/auth/tokens/{token_id}")
        except (NotAllowedError, NotFoundError):
            pass  # it is void already
        except CliError as error:
            failed = error
    try:
        found = remove_token(url)
    except OSError as error:
        raise CliError(f"the credential cannot be removed: {error}") from None
    if not found:
        raise CliError(f"there is no stored credential for {url}")
    if failed is not None:
        raise CliError(f"forgot the credential, but its token was not revoked: {failed}")
    revoked = token_id is not None
    more = "" if revoked else " Its token stays valid: `trainhall tokens rm` revokes it."
    out.notice(f"Logged out of {url}.{more}")


def whoami(output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """Show as whom commands act.

    \b
    Examples:
      trainhall whoami
    """
    with connect(url) as client:
        me = client.get("/auth/me")
    shown = {"id": me["user"], **me}
    out.print_item(
        shown if output is Format.NAME else me,
        output,
        lambda: out.pairs(
            [
                ("user", me["user"]),
                ("admin", "yes" if me["admin"] else "no"),
                ("credential", _CREDENTIALS.get(me["how"], me["how"])),
                ("projects", _projects(me)),
                ("coordinator", url),
            ]
        ),
    )


def _projects(me: out.Json) -> str:
    return ", ".join(f"{each['name']} ({each['role']})" for each in me["projects"]) or "none"


_CREDENTIALS = {"none": "none is needed", "token": "API token", "session": "session"}


@tokens.command("create")
def create_token(
    name: Annotated[str, typer.Argument(help="Name of the token, for people.")],
    expires: Annotated[
        float | None,
        typer.Option(
            "--expires",
            parser=duration,
            metavar="DURATION",
            help="Life of the token.",
            show_default="90 days",
        ),
    ] = None,
    project: Annotated[
        str | None, typer.Option("--project", help="The only project that it reaches.")
    ] = None,
    role: Annotated[
        str | None,
        typer.Option("--role", help="The most that it allows: viewer, member or maintainer."),
    ] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", help="All that it may do: metrics, for Prometheus."),
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", help="Service account that it is for.")
    ] = None,
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Create an API token and print it. It is shown only now.

    \b
    Examples:
      trainhall tokens create ci
      trainhall tokens create nightly --expires 48h
      trainhall tokens create board --project vision --role viewer
      trainhall tokens create nightly --user ci-vision
      trainhall tokens create prometheus --scope metrics --expires 365d
    """  # fmt: skip
    narrowed = {"project": project, "role": role, "scopes": scope or None, "user": user}
    body: dict[str, Any] = {"name": name, **{k: v for k, v in narrowed.items() if v is not None}}
    if expires is not None:
        if expires > MAX_TOKEN_SECONDS:
            raise UsageError("--expires is too long; give at most 100 years")
        body["expires_in"] = expires  # by the coordinator's clock
    with connect(url) as client:
        made = client.request("POST", "/auth/tokens", json=body)
    out.print_item(made, output, lambda: str(made["token"]))
    if output is Format.TABLE:
        out.notice("Keep it: it is not shown again. Programs send it as TRAINHALL_TOKEN.")


@tokens.command("list", hidden=True)
@tokens.command("ls")
def list_tokens(
    user: Annotated[str | None, typer.Option("--user", help="Tokens of this user.")] = None,
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """List your API tokens, or those of a service account.

    \b
    Examples:
      trainhall tokens ls
    """
    with connect(url) as client:
        found = list(client.items("/auth/tokens", user=user))
    columns = [
        out.Column("ID", lambda t: t["id"]),
        out.Column("NAME", lambda t: t["name"]),
        out.Column("REACH", _reach),
        out.Column("CREATED", lambda t: out.moment(t["created_at"])),
        out.Column("EXPIRES", lambda t: out.moment(t["expires_at"]) if t["expires_at"] else ""),
        out.Column("LAST USE", lambda t: out.age(t["used_at"])),
    ]
    out.print_items(found, columns, output, empty="No tokens.")


def _reach(token: out.Json) -> str:
    if token["scopes"]:
        return ", ".join(token["scopes"])
    parts = [token["role"], f"in {token['project']}" if token["project"] else None]
    return " ".join(part for part in parts if part) or "everything"


@tokens.command("rm")
def remove(
    token: Annotated[
        str, typer.Argument(metavar="TOKEN", help="Its name, or a unique prefix of its id.")
    ],
    user: Annotated[str | None, typer.Option("--user", help="Token of this user.")] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Revoke an API token: requests with it are refused.

    \b
    Examples:
      trainhall tokens rm ci
    """
    check_name(token)
    with connect(url) as client:
        found = client.token(token, user)
        client.request("DELETE", f"/auth/tokens/{found['id']}")
    out.notice(f"Revoked {out.label(found)}.")


def _secret(url: str) -> str:
    if sys.stdin.isatty():
        prompt = f"API token, or link of `trainhall open`, for {url} (it is not shown)"
        return str(typer.prompt(prompt, hide_input=True, err=True)).strip()
    return sys.stdin.readline().strip()


def _pasted(url: str, *, keeps_url: bool) -> tuple[str, str | None, str]:
    """Return the URL, the token's id if it was made for these commands, and the token."""
    given = _secret(url)
    if _LINK in given:
        linked, _, code = given.partition(_LINK)
        url = url if keeps_url else linked
        return url, *_token_by_link(url, code)
    if is_token(given):
        return url, None, given
    raise UsageError("that is neither an API token (th_…) nor a link of `trainhall open`")


def _token_by_link(url: str, code: str) -> tuple[str, str]:
    """Trade the code of a link for an API token of this user on this host."""
    with _client(url, "") as client:
        client.request("POST", "/auth/link", json={"code": code})  # its client keeps the cookie
        name = f"login from {socket.gethostname()}, {secrets.token_hex(3)}"
        made = client.request("POST", "/auth/tokens", json={"name": name})
        client.request("POST", "/auth/logout")
    return str(made["id"]), str(made["token"])


def _client(url: str, token: str) -> "Client":
    from trainhall.cli.base.client import Client

    return Client(url, token=token)
