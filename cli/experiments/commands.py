"""Commands about experiments: create, ls, show, trials, pause, resume, cancel."""

from collections import Counter
from typing import Annotated, Any

import typer

from trainhall.cli.base import complete
from trainhall.cli.base import output as out
from trainhall.cli.base.connect import connect
from trainhall.cli.base.options import DEFAULT_URL, Format, Output, Url

app = typer.Typer(
    help="Create, list, pause, resume and cancel experiments: sweeps over values of a job.",
    no_args_is_help=True,
)
ExperimentId = Annotated[
    str,
    typer.Argument(
        metavar="EXPERIMENT",
        help="The experiment's id, or a unique prefix of it.",
        autocompletion=complete.experiments,
    ),
]


@app.command("create")
def create(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="An experiment in YAML or JSON; - reads standard input, with paths relative to "
            "the current folder.",
        ),
    ],
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Create an experiment and print its id. Its trials start as ordinary jobs.

    `job` is a job spec, or the name of a file that holds one. Uploads the folder under its `code`
    first, unless the coordinator already has it.

    \b
    Examples:
      trainhall experiment create examples/experiments/learning_rate.yaml
    """
    from trainhall.cli.experiments import document

    loaded, folder = document.load(file)
    with connect(url) as client:
        created = document.create(loaded, folder, client)
    out.print_item(created, output, lambda: str(created["id"]))
    runs = sum(created["counts"].values())
    out.notice(f"{created['name']} has {runs} run{'s' if runs != 1 else ''}. See `trainhall "
               f"experiment trials {created['id']}`.")  # fmt: skip


@app.command("list", hidden=True)
@app.command("ls")
def list_experiments(
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="How many to list, the newest.")
    ] = 50,
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """List experiments, newest first.

    \b
    Examples:
      trainhall experiment ls
      trainhall experiment ls -o name | head -1
    """
    with connect(url) as client:
        found = list(client.items("/experiments", limit=limit))
        out.notice_if_simulated(client)
    columns = [
        out.Column("ID", lambda e: e["id"]),
        out.Column("NAME", lambda e: e["name"]),
        out.Column("STATE", lambda e: e["state"]),
        out.Column("ENDED", _ended, right=True),
        out.Column("BEST", _best),
        out.Column("AGE", lambda e: out.age(e["created_at"]), right=True, spare=1),
        out.Column("REASON", lambda e: e["reason"]),
    ]
    out.print_items(found, columns, output, empty="No experiments.", wide=False)


@app.command("show")
def show(experiment: ExperimentId, output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """Show an experiment: state, number of runs, best trial.

    \b
    Examples:
      trainhall experiment show 7c0d
      trainhall experiment show 7c0d -o yaml
    """
    with connect(url) as client:
        found = client.experiment(experiment)
        out.notice_if_simulated(client)
    out.print_item(found, output, lambda: _page(found))


@app.command("trials")
def trials(experiment: ExperimentId, output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """List the runs of an experiment, with their values and objectives.

    `-o name` prints the ids of the jobs.

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
    repeats = [out.Column("REPEAT", lambda t: str(t["repeat"]), right=True)]
    columns = [
        out.Column("TRIAL", lambda t: str(t["number"]), right=True),
        *(repeats if spec["repeats"] > 1 else []),
        out.Column("JOB", lambda t: t["job_id"] or ""),
        out.Column("STATE", lambda t: t["state"]),
        out.Column("STEP", lambda t: out.number(t["step"]), right=True, spare=1),
        out.Column(spec["objective"]["metric"], lambda t: out.number(t["objective"]), right=True),
        *_value_columns(list(spec["space"])),
        out.Column("REASON", lambda t: t["reason"] if t["reason"] != t["state"] else ""),
    ]
    if output is Format.NAME:
        items = [{"id": item["job_id"]} for item in items if item["job_id"]]
    out.print_items(items, columns, output, empty="No trials.", wide=False)


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


def _command(url: str, reference: str, output: Format, method: str, action: str) -> None:
    with connect(url) as client:
        experiment_id = client.experiment(reference)["id"]
        done = client.request(method, f"/experiments/{experiment_id}{action}")
    out.print_item(
        done,
        output,
        lambda: f"{out.label(done)}  {out.state_and_reason(done['state'], done['reason'])}",
    )


def _page(experiment: out.Json) -> str:
    spec, best = experiment["spec"], experiment["best"]
    objective = spec["objective"]
    entries = [
        ("name", experiment["name"]),
        ("id", experiment["id"]),
        ("kind", f"{experiment['kind']}, {spec['method']}"),
        ("state", experiment["state"]),
        ("reason", experiment["reason"]),
        ("runs", ", ".join(f"{n} {state}" for state, n in sorted(experiment["counts"].items()))),
        ("objective", f"{objective['goal']} {objective['metric']}, {objective['at']} value"),
        ("best", _best(experiment)),
        ("best values", _values(best["values"]) if best else ""),
        ("best job", best["job_id"] or "" if best else ""),
        ("created", out.moment(experiment["created_at"])),
    ]
    if experiment["finished_at"] is not None:
        entries.append(("finished", out.moment(experiment["finished_at"])))
    return out.pairs(entries)


def _ended(experiment: out.Json) -> str:
    counts: Counter[str] = Counter(experiment["counts"])
    ended = counts["completed"] + counts["failed"] + counts["cancelled"]
    return f"{ended}/{counts.total()}"


def _best(experiment: out.Json) -> str:
    best = experiment["best"]
    if best is None:
        return ""
    metric = experiment["spec"]["objective"]["metric"]
    return f"trial {best['trial']}, {out.metric(metric, best['value'])}"


def _values(values: out.Json) -> str:
    return ", ".join(f"{field} {_shown(value)}" for field, value in values.items())


def _value_columns(fields: list[str]) -> list[out.Column]:
    """Return a column for each field, with the end of its name where that is enough."""
    ends = Counter(field.rpartition(".")[2] for field in fields)

    def column(field: str) -> out.Column:
        end = field.rpartition(".")[2]
        title = end if ends[end] == 1 else field
        return out.Column(title, lambda t: _shown(t["values"][field]), right=True)

    return [column(field) for field in fields]


def _shown(value: Any) -> str:
    return out.number(value) if isinstance(value, float) else str(value)
