"""`trainhall sample`: text from a language model's checkpoint."""

import contextlib
from typing import TYPE_CHECKING, Annotated

import typer

from trainhall.api.host.config_file import user_data_dir
from trainhall.cli.base.connect import connect
from trainhall.cli.base.errors import CliError
from trainhall.cli.base.extra import check_installed, run_module
from trainhall.cli.base.options import DEFAULT_URL, DataDir, Url
from trainhall.cli.base.output import Json, label
from trainhall.cli.base.references import folder_meant, taken_for_id
from trainhall.cli.checkpoints.files import newest_below, on_this_host

if TYPE_CHECKING:
    from trainhall.cli.base.client import Client

SAMPLE_MODULE = "trainhall.training.sample"


def sample(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER|JOB",
            help="A checkpoint's folder, the output of `trainhall run`, or a job's id.",
        ),
    ],
    prompt: Annotated[str, typer.Option("--prompt", help="Text to continue.")] = "",
    length: Annotated[
        int, typer.Option("--length", min=1, max=1_000_000, help="Number of bytes to generate.")
    ] = 500,
    temperature: Annotated[
        float,
        typer.Option(
            "--temperature",
            min=0.0,
            max=100.0,
            help="Sampling temperature; 0 always takes the most likely byte.",
        ),
    ] = 0.8,
    seed: Annotated[int, typer.Option("--seed", min=0, max=2**63 - 1, help="Random seed.")] = 0,
    data_dir: DataDir = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Generate text with a language model's newest checkpoint.

    Files that this host does not see are downloaded from the coordinator.

    \b
    Examples:
      trainhall sample out --prompt "ROMEO:"
      trainhall sample out/checkpoints/step-00001500-a1-g1 --length 200 --temperature 0.5
      trainhall sample 3f2a --seed 7
    """
    outputs = "a checkpoint's folder, the output of `trainhall run`"
    path = folder_meant(source, f"{outputs}, or a job's id")
    check_installed("torch", "a language model")
    with contextlib.ExitStack() as stack:
        if path is not None:
            folder = newest_below(path)
        else:
            stack.enter_context(taken_for_id(source))
            client = stack.enter_context(connect(url))
            found = _newest_of_job(client, client.job(source))
            kept = (data_dir or user_data_dir()).absolute() / found["location"]
            folder = kept if kept.is_dir() else stack.enter_context(on_this_host(client, found))
        run_module(
            SAMPLE_MODULE, str(folder.absolute()), f"--prompt={prompt}", f"--length={length}",
            f"--temperature={temperature}", f"--seed={seed}",
        )  # fmt: skip


def _newest_of_job(client: "Client", job: Json) -> Json:
    """Return the newest committed checkpoint of a job.

    Raises:
        CliError: it has none, or trains something else than a language model.
    """
    task = (job["spec"] or {}).get("task")
    if task is None or task["name"] != "language_model":
        what = f"trains the task {task['name']}" if task else "runs a script"
        raise CliError(
            f"job {label(job)} {what}; only the task language_model generates text"
            + ("" if task else ": Trainhall does not know a script's model")
        )
    checkpoint: Json
    for checkpoint in client.items(f"/checkpoints/jobs/{job['id']}"):
        # What merely lies there may be of a revoked attempt, or of a branch that was left.
        if checkpoint["state"] == "committed":
            return checkpoint
    raise CliError(f"job {label(job)} has no checkpoint yet")
