"""Positions of jobs in the queue over time, in words."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from trainhall.cli.base import output as out
from trainhall.cli.base.errors import CliError
from trainhall.cluster.durations import format_duration

if TYPE_CHECKING:
    from trainhall.cli.base.client import Client

_HOUR, _MINUTE = 3600.0, 60.0


def place_of(client: "Client", job: out.Json) -> str | None:
    """Describe a job's position in the queue, or how long it waited; None: it did not."""
    try:
        if job["state"] in ("queued", "recovering"):
            page = client.get("/cluster/queue", job_id=job["id"], history=True)
            for entry in page["items"]:
                was = earlier_position(entry["history"], entry["position"])
                return f"position {entry['position']}" + (f"; {was}" if was else "")
        history = client.get(f"/training/jobs/{job['id']}/queue-history")["items"]
    except CliError:
        return None  # how the job stands is known without it
    if not history:
        return None
    now = datetime.now(UTC).timestamp()
    waited = format_duration(sum(_end(each, now) - _time(each["since"]) for each in history))
    positions = [each["position"] for each in history]
    if len(set(positions)) == 1:
        return f"waited {waited}: position {positions[0]} all along"
    return f"waited {waited}: position {positions[0]} at first, at last {positions[-1]}"


def earlier_position(history: Sequence[out.Json], position: int) -> str:
    """Return the position an hour ago, or when a job was queued if that is later, as in
    `an hour ago: 7`; blank within the first minute, and if it is the present one."""
    now = datetime.now(UTC).timestamp()
    was = next((each for each in history if _end(each, now) > now - _HOUR), None)
    if was is None or was["position"] == position:
        return ""
    ago = min(_HOUR, now - _time(was["since"]))
    if ago < _MINUTE:
        return ""
    return f"{'an hour' if ago == _HOUR else format_duration(ago)} ago: {was['position']}"


def _end(each: out.Json, now: float) -> float:
    return now if each["until"] is None else _time(each["until"])


def _time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
