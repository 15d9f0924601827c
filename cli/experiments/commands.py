"""Commands about experiments: create, ls, show, trials, analyze, report, wait, pause, resume,
cancel."""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainhall.cli.base import complete
from trainhall.cli.base import output as out
from trainhall.cli.base.connect import connect
from trainhall.cli.base.errors import UsageError
from trainhall.cli.base.options import (
    DEFAULT_URL,
    Format,
    Output,
    Project,
    Report,
    ReportFormat,
    Timeout,
    Url,
    id_argument,
    with_project,
)
from trainhall.cli.experiments.summary import (
    best_text,
    counts_text,
    objective_text,
    steps_text,
    trial_means,
)
from trainhall.cli.owners import Mine, OfProject, OfUser, owner_columns, owner_filter
from trainhall.cluster.experiments.report.formats import ReportFormat as FileFormat

if TYPE_CHECKING:
    from trainhall.cli.base.client import Client
    from trainhall.cli.experiments.document import Checked, Given

app = typer.Typer(
    help="Create, analyze, pause, resume and cancel experiments: sweeps over values of a job, "
    "benchmarks and scaling studies.",
    no_args_is_help=True,
)
ExperimentId = Annotated[str, id_argument("experiment", complete.experiments)]


@app.command("create")
def create(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE]",
            help="An experiment in YAML or JSON; - reads standard input, with paths relative to "
            "the current folder. Not needed with --from-job.",
            show_default=False,
        ),
    ] = None,
    from_job: Annotated[
        str | None,
        typer.Option(
            "--from-job",
            metavar="JOB",
            help="Start from the spec and the code of this job, in place of the `job` in FILE. "
            "Without FILE: a grid of what --space gives, rated by the job's main metric.",
            autocompletion=complete.jobs,
        ),
    ] = None,
    space: Annotated[
        list[str] | None,
        typer.Option(
            "--space",
            metavar="FIELD=VALUES",
            help="Values to try, as in parameters.lr=0.001,0.01 or 'parameters.lr={log: [0.001, "
            "1]}'. May be repeated.",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show progress until all runs have ended.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check every run and list the trials; create nothing."),
    ] = False,
    project: Project = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=VALUE",
            help="Replace a value, as in trials=20 or job.training.steps=50. May be repeated.",
        ),
    ] = None,
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Create an experiment and print its id. Its trials start as ordinary jobs.

    `job` is a job spec, or the name of a file that holds one. Uploads the folder under its `code`
    first, unless the coordinator already has it. `--from-job` takes a submitted job, with its code.

    \b
    Examples:
      trainhall experiment create examples/experiments/learning_rate.yaml
      trainhall experiment create sweep.yaml --dry-run --set job.training.steps=50
      trainhall experiment create sweep.yaml -f
      trainhall experiment create --from-job 3f2a --space parameters.lr=0.001,0.01,0.1

    \b
    Exit codes with -f: 0 completed, 100 failed, 101 still unfinished, 103 cancelled.
    """
    from trainhall.cli.experiments import document

    replaced = with_project(overrides, project, at="job.")
    checked = document.check(_given(file, from_job, space, replaced, url))
    with connect(url) as client:
        if dry_run:
            hint = document.check_on_cluster(checked, client)
            _list_planned(checked, output)
            if hint is not None:
                out.notice(f"Note: {hint}")
            _note_never_starting(checked, client)
            return
        created = document.create(checked, client)
        out.print_item(created, output, lambda: str(created["id"]))
        runs = sum(created["counts"].values())
        out.notice(f"{created['name']} has {_count(runs, 'run')}. See `trainhall experiment trials "
                   f"{created['id']}`.")  # fmt: skip
        _note_never_starting(checked, client)
        if follow:
            from trainhall.cli.experiments import follow as following

            raise typer.Exit(following.until_final(client, created["id"]))


@app.command("list", hidden=True)
@app.command("ls")
def list_experiments(
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="How many to list, the newest.")
    ] = 50,
    mine: Mine = False,
    user: OfUser = None,
    project: OfProject = None,
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """List experiments, newest first.

    \b
    Examples:
      trainhall experiment ls
      trainhall experiment ls --mine
      trainhall experiment ls -o name | head -1
    """
    of = owner_filter(user, mine, project)
    with connect(url) as client:
        found = list(client.items("/experiments", limit=limit, **of))
        out.notice_if_simulated(client)
    columns = [
        out.Column("ID", lambda e: e["id"]),
        out.Column("NAME", lambda e: e["name"]),
        *owner_columns(found),
        out.Column("KIND", lambda e: e["kind"]),
        out.Column("STATE", lambda e: e["state"]),
        out.Column("ENDED", _ended, right=True),
        out.Column("BEST", best_text),
        out.Column("AGE", lambda e: out.age(e["created_at"]), right=True, spare=1),
        out.Column("REASON", lambda e: e["reason"]),
    ]
    out.print_items(found, columns, output, empty="No experiments.", wide=False)


@app.command("show")
def show(experiment: ExperimentId, output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """Show an experiment: state, number of runs, best trial, the tables of a benchmark or scaling
    study.

    \b
    Examples:
      trainhall experiment show 7c0d
      trainhall experiment show 7c0d -o yaml
    """
    with connect(url) as client:
        found = client.experiment(experiment)
        shows_table = found["kind"] != "sweep" and output is Format.TABLE
        analysis = client.analyze_experiment(found["id"]) if shows_table else None
        out.notice_if_simulated(client)
    out.print_item(found, output, lambda: _page(found, analysis))


@app.command("trials")
def trials(experiment: ExperimentId, output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """List the runs of an experiment, with their values and objectives.

    With repeats, MEAN is the mean of a trial once all of its repeats have a value. With early
    stopping, a run that has not completed has the value of its last rung, with its step. `-o name`
    prints the ids of the jobs.

    \b
    Examples:
      trainhall experiment trials 7c0d
      trainhall experiment trials 7c0d -o json
    """
    with connect(url) as client:
        found = client.experiment(experiment)
        items = list(client.items(f"/experiments/{found['id']}/trials"))
        out.notice_if_simulated(client)
    spec = found["spec"]
    metric = spec["objective"]["metric"]
    means = trial_means(items) if spec["repeats"] > 1 else {}
    repeats = [out.Column("REPEAT", lambda t: str(t["repeat"]), right=True)]
    columns = [
        out.Column("TRIAL", lambda t: str(t["number"]), right=True),
        *(repeats if spec["repeats"] > 1 else []),
        out.Column("JOB", lambda t: t["job_id"] or ""),
        out.Column("STATE", lambda t: t["state"]),
        *(
            [out.Column("RUNG", lambda t: out.number(t["rung"]), right=True)]
            if spec["early_stopping"]
            else []
        ),
        out.Column("STEP", lambda t: out.number(t["step"]), right=True, spare=1),
        out.Column(
            metric, lambda t: objective_text(t["objective"], t["objective_step"]), right=True
        ),
        *(
            [
                out.Column(
                    "MEAN",
                    lambda t: objective_text(*means.get(t["number"], (None, None))),
                    right=True,
                )
            ]
            if spec["repeats"] > 1
            else []
        ),
        *_value_columns(list(spec["space"])),
        out.Column("REASON", lambda t: t["reason"] if t["reason"] != t["state"] else ""),
    ]
    if output is Format.NAME:
        items = [{"id": item["job_id"]} for item in items if item["job_id"]]
    out.print_items(items, columns, output, empty="No trials.", wide=False)


@app.command("analyze")
def analyze(
    experiment: ExperimentId, output: Report = ReportFormat.TABLE, url: Url = DEFAULT_URL
) -> None:
    """Print what the runs of an experiment show so far: findings, comparisons, importance of the
    fields.

    \b
    Examples:
      trainhall experiment analyze 7c0d
      trainhall experiment analyze 7c0d -o json | jq .best
    """
    from trainhall.cli.experiments.analysis import page

    with connect(url) as client:
        experiment_id = client.experiment(experiment)["id"]
        found = client.analyze_experiment(experiment_id)
        out.notice_if_simulated(client)
    print(page(found) if output is ReportFormat.TABLE else out.rendered(found, output))


@app.command("report")
def report(
    experiment: ExperimentId,
    form: Annotated[
        FileFormat | None,
        typer.Option(
            "--format",
            help="html and md have charts; csv has a line for each run.",
            show_default="the end of FILE, else md",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            dir_okay=False,
            help="Write the report to this file; by default it is printed.",
        ),
    ] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Make a report of an experiment: findings, charts, table of its trials, and its spec.

    \b
    Examples:
      trainhall experiment report 7c0d --output report.html
      trainhall experiment report 7c0d --format csv > runs.csv
    """
    form = form or _format_of(output)
    with connect(url) as client:
        found = client.experiment(experiment)
        text = client.experiment_report(found["id"], form.value)
        out.notice_if_simulated(client)
    if found["finished_at"] is None:
        out.notice(
            f"{out.label(found)} is {found['state']}: the report shows the runs that have ended."
        )
    if output is None:
        print(text, end="")
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}") from None
    out.notice(f"Wrote {output}.")


@app.command("wait")
def wait(experiment: ExperimentId, timeout: Timeout = None, url: Url = DEFAULT_URL) -> None:
    """Wait until all runs of an experiment have ended, or it has paused by itself; the exit code
    says how.

    \b
    Examples:
      trainhall experiment wait 7c0d
      trainhall experiment wait 7c0d --timeout 1h || echo "not completed"

    \b
    Exit codes: 0 completed, 100 failed, 101 still unfinished, 103 cancelled.
    """
    from trainhall.cli.experiments import follow as following

    with connect(url) as client:
        raise typer.Exit(following.wait(client, client.experiment(experiment)["id"], timeout))


@app.command("pause")
def pause(experiment: ExperimentId, output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """Pause an experiment: its jobs pause, and no further trial starts.

    \b
    Examples:
      trainhall experiment pause 7c0d
    """
    _command(url, experiment, output, "PUT", "/pause")


@app.command("resume")
def resume(experiment: ExperimentId, output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """Resume a paused experiment, and the jobs that were paused with it.

    \b
    Examples:
      trainhall experiment resume 7c0d
    """
    _command(url, experiment, output, "PUT", "/resume")


@app.command("cancel")
def cancel(experiment: ExperimentId, output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """Cancel an experiment and its jobs. What has completed stays.

    \b
    Examples:
      trainhall experiment cancel 7c0d
    """
    _command(url, experiment, output, "DELETE", "")


def _given(
    file: str | None,
    from_job: str | None,
    space: list[str] | None,
    overrides: list[str] | None,
    url: str,
) -> "Given":
    from trainhall.cli.experiments import document

    if file is None and from_job is None:
        raise UsageError("give a FILE with an experiment, or --from-job JOB")
    given = document.load(file, overrides) if file is not None else None
    if from_job is not None:
        with connect(url) as client:
            job = client.job(from_job)
        given = document.from_job(job, given, overrides)
        if not space and not given.has_space:
            raise UsageError(
                f"give the values to try, as in --space {document.example_field(job)}=VALUE,VALUE"
            )
    assert given is not None
    return document.with_space(given, space)


def _format_of(file: Path | None) -> FileFormat:
    end = file.suffix.removeprefix(".").lower() if file is not None else ""
    known = [form.value for form in FileFormat]
    if end and end not in known:
        raise UsageError(f"{file} is none of {', '.join(known)}; say which it shall be by --format")
    return FileFormat(end or FileFormat.MD)


def _list_planned(checked: "Checked", output: Format) -> None:
    spec = checked.spec
    items = [
        {"number": each.number, "values": each.values, "problem": each.problem}
        for each in checked.configurations
    ]
    problems = [out.Column("PROBLEM", lambda t: t["problem"])]
    columns = [
        out.Column("TRIAL", lambda t: str(t["number"]), right=True),
        *_value_columns(list(spec.space)),
        *(problems if any(item["problem"] for item in items) else []),
    ]
    if output is Format.NAME:
        items = []  # nothing has an id yet
    chosen_later = "The trials are chosen one by one, each from the results so far."
    out.print_items(items, columns, output, empty=chosen_later, wide=False)
    trials = len(checked.configurations) or spec.trials or 0
    out.notice(f"The experiment is valid: {_count(trials, 'trial')}, "
               f"{_count(trials * spec.repeats, 'run')}, at most {spec.parallel} unfinished at a "
               "time. Nothing was created.")  # fmt: skip


def _note_never_starting(checked: "Checked", client: "Client") -> None:
    from trainhall.cli.experiments.document import never_starting

    if (text := never_starting(checked, client)) is not None:
        out.notice(text)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' if number != 1 else ''}"


def _command(url: str, reference: str, output: Format, method: str, action: str) -> None:
    with connect(url) as client:
        experiment_id = client.experiment(reference)["id"]
        done = client.request(method, f"/experiments/{experiment_id}{action}")
    out.print_item(done, output, lambda: out.labelled_state(done))


def _page(experiment: out.Json, analysis: out.Json | None) -> str:
    spec, best = experiment["spec"], experiment["best"]
    objective = spec["objective"]
    entries = [
        ("name", experiment["name"]),
        ("id", experiment["id"]),
        ("owner", experiment["user"] or out.BLANK),
        ("project", experiment["project"]),
        ("kind", f"{experiment['kind']}, {spec['method']}"),
        ("state", experiment["state"]),
        ("reason", experiment["reason"]),
        ("runs", counts_text(experiment)),
        *([("steps", steps_text(experiment["steps"]))] if experiment["steps"] else []),
        ("objective", f"{objective['goal']} {objective['metric']}, {objective['at']} value"),
        ("best", best_text(experiment)),
        ("best values", _values(best["values"]) if best else ""),
        ("best job", best["job_id"] or "" if best else ""),
        ("created", out.moment(experiment["created_at"])),
    ]
    if experiment["finished_at"] is not None:
        entries.append(("finished", out.moment(experiment["finished_at"])))
    if spec["baseline"] is not None:
        entries.append(("baseline", _values(spec["baseline"])))
    if analysis is None:
        return out.pairs(entries)
    from trainhall.cli.experiments.benchmark import speed_tables

    return f"{out.pairs(entries)}\n\n{speed_tables(analysis)}"


def _ended(experiment: out.Json) -> str:
    counts: Counter[str] = Counter(experiment["counts"])
    ended = sum(counts[state] for state in ("completed", "failed", "cancelled", "stopped"))
    return f"{ended}/{counts.total()}"


def _values(values: out.Json) -> str:
    return ", ".join(f"{field} {_shown(value)}" for field, value in values.items())


def _value_columns(fields: list[str]) -> list[out.Column]:
    """Return a column for each field, with the end of its name where that is enough."""
    ends = Counter(field.rpartition(".")[2] for field in fields)

    def column(field: str) -> out.Column:
        end = field.rpartition(".")[2]
        title = end if ends[end] == 1 else field
        return out.Column(title, lambda t: _shown(t["values"].get(field, "")), right=True)

    return [column(field) for field in fields]


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return out.number(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
