"""`trainhall reproduce`: a job once more, with the same code and spec."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainhall.cli.base import output as out
from trainhall.cli.base.connect import connect
from trainhall.cli.base.errors import WrongStateError
from trainhall.cli.base.options import DEFAULT_URL, Format, JobId, Output, Url

if TYPE_CHECKING:
    from trainhall.cli.base.client import Client

_OF_THE_FIRST = ("tags", "notes", "user")
"""Fields of a spec that belong to the first job alone."""
_DIVERGED = 1


def reproduce(
    job: JobId,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Show progress until the job has ended, and compare the results."
        ),
    ] = False,
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Submit a job once more: the same code, packages, parameters and seed.

    \b
    Examples:
      trainhall reproduce 3f2a
      trainhall reproduce 3f2a -f

    Tags, notes and pauses are left out; strategy `auto` takes the plan of the first job. With -f
    the hash chains of reproducible tasks are compared at the end, and packages and data sets
    that differ are shown.

    \b
    Exit codes with -f: those of submit; 1 if the chains differ.
    """
    with connect(url) as client:
        first = client.job(job)
        if first["spec"] is None:
            raise WrongStateError(f"{out.label(first)} runs elsewhere, and has no spec to repeat")
        origin = client.get(f"/training/jobs/{first['id']}/provenance")
        again = client.submit(document_of(first, origin))
        out.print_item(again, output, lambda: str(again["id"]))
        out.notice(f"Reproduces {out.label(first)}. See {client.page_of(again['id'])}")
        if not follow:
            if _is_reproducible(first):
                out.notice(
                    "Once it has ended, compare them with `trainhall verify --compare "
                    f"{first['id']} {again['id']}`."
                )
            return
        from trainhall.cli.jobs import follow as following

        code = following.until_final(client, again["id"])
        if code == 0:
            code = _compare(client, first, client.job(again["id"]))
        raise typer.Exit(code)


def document_of(job: out.Json, origin: out.Json) -> out.Json:
    """Return the spec of a job that repeats another one.

    Args:
        origin: provenance of the other job, of which the repository is the same.
    """
    spec = {name: value for name, value in job["spec"].items() if name not in _OF_THE_FIRST}
    if spec.get("training"):
        spec["training"] = {k: v for k, v in spec["training"].items() if k != "pause_at"}
    if not spec.get("training"):
        spec.pop("training", None)
    plan = job.get("plan")
    if plan and spec.get("parallelism", {}).get("strategy") == "auto":
        spec["parallelism"] = {**spec["parallelism"], **plan["parallelism"]}
    if isinstance(spec.get("code"), dict) and origin["git"] is not None:
        spec["code"] = {**spec["code"], "ref": origin["git"]["commit"]}
    command = [Path(sys.argv[0]).name, "reproduce", job["id"]]
    provenance: dict[str, Any] = {"command": command, "reproduces": job["id"]}
    if origin["git"] is not None:
        provenance["git"] = origin["git"]
    return {**spec, "provenance": provenance}


def _is_reproducible(job: out.Json) -> bool:
    return bool(((job["spec"] or {}).get("training") or {}).get("reproducible"))


def _compare(client: "Client", first: out.Json, again: out.Json) -> int:
    """Print how the results of two jobs differ; return the exit code."""
    from trainhall.cli.jobs.diff import differing_data, differing_packages

    different = differing_packages(client, first, again)
    if different:
        names = ", ".join(row["name"] for row in different)
        out.notice(f"Other versions than then: {names}.")
    if other_data := differing_data(client, first, again):
        names = ", ".join(row["name"] for row in other_data)
        out.notice(f"Other data than then: {names}.")
    if not _is_reproducible(first):
        out.notice("Results may differ in their last digits: training.reproducible is not set.")
        return 0
    from trainhall.cli.jobs.chains import JobChain, describe_result
    from trainhall.training.hash_chain.chain import compare

    result = compare(JobChain(client, first), JobChain(client, again))
    if result.step is not None:
        out.notice(describe_result(result))
        return _DIVERGED
    out.notice(f"Identical through step {result.compared:,}.")
    return 0
