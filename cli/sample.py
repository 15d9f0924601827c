"""`trainhall sample`: text from a language model's checkpoint."""

import subprocess
import sys
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import typer

from trainhall.cli import config
from trainhall.cli.connect import connect
from trainhall.cli.errors import CliError, Usage
from trainhall.cli.options import DEFAULT_URL, DataDir, Url

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

    A job's checkpoints are read where they lie, so this runs on a host that sees them: that of the
    coordinator, or any with the job's `checkpoint.path`.

    \b
    Examples:
      trainhall sample out --prompt "ROMEO:"
      trainhall sample out/checkpoints/step-00001500-a1-g1 --length 200 --temperature 0.5
      trainhall sample 3f2a --seed 7
    """
    # An empty name would be the present folder.
    path = Path(source) if source else None
    if path is not None and path.is_dir():
        folder = _newest_below(path)
    elif "/" in source or path is None or path.exists():
        raise Usage(f"{source or 'an empty name'} is not a folder")
    else:
        folder = _newest_of_job(url, source, (data_dir or config.user_data_dir()).absolute())
    _check_torch()
    command = [sys.executable, "-m", SAMPLE_MODULE, str(folder.absolute()), f"--prompt={prompt}",
               f"--length={length}", f"--temperature={temperature}", f"--seed={seed}"]  # fmt: skip
    done = subprocess.run(command, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").splitlines() or ["it ended without a word"]
        raise CliError(lines[-1], lines[:-1][-20:])


def _newest_below(path: Path) -> Path:
    """The folder itself if it is a checkpoint, else the newest one in it."""
    from trainhall.training.checkpoint.names import MANIFEST, scan

    if (path / MANIFEST).exists():
        return path
    for folder in (path, path / "checkpoints"):
        if found := scan(folder):
            return found[0].path
    raise Usage(f"there is no checkpoint in {path}")


def _newest_of_job(url: str, reference: str, data_dir: Path) -> Path:
    """The newest committed checkpoint of a job among those that this host sees."""
    with connect(url) as client:
        job: Any = client.job(reference)
        # What merely lies there may be of a revoked attempt, or of a branch that was left.
        found = list(client.items(f"/checkpoints/jobs/{job['id']}"))
    names: list[str] = [
        PurePosixPath(c["location"]).name for c in found if c["state"] == "committed"
    ]
    if not names:
        raise CliError(f"job {job['id']} has no checkpoint yet")
    shared = (job["spec"].get("checkpoint") or {}).get("path")
    places: list[Path] = [Path(shared) / job["id"]] if shared else []
    places.append(data_dir / "checkpoints" / job["id"])
    for name in names:
        for place in places:
            if (place / name).is_dir():
                return place / name
    looked = ", ".join(map(str, places))
    raise CliError(
        f"no checkpoint of job {job['id']} is on this host; looked in {looked}",
        ["Run this on the coordinator's host with its --data-dir, or give a checkpoint's folder."],
    )


def _check_torch() -> None:
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise CliError("a language model needs PyTorch: pip install 'trainhall[train]'")
