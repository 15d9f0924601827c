"""`trainhall import`: old runs of other trackers become runs here."""

from pathlib import Path
from typing import Annotated

import typer

from trainhall.cli.base import output as out
from trainhall.cli.base.connect import connect
from trainhall.cli.base.options import DEFAULT_URL, Project, Url

app = typer.Typer(help="Import old runs of other trackers.", no_args_is_help=True)


@app.callback()
def _is_group() -> None:
    """Import old runs of other trackers."""


@app.command("mlflow")
def import_mlflow(
    source: Annotated[
        str,
        typer.Argument(
            metavar="PATH|URL",
            help="The folder `mlruns`, a file such as `mlflow.db`, or the address of a tracking "
            "server.",
        ),
    ],
    artifacts: Annotated[
        bool, typer.Option("--artifacts", help="Import the files of the runs, too.")
    ] = False,
    project: Project = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Import the runs of an MLflow store, and print their ids.

    \b
    Examples:
      trainhall import mlflow mlruns
      trainhall import mlflow mlflow.db --project vision --artifacts
      trainhall import mlflow http://old-server:5000

    Parameters, tags, metrics with their steps and times, and statuses are kept, experiments become
    groups. What was imported before is left as it is, and only what is new is added. MLflow need
    not be installed; MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and _PASSWORD, are for a
    server that asks for them.
    """
    from trainhall.cli.imports.mlflow_files import read_store
    from trainhall.cli.imports.mlflow_server import read_server
    from trainhall.cli.imports.writing import Writer

    is_address = source.startswith(("http://", "https://"))
    runs = read_server(source) if is_address else read_store(Path(source))
    with connect(url) as client:
        writer = Writer(client, project, artifacts=artifacts)
        for run in runs:
            writer.add(run)
            print(run.id, flush=True)
    out.notice(writer.summary())


@app.command("tensorboard")
def import_tensorboard(
    folder: Annotated[
        str, typer.Argument(metavar="PATH", help="The folder that `tensorboard --logdir` gets.")
    ],
    artifacts: Annotated[
        bool, typer.Option("--artifacts", help="Import the event files themselves, too.")
    ] = False,
    project: Project = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Import the runs below a folder of TensorBoard, and print their ids.

    \b
    Examples:
      trainhall import tensorboard runs
      trainhall import tensorboard runs --project vision --artifacts

    Each folder with event files is a run of that name, in a group named like PATH. Scalars are kept
    with their steps and times, and HParams as parameters. What was imported before is left as it
    is, and only what is new is added. TensorBoard need not be installed.
    """
    from trainhall.cli.imports.tensorboard_files import read_folder
    from trainhall.cli.imports.writing import Writer

    with connect(url) as client:
        writer = Writer(client, project, artifacts=artifacts)
        for run in read_folder(Path(folder)):
            writer.add(run)
            print(run.id, flush=True)
    out.notice(writer.summary())
