"""`trainhall gradients`: which layer explodes, and which one is dead?"""

import time
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainhall.cli.base import output as out
from trainhall.cli.base.connect import connect
from trainhall.cli.base.errors import FINAL, CliError
from trainhall.cli.base.options import DEFAULT_URL, Format, JobId, Output, Url
from trainhall.cli.base.quantities import duration
from trainhall.training.common.units import percent

if TYPE_CHECKING:
    from trainhall.cli.base.client import Client

STEPS = 100
"""Number of steps in a median."""
WAIT_SECONDS = 0.25
TIMEOUT_SECONDS = 60.0


def gradients(
    job: JobId,
    capture: Annotated[
        bool,
        typer.Option(
            "--capture",
            help="Record the gradients of the next step, with histograms, and wait for them.",
        ),
    ] = False,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            parser=duration,
            metavar="DURATION",
            help="Longest wait, as in 90s or 10m.",
            show_default=f"{TIMEOUT_SECONDS:g}s",
        ),
    ] = TIMEOUT_SECONDS,
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Show gradient norms by parameter, at the latest recorded step.

    \b
    Examples:
      trainhall gradients 3f2a
      trainhall gradients 3f2a --capture
    """
    with connect(url) as client:
        job_id = client.job_id(job)
        path = f"/training/jobs/{job_id}/gradients"
        if capture:
            _capture(client, job_id, path, timeout)
        history = client.get(path, max_steps=STEPS)
        newest = history["steps"][-1] if history["steps"] else None
        if newest is None and output is Format.TABLE:
            out.notice(_no_gradients(client.job(job_id)))
            return
        entries: list[Any] = []
        if output is Format.TABLE and newest is not None:
            entries = client.get(f"{path}/{newest['step']}")["entries"]
    if output is not Format.TABLE or newest is None:
        out.print_item({"id": job_id, **history}, output, lambda: "")
        return
    out.notice(f"Step {newest['step']} of attempt {newest['attempt']}")
    print(out.table(_rows(history, entries), COLUMNS))


def _no_gradients(job: out.Json) -> str:
    if (job["spec"] or {}).get("script"):
        return (
            "Gradients are recorded for tasks only. A script can report what it computes, as in "
            "trainhall.report(gradient_norm=norm)."
        )
    return (
        "No gradients are recorded. --capture records those of the next step; "
        "training.capture_gradients_every_steps in the spec records them regularly."
    )


def remarkable(client: "Client", job: out.Json) -> str | None:
    """Return the gradient anomalies for `trainhall show`; None while none were captured."""
    if (job["spec"] or {}).get("script"):
        return None
    path = f"/training/jobs/{job['id']}/gradients"
    history = client.get(path, max_steps=STEPS)
    if not history["steps"]:
        return None
    findings = [
        f"{name} is {remark}"
        for name, remark in zip(history["names"], history["remarks"], strict=True)
        if remark is not None
    ]
    more = f", and {len(findings) - 3} more" if len(findings) > 3 else ""
    summary = ", ".join(findings[:3]) + more if findings else "no anomalies"
    return f"at step {history['steps'][-1]['step']}: {summary} (trainhall gradients {job['id']})"


def _capture(client: "Client", job_id: str, path: str, timeout: float) -> None:
    asked = client.request("POST", path)["asked"]
    deadline = time.monotonic() + timeout
    while True:
        # In this order: a job ends once all reports of its ranks are here.
        job = client.get(f"/training/jobs/{job_id}")
        if client.get(path, max_steps=1)["answered"] >= asked:
            return
        if job["state"] in FINAL:
            raise CliError(f"job {out.label(job)} is {job['state']}; no step was left to record")
        if time.monotonic() > deadline:
            raise CliError(
                f"no step was recorded within {timeout:g} s; the request remains, and the "
                "job's next step answers it"
            )
        time.sleep(WAIT_SECONDS)


def _rows(history: out.Json, entries: list[Any]) -> list[out.Json]:
    rows = []
    for i, (entry, remark) in enumerate(zip(entries, history["remarks"], strict=True)):
        norms = [step["norms"][i] for step in history["steps"]]
        known = [norm for norm in norms if isinstance(norm, int | float)]
        rows.append({**entry, "remark": remark, "median": median(known) if known else None})
    return rows


def _zeros(row: out.Json) -> str:
    histogram = row["histogram"]
    if histogram is None:
        return ""
    number = sum(histogram["counts"]) + histogram["zeros"] + histogram["not_finite"]
    return percent(histogram["zeros"] / max(number, 1))


COLUMNS = [
    out.Column("PARAMETER", lambda row: row["name"]),
    out.Column("NORM", lambda row: out.number(row["norm"]), right=True),
    out.Column("MEDIAN", lambda row: out.number(row["median"]), right=True),
    out.Column("MAX OVER RANKS", lambda row: out.number(row["largest"]), right=True),
    out.Column("ZEROS", _zeros, right=True),
    out.Column("REMARK", lambda row: row["remark"] or ""),
]
