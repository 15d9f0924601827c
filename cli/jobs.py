"""Commands about jobs: submit, ls, show, pause, resume, cancel, wait."""

from typing import Annotated, Any

import typer

from trainhall.cli import complete, specs
from trainhall.cli import output as out
from trainhall.cli.connect import connect
from trainhall.cli.errors import MISSING, NotFound
from trainhall.cli.options import (
    DEFAULT_URL,
    Format,
    JobId,
    Output,
    Overrides,
    SpecFile,
    Timeout,
    Url,
)

RECENT_EVENTS = 10


def submit(
    file: SpecFile,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show progress until the job has ended.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check spec and code, and stop there: nothing is sent up."),
    ] = False,
    overrides: Overrides = None,
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Submit a job. Prints its id and returns at once; -f follows it.

    \b
    Examples:
      trainhall submit examples/digits.yaml
      trainhall submit examples/digits.yaml -f --set training.steps=100
      trainhall submit examples/digits.yaml --dry-run
      cat job.yaml | trainhall submit - -o json

    The folder that a spec names under `code` is uploaded first, unless the coordinator has it.

    \b
    Exit codes with -f: 0 completed, 100 failed, 101 still unfinished, 103 cancelled.
    """
    spec = specs.load(file, overrides)
    with connect(url) as client:
        if dry_run:
            plan = specs.check(spec, client)
            out.say("The spec is valid; nothing was submitted.")
            if output in (Format.JSON, Format.YAML):
                print(out.rendered(plan, output))
            return
        job = specs.submit(spec, client)
        out.print_item(job, output, lambda: str(job["id"]))
        if not follow:
            out.say(f"{job['name']} is {job['state']}. See {client.page_of(job['id'])}")
            return
        from trainhall.cli import follow as following

        out.say(f"See {client.page_of(job['id'])}")
        raise typer.Exit(following.until_final(client, job["id"]))


def list_jobs(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only jobs in this state. May be repeated."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="How many of the newest to list.")
    ] = 50,
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """List jobs, the newest first.

    \b
    Examples:
      trainhall ls
      trainhall ls --state running --state queued
      trainhall ls -o name | xargs -n1 trainhall cancel
    """
    with connect(url) as client:
        jobs = list(client.items("/training/jobs", limit=limit, state=state))
    columns = [
        out.Column("ID", lambda j: j["id"]),
        out.Column("NAME", lambda j: j["name"]),
        out.Column("STATE", lambda j: j["state"]),
        out.Column("STEP", _step, right=True),
        out.Column("LOSS", lambda j: out.number(j["metrics"].get("loss")), right=True),
        out.Column("WORKERS", lambda j: str(j["world_size"]), right=True),
        out.Column("AGE", lambda j: out.age(j["created_at"]), right=True),
        out.Column("REASON", _reason),
    ]
    out.print_items(jobs, columns, output, empty="No jobs.")


def show(job: JobId, output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """Show one job: its state and why, progress, metrics and what happened last.

    \b
    Examples:
      trainhall show 3f2a
      trainhall show 3f2a -o yaml
    """
    with connect(url) as client:
        found = client.job(job)
        events: list[Any] = []
        words: str | None = None
        link: str | None = None
        if output is Format.TABLE:
            from trainhall.cli.chains import newest_link
            from trainhall.cli.failures import last_words

            link = newest_link(client, found)
            words = last_words(client, found)
            events = list(client.items(f"/training/jobs/{found['id']}/events"))[-RECENT_EVENTS:]
        page = client.page_of(found["id"])
    out.print_item(found, output, lambda: _job_page(found, events, page, words, link))


def pause(job: JobId, output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """Pause a job: its ranks agree on a step, save a checkpoint and leave.

    \b
    Examples:
      trainhall pause 3f2a
    """
    _command(url, job, output, "PUT", "/pause")


def resume(job: JobId, output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """Resume a paused job from its checkpoint.

    \b
    Examples:
      trainhall resume 3f2a
    """
    _command(url, job, output, "PUT", "/resume")


def cancel(
    jobs: Annotated[
        list[str],
        typer.Argument(
            metavar="JOB...",
            help="The ids of jobs, or the first characters of them.",
            autocompletion=complete.jobs,
        ),
    ],
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Cancel jobs: their ranks end at once and save nothing. Finished jobs can't be cancelled.

    \b
    Examples:
      trainhall cancel 3f2a
      trainhall cancel 3f2a 91bc
    """
    for job in jobs:
        _command(url, job, output, "DELETE", "")


def wait(job: JobId, timeout: Timeout = None, url: Url = DEFAULT_URL) -> None:
    """Wait until a job has ended, and tell by the exit code how.

    \b
    Examples:
      trainhall wait 3f2a
      trainhall wait 3f2a --timeout 3600 || echo "not completed"

    \b
    Exit codes: 0 completed, 100 failed, 101 still unfinished, 102 not found, 103 cancelled.
    """
    from trainhall.cli import follow as following

    with connect(url) as client:
        try:
            job_id = client.job_id(job)
            code = following.wait(client, job_id, timeout)
        except NotFound as error:
            out.say(f"trainhall: {error.message}")
            raise typer.Exit(MISSING) from None
    raise typer.Exit(code)


def _command(url: str, reference: str, output: Format, method: str, action: str) -> None:
    with connect(url) as client:
        job_id = client.job_id(reference)
        job = client.request(method, f"/training/jobs/{job_id}{action}")
    told = out.state_and_reason(job["state"], job["reason"])
    out.print_item(job, output, lambda: f"{job['id']}  {told}")


def _reason(job: out.Json) -> str:
    return "" if job["reason"] in (None, job["state"]) else str(job["reason"])


def _step(job: out.Json) -> str:
    total = job["total_steps"]
    return f"{job['step']}/{total}" if total else str(job["step"])


def _job_page(
    job: out.Json, events: list[Any], page: str, words: str | None, link: str | None
) -> str:
    entries = [
        ("id", job["id"]),
        ("name", job["name"]),
        ("state", job["state"]),
        ("reason", _reason(job)),
        ("step", _step(job)),
        ("attempt", str(job["attempt"])),
        ("workers", str(job["world_size"])),
        ("priority", str(job["priority"])),
        ("created", job["created_at"]),
        ("ran", out.between(job["started_at"], job["finished_at"])),
        *([("chain", link)] if link is not None else []),
        ("page", page),
    ]
    parts = [out.pairs(entries)]
    if job["metrics"]:
        metrics = [(name, out.number(value)) for name, value in sorted(job["metrics"].items())]
        parts.append("Metrics\n" + out.indented(out.pairs(metrics)))
    if events:
        parts.append("Events\n" + out.indented(out.table(events, _event_columns())))
    if words:
        parts.append(words)
    return "\n\n".join(parts)


def _event_columns() -> list[out.Column]:
    return [
        out.Column("AGE", lambda e: out.age(e["time"]), right=True),
        out.Column("KIND", lambda e: e["kind"]),
        out.Column("WHAT", _what),
    ]


def _what(event: out.Json) -> str:
    if event["kind"] == "state":
        return out.state_and_reason(event["data"]["state"], event["reason"])
    return event["reason"] or ""
