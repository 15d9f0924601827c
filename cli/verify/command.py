"""`trainhall verify`: does every strategy compute what one process alone computes?"""

import json
import math
import signal
import tempfile
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from trainhall.cli.base.errors import UsageError
from trainhall.cli.base.extra import check_installed
from trainhall.cli.base.options import DEFAULT_URL, SPEC_FILE_HELP, Overrides, Url
from trainhall.cli.base.output import Column, notice, table
from trainhall.cli.base.plots import check_plot
from trainhall.cli.spec import specs

if TYPE_CHECKING:
    from trainhall.cli.verify.runs import Result
    from trainhall.training.spec import JobSpec
    from trainhall.training.verify.candidates import Candidate

MAX_WORKERS = 8
DEFAULT_WORKERS = 4
STOPPED = 130
NAMED = 3
"""Number of unclear results with one reason that are named below the table."""


class Dtype(StrEnum):
    FLOAT64 = "float64"
    FLOAT32 = "float32"


class Form(StrEnum):
    TABLE = "table"
    JSON = "json"


def verify(
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help=SPEC_FILE_HELP),
    ] = None,
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--compare",
            metavar="JOB JOB",
            help="Instead of a FILE: find where two reproducible runs diverge. Each is a "
            "job, or an output folder of `trainhall run`.",
        ),
    ] = None,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Steps to compare.")] = 20,
    dtype: Annotated[
        Dtype,
        typer.Option(
            "--dtype",
            help="Data type of the computation. float32 is too inexact to find faults, and has "
            "wider tolerances.",
        ),
    ] = Dtype.FLOAT64,
    strategies: Annotated[
        str | None,
        typer.Option(
            "--strategies",
            metavar="NAMES",
            help="Compare only these, separated by commas.",
            show_default="all",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            min=1,
            max=MAX_WORKERS,
            help="Ranks of each run.",
            show_default=f"the job's; {DEFAULT_WORKERS} if that is 1",
        ),
    ] = None,
    # Not named `output`: see `options.Report`.
    form: Annotated[Form, typer.Option("--output", "-o", help="Output format.")] = Form.TABLE,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            metavar="FILE",
            dir_okay=False,
            help="Plot the errors by step to a .png, .svg or .pdf file.",
        ),
    ] = None,
    overrides: Overrides = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Compare every strategy step by step with a single process.

    Each strategy and mesh that fits takes the same steps as one process: same seed, same samples,
    dropout off. Losses, gradients and weights are compared by ‖a−b‖ / max(‖b‖, floor); the report
    names the first layer that differs, and why a strategy does not fit.

    \b
    Examples:
      trainhall verify examples/digits.yaml
      trainhall verify job.yaml --workers 8 --strategies fsdp,tensor
      trainhall verify job.yaml -o json --plot errors.svg
      trainhall verify --compare 3f2a 91bc
      trainhall verify --compare out/ 3f2a

    \b
    Exit codes: 0 all agree, 1 one differs, fails or is unclear, 2 wrong input, 130 stopped.
    """  # fmt: skip
    if compare is not None:
        if file is not None:
            raise UsageError("--compare takes two finished runs; leave FILE out")
        _compare_runs(*compare, url, form)
    if file is None:
        raise UsageError("give a FILE with a job spec, or --compare JOB JOB")
    spec = specs.load(file, overrides)
    specs.refuse_prepared(spec, "verify")
    if spec.task is None:
        raise UsageError(
            "`trainhall verify` compares tasks; a script parallelizes its model itself"
        )
    specs.folder_in_place(spec, "verify")
    if plot is not None:
        check_plot(plot)
    check_installed("torch", "training")
    wanted = _candidates(spec, steps, _strategies(strategies), _number(spec, workers))
    results = _compare(spec, steps, dtype, *wanted)
    if plot is not None:
        from trainhall.cli.verify.plot import draw

        draw(plot, results, dtype.value)
        notice(f"Wrote {plot}.")
    if form is Form.JSON:
        print(json.dumps(_document(spec, steps, dtype, results), indent=2, ensure_ascii=False))
    else:
        print(_page(results))
    if all(r.verdict == "does not fit" for r in results):
        raise UsageError("no strategy fits this job and number of workers")
    raise typer.Exit(0 if _agree(results) else 1)


def _compare_runs(one: str, other: str, url: str, form: Form) -> NoReturn:
    from trainhall.cli.jobs import chains

    result = chains.compare(one, other, url)
    if form is Form.JSON:
        print(json.dumps(chains.as_json(result), indent=2))
    else:
        print(chains.describe_result(result))
    raise typer.Exit(0 if result.step is None else 1)


def _strategies(given: str | None) -> "Sequence[Any]":
    from trainhall.training.verify.candidates import STRATEGIES

    if given is None:
        return STRATEGIES
    names = [name.strip() for name in given.split(",")]
    for name in names:
        if name not in STRATEGIES:
            raise UsageError(f"--strategies: {name!r} is unknown; known: {', '.join(STRATEGIES)}")
    return [name for name in STRATEGIES if name in names]


def _number(spec: "JobSpec", given: int | None) -> int:
    if given is not None:
        return given
    workers = spec.resources.workers
    if workers > MAX_WORKERS:
        raise UsageError(
            f"resources.workers is {workers}, but one host compares at most {MAX_WORKERS} "
            "ranks; give --workers"
        )
    return workers if workers > 1 else DEFAULT_WORKERS


def _candidates(
    spec: "JobSpec", steps: int, strategies: "Sequence[Any]", workers: int
) -> "tuple[dict[str, Any], list[Candidate]]":
    from trainhall.training.verify.candidates import candidates, comparable

    document = comparable(spec, steps)
    own = spec.parallelism.model_dump(mode="json", exclude_unset=True)
    return document, candidates(document, workers, strategies, own)


def _compare(
    spec: "JobSpec",
    steps: int,
    dtype: Dtype,
    document: dict[str, Any],
    wanted: "list[Candidate]",
) -> "list[Result]":
    """Run all that fits, and leave nothing behind."""
    from trainhall.cli.local.local_shims import LocalShims
    from trainhall.cli.verify.runs import Comparison

    # As Ctrl-C does: what was started is ended, and what was written is removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    fitting = sum(each.spec is not None for each in wanted)
    notice(f"Comparing {fitting} of {len(wanted)} meshes with one process over {steps} steps of "
        f"{spec.name} in {dtype.value}.")  # fmt: skip
    try:
        with (
            tempfile.TemporaryDirectory(prefix="trainhall-verify-") as folder,
            LocalShims(Path(folder) / "warm.log") as shims,
        ):
            return Comparison(document, dtype.value, Path(folder), shims).run(wanted)
    except KeyboardInterrupt:
        notice("Stopped.")
        raise typer.Exit(STOPPED) from None


def _agree(results: "list[Result]") -> bool:
    verdicts = {r.verdict for r in results} - {"does not fit"}
    return verdicts == {"agrees"}


def _page(results: "list[Result]") -> str:
    compared = [r for r in results if r.verdict != "does not fit"]
    lines = [table([{"result": r} for r in compared], COLUMNS)] if compared else []
    lines += [
        f"\n{r.strategy}, {r.mesh} failed: {r.reason}" for r in compared if r.verdict == "failed"
    ]
    lines += [f"\n{text}." for text in dict.fromkeys(r.tolerance for r in compared) if text]
    return "\n".join([*lines, *_unclear(compared), *_unfit(results)])


def _unclear(results: "list[Result]") -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for result in results:
        if result.verdict == "unclear":
            by_reason.setdefault(result.reason, []).append(f"{result.strategy}, {result.mesh}")
    return [f"\nUnclear: {_some(who)}\n      {why}" for why, who in by_reason.items()]


def _unfit(results: "list[Result]") -> list[str]:
    meshes: dict[tuple[str, str], list[str]] = {}
    for result in results:
        if result.verdict == "does not fit":
            meshes.setdefault((result.strategy, result.reason), []).append(result.mesh)
    lines = [
        f"  {strategy}: {'; '.join(of_one)}\n      {reason}"
        for (strategy, reason), of_one in meshes.items()
    ]
    return ["\nDoes not fit:", *lines] if lines else []


def _some(meshes: list[str]) -> str:
    """Name some of many: the table has them all."""
    more = len(meshes) - NAMED
    return "; ".join(meshes[:NAMED]) + (f"; and {more} more" if more > 0 else "")


def _document(spec: "JobSpec", steps: int, dtype: Dtype, results: "list[Result]") -> dict[str, Any]:
    from trainhall.training.verify.tolerance import FLOOR, TOLERANCES

    bounds = TOLERANCES[dtype.value]
    document = {
        "name": spec.name,
        "steps": steps,
        "dtype": dtype.value,
        "tolerance": {
            "loss": bounds.loss,
            "gradient": bounds.gradient,
            "weight": bounds.weight,
        },
        "floor": FLOOR,
        "agree": _agree(results),
        "results": [result.as_json() for result in results],
    }
    finite: dict[str, Any] = _finite(document)
    return finite


def _finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON lacks."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list) else value


def _error(kind: str) -> Column:
    def cell(row: dict[str, Any]) -> str:
        worst = row["result"].worst(kind)
        return "" if worst is None else f"{worst:.1e}"

    return Column(kind.upper(), cell, right=True)


def _first(row: dict[str, Any]) -> str:
    first, layer = row["result"].first, row["result"].first_layer
    parts = []
    if first is not None and first != layer:
        parts.append(f"step {first['step']}: {first['kind'].replace('_', ' ')}")
    if layer is not None:
        name = layer["name"].rpartition(".")[2]
        what = f"gradient of {name}" if layer["kind"] == "gradient" else name
        parts.append(f"layer {layer['layer']}, step {layer['step']}: {what}")
    return "; ".join(parts)


COLUMNS = [
    Column("STRATEGY", lambda row: row["result"].strategy),
    Column("MESH", lambda row: row["result"].mesh),
    _error("loss"),
    _error("gradient"),
    _error("weight"),
    Column("VERDICT", lambda row: row["result"].verdict),
    Column("FIRST DIFFERENCE", _first),
]
