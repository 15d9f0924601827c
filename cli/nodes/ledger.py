"""The command `ledger`: device-hours, energy and money by job, user or project."""

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated

import typer

from trainhall.cli.base import output as out
from trainhall.cli.base.connect import connect
from trainhall.cli.base.errors import UsageError
from trainhall.cli.base.options import DEFAULT_URL, Report, ReportFormat, Url
from trainhall.cli.base.quantities import duration
from trainhall.training.common.units import percent


class By(StrEnum):
    """As `trainhall.cluster.ledger.views.Account`, which is slow to import."""

    JOB = "job"
    USER = "user"
    PROJECT = "project"


def ledger(
    by: Annotated[By, typer.Option("--by", help="A line for each job, user or project.")] = By.USER,
    since: Annotated[
        float,
        typer.Option(
            "--since",
            parser=duration,
            metavar="DURATION",
            show_default="30d",
            help="What ended in so much time, as in 12h or 30d, or still runs.",
        ),
    ] = 30 * 86400.0,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    output: Report = ReportFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Show what jobs cost: device-hours and what became of them, energy, and money.

    Money is shown if the coordinator has a price.

    \b
    Examples:
      trainhall ledger
      trainhall ledger --by job --since 7d
      trainhall ledger --by project --csv > ledger.csv
    """  # fmt: skip
    if csv and output is not ReportFormat.TABLE:
        raise UsageError("--csv and --output exclude each other; give one of them")
    try:
        begin = (datetime.now(UTC) - timedelta(seconds=since)).isoformat()
    except OverflowError:
        raise UsageError("--since is too long; give a shorter time") from None
    with connect(url) as client:
        if csv:
            print(client.text("/ledger", by=by.value, since=begin, format="csv"), end="")
        else:
            pages = list(client.pages("/ledger", by=by.value, since=begin))
        out.notice_if_simulated(client)
    if csv:
        return
    items = [item for page in pages for item in page["items"]]
    if output is not ReportFormat.TABLE:
        print(out.rendered({**pages[-1], "items": items}, output))
    elif items:
        print(_table(by, items, pages[-1]))
    else:
        out.notice("No attempt held devices in that time.")


def _table(by: By, items: list[out.Json], page: out.Json) -> str:
    total = {**page["total"], "name": "total", "job_id": None}
    columns = [out.Column(by.value.upper(), lambda row: row["name"] or "")]
    if by is By.JOB:
        columns.append(out.Column("ID", lambda row: row["job_id"] or ""))
    else:
        columns.append(_column("JOBS", "jobs", digits=0))
    columns += [_column(title, name) for title, name in _FIGURES.items()]
    columns += [_column("KWH", "energy_kwh"), out.Column("METERED", _metered, right=True)]
    if page["currency"] is not None:
        columns.append(_column(page["currency"], "cost"))
    return out.table([*items, total], columns)


_FIGURES = {
    "DEVICE-HOURS": "device_hours",
    "USEFUL": "useful_hours",
    "DATA": "data_hours",
    "REDONE": "redone_hours",
    "IDLE": "idle_hours",
    "NOT MEASURED": "not_measured_hours",
}


def _metered(row: out.Json) -> str:
    """Return the share of the GPU-hours whose power was measured."""
    if not row["gpu_hours"]:
        return out.BLANK
    return percent(row["metered_hours"] / row["gpu_hours"])


def _column(title: str, name: str, digits: int = 2) -> out.Column:
    def cell(row: out.Json) -> str:
        value = row[name]
        if digits and value and value < 0.005:
            return "<0.01"
        return out.BLANK if value is None else f"{value:,.{digits}f}"

    return out.Column(title, cell, right=True)
