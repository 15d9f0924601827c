"""View of `trainhall top`, drawn from one sample of the REST API."""

from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trainhall.cli.base.output import (
    BLANK,
    FOREIGN_JOB,
    STATE_COLORS,
    harmless,
    main_metric,
    number,
    ran,
    size,
    warnings,
)
from trainhall.cluster.durations import format_duration

Json = dict[str, Any]

NARROW = 110
"""Columns below which what can be missed is left out."""
BAR = 8
MAX_POWER = 700.0
"""Watts that fill a bar: what the largest boards draw."""


def view(seen: Json, width: int, height: int | None, problem: str | None = None) -> RenderableType:
    """Draw jobs above, devices below.

    Args:
        seen: `{jobs, finished, nodes, summary}` as the REST API returns them; a running job has
            a `pace` too: seconds per step, or None.
        height: lines there are; what does not fit is counted and not shown. None: no bound.
        problem: shown above everything.
    """
    jobs = [*seen["jobs"], *seen["finished"]]
    devices = [(node, device) for node in seen["nodes"] for device in node["devices"]]
    # Head lines, both tables' titles and their two "more" lines.
    rows = None if height is None else max(height - 8, 2)
    job_rows = None if rows is None else max(rows - min(len(devices), rows // 2), 1)
    device_rows = None if rows is None or job_rows is None else max(
        rows - min(len(jobs), job_rows), 1
    )  # fmt: skip
    parts: list[RenderableType] = [_head(seen)]
    if problem:
        parts.append(Text(problem, style="bold red"))
    whole_width = height is not None
    parts += [Text(), _jobs(jobs[:job_rows], width, whole_width)]
    parts += _more(len(jobs), job_rows, "jobs: `trainhall ls`")
    parts += [Text(), _devices(devices[:device_rows], width, whole_width)]
    parts += _more(len(devices), device_rows, "devices: `trainhall nodes ls`")
    return Group(*parts)


def _head(seen: Json) -> Text:
    summary = seen["summary"]
    counts = ", ".join(f"{count} {state}" for state, count in summary["jobs"].items() if count)
    nodes = "1 node" if summary["nodes"] == 1 else f"{summary['nodes']} nodes"
    text = f"{nodes}, {summary['devices_busy']} of {summary['devices']} devices busy"
    return Text(f"{text}; jobs: {counts or 'none'}", style="bold")


def _more(count: int, rows: int | None, what: str) -> list[RenderableType]:
    left = 0 if rows is None else count - rows
    return [Text(f"and {left} more {what}", style="dim")] if left > 0 else []


def _jobs(jobs: list[Json], width: int, expand: bool) -> RenderableType:
    if not jobs:
        return Text("No jobs. Submit one with `trainhall submit FILE`.", style="dim")
    table = _table(expand)
    for title in ("JOB", "NAME", "STATE"):
        table.add_column(title, no_wrap=True, max_width=24)
    for title in ("STEP", "METRIC", "SPEED"):
        table.add_column(title, justify="right", no_wrap=True)
    if width >= NARROW:
        table.add_column("LEFT", justify="right", no_wrap=True)
        table.add_column("WORKERS", justify="right")
        table.add_column("RAN", justify="right")
        # Where there is too little room, rich takes it from what may be wrapped: from this alone.
        table.add_column("REASON", overflow="ellipsis", ratio=1)
    for job in jobs:
        row: list[RenderableType] = [
            job["id"], _plain(job["name"]), _state(job["state"]), _progress(job),
            _plain(main_metric(job, named=width >= NARROW)),
            _speed(job),
        ]  # fmt: skip
        if width >= NARROW:
            reason = "" if job["reason"] == job["state"] else job["reason"] or ""
            reason = "; ".join(part for part in (*warnings(job), reason) if part)
            row += [_left(job), str(job["world_size"]), ran(job), _plain(reason)]
        table.add_row(*row)
    return table


def _devices(devices: list[tuple[Json, Json]], width: int, expand: bool) -> RenderableType:
    if not devices:
        return Text("No devices. Add a node with `trainhall nodes add`.", style="dim")
    table = _table(expand)
    table.add_column("NODE", no_wrap=True, max_width=24)
    table.add_column("DEVICE", no_wrap=True, max_width=34)
    for title in ("USE", "MEMORY"):
        table.add_column(title, no_wrap=True)
    table.add_column("TEMP", justify="right", no_wrap=True)
    table.add_column("POWER", no_wrap=True)
    table.add_column("JOB", no_wrap=True)
    for node, device in devices:
        state = "" if node["state"] == "ready" else f" {node['state']}"
        name = f"{device['index']} {'CPU' if device['kind'] == 'cpu' else device['name']}"
        name += ", gone" if device.get("gone") else ""
        use, power, heat = device["utilization"], device["power"], device["temperature"]
        table.add_row(
            Text(harmless(node["name"]) + state, style=STATE_COLORS.get(node["state"], "")),
            _plain(name),
            BLANK if use is None else _bar(use / 100, f"{use:3.0f} %"),
            _memory(device, width),
            BLANK if heat is None else Text(f"{heat:.0f} °C", style=_heat(heat)),
            BLANK if power is None else _bar(power / MAX_POWER, f"{power:.0f} W"),
            device["job_id"] or (FOREIGN_JOB if device["busy"] else BLANK),
        )
    return table


def _table(expand: bool) -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, expand=expand)


def _memory(device: Json, width: int) -> RenderableType:
    used, total = device["memory_used"], device["memory_total"]
    if used is None or not total:
        return BLANK
    text = f"{size(used)} / {size(total)}" if width >= NARROW else f"{100 * used / total:3.0f} %"
    return _bar(used / total, text)


def _bar(share: float, text: str) -> Text:
    full = round(min(max(share, 0.0), 1.0) * BAR)
    color = "red" if share > 0.95 else "yellow" if share > 0.8 else "green"
    return Text.assemble(("█" * full, color), ("░" * (BAR - full), "dim"), f" {text}")


def _heat(celsius: float) -> str:
    return "red" if celsius >= 85 else "yellow" if celsius >= 75 else ""


def _state(state: str) -> Text:
    return Text(state, style=STATE_COLORS.get(state, ""))


def _progress(job: Json) -> str:
    step, total = job["step"], job["total_steps"]
    return f"{step}/{total} {100 * step / total:3.0f} %" if total else str(step)


def _speed(job: Json) -> str:
    """Return samples per second of a running job; steps, where no samples are reported."""
    if job["state"] != "running":
        return BLANK
    speed, pace = job["metrics"].get("samples_per_second"), job.get("pace")
    if isinstance(speed, int | float):
        return f"{number(speed)}/s"
    return f"{1 / pace:.3g} steps/s" if isinstance(pace, int | float) and pace > 0 else BLANK


def _left(job: Json) -> str:
    """Time left, from the duration of the newest steps."""
    pace, total = job.get("pace"), job["total_steps"]
    if job["state"] != "running" or not total or not isinstance(pace, int | float):
        return BLANK
    return format_duration(pace * (total - job["step"]))


def _plain(text: str) -> Text:
    """Return foreign text without control characters."""
    return Text(harmless(text), no_wrap=True, overflow="ellipsis")
