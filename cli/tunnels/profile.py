"""`trainhall profile`: where the time of a running job's steps goes."""

import os
import shlex
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from trainhall.cli.base import output as out
from trainhall.cli.base.connect import connect
from trainhall.cli.base.errors import CliError, UsageError
from trainhall.cli.base.options import DEFAULT_URL, Format, JobId, Output, Url
from trainhall.training.common.units import size_text

if TYPE_CHECKING:
    from trainhall.cli.base.client import Client

POLL_SECONDS = 0.5
STORED_SECONDS = 60.0
"""Longest wait for traces that ranks have written and the node has not sent."""


def profile(
    job: JobId,
    steps: Annotated[
        int, typer.Option("--steps", min=1, help="Number of steps to profile, at most 200.")
    ] = 20,
    ranks: Annotated[
        str | None,
        typer.Option(
            "--ranks", metavar="RANK,...", help="Only these ranks.", show_default="all ranks"
        ),
    ] = None,
    stacks: Annotated[
        bool, typer.Option("--stacks", help="Record the Python calls, too; steps take longer.")
    ] = False,
    memory: Annotated[
        bool, typer.Option("--memory", help="Record allocations of tensors, too.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the traces.")] = True,
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Profile the next steps of a running job, the same ones on all ranks.

    The traces are outputs of the job, below `profiles/`, and listed on its page. Perfetto,
    speedscope and chrome://tracing open them. A script is profiled if it calls
    trainhall.should_stop() after every step.

    \b
    Examples:
      trainhall profile 3f2a
      trainhall profile 3f2a --steps 5 --ranks 0,3 --stacks
      trainhall outputs get 3f2a profiles
    """
    body = {"steps": steps, "ranks": _ranks(ranks), "stacks": stacks, "memory": memory}
    with connect(url) as client:
        job_id = client.job_id(job)
        made = client.request("POST", f"/training/jobs/{job_id}/profile", json=body)
        if wait:
            made = _ended(client, job_id, made)
    out.print_item({"job_id": job_id, **made}, output, lambda: _text(job_id, made))
    if made["state"] == "failed":
        sys.exit(1)


def _ranks(text: str | None) -> list[int] | None:
    """Parse ranks as in `0,3`; None for all."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise UsageError(f"--ranks {text!r}: give ranks with commas between them, as in 0,3")
    return [int(part) for part in parts]


def _ended(client: "Client", job_id: str, profile: out.Json) -> out.Json:
    """Wait until a profile has ended and its traces are stored."""
    number, is_noted, stored_by = profile["id"], False, None
    while True:
        items = client.get(f"/training/jobs/{job_id}/profiles")["items"]
        found: out.Json | None = next((each for each in items if each["id"] == number), None)
        if found is None:
            raise CliError(f"profile {number} of job {job_id} is not listed any more")
        if found["first_step"] is not None and not is_noted:
            is_noted = True
            out.notice(f"profile {number} began with step {found['first_step']}")
        if found["state"] in ("completed", "failed"):
            now = time.monotonic()
            stored_by = now + STORED_SECONDS if stored_by is None else stored_by
            if all(trace["size"] is not None for trace in found["traces"]) or now > stored_by:
                return found
        time.sleep(POLL_SECONDS)


def _text(job_id: str, profile: out.Json) -> str:
    title = f"Profile {profile['id']} of job {job_id}: {profile['state']}"
    lines = [title]
    for trace in profile["traces"]:
        size = "not stored yet" if trace["size"] is None else size_text(trace["size"])
        steps = f"steps {trace['first_step']} to {trace['last_step']}"
        note = f"; {out.harmless(trace['note'])}" if trace["note"] else ""
        lines.append(f"  {trace['path']}  ({size}, {steps}{note})")
    lines += [
        f"  rank {problem['rank']} has no trace: {out.harmless(problem['message'])}"
        for problem in profile["problems"]
    ]
    if profile["traces"]:
        folder = os.path.dirname(profile["traces"][0]["path"])
        lines.append(f"Get them with: trainhall outputs get {job_id} {shlex.quote(folder)}")
    return "\n".join(lines)
