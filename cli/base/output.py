"""Output of commands: data on stdout in the requested format, messages on stderr."""

import io
import json
import math
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from trainhall.cli.base.options import Format, ReportFormat
from trainhall.cluster.durations import format_duration
from trainhall.training.common.units import MISSING, figure, size_text

if TYPE_CHECKING:
    from trainhall.cli.base.client import Client

Json = dict[str, Any]
BLANK = MISSING
STATE_COLORS = {
    **dict.fromkeys(("completed", "ready", "saved"), "green"),
    **dict.fromkeys(("running", "starting"), "cyan"),
    **dict.fromkeys(("failed", "lost", "corrupt"), "red"),
    **dict.fromkeys(("recovering", "suspect", "pausing", "paused", "cancelling"), "yellow"),
    **dict.fromkeys(("draining", "drained"), "yellow"),
}
"""As Rich and Typer name them."""
# Colours (SGR) may pass; what moves the cursor, sets titles or answers queries may not.
_SEQUENCE = re.compile(
    r"\x1b\[[0-9;:]*m"
    r"|\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_].*?(?:\x07|\x1b\\|$)|[ -/]*[0-~])"
    r"|[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]"
)
_COLOR = re.compile(r"\x1b\[[0-9;:]*m")
_BLANKS = re.compile(r"\s+")
_BREAK = re.compile(r"[\t\n\v\f\r\x85\u2028\u2029]")


MIN_WIDTH = 30
"""Cells that the last column of a table is to have, if others can be spared for it."""


@dataclass(frozen=True)
class Column:
    title: str
    cell: Callable[[Json], str]
    right: bool = False
    spare: int = 0
    """Above 0: it gives way where a terminal is narrow, the lowest first."""


def notice(message: str) -> None:
    """Print a message that is not data."""
    print(message, file=sys.stderr, flush=True)


def notice_if_simulated(client: "Client") -> None:
    """Warn once a command, on stderr, that mock mode is not the user's cluster."""
    if client.is_simulated():
        notice("Simulated (mock mode): the nodes and jobs are not real, and nothing runs.")


def colored(stream: Any = None) -> bool:
    """Return whether to colour: on a terminal, unless disabled (https://no-color.org)."""
    out = stream or sys.stdout
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and out.isatty()


def print_items(
    items: Sequence[Json],
    columns: Sequence[Column],
    output: Format,
    *,
    empty: str,
    wide: bool = True,
) -> None:
    """Print a list: a table with a line each, one JSON or YAML list, or ids.

    On a terminal lines end with it, unless they may be `wide`.
    """
    if output is Format.NAME:
        for item in items:
            print(item["id"])
    elif output is Format.TABLE:
        if items:
            fits = None if wide or not sys.stdout.isatty() else shutil.get_terminal_size().columns
            print(table(items, columns, color=colored(), fits=fits))
        else:
            notice(empty)
    else:
        print(rendered(list(items), output))


def print_item(item: Json, output: Format, table_text: Callable[[], str]) -> None:
    """Print one thing: its own page, JSON, YAML, or its id."""
    if output is Format.NAME:
        print(item["id"])
    elif output is Format.TABLE:
        print(table_text())
    else:
        print(rendered(item, output))


def rendered(data: Any, output: Format | ReportFormat) -> str:
    if output.value == "json":
        return json.dumps(data, indent=2, ensure_ascii=False)
    import yaml

    text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    return text.rstrip("\n")


def table(
    items: Sequence[Json],
    columns: Sequence[Column],
    *,
    color: bool = False,
    fits: int | None = None,
) -> str:
    """Align columns, two spaces apart.

    Args:
        fits: cells that a line has. Where the last column has little of them, those that can be
            spared give way; what it has beyond them is cut. None: it is as long as it needs to be.
    """
    from rich.cells import cell_len

    titles = [column.title for column in columns]
    rows = [[one_line(column.cell(item)) or BLANK for column in columns] for item in items]
    widths = [max(map(cell_len, cells)) for cells in zip(titles, *rows, strict=True)]
    kept = list(range(len(columns)))
    if fits is not None:
        kept = _fitting(columns, widths, fits)
        last = kept[-1]
        left = fits - sum(widths[i] + 2 for i in kept[:-1])
        widths[last] = min(widths[last], max(left, cell_len(titles[last])))
    return _drawn(
        [columns[i] for i in kept],
        [widths[i] for i in kept],
        [[row[i] for i in kept] for row in rows],
        color=color,
    )


def _drawn(
    columns: Sequence[Column], widths: Sequence[int], rows: Sequence[Sequence[str]], *, color: bool
) -> str:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="")
    for column, width in zip(columns, widths, strict=True):
        drawn.add_column(
            Text(column.title), justify="right" if column.right else "left", no_wrap=True,
            max_width=width,
        )  # fmt: skip
    for row in rows:
        drawn.add_row(
            *(Text(cell, STATE_COLORS.get(cell, "") if column.title == "STATE" else "")
              for column, cell in zip(columns, row, strict=True))
        )  # fmt: skip
    console = Console(
        file=io.StringIO(), color_system="standard" if color else None, force_terminal=color,
        # A height too, else Rich measures a terminal that it takes for a dumb one.
        width=sum(width + 2 for width in widths), height=len(rows) + 1,
    )  # fmt: skip
    with console.capture() as shown:
        console.print(drawn)
    return "\n".join(line.rstrip() for line in shown.get().rstrip("\n").split("\n"))


def _fitting(columns: Sequence[Column], widths: Sequence[int], fits: int) -> list[int]:
    """Return the numbers of the columns that stay; others give way to the last."""
    kept = list(range(len(columns)))
    wanted = min(MIN_WIDTH, widths[-1])
    for spared in sorted(
        (i for i in kept[:-1] if columns[i].spare), key=lambda i: columns[i].spare
    ):
        if fits - sum(widths[i] + 2 for i in kept[:-1]) >= wanted:
            break
        kept.remove(spared)
    return kept


def pairs(entries: Sequence[tuple[str, str]]) -> str:
    """Format named values, one a line."""
    width = max(len(name) for name, _ in entries) + 2
    color = colored()
    shown = [(name, one_line(text)) for name, text in entries]
    return "\n".join(
        f"{name:<{width}}{_painted(text) if color and name == 'state' else text or BLANK}"
        for name, text in shown
    )


FOREIGN_JOB = "a job of another project"
"""In place of the name of a job that one may not see."""


def label(thing: Json) -> str:
    """Name a job, an experiment or a node: the name, with the id behind it."""
    return f"{one_line(thing['name'])} ({thing['id']})"


def state_and_reason(state: str, reason: str | None) -> str:
    """Format a state and why, unless the reason only repeats the state."""
    return f"{state}: {one_line(reason)}" if reason and reason != state else state


def labelled_state(item: Json) -> str:
    """Format a job or an experiment after a command: which it is, its state and why."""
    return f"{label(item)}  {state_and_reason(item['state'], item['reason'])}"


def indented(text: str) -> str:
    return "\n".join("  " + line for line in text.splitlines())


def _painted(state: str) -> str:
    return typer.style(state, STATE_COLORS[state]) if state in STATE_COLORS else state


def harmless(text: str) -> str:
    """Clean text for a terminal: colours stay, other control sequences go."""
    return _SEQUENCE.sub(lambda m: m.group() if _COLOR.fullmatch(m.group()) else "", text)


def one_line(text: str) -> str:
    """Return foreign text as part of a line: without control sequences, colours and breaks."""
    folded = _BLANKS.sub(lambda m: " " if _BREAK.search(m.group()) else m.group(), text)
    return _SEQUENCE.sub("", folded)


def number(value: Any) -> str:
    """Format a measured value in few digits."""
    if value is None:
        return BLANK
    return figure(value) if isinstance(value, float) else str(value)


def main_metric(job: Json, *, named: bool = True) -> str:
    """Format the latest value of a job's main metric, with its name; blank before the first."""
    main = job["main_metric"]
    if main is None:
        return BLANK
    return metric(main["name"], main["value"]) if named else number(main["value"])


def metric(name: str, value: Any) -> str:
    """Format a named value, as `loss 0.412`; blank without a value."""
    return BLANK if value is None else f"{name} {number(value)}"


def measured(name: str, value: Any) -> str:
    """Return a metric in the unit that its name implies."""
    is_finite = isinstance(value, int | float) and math.isfinite(value)
    return size(round(value)) if is_finite and name.endswith("_bytes") else number(value)


def size(count: int | None) -> str:
    """Format bytes in binary units."""
    return BLANK if count is None else size_text(count)


def moment(time: str) -> str:
    """Format an RFC 3339 time to the second, in UTC as reasons and events are."""
    return f"{datetime.fromisoformat(time).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def age(time: str | None) -> str:
    """Return the time since an RFC 3339 time."""
    if time is None:
        return BLANK
    return format_duration((datetime.now(UTC) - datetime.fromisoformat(time)).total_seconds())


def warnings(job: Json) -> list[str]:
    """Return the warnings of a job that runs on, a line each."""
    lines = []
    if slow := job.get("straggler"):
        where = f" on {slow['node']}" if slow["node"] else ""
        lines.append(f"rank {slow['rank']}{where} is slow: {slow['ratio']:.2f} × the median")
    return lines + [one_line(text) for text in job.get("warnings", ())]


def ran(job: Json) -> str:
    """Return how long a job's attempts ran altogether, including a running one."""
    seconds, since = job["ran_seconds"], job["running_since"]
    if since is not None:
        seconds += (datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds()
    return format_duration(seconds) if job["attempt"] else BLANK
