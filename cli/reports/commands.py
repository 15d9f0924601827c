"""Commands about reports: ls, show, create, rm."""

from pathlib import Path
from typing import Annotated

import typer

from trainhall.cli.base import complete
from trainhall.cli.base import output as out
from trainhall.cli.base.confirm import confirm_deletion
from trainhall.cli.base.connect import connect
from trainhall.cli.base.errors import UsageError
from trainhall.cli.base.options import DEFAULT_URL, Format, Output, Url
from trainhall.cli.owners import Mine, OfProject, OfUser, owner_columns, owner_filter

app = typer.Typer(
    help="Reports: Markdown with live charts, shared by the link of their page.",
    no_args_is_help=True,
)
STDIN = "-"

ReportRef = Annotated[
    str,
    typer.Argument(
        metavar="REPORT", help="The report's id, or a unique prefix of it, or its title.",
        autocompletion=complete.reports,
    ),
]  # fmt: skip


@app.command("list", hidden=True)
@app.command("ls")
def list_reports(
    mine: Mine = False,
    user: OfUser = None,
    project: OfProject = None,
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """List the reports, the newest first.

    \b
    Examples:
      trainhall report ls
    """
    of = owner_filter(user, mine, project)
    with connect(url) as client:
        reports = list(client.items("/reports", **of))
        out.notice_if_simulated(client)
    columns = [
        out.Column("ID", lambda r: r["id"]),
        out.Column("TITLE", lambda r: r["title"]),
        *owner_columns(reports),
        out.Column("UPDATED", lambda r: out.moment(r["updated_at"])),
        out.Column("LINK", lambda r: client.report_page(r["id"])),
    ]
    empty = "No reports. Write one on the dashboard, or with `trainhall report create FILE`."
    out.print_items(reports, columns, output, empty=empty)


@app.command("show")
def show(report: ReportRef, output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """Print the Markdown of a report; its charts are drawn on its page.

    \b
    Examples:
      trainhall report show a83e
      trainhall report show "Learning rates" > report.md
    """
    with connect(url) as client:
        found = client.report(report)
        out.notice_if_simulated(client)
    out.print_item(found, output, lambda: out.harmless(found["text"]).rstrip("\n"))


@app.command("create")
def create(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Markdown; - reads standard input.")],
    title: Annotated[
        str | None, typer.Option("--title", help="Title.", show_default="the file's name")
    ] = None,
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Create a report from a file, and print its link.

    \b
    Examples:
      trainhall report create report.md --title "Learning rates for digits"
    """
    if title is None:
        if file == STDIN:
            raise UsageError("standard input has no name; give a --title")
        title = Path(file).stem
    body = {"title": title, "text": _text(file)}
    with connect(url) as client:
        made = client.request("POST", "/reports", json=body)
        out.notice_if_simulated(client)
    out.print_item(made, output, lambda: f"{_label(made)}  {client.report_page(made['id'])}")


@app.command("rm")
def rm(
    report: ReportRef,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Delete a report for all users.

    Asks first, on a terminal; elsewhere it needs `--yes`.

    \b
    Examples:
      trainhall report rm a83e
    """
    with connect(url) as client:
        found = client.report(report)
        if not yes:
            confirm_deletion(f"the report {_label(found)}")
        client.request("DELETE", f"/reports/{found['id']}")
    print(f"{_label(found)}  deleted")


def _text(file: str) -> str:
    if file == STDIN:
        return str(typer.get_text_stream("stdin").read())
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not text in UTF-8") from None


def _label(report: out.Json) -> str:
    return f"{out.one_line(report['title'])} ({report['id']})"
