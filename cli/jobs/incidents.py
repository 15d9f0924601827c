"""Failures of a job and their consequences, for `trainhall show`."""

from typing import Any

from trainhall.cli.base.client import Client
from trainhall.cli.base.errors import CliError
from trainhall.cli.base.output import age, harmless, indented

SHOWN = 3
"""Newest incidents that are shown in full."""


def incidents(client: Client, job: Any) -> str | None:
    """Return a job's newest incidents, newest first; None: nothing has failed in it."""
    if not job["attempt"]:
        return None
    try:
        attempts = list(client.items(f"/training/jobs/{job['id']}/attempts"))
    except CliError:
        return None  # how the job stands is known without it
    found = [
        (attempt["attempt"], incident)
        for attempt in reversed(attempts)
        for incident in reversed(attempt["timeline"])
        if not incident["is_move"]
    ]
    if not found:
        return None
    lines = [_describe_incident(number, incident) for number, incident in found[:SHOWN]]
    if len(found) > SHOWN:
        lines.append(f"and {len(found) - SHOWN} earlier; the job's page has all of them")
    return "Failures\n" + indented("\n".join(lines))


def _describe_incident(attempt: int, incident: Any) -> str:
    failure = incident["failure"]
    generation = f", generation {incident['generation']}" if incident["generation"] > 1 else ""
    when = f"{age(incident['detected_at'])} ago, " if incident["detected_at"] else ""
    who = [] if failure["rank"] is None else [f"rank {failure['rank']}"]
    who += [] if failure["node"] is None else [f"node {failure['node']}"]
    where = f" ({', '.join(who)})" if who else ""
    cause = failure["cause"].replace("_", " ")
    times = f": {incident['times']}" if incident["times"] else ""
    lines = [
        f"{when}attempt {attempt}{generation}: {cause}{where}",
        f"  {harmless(failure['message'])}",
        f"  {incident['done']}{times}",
    ]
    return "\n".join(lines)
