"""`trainhall bench FILE`: a benchmark or scaling study of a job on this host, without a server."""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from trainhall.cli.base import output as out
from trainhall.cli.base import quantities
from trainhall.cli.base.errors import UsageError
from trainhall.cli.base.extra import check_installed
from trainhall.cli.base.options import Overrides, SpecFile
from trainhall.cli.spec import specs

if TYPE_CHECKING:
    from trainhall.cluster.experiments.spec import ExperimentSpec
    from trainhall.training.spec import JobSpec

INTERRUPTED = 130


class BenchFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class BenchGroup(TyperGroup):
    """Takes a first argument that is no command for the file of `bench job`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.commands:
            return "job", self.commands["job"], args
        return super().resolve_command(ctx, args)


def _list(name: str, text: str, metavar: str) -> Any:
    return typer.Option(name, metavar=metavar, help=text, show_default="the spec's")


def job(
    file: SpecFile,
    workers: Annotated[str | None, _list("--workers", "Numbers of workers.", "N,N…")] = None,
    strategies: Annotated[
        str | None,
        _list("--strategies", "Strategies, as in parallelism.strategy.", "NAME,NAME…"),
    ] = None,
    batch_sizes: Annotated[
        str | None, _list("--batch-sizes", "Global batch sizes.", "N,N…")
    ] = None,
    precisions: Annotated[
        str | None, _list("--precisions", "Precisions: fp32, bf16, fp16.", "NAME,NAME…")
    ] = None,
    compressions: Annotated[
        str | None,
        _list("--compressions", "Compressions of gradients, such as fp16.", "NAME,NAME…"),
    ] = None,
    algorithms: Annotated[
        str | None, _list("--algorithms", "All-reduce algorithms, such as ring.", "NAME,NAME…")
    ] = None,
    bucket_sizes: Annotated[
        str | None, _list("--bucket-sizes", "Sizes of gradient buckets, in MB.", "N,N…")
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            metavar="FIELD=VALUE,…",
            help="The combination that the others are compared with, as in strategy=ddp,workers=1: "
            "a value of each field that varies.",
            show_default="the first that can run",
        ),
    ] = None,
    scaling: Annotated[
        str | None,
        typer.Option(
            "--scaling",
            metavar="NAME,NAME…",
            help="A scaling study over --workers: strong (the global batch size stays), weak (the "
            "batch of each worker stays), or both.",
            show_default="a benchmark",
        ),
    ] = None,
    repeats: Annotated[
        int, typer.Option("--repeats", min=1, max=100, help="Runs of each combination.")
    ] = 3,
    warmup_steps: Annotated[
        int,
        typer.Option("--warmup-steps", min=0, help="First steps of a run that are left out."),
    ] = 10,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the order of the runs.")] = 0,
    overrides: Overrides = None,
    output: Annotated[
        BenchFormat, typer.Option("--output", "-o", help="Output format.")
    ] = BenchFormat.TABLE,
) -> None:
    """Measure how fast a task trains on this host, without a server; `job` may be left out.

    Every combination of the values runs, one after the other in random order, each as
    `trainhall run` does. One that cannot run is a row with its reason. Ctrl-C stops and prints
    what there is.

    \b
    Examples:
      trainhall bench job examples/digits.yaml --workers 1,2 --strategies ddp,fsdp
      trainhall bench job job.yaml --batch-sizes 64,256 --precisions fp32,bf16 --repeats 5 -o csv
      trainhall bench job job.yaml --workers 2 --compressions none,fp16 --baseline compression=none
      trainhall bench job job.yaml --workers 4 --algorithms native,ring --bucket-sizes 1,25 -o json
      trainhall bench job job.yaml --workers 1,2,4 --scaling strong,weak

    \b
    Exit codes: 0 a run completed, 1 none did, 2 wrong input, 130 stopped.
    """
    given = specs.load(file, overrides)
    specs.refuse_prepared(given, "bench")
    specs.folder_in_place(given, "bench")
    if given.script is not None:
        raise UsageError("`trainhall bench` measures tasks only; a benchmark of a script needs a "
                         "coordinator: `trainhall experiment create`")  # fmt: skip
    space = {
        "parallelism.strategy": _names(strategies) or [given.parallelism.strategy],
        "resources.workers": _numbers(workers, "--workers"),
        "training.precision": _names(precisions),
        "training.global_batch_size": _numbers(batch_sizes, "--batch-sizes"),
        "parallelism.gradient_sync.compression": _names(compressions),
        "parallelism.gradient_sync.algorithm": _names(algorithms),
        "parallelism.gradient_sync.bucket_mb": _numbers(bucket_sizes, "--bucket-sizes"),
    }
    space = {field: values for field, values in space.items() if values}
    benchmark = _experiment(
        given, space,
        {
            "baseline": _baseline(baseline, space),
            "kind": "benchmark" if scaling is None else "scaling",
            "scaling": None if scaling is None else _names(scaling),
            "repeats": repeats, "warmup_steps": warmup_steps, "seed": seed,
        },
    )  # fmt: skip
    check_installed("torch", "training")
    from trainhall.cli.bench.cells import CellRuns

    runs = CellRuns(benchmark)
    runs.run()
    rows = runs.rows()
    _print(rows, runs.scaling(), output)
    if runs.was_interrupted:
        raise typer.Exit(INTERRUPTED)
    if not any(row["completed"] for row in rows):
        raise typer.Exit(1)


def _experiment(
    given: "JobSpec", space: dict[str, list[Any]], options: dict[str, Any]
) -> "ExperimentSpec":
    from trainhall.cluster.experiments.spec import validate_experiment
    from trainhall.training.spec import SpecError

    document = {
        "name": given.name,
        "job": given.model_dump(mode="json", exclude_unset=True),
        "space": space,
        **options,
    }
    try:
        return validate_experiment(document)
    except SpecError as error:
        raise UsageError(str(error)) from None


def _names(text: str | None) -> list[Any]:
    return [item.strip() for item in text.split(",")] if text is not None else []


def _baseline(text: str | None, space: dict[str, list[Any]]) -> dict[str, Any] | None:
    """Read the combination, by the last part of each field's name.

    Raises:
        UsageError: a field does not vary, or has no such value.
    """
    if text is None:
        return None
    fields = {field.rpartition(".")[2]: field for field in space}
    found: dict[str, Any] = {}
    for item in _names(text):
        name, _, value = item.partition("=")
        if name not in fields:
            known = ", ".join(fields)
            raise UsageError(f"--baseline: {item!r} names no field that is given; known: {known}")
        values = {str(each): each for each in space[fields[name]]}
        if value not in values:
            raise UsageError(f"--baseline: {item!r} has none of the values {', '.join(values)}")
        found[fields[name]] = values[value]
    return found


def _numbers(text: str | None, option: str) -> list[Any]:
    return [quantities.integer(item, option, least=1, most=2**31) for item in _names(text)]


def _print(rows: Sequence[out.Json], scaling: out.Json, output: BenchFormat) -> None:
    from trainhall.cli.base.options import ReportFormat
    from trainhall.cli.experiments.analysis import sentences
    from trainhall.cli.experiments.benchmark import benchmark_csv, speed_tables

    if output is BenchFormat.TABLE:
        print(
            speed_tables({"table": rows, "scaling": None, "metric": "samples_per_second"} | scaling)
        )
        if scaling:
            print(f"\n{sentences(scaling['findings'])}")
    elif output is BenchFormat.JSON:
        print(out.rendered({"rows": list(rows)} | scaling, ReportFormat.JSON))
    else:
        print(benchmark_csv(rows), end="")
