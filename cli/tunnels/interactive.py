"""`trainhall submit --interactive`: devices are held, and a command runs beside them."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainhall.cli.base import output as out
from trainhall.cli.base.client import Client
from trainhall.cli.base.errors import UsageError
from trainhall.cli.spec import specs
from trainhall.cli.spec.provenance import git_root
from trainhall.cli.tunnels import execute, terminal
from trainhall.cluster.durations import format_duration

if TYPE_CHECKING:
    from trainhall.training.spec import JobSpec

POLL_SECONDS = 0.5
"""Between two readings of the state of the job."""
_ENDED = ("completed", "failed", "cancelled", "cancelling", "paused", "pausing")
_INTERRUPTED = 130
_FAILED = 1


def spec_of(
    idle: float | None,
    overrides: list[str] | None,
    code: dict[str, str] | None = None,
    *,
    follow: bool,
) -> "JobSpec":
    """Return the spec of an interactive job in the present folder, whose git repository it sends.

    Args:
        code: repository that hosts clone instead.

    Raises:
        UsageError: the options exclude each other, or a value is not valid.
    """
    if follow:
        raise UsageError("--follow is for jobs that run by themselves; leave it out")
    here = Path.cwd()
    given = {"idle_seconds": idle} if idle is not None else {}
    document: dict[str, Any] = {"name": "interactive", "interactive": given}
    if code is not None:
        document["code"] = code
    elif (root := git_root(here)) is not None:
        document["code"] = str(root)
        out.notice(f"Code: {root} (the git repository), without what its ignore files name.")
    replaced = specs.parse_overrides(overrides)
    return specs.of_document(document, replaced, folder=here, name="the job", option="--set ")


def run(
    client: Client,
    job: out.Json,
    states: Iterable[out.Json],
    command: list[str],
    *,
    rm: bool,
) -> int:
    """Wait until a job runs, and run a command beside its first rank, or a shell; returns its exit
    code.

    Args:
        states: the job, again and again.
        rm: cancel the job afterwards. A job that has not begun is cancelled by Ctrl-C in any case.
    """
    job_id = job["id"]
    try:
        if not _is_running(states):
            return _FAILED  # it has ended, or somebody pauses it
    except KeyboardInterrupt:
        _leave(client, job_id, cancel=True)
        return _INTERRUPTED
    in_terminal = terminal.is_terminal()
    if in_terminal and not command:
        out.notice(f"{out.label(job)} runs; Ctrl-D leaves its shell.")
    path = f"/training/jobs/{job_id}/exec?rank=0"
    try:
        return asyncio.run(execute.execute(client, path, command, in_terminal=in_terminal))
    except KeyboardInterrupt:
        return _INTERRUPTED
    finally:
        _leave(client, job_id, cancel=rm)


def _leave(client: Client, job_id: str, *, cancel: bool) -> None:
    """Cancel a job that still holds its devices, or say how long it does."""
    job = client.job(job_id)
    if job["state"] in _ENDED:
        return
    if cancel:
        client.request("DELETE", f"/training/jobs/{job['id']}")
        out.notice(f"{out.label(job)} is being cancelled.")
        return
    devices = job["world_size"]
    idle = format_duration(job["interactive"]["idle_seconds"])
    out.notice(
        f"The job still holds {devices} device{'s' if devices != 1 else ''}, until it had no "
        f"session for {idle}. Enter it again: trainhall exec {job['id']}. "
        f"End it: trainhall cancel {job['id']}."
    )


def _is_running(states: Iterable[out.Json]) -> bool:
    """Wait until a job runs, and say what it waits for; return whether it does."""
    reason = ""
    for found in states:
        if found["state"] == "running":
            return True
        if found["state"] in _ENDED:
            text = out.state_and_reason(found["state"], found["reason"])
            out.notice(f"{out.label(found)} is {text}")
            return False
        if found["reason"] != reason:
            reason = found["reason"]
            out.notice(f"It is {out.state_and_reason(found['state'], reason)}")
    return False
