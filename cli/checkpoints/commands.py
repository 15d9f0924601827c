"""Commands about checkpoints: ls, show, verify, export, restore, pin, unpin, gc, delete."""

import contextlib
import json
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainhall.cli.base import complete
from trainhall.cli.base import output as out
from trainhall.cli.base.connect import connect
from trainhall.cli.base.errors import CliError, UsageError, WrongStateError
from trainhall.cli.base.extra import check_installed, run_module
from trainhall.cli.base.options import DEFAULT_URL, Format, JobId, Output, Url, id_argument
from trainhall.cli.base.references import folder_meant, taken_for_id, taken_for_job
from trainhall.cli.checkpoints.files import folder_here, newest_below, newest_in, on_this_host
from trainhall.cli.spec.overrides import Changes, Workers, body_of

if TYPE_CHECKING:
    from trainhall.cli.base.client import Client

EXPORT_MODULE = "trainhall.training.checkpoint.export"
DECISION_SECONDS = 2.0
"""Time to wait for the scheduler's decision."""
POLL_SECONDS = 0.05

_OR_ID = "or an id as `trainhall ckpt ls JOB` lists them"

app = typer.Typer(
    help="List, verify, export, restore, pin and delete checkpoints.",
    no_args_is_help=True,
)
CheckpointId = Annotated[str, id_argument("checkpoint", complete.checkpoints, has_name=False)]


@app.command("list", hidden=True)
@app.command("ls")
def list_checkpoints(job: JobId, output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """List a job's checkpoints, newest attempt and step first.

    \b
    Examples:
      trainhall ckpt ls 3f2a
      trainhall ckpt ls 3f2a -o name | head -1
    """
    with connect(url) as client, taken_for_job(job, "trainhall ckpt ls"):
        job_id = client.job_id(job)
        found = list(client.items(f"/checkpoints/jobs/{job_id}"))
        main = client.get(f"/training/jobs/{job_id}")["main_metric"]
    name = main["name"] if main is not None else ""
    columns = [
        out.Column("ID", lambda c: c["id"]),
        out.Column("STEP", lambda c: str(c["step"]), right=True),
        out.Column("ATTEMPT", lambda c: str(c["attempt"]), right=True),
        out.Column("STATE", shown_state),
        out.Column("SIZE", lambda c: out.size(c["size"]), right=True),
        out.Column("PINNED", lambda c: "yes" if c["pinned"] else "no"),
        out.Column("METRIC", lambda c: out.metric(name, c["metrics"].get(name))),
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


@app.command("gc")
def collect(
    job: JobId,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what would be deleted, and delete nothing.")
    ] = False,
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Apply a job's retention now, and say why each checkpoint stays.

    Every save does this anyway, so something is deleted only after a checkpoint was unpinned.
    `-o name` prints the deleted ids.

    \b
    Examples:
      trainhall ckpt gc 3f2a --dry-run
    """
    with connect(url) as client, taken_for_job(job, "trainhall ckpt gc"):
        job_id = client.job_id(job)
        params = {"dry_run": str(dry_run).lower()}
        items = client.request("POST", f"/checkpoints/jobs/{job_id}/collect", params=params)[
            "items"
        ]
    if output is Format.NAME:
        items = [{"id": each["checkpoint"]["id"]} for each in items if not each["keep"]]
    columns = [
        out.Column("ID", lambda c: c["checkpoint"]["id"]),
        out.Column("STEP", lambda c: str(c["checkpoint"]["step"]), right=True),
        out.Column("SIZE", lambda c: out.size(c["checkpoint"]["size"]), right=True),
        out.Column("KEPT", lambda c: "yes" if c["keep"] else "no"),
        out.Column("WHY", lambda c: c["reason"]),
    ]
    out.print_items(items, columns, output, empty="No checkpoints.")


@app.command("pin")
def pin(checkpoint: CheckpointId, output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """Pin a checkpoint: retention keeps it.

    \b
    Examples:
      trainhall ckpt pin 91bc
    """
    _set_pinned(url, checkpoint, output, pinned=True)


@app.command("unpin")
def unpin(checkpoint: CheckpointId, output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """Unpin a checkpoint: retention may delete it.

    \b
    Examples:
      trainhall ckpt unpin 91bc
    """
    _set_pinned(url, checkpoint, output, pinned=False)


@app.command("remove", hidden=True)
@app.command("rm", hidden=True)
@app.command("delete")
def delete(checkpoint: CheckpointId, output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """Delete a checkpoint and its files. Unpin a pinned one first.

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
    workers: Workers = None,
    overrides: Changes = None,
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Restart a job from a checkpoint. The job must not be running.

    Strategy and number of workers can change; changes apply to all later attempts.

    \b
    Examples:
      trainhall ckpt restore 91bc
      trainhall ckpt restore 91bc --workers 4
      trainhall ckpt restore 91bc --set parallelism.strategy=fsdp --set resources.workers=2
    """
    body = body_of(workers, overrides)
    with connect(url) as client:
        found = client.checkpoint(checkpoint)
        job = client.request("POST", f"/checkpoints/{found['id']}/restore", json=body)
        if output is Format.TABLE:
            job = _decided(client, job)
    out.print_item(job, output, lambda: _restored(job, found))


def _decided(client: "Client", restored: out.Json) -> out.Json:
    """Return the job once the scheduler has decided, or after a short while."""
    deadline = time.monotonic() + DECISION_SECONDS
    job = restored
    while (job["state"], job["reason"]) == (restored["state"], restored["reason"]):
        if time.monotonic() > deadline:
            break
        time.sleep(POLL_SECONDS)
        job = client.get(f"/training/jobs/{restored['id']}")
    return job


def _restored(job: out.Json, checkpoint: out.Json) -> str:
    if job["state"] == "queued":
        return f"{out.label(job)} is queued: {out.one_line(job['reason'])}"
    step, total = checkpoint["step"], job["total_steps"]
    ends = ", the last step: nothing is left to train" if total and step >= total else ""
    return f"{out.label(job)} resumes from step {step}{ends}"


@app.command("export")
def export(
    checkpoint: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER|CHECKPOINT",
            help="A checkpoint's folder, the output of `trainhall run`, or a checkpoint's id.",
            autocompletion=complete.checkpoints,
        ),
    ],
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="File to write, such as model.safetensors.")
    ],
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Export a checkpoint's weights to one safetensors file.

    Tensors are whole and named as in the plain model's state dict. Files that this host does not
    see are downloaded from the coordinator. This needs PyTorch.

    \b
    Examples:
      trainhall ckpt export 91bc model.safetensors
      trainhall ckpt export out model.safetensors
    """
    if file.exists() or not file.absolute().parent.is_dir():
        why = "is in a folder that does not exist; create it first"
        if file.exists():
            why = "already exists and is not overwritten; choose another name, or remove it"
        raise UsageError(f"{file} {why}")
    check_installed("torch", "an export")
    with contextlib.ExitStack() as stack:
        outputs = "the output of `trainhall run`"
        folder = folder_meant(checkpoint, f"a checkpoint's folder, {outputs}, {_OR_ID}")
        if folder is not None:
            folder = newest_below(folder)
        else:
            stack.enter_context(taken_for_id(checkpoint))
            client = stack.enter_context(connect(url))
            folder = stack.enter_context(on_this_host(client, client.checkpoint(checkpoint)))
        exported = run_module(
            EXPORT_MODULE, str(folder.absolute()), str(file.absolute()), stdout=subprocess.PIPE
        )
    if output is Format.NAME:
        print(file)
        return
    summary = json.loads(exported)
    size = out.size(summary["size"])
    out.print_item(
        summary,
        output,
        lambda: f"{file}: {summary['tensors']} tensors of step {summary['step']}, {size}",
    )


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
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Compare a checkpoint's files with their SHA-256 hashes.

    The coordinator hashes a checkpoint given by its id, or this host if only this host sees it.
    Exit code 0: intact; 1: damaged.

    \b
    Examples:
      trainhall ckpt verify out/checkpoints/step-00000120-a1-g1
      trainhall ckpt verify 91bc
    """
    folder = folder_meant(checkpoint, f"a checkpoint's folder, {_OR_ID}")
    if folder is not None:
        what = name = checkpoint
        problems = _problems_in(folder)
    else:
        with taken_for_id(checkpoint):
            name, problems = _verify_recorded(url, checkpoint)
        what = f"checkpoint {name}"
    if output is not Format.TABLE:
        result = {"id": name, "good": not problems, "problems": problems}
        out.print_item(result, output, str)
        if problems:
            raise typer.Exit(1)
    elif problems:
        raise _damaged_error(what, problems, folder=folder)
    else:
        print(f"{what} is intact")


def _damaged_error(what: str, problems: list[out.Json], *, folder: Path | None) -> CliError:
    from trainhall.training.checkpoint.format.names import MANIFEST

    if folder is not None and not (folder / MANIFEST).exists():
        found = newest_in(folder)
        here = [f"There is a checkpoint in it: {found}"] if found is not None else []
        return CliError(f"{what} is not a checkpoint: it has no {MANIFEST}", here)
    lines = [f"{p['path']}: expected {p['expected']}, found {p['found']}" for p in problems]
    return CliError(f"{what} is damaged", lines)


def _problems_in(folder: Path) -> list[out.Json]:
    from dataclasses import asdict

    from trainhall.training.checkpoint.format.manifest import verify_folder

    return [asdict(problem) for problem in verify_folder(folder)]


def _verify_recorded(url: str, reference: str) -> tuple[str, list[out.Json]]:
    """Return a checkpoint's id, and what is wrong with it."""
    with connect(url) as client:
        found = client.checkpoint(reference)
        identity = str(found["id"])
        try:
            answer = client.verify(identity)
        except WrongStateError:
            # The coordinator does not see it; this host may.
            if (here := folder_here(found)) is None or found["state"] in ("deleting", "deleted"):
                raise
            return identity, _problems_in(here)
    return identity, answer["problems"]


def _set_pinned(url: str, reference: str, output: Format, *, pinned: bool) -> None:
    with connect(url) as client:
        found = client.checkpoint(reference)
        method = "PUT" if pinned else "DELETE"
        found = client.request(method, f"/checkpoints/{found['id']}/pin")
    status = "pinned" if pinned else "no longer pinned"
    out.print_item(found, output, lambda: f"{found['id']} is {status}")


def shown_state(checkpoint: out.Json) -> str:
    """Return the state as the dashboard and the events call it."""
    state = str(checkpoint["state"])
    return "saved" if state == "committed" else state


def _page(checkpoint: out.Json) -> str:
    entries = [
        ("id", checkpoint["id"]),
        ("job", checkpoint["job_id"]),
        ("step", str(checkpoint["step"])),
        ("attempt", str(checkpoint["attempt"])),
        ("state", shown_state(checkpoint)),
        ("pinned", "yes" if checkpoint["pinned"] else "no"),
        ("size", out.size(checkpoint["size"])),
        ("created", out.moment(checkpoint["created_at"])),
        ("location", _location(checkpoint["location"])),
    ]
    parts = [out.pairs(entries)]
    if checkpoint["metrics"]:
        metrics = [(n, out.measured(n, v)) for n, v in sorted(checkpoint["metrics"].items())]
        parts.append("Metrics\n" + out.indented(out.pairs(metrics)))
    return "\n\n".join(parts)


def _location(path: str) -> str:
    return path if path.startswith("/") else f"{path} in the coordinator's data folder"
