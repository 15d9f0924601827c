"""`trainhall sample`: text from a language model's checkpoint."""

import contextlib
import subprocess
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from trainhall.cli.base import config
from trainhall.cli.base.connect import connect
from trainhall.cli.base.errors import CliError
from trainhall.cli.base.extra import check_installed
from trainhall.cli.base.options import DEFAULT_URL, DataDir, Url
from trainhall.cli.base.output import Json
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
    prompt: Annotated[str, typer.Option("--prompt", help="What the text begins with.")] = "",
    length: Annotated[
        int, typer.Option("--length", min=1, max=1_000_000, help="Bytes to write.")
    ] = 500,
    temperature: Annotated[
        float,
        typer.Option(
            "--temperature", min=0.0, max=100.0, help="0 takes the likeliest byte each time."
        ),
    ] = 0.8,
    seed: Annotated[
        int, typer.Option("--seed", min=0, max=2**63 - 1, help="Another seed, another text.")
    ] = 0,
    data_dir: DataDir = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Write text with a language model, from its newest checkpoint.

    A job's checkpoint is read where it lies, if this host sees it: on the job's `checkpoint.path`,
    or in the coordinator's data folder. Otherwise it is fetched from the coordinator.

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
            kept = (data_dir or config.user_data_dir()).absolute() / found["location"]
            folder = kept if kept.is_dir() else stack.enter_context(on_this_host(client, found))
        command = [sys.executable, "-m", SAMPLE_MODULE, str(folder.absolute()),
                   f"--prompt={prompt}", f"--length={length}", f"--temperature={temperature}",
                   f"--seed={seed}"]  # fmt: skip
        done = subprocess.run(command, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").splitlines() or ["it ended without a word"]
        raise CliError(lines[-1], lines[:-1][-20:])


def _newest_of_job(client: "Client", job: Json) -> Json:
    """The newest committed checkpoint of a job.

    Raises:
        CliError: it has none, or trains something else than a language model.
    """
    task = job["spec"].get("task")
    if task is None or task["name"] != "language_model":
        what = f"trains the task {task['name']}" if task else "runs a script"
        raise CliError(
            f"job {job['id']} {what}; text is written by the task language_model alone"
            + ("" if task else ", since Trainhall does not know a script's model")
        )
    checkpoint: Json
    for checkpoint in client.items(f"/checkpoints/jobs/{job['id']}"):
        # What merely lies there may be of a revoked attempt, or of a branch that was left.
        if checkpoint["state"] == "committed":
            return checkpoint
    raise CliError(f"job {job['id']} has no checkpoint yet")
