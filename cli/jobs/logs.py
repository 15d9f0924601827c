"""`trainhall logs`: what a job's ranks wrote."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from trainhall.cli.base.connect import connect
from trainhall.cli.base.errors import UsageError
from trainhall.cli.base.options import DEFAULT_URL, JobId, Url
from trainhall.cli.base.output import Json, label

if TYPE_CHECKING:
    from trainhall.cli.base.client import Client


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


def logs(
    job: JobId,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the output until the job has ended.")
    ] = False,
    rank: Annotated[int | None, typer.Option("--rank", "-r", min=0, help="Only this rank.")] = None,
    stream: Annotated[
        str | None, typer.Option("--stream", help="Only stdout or stderr.", metavar="STREAM")
    ] = None,
    attempt: Annotated[
        int | None, typer.Option("--attempt", min=1, help="Only this attempt.")
    ] = None,
    tail: Annotated[
        int | None,
        typer.Option(
            "--tail",
            "-n",
            min=1,
            max=10_000,
            help="Start with the last N lines, at most 10,000.",
        ),
    ] = None,
    form: Annotated[
        LogFormat, typer.Option("--output", "-o", help="json prints one object per line.")
    ] = LogFormat.TEXT,
    url: Url = DEFAULT_URL,
) -> None:
    """Print the output of a job's ranks.

    Each line begins with its rank when there are several.

    \b
    Examples:
      trainhall logs 3f2a
      trainhall logs 3f2a -f --tail 20
      trainhall logs 3f2a --rank 0 --stream stderr > errors.txt
      trainhall logs 3f2a -o json | jq -r .time
    """
    from trainhall.cli.jobs.loglines import LogPrinter

    if stream not in (None, "stdout", "stderr"):
        raise UsageError(f"--stream takes stdout or stderr, not {stream!r}")
    with connect(url) as client:
        found = client.job(job)
        if rank is not None:
            _check_rank(client, found, rank)
        if attempt is not None and attempt > found["attempt"]:
            has = f"attempts 1 to {found['attempt']}" if found["attempt"] else "no attempt yet"
            raise UsageError(f"--attempt {attempt}: job {label(found)} has {has}")
        printer = LogPrinter(
            client, found["id"], rank=rank, stream=stream, attempt=attempt,
            prefixed=rank is None and found["world_size"] > 1, as_json=form is LogFormat.JSON,
        )  # fmt: skip
        if follow:
            printer.follow(tail)
        else:
            printer.print_all(tail)


def _check_rank(client: "Client", job: Json, rank: int) -> None:
    """Raise UsageError if no attempt of the job has had this rank."""
    attempts = client.items(f"/training/jobs/{job['id']}/attempts")
    ranks = max([job["world_size"], *(attempt["world_size"] for attempt in attempts)])
    if rank >= ranks:
        has = "rank 0 only" if ranks == 1 else f"ranks 0 to {ranks - 1}"
        raise UsageError(f"--rank {rank}: job {label(job)} has {has}")
