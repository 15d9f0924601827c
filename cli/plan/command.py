"""`trainhall plan`: what a job would take under every strategy, before it runs."""

from typing import TYPE_CHECKING, Annotated

import typer

from trainhall.cli.base import quantities
from trainhall.cli.base.errors import UsageError
from trainhall.cli.base.extra import check_installed
from trainhall.cli.base.options import Overrides, Report, ReportFormat, SpecFile
from trainhall.cli.base.output import Column, Json, notice, rendered, size, table
from trainhall.cli.plan.planner import planned
from trainhall.cli.spec import specs
from trainhall.training.common.units import brief, percent

if TYPE_CHECKING:
    from trainhall.training.spec import JobSpec
    from trainhall.training.spec.plan import PlanDevice

_ASSUMED_GPU = "H100"
_KINDS = ("parameters", "gradients", "optimizer", "activations", "buffers")


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
            help="Memory per device, as in 80GiB.",
            show_default="the memory of this host's GPUs",
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            "--gpu",
            metavar="NAME",
            help="GPU whose speed is assumed, such as A100.",
            show_default="this host's; with --memory on a host without GPUs, H100",
        ),
    ] = None,
    overrides: Overrides = None,
    form: Report = ReportFormat.TABLE,
) -> None:
    """Predict memory and step time under every strategy and mesh.

    One step runs on tensors without memory, so no GPU is needed. The data must be on this host, for
    the shape of a batch.

    \b
    Examples:
      trainhall plan job.yaml
      trainhall plan job.yaml --devices 8 --memory 80GiB
      trainhall plan job.yaml --devices 4 --memory 40GiB --gpu A100 -o json
      trainhall plan job.yaml --set training.global_batch_size=512

    \b
    Exit codes: 0 something fits, 1 nothing fits or the model cannot be planned, 2 wrong input.
    """  # fmt: skip
    spec = specs.load_for(devices, file, overrides) if devices else specs.load(file, overrides)
    specs.refuse_prepared(spec, "plan")
    if spec.script is not None:
        raise UsageError("`trainhall plan` plans tasks; a script parallelizes its model itself")
    check_installed("torch", "planning")
    limit = None if memory is None else round(quantities.size(memory, "--memory"))
    workers = devices or spec.resources.workers
    made = planned(spec, workers, _device(spec, gpu, limit, workers))
    print(as_table(made) if form is ReportFormat.TABLE else rendered(made, form))
    notice(f"\nAssumed: {made['assumed']}.")
    for reason in made["not_predicted"]:
        notice(f"Not predicted: {reason}.")
    notice(f"Choice: {made['reason']}.")
    if made["choice"] is None:
        raise typer.Exit(1)


def _device(spec: "JobSpec", gpu: str | None, limit: int | None, workers: int) -> "PlanDevice":
    """Return the device to plan for: this host's GPU or CPU, or a GPU that is asked for."""
    from trainhall.cluster.agent.devices import processor_name, visible_gpus
    from trainhall.parallelism.sheets import SHEETS, known_as
    from trainhall.training.spec.plan import PlanDevice

    if gpu is not None and known_as(gpu) is None:
        raise UsageError(f"the GPU {gpu!r} is unknown; known: {', '.join(SHEETS)}")
    gpus = visible_gpus() if gpu is None and spec.resources.device != "cpu" else []
    if gpus:
        least = min(found.memory_total for found in gpus)
        return PlanDevice(kind="cuda", name=gpus[0].name, memory=limit or least)
    if gpu is None and limit is not None and spec.resources.device != "cpu":
        gpu = _ASSUMED_GPU
    if gpu is not None:
        return PlanDevice(kind="cuda", name=gpu, memory=limit)
    return PlanDevice(kind="cpu", name=processor_name(), memory=limit, sharing=workers)


def as_table(made: Json) -> str:
    """Draw a line for each strategy and mesh, and below what the job cannot have."""
    columns = [
        Column("STRATEGY", lambda item: item["strategy"]),
        Column("MESH", _mesh),
        *map(_kind, _KINDS),
        Column("PEAK", lambda item: size(item["peak_memory_bytes"]), right=True),
        Column("SENT", lambda item: size(item["communication_bytes"]), right=True),
        Column("BUBBLE", lambda item: percent(item["bubble_fraction"]), right=True),
        Column("STEP", lambda item: brief(item["step_seconds"]), right=True),
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
    return "yes" if item["fits"] else f"{size(item['missing_bytes'])} short"


def _refusals(refused: list[Json]) -> list[str]:
    """Return a line for each reason: many meshes of a strategy fail for the same."""
    meshes_by_reason: dict[tuple[str, str], list[str]] = {}
    for item in refused:
        mesh = _mesh({**item, "microbatches": None})
        meshes = meshes_by_reason.setdefault((item["strategy"], item["reason"]), [])
        if mesh not in meshes:
            meshes.append(mesh)
    return [
        f"  {strategy} ({'; '.join(meshes)}): {reason}"
        if all(meshes)
        else f"  {strategy}: {reason}"
        for (strategy, reason), meshes in meshes_by_reason.items()
    ]
