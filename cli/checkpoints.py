"""Commands about checkpoints: ls, show, verify, pin, unpin, delete, restore."""

from pathlib import Path
from typing import Annotated

import typer

from trainhall.cli import complete
from trainhall.cli import output as out
from trainhall.cli.connect import connect
from trainhall.cli.errors import CliError, Usage
from trainhall.cli.options import DEFAULT_URL, Format, JobId, Output, Url

app = typer.Typer(
    help="Checkpoints: ls, show, verify, pin, unpin, delete, restore.", no_args_is_help=True
)
CheckpointId = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT",
        help="The checkpoint's id, or the first characters of it.",
        autocompletion=complete.checkpoints,
    ),
]


@app.command("list", hidden=True)
@app.command("ls")
def list_checkpoints(job: JobId, output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """List a job's checkpoints, the newest first: by attempt, then by step.

    \b
    Examples:
      trainhall ckpt ls 3f2a
      trainhall ckpt ls 3f2a -o name | head -1
    """
    with connect(url) as client:
        job_id = client.job_id(job)
        found = list(client.items(f"/checkpoints/jobs/{job_id}"))
    columns = [
        out.Column("ID", lambda c: c["id"]),
        out.Column("STEP", lambda c: str(c["step"]), right=True),
        out.Column("ATTEMPT", lambda c: str(c["attempt"]), right=True),
        out.Column("STATE", lambda c: c["state"]),
        out.Column("SIZE", lambda c: out.size(c["size"]), right=True),
        out.Column("PINNED", lambda c: "yes" if c["pinned"] else "no"),
        out.Column("LOSS", lambda c: out.number(c["metrics"].get("loss")), right=True),
        out.Column("AGE", lambda c: out.age(c["created_at"]), right=True),
    ]
    out.print_items(found, columns, output, empty="No checkpoints.")


@app.command("show")
def show(checkpoint: CheckpointId, output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """Show one checkpoint.

    \b
    Examples:
      trainhall ckpt show 91bc
      trainhall ckpt show 91bc -o json
    """
    with connect(url) as client:
        found = client.checkpoint(checkpoint)
    out.print_item(found, output, lambda: _page(found))


@app.command("pin")
def pin(checkpoint: CheckpointId, output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """Keep a checkpoint: retention leaves it alone.

    \b
    Examples:
      trainhall ckpt pin 91bc
    """
    _set_pinned(url, checkpoint, output, pinned=True)


@app.command("unpin")
def unpin(checkpoint: CheckpointId, output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """Give a pinned checkpoint back to retention.

    \b
    Examples:
      trainhall ckpt unpin 91bc
    """
    _set_pinned(url, checkpoint, output, pinned=False)


@app.command("remove", hidden=True)
@app.command("rm", hidden=True)
@app.command("delete")
def delete(checkpoint: CheckpointId, output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """Delete a checkpoint and its files. A pinned one must be unpinned first.

    \b
    Examples:
      trainhall ckpt delete 91bc
    """
    with connect(url) as client:
        found = client.checkpoint(checkpoint)
        client.request("DELETE", f"/checkpoints/{found['id']}")
    out.print_item(found, output, lambda: f"{found['id']} is being deleted")


@app.command("restore")
def restore(
    checkpoint: CheckpointId,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Go on with another number of workers.")
    ] = None,
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Start a new attempt of a checkpoint's job from there. The job must not be running.

    \b
    Examples:
      trainhall ckpt restore 91bc
      trainhall ckpt restore 91bc --workers 4
    """
    body: out.Json = {} if workers is None else {"resources": {"workers": workers}}
    with connect(url) as client:
        found = client.checkpoint(checkpoint)
        job = client.request("POST", f"/checkpoints/{found['id']}/restore", json=body)
    out.print_item(job, output, lambda: f"{job['id']} goes on from step {found['step']}")


@app.command("verify")
def verify(
    checkpoint: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER|CHECKPOINT",
            help="A checkpoint's folder, or its id.",
            autocompletion=complete.checkpoints,
        ),
    ],
    url: Url = DEFAULT_URL,
) -> None:
    """Hash every file of a checkpoint and compare. Exit code 0: good; 1: bad.

    \b
    Examples:
      trainhall ckpt verify out/checkpoints/step-00000120-a1-g1
      trainhall ckpt verify 91bc
    """
    folder = Path(checkpoint)
    if folder.is_dir():
        _verify_folder(folder)
    elif "/" in checkpoint or folder.exists():
        raise Usage(f"{checkpoint} is not a folder")
    else:
        _verify_recorded(url, checkpoint)


def _verify_folder(folder: Path) -> None:
    from trainhall.training.checkpoint.manifest import verify_folder

    problems = verify_folder(folder)
    if problems:
        raise CliError(f"{folder} is damaged", [str(problem) for problem in problems])
    print(f"{folder} is good")


def _set_pinned(url: str, reference: str, output: Format, *, pinned: bool) -> None:
    with connect(url) as client:
        found = client.checkpoint(reference)
        method = "PUT" if pinned else "DELETE"
        found = client.request(method, f"/checkpoints/{found['id']}/pin")
    told = "pinned" if pinned else "no longer pinned"
    out.print_item(found, output, lambda: f"{found['id']} is {told}")


def _page(checkpoint: out.Json) -> str:
    entries = [
        ("id", checkpoint["id"]),
        ("job", checkpoint["job_id"]),
        ("step", str(checkpoint["step"])),
        ("attempt", str(checkpoint["attempt"])),
        ("state", checkpoint["state"]),
        ("pinned", "yes" if checkpoint["pinned"] else "no"),
        ("size", out.size(checkpoint["size"])),
        ("created", checkpoint["created_at"]),
        ("location", _location(checkpoint["location"])),
    ]
    parts = [out.pairs(entries)]
    if checkpoint["metrics"]:
        metrics = [(name, out.number(v)) for name, v in sorted(checkpoint["metrics"].items())]
        parts.append("Metrics\n" + out.indented(out.pairs(metrics)))
    return "\n\n".join(parts)


def _location(told: str) -> str:
    return told if told.startswith("/") else f"{told} in the coordinator's data folder"


def _verify_recorded(url: str, reference: str) -> None:
    with connect(url) as client:
        found = client.checkpoint(reference)
        told = client.request("POST", f"/checkpoints/{found['id']}/verify")
    if told["problems"]:
        lines = [
            f"{p['path']}: expected {p['expected']}, found {p['found']}" for p in told["problems"]
        ]
        raise CliError(f"checkpoint {found['id']} is damaged", lines)
    print(f"checkpoint {found['id']} is good")
