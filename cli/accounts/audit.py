"""Command about the audit log: audit."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainhall.cli.base import output as out
from trainhall.cli.base.connect import connect
from trainhall.cli.base.errors import UsageError
from trainhall.cli.base.options import DEFAULT_URL, ReportFormat, Url
from trainhall.cli.base.quantities import duration

if TYPE_CHECKING:
    from trainhall.cli.base.client import Client

DEFAULT_ROWS = 50
FOLLOW_SECONDS = 2.0


class AuditFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    JSONL = "jsonl"


def audit(
    user: Annotated[str | None, typer.Option("--user", help="Only of this user.")] = None,
    action: Annotated[
        str | None,
        typer.Option("--action", help="Only this action, as job.cancel, or kind, as job."),
    ] = None,
    project: Annotated[str | None, typer.Option("--project", help="Only in this project.")] = None,
    name: Annotated[
        str | None, typer.Option("--object", help="Only on the object of this id or name.")
    ] = None,
    since: Annotated[
        float | None,
        typer.Option(
            "--since", parser=duration, metavar="DURATION", help="Only of the last so long."
        ),
    ] = None,
    rows: Annotated[
        int, typer.Option("--last", min=1, help="At most so many, the latest ones.")
    ] = DEFAULT_ROWS,
    all_rows: Annotated[bool, typer.Option("--all", help="All that are kept.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print further ones as they come.")
    ] = False,
    output: Annotated[
        AuditFormat,
        typer.Option("--output", "-o", help="Output format; jsonl prints a JSON object a line."),
    ] = AuditFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Show who changed what, and who was refused; the latest last.

    Admins see all of it, maintainers that of their projects.

    \b
    Examples:
      trainhall audit --since 24h
      trainhall audit --user maria --action job.cancel
      trainhall audit --all -o jsonl > audit.jsonl
    """
    if follow and output not in (AuditFormat.TABLE, AuditFormat.JSONL):
        raise UsageError("--follow goes with -o table or -o jsonl")
    given = {"user": user, "action": action, "project": project, "object": name}
    asked: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if since is not None:
        asked["since"] = (datetime.now(UTC) - timedelta(seconds=since)).isoformat()
    with connect(url) as client:
        found = list(client.items("/audit", limit=None if all_rows else rows, **asked))[::-1]
        _print(found, output)
        if follow:
            newest = found[-1]["id"] if found else 0
            for row in following(client, newest, asked):
                print(_line(row, output), flush=True)


def following(client: "Client", newest: int, asked: dict[str, Any]) -> Iterator[out.Json]:
    """Yield rows as they come, without an end."""
    while True:
        time.sleep(FOLLOW_SECONDS)
        fresh = []
        for row in client.items("/audit", **asked):
            if row["id"] <= newest:
                break
            fresh.append(row)
        newest = fresh[0]["id"] if fresh else newest
        yield from reversed(fresh)


def _print(rows: list[out.Json], output: AuditFormat) -> None:
    if output is AuditFormat.JSONL:
        for row in rows:
            print(_line(row, output))
    elif output is not AuditFormat.TABLE:
        print(out.rendered(rows, ReportFormat(output.value)))
    elif rows:
        print(out.table(rows, _COLUMNS, color=out.colored()))
    else:
        out.notice("No rows.")


def _line(row: out.Json, output: AuditFormat) -> str:
    if output is AuditFormat.JSONL:
        return json.dumps(row, ensure_ascii=False)
    return "  ".join(out.one_line(column.cell(row)) or out.BLANK for column in _COLUMNS)


def _what(row: out.Json) -> str:
    fields = row["fields"] or {}
    changed = [f"{name}: {_value(old)} → {_value(new)}" for name, (old, new) in fields.items()]
    return "; ".join([*([row["detail"]] if row["detail"] else []), *changed])


def _value(value: Any) -> str:
    if value is None:
        return out.BLANK
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _who(row: out.Json) -> str:
    token = f" ({row['credential']})" if row["how"] == "token" and row["credential"] else ""
    return (row["user"] or "") + token


_COLUMNS = [
    out.Column("TIME", lambda r: out.moment(r["time"])),
    out.Column("USER", _who),
    out.Column("ADDRESS", lambda r: r["address"] or ""),
    out.Column("ACTION", lambda r: r["action"]),
    out.Column("OBJECT", lambda r: r["object"] or ""),
    out.Column("PROJECT", lambda r: r["project"] or ""),
    out.Column("OUTCOME", lambda r: r["outcome"]),
    out.Column("DETAIL", _what),
]
