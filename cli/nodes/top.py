"""`trainhall top`: jobs and devices at a glance, live."""

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from trainhall.cli.base import output as out
from trainhall.cli.base.errors import FINAL, UnreachableError
from trainhall.cli.base.options import DEFAULT_URL, Url
from trainhall.cli.base.quantities import refresh_interval
from trainhall.cluster.lifecycle.states import JobState

if TYPE_CHECKING:
    from trainhall.cli.base.client import Client

ANSWER_SECONDS = 5.0
RECENT_FINISHED = 5
PACE_STEPS = 500
PACE_SECONDS = 60.0
UNFINISHED = [state for state in JobState if state not in FINAL]
FINISHED = list(FINAL)


def top(
    once: Annotated[
        bool, typer.Option("--once", help="Print the tables once and exit, as without a terminal.")
    ] = False,
    every: Annotated[
        float,
        typer.Option(
            "--every",
            parser=refresh_interval,
            metavar="DURATION",
            help="Time between refreshes.",
            show_default="1s",
        ),
    ] = 1.0,
    url: Url = DEFAULT_URL,
) -> None:
    """Watch jobs and devices in a live view.

    Jobs: progress, speed and time left. Devices: utilization, memory, temperature and power. Press
    q or Ctrl-C to quit, the space bar to refresh.

    \b
    Examples:
      trainhall top
      trainhall top --every 5s
      trainhall top --once
    """
    from trainhall.cli.base.client import Client

    if once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        with Client(url) as client:
            _print_once(client)
    else:
        # An unanswered poll is shown on the screen, where no key is read meanwhile.
        with Client(url, attempts=1, timeout=ANSWER_SECONDS) as client:
            _watch(client, every)


def _snapshot(client: "Client") -> out.Json:
    """Return one sample: `{jobs, finished, nodes, summary}`; a running job has its `pace`."""
    jobs = list(client.items("/training/jobs", state=UNFINISHED))
    for job in jobs:
        if job["state"] == "running":
            job["pace"] = job["metrics"].get("step_seconds") or _pace(client, job)
    return {
        "jobs": jobs,
        "finished": list(client.items("/training/jobs", limit=RECENT_FINISHED, state=FINISHED)),
        "nodes": list(client.items("/cluster/nodes")),
        "summary": client.get("/metrics/cluster/summary"),
    }


def _pace(client: "Client", job: out.Json) -> float | None:
    """Return seconds per step of a script, which reports steps and not their time."""
    # A loss is reported at every step, if anything is.
    names = [name for name in job["metrics"] if "loss" in name] or list(job["metrics"])
    if not job["step"] or not names:
        return None
    asked = {"names": names[0], "from_step": max(1, job["step"] - PACE_STEPS)}
    series = client.get(f"/metrics/jobs/{job['id']}", **asked)["series"]
    points: list[out.Json] = next((s["points"] for s in series if s["rank"] is None), [])
    times = [datetime.fromisoformat(point["time"]).timestamp() for point in points]
    # What lies further back may be from before a pause.
    recent = [i for i, time in enumerate(times) if time > times[-1] - PACE_SECONDS]
    if len(recent) < 2:
        return None
    seconds = times[-1] - times[recent[0]]
    steps = points[-1]["step"] - points[recent[0]]["step"]
    return seconds / steps if seconds > 0 and steps > 0 else None


def _print_once(client: "Client") -> None:
    from rich.console import Console

    from trainhall.cli.nodes.top_view import view

    # A pipe has no width; what a wide terminal shows is easier to take apart than folded lines.
    has_width = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    width = None if has_width else 160
    console = Console(width=width, no_color=not out.colored(), highlight=False)
    console.print(view(_snapshot(client), console.width, None))


def _watch(client: "Client", every: float) -> None:
    from rich.console import Console
    from rich.live import Live

    from trainhall.cli.nodes.top_view import view

    console = Console(no_color=not out.colored(), highlight=False)
    seen = _snapshot(client)
    with _keys() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
        problem: str | None = None
        while True:
            # Drawn again at each poll, so that it follows the size of the window.
            live.update(view(seen, console.width, console.height, problem), refresh=True)
            if pressed(every) == "q":
                return
            try:
                seen, problem = _snapshot(client), None
            except UnreachableError:
                time_text = time.strftime("%H:%M:%S")
                problem = (
                    f"{client.url} does not answer ({time_text}); showing the last known state"
                )


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Read single keys without showing them; Ctrl-C and the end of input count as q."""
    import termios
    import tty

    handle = sys.stdin.fileno()
    before = termios.tcgetattr(handle)
    tty.setcbreak(handle)
    try:
        yield partial(_pressed, handle)
    except KeyboardInterrupt:
        pass
    finally:
        termios.tcsetattr(handle, termios.TCSADRAIN, before)


def _pressed(handle: int, seconds: float) -> str:
    """Return the key pressed within so many seconds, in lower case; or nothing."""
    ready, _, _ = select.select([handle], [], [], seconds)
    if not ready:
        return ""
    data = os.read(handle, 64)
    return data.decode(errors="replace")[-1].lower() if data else "q"
