"""Commands about what users keep of jobs: tag, note, archive, unarchive, rm."""

from typing import Annotated

import typer

from trainhall.cli.base import output as out
from trainhall.cli.base.confirm import confirm_deletion
from trainhall.cli.base.connect import connect
from trainhall.cli.base.errors import UsageError
from trainhall.cli.base.options import DEFAULT_URL, Format, JobId, JobIds, Output, Url
from trainhall.cli.jobs import page
from trainhall.cli.jobs.commands import command_jobs

STDIN = "-"


def tag(
    jobs: JobIds,
    add: Annotated[
        list[str] | None,
        typer.Option("--add", "-a", metavar="TAG", help="Add this tag. May be repeated."),
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option("--remove", "-r", metavar="TAG", help="Remove this tag. May be repeated."),
    ] = None,
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Change the tags of jobs, in any state; without an option, show them.

    \b
    Examples:
      trainhall tag 3f2a --add baseline --remove draft
      trainhall tag 3f2a 91bc -a "paper v2"
      trainhall ls -q state:failed -o name | xargs trainhall tag -a triage
    """
    if add or remove:
        body = {"add_tags": add or [], "remove_tags": remove or []}
        command_jobs(url, jobs, output, "PATCH", "", body, _tags)
    else:
        command_jobs(url, jobs, output, "GET", "", text=_tags)


def note(
    job: JobId,
    text: Annotated[
        str | None,
        typer.Argument(metavar="[TEXT]", help="The new notes; - reads standard input."),
    ] = None,
    edit: Annotated[
        bool, typer.Option("--edit", "-e", help="Change the notes in $EDITOR.")
    ] = False,
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Show or replace a job's notes, which are Markdown.

    \b
    Examples:
      trainhall note 3f2a
      trainhall note 3f2a "Diverged after step 4,000: *try a lower rate*"
      trainhall note 3f2a - < notes.md
      trainhall note 3f2a --edit
      trainhall note 3f2a ""
    """
    if edit and text is not None:
        raise UsageError("--edit and TEXT exclude each other; give one")
    with connect(url) as client:
        found = client.job(job)
        if edit:
            import click

            text = click.edit(found["notes"], extension=".md")
            if text is None:
                out.notice("The notes are unchanged.")
        elif text == STDIN:
            text = typer.get_text_stream("stdin").read()
        if text is not None:
            path = f"/training/jobs/{found['id']}"
            found = client.request("PATCH", path, json={"notes": text.rstrip("\n")})
    if text is None or output is not Format.TABLE:
        out.print_item(found, output, lambda: out.harmless(found["notes"]))
    else:
        print(f"{out.label(found)}  {'notes replaced' if text else 'notes removed'}")


def archive(jobs: JobIds, output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """Hide ended jobs from lists, with everything kept; `ls -q archived:yes` lists them.

    \b
    Examples:
      trainhall archive 3f2a 91bc
      trainhall ls -q 'state:failed created_at<2026-01-01' -o name | xargs trainhall archive
    """
    command_jobs(url, jobs, output, "PATCH", "", {"archived": True}, _archived)


def unarchive(jobs: JobIds, output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """Show archived jobs in lists again.

    \b
    Examples:
      trainhall unarchive 3f2a
    """
    command_jobs(url, jobs, output, "PATCH", "", {"archived": False}, _archived)


def rm(
    jobs: JobIds,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Delete ended jobs for good, with their metrics, logs and checkpoints.

    Asks first, on a terminal; elsewhere it needs `--yes`.

    \b
    Examples:
      trainhall rm 3f2a
      trainhall ls -q archived:yes -o name | xargs trainhall rm --yes
    """
    with connect(url) as client:
        found = [client.job(reference) for reference in jobs]
        if not yes:
            for job in found:
                out.notice(out.labelled_state(job))
            confirm_deletion("the job" if len(found) == 1 else f"the {len(found)} jobs")
    ids = [job["id"] for job in found]
    command_jobs(url, ids, Format.TABLE, "DELETE", "/record", text=_deleted)


def _deleted(job: out.Json) -> str:
    return f"{out.label(job)}  deleted"


def _archived(job: out.Json) -> str:
    return f"{out.label(job)}  {'archived' if job['archived'] else 'not archived'}"


def _tags(job: out.Json) -> str:
    return f"{out.label(job)}  {page.tags(job) or 'no tags'}"
