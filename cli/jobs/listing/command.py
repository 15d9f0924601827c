"""The command `ls`: jobs, newest first or in another order, and the queue."""

from typing import TYPE_CHECKING, Annotated

import typer

from trainhall.cli.base import complete
from trainhall.cli.base import output as out
from trainhall.cli.base.connect import connect
from trainhall.cli.base.errors import NotFoundError, UsageError
from trainhall.cli.base.options import DEFAULT_URL, Format, Output, Url
from trainhall.cli.jobs.listing import columns as of_jobs
from trainhall.cli.jobs.queue_history import earlier_position
from trainhall.cli.owners import (
    Mine,
    OfProject,
    OfUser,
    owner_columns,
    owner_filter,
    owner_terms,
)
from trainhall.cluster.jobs.listing.keys import FIELDS, SORT_KEYS

if TYPE_CHECKING:
    from trainhall.cli.base.client import Client


def list_jobs(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only jobs in this state. May be repeated."),
    ] = None,
    search: Annotated[
        str | None,
        typer.Option(
            "--search",
            metavar="TEXT",
            help="Only jobs whose name contains this text, or whose id begins with it.",
        ),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(
            "--query",
            "-q",
            metavar="QUERY",
            help="Only jobs that match all terms: FIELD:VALUE, FIELD<NUMBER, no:FIELD, -TERM, "
            f"words. Fields: {', '.join(FIELDS)}, parameters and metrics, such as lr or loss.min.",
        ),
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(
            "--sort",
            metavar="KEY",
            help=f"Sort by {', '.join(SORT_KEYS)}, parameters.NAME or metrics.NAME; -KEY sorts in "
            "descending order.",
            autocompletion=complete.sort_keys,
        ),
    ] = None,
    mine: Mine = False,
    user: OfUser = None,
    project: OfProject = None,
    view: Annotated[
        str | None,
        typer.Option(
            "--view",
            metavar="NAME",
            help="Use a view that was saved on the dashboard; other options go before its own.",
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            metavar="NAMES",
            help=f"Show these columns: {', '.join(of_jobs.NAMED)}, parameters and metrics, such as "
            "name,lr,loss:min.",
        ),
    ] = None,
    limit: Annotated[
        int,
        typer.Option(
            "--limit",
            "-n",
            min=1,
            help="How many jobs to list: the newest, or with --queue the next to start.",
        ),
    ] = 50,
    queue: Annotated[
        bool,
        typer.Option("--queue", help="List waiting jobs in queue order, with what each waits for."),
    ] = False,
    wide: Annotated[
        bool,
        typer.Option(
            "--wide",
            "-w",
            help="Also show run times, and never cut reasons to the terminal's width.",
        ),
    ] = False,
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """List jobs, newest first. A terminal cuts long reasons; `show` has them in full.

    In a query, experiment is a name or id, and a metric is its latest value. The list has a column
    for each parameter and metric in it.

    \b
    Examples:
      trainhall ls
      trainhall ls --state running --state queued
      trainhall ls --mine --project vision
      trainhall ls --search sweep
      trainhall ls -q tag:baseline
      trainhall ls --query 'state:failed lr>0.01 -user:maria'
      trainhall ls -q experiment:7c0d --sort -metrics.eval_accuracy
      trainhall ls --query 'name:"my sweep" duration>2h' --sort -metrics.eval_accuracy
      trainhall ls --view "failed this week"
      trainhall ls --columns name,state,lr,loss:min
      trainhall ls --queue
      trainhall ls -o name | xargs -n1 trainhall cancel
    """
    if queue:
        of = owner_filter(user, mine, project)
        _refuse_beside_queue(
            state,
            {
                "--search": search, "--query": query, "--sort": sort, "--view": view,
                "--columns": columns,
            },
        )  # fmt: skip
        _list_queue(limit, wide, output, url, of)
        return
    owned = owner_terms(user, mine, project)
    with connect(url) as client:
        saved = _view(client, view) if view is not None else {}
        query, sort = query or saved.get("query"), sort or saved.get("sort")
        asked = {
            "state": state or saved.get("state"), "search": search or saved.get("search") or None,
            "query": " ".join([query or "", *owned]).strip() or None, "sort": sort,
        }  # fmt: skip
        pages = list(client.pages("/training/jobs", limit=limit, **asked))
        jobs = [job for page in pages for job in page["items"]]
        out.notice_if_simulated(client)
    if columns is not None:
        shown = of_jobs.chosen(columns, jobs)
    else:
        values = of_jobs.value_columns([sort, *saved.get("columns", ())], query, jobs)
        shown = of_jobs.default(values, jobs, wide=wide)
    if output is Format.TABLE:
        of_jobs.notice_blank(shown, jobs)
    hint = pages[0].get("hint") if pages else None
    out.print_items(jobs, shown, output, empty=hint or "No jobs.", wide=wide)


def _refuse_beside_queue(state: list[str] | None, options: dict[str, str | None]) -> None:
    if state:
        raise UsageError("--queue and --state exclude each other: the queue has waiting jobs only")
    for option, value in options.items():
        if value is not None:
            raise UsageError(f"--queue and {option} exclude each other; use --state queued")


def _view(client: "Client", name: str) -> out.Json:
    """Return a saved view; its keys are those of a request for jobs, and `columns`."""
    saved = {view["name"]: view for view in client.items("/views")}
    if name not in saved:
        names = f"there are {', '.join(saved)}" if saved else "save one on the dashboard"
        raise NotFoundError(f"there is no view {name!r}; {names}")
    found: out.Json = saved[name]
    return found


def _list_queue(limit: int, wide: bool, output: Format, url: str, of: out.Json) -> None:
    with connect(url) as client:
        pages = list(client.pages("/cluster/queue", limit=limit, history=True, **of))
        out.notice_if_simulated(client)
    entries = [entry for page in pages for entry in page["items"]]
    total = pages[-1]["total"]
    columns = [
        out.Column("#", lambda e: str(e["position"]), right=True),
        out.Column("ID", lambda e: e["job_id"] or "-"),
        out.Column("NAME", lambda e: e["name"] or out.FOREIGN_JOB),
        *owner_columns(entries, wide=wide),
        out.Column("PRIORITY", lambda e: str(e["priority"]), right=True, spare=1),
        out.Column("WAITS", lambda e: out.age(e["queued_at"]), right=True, spare=2),
        out.Column(
            "BEFORE", lambda e: earlier_position(e["history"] or (), e["position"]), spare=3
        ),
        out.Column("FOR", lambda e: e["reason"] if e["name"] else ""),
    ]
    if output is Format.NAME:
        entries = [{"id": entry["job_id"]} for entry in entries if entry["job_id"]]
    out.print_items(entries, columns, output, empty="The queue is empty.", wide=wide)
    if total > len(entries):
        out.notice(f"The first {len(entries)} of {total} waiting jobs; --limit lists more.")
