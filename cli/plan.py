"""`trainhall plan`: what a job would take under every strategy, before it runs."""

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainhall.cli import quantities, specs
from trainhall.cli.errors import CliError, Usage
from trainhall.cli.extra import check_installed
from trainhall.cli.options import Format, Overrides, SpecFile
from trainhall.cli.output import Column, Json, rendered, say, size, table

if TYPE_CHECKING:
    from trainhall.training.spec import JobSpec

PLANNING_MODULE = "trainhall.training.planning"
_ASSUMED_GPU = "H100"
_KINDS = ("parameters", "gradients", "optimizer", "activations", "buffers")
_SHOWN_LINES = 20


def plan(
    file: SpecFile,
    devices: Annotated[
        int | None,
        typer.Option(
            "--devices",
            min=1,
            max=4096,
            help="Workers to plan for.",
            show_default="resources.workers of the spec",
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory",
            metavar="SIZE",
            help="Memory of each device, as in 80GiB.",
            show_default="that of this host's GPUs",
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            "--gpu",
            metavar="NAME",
            help="The GPU whose speed is assumed, such as A100.",
            show_default="this host's; with --memory on a host without one H100",
        ),
    ] = None,
    overrides: Overrides = None,
    output: Annotated[
        Format, typer.Option("--output", "-o", help="How to print: table, json or yaml.")
    ] = Format.TABLE,
) -> None:
    """Predict a job's memory, communication and step time under every strategy and mesh.

    Nothing is trained and no GPU is needed: a step of the model runs on tensors without memory. Its
    data must be on this host, for the shape of a batch.

    \b
    Examples:
      trainhall plan job.yaml
      trainhall plan job.yaml --devices 8 --memory 80GiB
      trainhall plan job.yaml --devices 4 --memory 40GiB --gpu A100 -o json
      trainhall plan job.yaml --set training.global_batch_size=512

    \b
    Exit codes: 0 something fits, 1 nothing fits or the model cannot be planned, 2 wrong input.
    """  # fmt: skip
    if output is Format.NAME:
        raise Usage("a plan has no ids to print; choose table, json or yaml")
    spec = specs.load(file, overrides)
    if spec.script is not None:
        raise Usage("`trainhall plan` plans tasks; a script spreads its model itself")
    check_installed("torch", "planning")
    limit = None if memory is None else round(quantities.size(memory, "--memory"))
    name, limit = _device(spec, gpu, limit)
    made = _planned(
        {
            "spec": spec.model_dump(mode="json", exclude_unset=True),
            "code": spec.code,
            "workers": devices or spec.resources.workers,
            "memory": limit,
            "gpu": name,
        }
    )
    print(as_table(made) if output is Format.TABLE else rendered(made, output))
    say(f"\nAssumed: {made['assumed']}.")
    say(f"Choice: {made['reason']}.")
    if made["choice"] is None:
        raise typer.Exit(1)


def _device(spec: "JobSpec", gpu: str | None, limit: int | None) -> tuple[str | None, int | None]:
    """The GPU to plan for, None for this host's CPU, and the memory of a device, if it is known."""
    from trainhall.cluster.agent.devices import list_gpus

    if spec.resources.device == "cpu" and gpu is None:
        return None, limit
    gpus = list_gpus() if gpu is None else []
    if gpus:
        return gpus[0].name, limit or min(found.memory_total for found in gpus)
    if gpu is None and limit is not None:
        return _ASSUMED_GPU, limit
    return gpu, limit


def _planned(request: dict[str, Any]) -> Json:
    done = subprocess.run(
        [sys.executable, "-m", PLANNING_MODULE],
        input=json.dumps(request).encode(),
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").splitlines() or ["it ended without a word"]
        raise CliError(lines[-1], lines[:-1][-_SHOWN_LINES:])
    made: Json = json.loads(done.stdout)
    return made


def as_table(made: Json) -> str:
    """A line for each strategy and mesh, and below what the job cannot have."""
    columns = [
        Column("STRATEGY", lambda item: item["strategy"]),
        Column("MESH", _mesh),
        *map(_kind, _KINDS),
        Column("PEAK", lambda item: size(item["peak_memory_bytes"]), right=True),
        Column("SENT", lambda item: size(item["communication_bytes"]), right=True),
        Column("BUBBLE", lambda item: f"{item['bubble_fraction']:.0%}", right=True),
        Column("STEP", lambda item: f"{item['step_seconds']:.3g} s", right=True),
        Column("FITS", _fits),
    ]
    text = table(made["items"], columns) if made["items"] else "No strategy can train this job."
    if made["refused"]:
        text += "\n\nNot possible:\n" + "\n".join(_refusals(made["refused"]))
    return text


def _kind(kind: str) -> Column:
    return Column(kind.upper(), lambda item: size(item["memory"][kind]), right=True)


def _mesh(item: Json) -> str:
    degrees = [f"{name} {number}" for name, number in item["mesh"].items() if number > 1]
    if item["microbatches"]:
        degrees.append(f"{item['microbatches']} micro-batches")
    return " × ".join(degrees)


def _fits(item: Json) -> str:
    return "yes" if item["fits"] else f"lacks {size(item['missing_bytes'])}"


def _refusals(refused: list[Json]) -> list[str]:
    """A line for each reason: many meshes of a strategy fail for the same."""
    told: dict[tuple[str, str], list[str]] = {}
    for item in refused:
        mesh = _mesh({**item, "microbatches": None})
        meshes = told.setdefault((item["strategy"], item["reason"]), [])
        if mesh not in meshes:
            meshes.append(mesh)
    return [
        f"  {strategy} ({'; '.join(meshes)}): {reason}"
        if all(meshes)
        else f"  {strategy}: {reason}"
        for (strategy, reason), meshes in told.items()
    ]
