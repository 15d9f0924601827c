"""Commands about jobs: submit, show, pause, resume, resize, cancel, wait."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainhall.cli.base import output as out
from trainhall.cli.base.connect import connect
from trainhall.cli.base.errors import CliError, NotFoundError, UnreachableError, UsageError
from trainhall.cli.base.options import (
    DEFAULT_URL,
    Format,
    JobId,
    JobIds,
    Output,
    Overrides,
    Project,
    Timeout,
    Url,
    with_project,
)
from trainhall.cli.base.quantities import duration
from trainhall.cli.jobs import page
from trainhall.cli.jobs.queue_history import place_of
from trainhall.cli.spec import specs
from trainhall.cli.spec.overrides import Changes, Workers, body_of

if TYPE_CHECKING:
    from trainhall.cli.base.client import Client


def submit(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SPEC | SCRIPT [-- ARGS] | -- COMMAND",
            show_default=False,
            help="A job spec in YAML or JSON (- reads standard input, with paths relative to the "
            "current folder); or a script and its arguments; or a command.",
        ),
    ],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show progress until the job has ended.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check the spec and the code without submitting anything."),
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option("--workers", metavar="N", help="Number of ranks, as resources.workers."),
    ] = None,
    git: Annotated[
        str | None,
        typer.Option(
            "--git", metavar="URL", help="Have hosts clone the code from this git repository."
        ),
    ] = None,
    ref: Annotated[
        str | None,
        typer.Option("--ref", help="With --git: branch, tag or commit.", show_default="HEAD"),
    ] = None,
    include_env: Annotated[
        bool,
        typer.Option("--include-env", help="Send the code's .env files, too, secrets and all."),
    ] = False,
    interactive: Annotated[
        bool,
        typer.Option(
            "--interactive", help="Hold devices, and open a shell or run the command beside them."
        ),
    ] = False,
    idle: Annotated[
        float | None,
        typer.Option(
            "--idle",
            parser=duration,
            metavar="TIME",
            help="With --interactive: end the job when it had no session for so long.",
            show_default="30m",
        ),
    ] = None,
    rm: Annotated[
        bool, typer.Option("--rm", help="With --interactive: cancel the job when you leave.")
    ] = False,
    project: Project = None,
    overrides: Overrides = None,
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Submit a job and print its id. `-f` follows the job to its end.

    \b
    Examples:
      trainhall submit examples/digits.yaml
      trainhall submit examples/digits.yaml -f --set training.steps=100
      trainhall submit examples/digits.yaml --dry-run
      trainhall submit examples/digits.yaml --project vision
      cat job.yaml | trainhall submit - -o json
      trainhall submit train.py -- --lr 0.1
      trainhall submit --workers 4 -f -- python -m pkg.train --epochs 3
      trainhall submit --git https://github.com/lab/model --ref v2 train.py -- --lr 0.1
      trainhall submit --interactive --workers 2 --idle 1h
      trainhall submit --interactive --rm -- nvidia-smi

    Uploads the folder under `code` first, unless the coordinator already has it. Of a script or
    command it is the git repository, else the script's folder, without what .gitignore files name.
    --dry-run prints the spec.

    --interactive takes a command, or none for a shell; its exit code is the command's. The job
    stays when you leave, until it had no session for --idle; `trainhall exec` enters it again.

    \b
    Exit codes with -f: 0 completed, 100 failed, 101 still unfinished, 103 cancelled.
    """
    if workers is not None:
        overrides = [*(overrides or ()), f"resources.workers={workers}"]
    if ref is not None and git is None:
        raise UsageError("--ref is for --git URL; the code that is sent is that of the folder")
    code = {"git": git, **({"ref": ref} if ref is not None else {})} if git is not None else None
    overrides = with_project(overrides, project)
    if not interactive:
        if idle is not None or rm:
            raise UsageError("--idle and --rm are for --interactive")
        if not words:
            raise UsageError("give a job spec, a script or a command, or --interactive")
        spec = specs.load_words(words, overrides, code)
    else:
        from trainhall.cli.tunnels import interactive as session

        spec = session.spec_of(idle, overrides, code, follow=follow)
    specs.propose_environment(spec)
    with connect(url) as client:
        if interactive and not dry_run:
            job = specs.submit(spec, client, include_env=include_env)
            out.print_item(job, output, lambda: str(job["id"]))
            from trainhall.cli.jobs.follow import states

            polled = states(client, job["id"], session.POLL_SECONDS)
            raise typer.Exit(session.run(client, job, polled, words or [], rm=rm))
        if dry_run:
            plan, words = specs.check(spec, client, include_env=include_env)
            for line in words:
                out.notice(line)
            out.notice("The spec is valid; nothing was submitted.")
            if output in (Format.JSON, Format.YAML):
                print(out.rendered(plan, output))
            elif output is Format.TABLE:
                print(out.rendered(plan["spec"], Format.YAML).rstrip())
            return
        # Following the job shows what it waits for.
        job, outlook = (
            (specs.submit(spec, client, include_env=include_env), None)
            if follow
            else specs.submit_with_forecast(spec, client, include_env=include_env)
        )
        out.print_item(job, output, lambda: str(job["id"]))
        if not follow:
            out.notice(f"{job['name']} is {job['state']}. See {client.page_of(job['id'])}")
            if outlook is not None:
                out.notice(outlook)
            return
        from trainhall.cli.jobs import follow as following

        out.notice(f"See {client.page_of(job['id'])}")
        raise typer.Exit(following.until_final(client, job["id"]))


def show(
    job: JobId,
    all_events: Annotated[
        bool, typer.Option("--events", help="List all events, not only the latest.")
    ] = False,
    lock: Annotated[
        bool, typer.Option("--lock", help="Print the lock of its environment, and nothing else.")
    ] = False,
    packages: Annotated[
        bool, typer.Option("--packages", help="List the packages that the job ran with.")
    ] = False,
    diff: Annotated[
        bool,
        typer.Option("--diff", help="Show uncommitted changes of the job's code."),
    ] = False,
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Show a job: state, progress, metrics, latest events.

    \b
    Examples:
      trainhall show 3f2a
      trainhall show 3f2a --events
      trainhall show 3f2a --packages
      trainhall show 3f2a --diff
      trainhall show 3f2a --lock > requirements.txt
      trainhall show 3f2a -o yaml
    """
    with connect(url) as client:
        found = client.job(job)
        out.notice_if_simulated(client)
        if lock:
            print(client.text(f"/training/jobs/{found['id']}/environment/lock"), end="")
            return
        events: list[Any] = []
        if all_events or output is Format.TABLE:
            events = list(client.items(f"/training/jobs/{found['id']}/events"))
        if all_events:
            found["events"] = events
        ran_with: out.Json = {}
        if packages or output is Format.TABLE:
            ran_with = client.get(f"/training/jobs/{found['id']}/packages")
        if packages:
            found["packages"] = ran_with
        origin: out.Json = {}
        if diff or output is Format.TABLE:
            origin = client.get(f"/training/jobs/{found['id']}/provenance")
        if diff:
            found["provenance"] = origin
        words: str | None = None
        failures: str | None = None
        more: dict[str, str | None] = {}
        if output is Format.TABLE:
            from trainhall.cli.jobs.chains import newest_link
            from trainhall.cli.jobs.failures import last_words
            from trainhall.cli.jobs.gradients import remarkable
            from trainhall.cli.jobs.incidents import incidents

            more = {"experiment": _trial_of(client, found), "parameters": page.parameters(found)}
            more |= {"chain": newest_link(client, found), "gradients": remarkable(client, found)}
            more |= {"queue": place_of(client, found), "interactive": page.interactive(found)}
            if page.has_environment(found):
                locked = client.get(f"/training/jobs/{found['id']}/environment")
                more |= {"environment": page.locked_environment(locked)}
            if (found["spec"] or {}).get("data"):
                more |= {"data": page.data_sets(client.get(f"/training/jobs/{found['id']}/data"))}
            more |= {"ran with": page.environment(ran_with)}
            more |= {"git": page.repository(origin), "command": page.command_line(origin)}
            words = last_words(client, found)
            failures = incidents(client, found)
        address = client.page_of(found["id"])
    listed = events if all_events else page.recent_events(events)
    left_out = len(events) - len(listed)
    out.print_item(
        found,
        output,
        lambda: page.job_page(
            found,
            page.events_table(found, listed, left_out),
            address,
            [
                page.packages_table(ran_with) if packages else None,
                page.diff_text(origin) if diff else None,
                failures,
                words,
            ],
            more,
        ),
    )


def _trial_of(client: "Client", job: out.Json) -> str | None:
    """Name the experiment that a job is a run of, and which run; None for other jobs."""
    run = job.get("experiment")
    if run is None:
        return None
    try:
        experiment = client.get(f"/experiments/{run['id']}")
    except NotFoundError:
        return None
    repeat = f", repeat {run['repeat']}" if experiment["spec"]["repeats"] > 1 else ""
    return f"{out.label(experiment)}, trial {run['trial']}{repeat}"


def pause(jobs: JobIds, output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """Pause jobs: their ranks save a checkpoint and exit.

    A script without the SDK saves nothing by itself: it gets SIGTERM, and starts again when its job
    is resumed.

    \b
    Examples:
      trainhall pause 3f2a
      trainhall pause 3f2a 91bc
    """
    command_jobs(url, jobs, output, "PUT", "/pause")


def resume(
    jobs: JobIds,
    workers: Workers = None,
    overrides: Changes = None,
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Resume paused jobs from their latest checkpoints.

    Strategy and number of workers can change; changes apply to all later attempts.

    \b
    Examples:
      trainhall resume 3f2a
      trainhall resume 3f2a --set parallelism.strategy=fsdp --workers 2
      trainhall ls --state paused -o name | xargs trainhall resume
    """
    body = body_of(workers, overrides)
    command_jobs(url, jobs, output, "PUT", "/resume", body)


def resize(
    job: JobId,
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="N", help="Run on exactly this many workers.")
    ] = None,
    min_workers: Annotated[
        int | None,
        typer.Option("--min-workers", metavar="N", help="Fewest workers of an elastic job."),
    ] = None,
    max_workers: Annotated[
        int | None,
        typer.Option("--max-workers", metavar="N", help="Most workers of an elastic job."),
    ] = None,
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Change the number of workers, also of a running job.

    A running job keeps its workers until devices are free. Under ddp it is resized in place; under
    any other strategy it restarts from a new checkpoint.

    \b
    Examples:
      trainhall resize 3f2a --workers 4
      trainhall resize 3f2a --min-workers 2 --max-workers 8
    """
    asked = {"workers": workers, "min_workers": min_workers, "max_workers": max_workers}
    given = {name: value for name, value in asked.items() if value is not None}
    if not given:
        raise UsageError("give --workers, or --min-workers and --max-workers for an elastic job")
    with connect(url) as client:
        job_id = client.job_id(job)
        done = client.request("PUT", f"/training/jobs/{job_id}/resize", json=given)
        shortage = specs.shortage(done["spec"], client)
        if done["state"] not in _RESIZED_WHEN:
            # By now the reason says what happens next.
            done = client.request("GET", f"/training/jobs/{job_id}")
    out.print_item(done, output, partial(_resized, done))
    if shortage is not None:
        out.notice(f"On the cluster as it is now, the job will never have that size: {shortage}.")


def cancel(jobs: JobIds, output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """Cancel jobs: their ranks stop at once and save nothing.

    \b
    Examples:
      trainhall cancel 3f2a
      trainhall cancel 3f2a 91bc
    """
    command_jobs(url, jobs, output, "DELETE", "")


def wait(jobs: JobIds, timeout: Timeout = None, url: Url = DEFAULT_URL) -> None:
    """Wait until jobs have ended; the exit code says how.

    Of several jobs the worst end counts: failed, cancelled, not found, still unfinished, completed.

    \b
    Examples:
      trainhall wait 3f2a
      trainhall wait 3f2a 91bc
      trainhall wait 3f2a --timeout 1h || echo "not completed"

    \b
    Exit codes: 0 completed, 100 failed, 101 still unfinished, 102 not found, 103 cancelled.
    """
    from trainhall.cli.jobs import follow as following

    with connect(url) as client:
        raise typer.Exit(following.wait_all(client, jobs, timeout))


def command_jobs(
    url: str,
    references: list[str],
    output: Format,
    method: str,
    action: str,
    body: out.Json | None = None,
    text: Callable[[out.Json], str] = out.labelled_state,
) -> None:
    """Command every job, also after a refusal; the first refusal decides the exit code.

    One job is printed as itself, several as one list.

    Args:
        text: formats a job in a table.

    Raises:
        CliError: of the first that refused; the others are printed.
    """
    done, refused = [], []
    with connect(url) as client:
        for reference in references:
            try:
                job = client.job(reference)
                path = f"/training/jobs/{job['id']}{action}"
                # A deleted job is printed as it was.
                done.append(client.request(method, path, json=body or None) or job)
            except CliError as error:
                refused.append(error)
                if isinstance(error, UnreachableError):
                    break
    if len(references) == 1 or output in (Format.TABLE, Format.NAME):
        for job in done:
            out.print_item(job, output, partial(text, job))
    else:
        print(out.rendered(done, output))
    for other in refused[1:]:
        out.notice(f"trainhall: {other.message}")
    if refused:
        raise refused[0]


_RESIZED_WHEN = {
    "queued": "starts", "recovering": "starts", "paused": "is resumed", "pausing": "is resumed",
}  # fmt: skip


def _resized(job: out.Json) -> str:
    """Format a resized job: what was asked for, and when it gets it, where no reason says that."""
    from trainhall.cluster.lifecycle.reasons import ReasonCode

    resources = job["spec"]["resources"]
    asked = [resources[name] for name in ("min_workers", "max_workers") if name in resources]
    asked = asked or [resources["workers"]]
    workers = f"{' to '.join(map(str, asked))} worker{'s' if asked != [1] else ''}"
    when = _RESIZED_WHEN.get(job["state"])
    if when is not None:
        return f"{out.label(job)}  {job['state']}; runs with {workers} when it {when}"
    text = out.labelled_state(job)
    if job["reason_code"] in (ReasonCode.RESIZE_REQUESTED, ReasonCode.RESIZED):
        return text
    return f"{text}; it has {workers} from now on"
