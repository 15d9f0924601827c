"""The command `what-if`: the recorded queue, replayed with other hardware, quotas or priorities."""

import re
from typing import Annotated, Any

import typer

from trainhall.cli.base import output as out
from trainhall.cli.base.connect import connect
from trainhall.cli.base.errors import UsageError
from trainhall.cli.base.options import DEFAULT_URL, Report, ReportFormat, Url
from trainhall.cluster.durations import format_duration
from trainhall.training.common.units import percent

_NODES = re.compile(r"(\d{1,6})x(\d{1,6})(?::(cpu|cuda))?")

Add = Annotated[
    list[str] | None,
    typer.Option(
        "--add", metavar="NODESxDEVICES",
        help="Add nodes, as in 2x8: two with eight devices each, of the kind that the cluster "
        "has; 1x64:cpu names it. May be repeated.",
    ),
]  # fmt: skip
Remove = Annotated[
    list[str] | None, typer.Option("--remove", metavar="NODE", help="Remove a node, by name.")
]
Quota = Annotated[
    list[str] | None,
    typer.Option(
        "--quota", metavar="KIND:NAME=DEVICES",
        help="Another quota, as in project:vision=8 or user:maria=4.",
    ),
]  # fmt: skip
Priority = Annotated[
    list[str] | None,
    typer.Option(
        "--priority", metavar="KIND:NAME=PRIORITY",
        help="Another priority of all jobs of a project or a user, as in user:maria=10.",
    ),
]  # fmt: skip
Days = Annotated[float, typer.Option("--days", help="Replay the jobs of so many days.")]


def what_if(
    add: Add = None,
    remove: Remove = None,
    quota: Quota = None,
    priority: Priority = None,
    days: Days = 30,
    output: Report = ReportFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Compare how long jobs would have waited with other hardware, quotas or priorities.

    The scheduler replays the recorded jobs on the cluster as it is and with the changes; nothing is
    changed.

    \b
    Examples:
      trainhall what-if --add 2x8
      trainhall what-if --remove gpu-03 --days 7
      trainhall what-if --quota project:vision=8 --priority user:maria=10
    """
    question = {
        "days": days,
        "add": [_nodes(text) for text in add or ()],
        "remove": remove or [],
        "quotas": _by_account("--quota", quota or ()),
        "priorities": _by_account("--priority", priority or ()),
    }
    with connect(url) as client:
        found = client.what_if(question)
        out.notice_if_simulated(client)
    print(_page(found) if output is ReportFormat.TABLE else out.rendered(found, output))


def _nodes(text: str) -> dict[str, Any]:
    match = _NODES.fullmatch(text)
    if match is None:
        raise UsageError(f"--add takes NODESxDEVICES, as in 2x8 or 1x64:cpu, not {text!r}")
    nodes, devices, kind = match.groups()
    return {"nodes": int(nodes), "devices": int(devices), "device": kind}


def _by_account(option: str, texts: Any) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {"projects": {}, "users": {}}
    for text in texts:
        match = re.fullmatch(r"(project|user):(.+)=(-?\d{1,9})", text)
        if match is None:
            raise UsageError(
                f"{option} takes project:NAME=NUMBER or user:NAME=NUMBER, not {text!r}"
            )
        kind, name, number = match.groups()
        found[f"{kind}s"][name] = int(number)
    return found


def _page(found: out.Json) -> str:
    before, after = found["before"], found["after"]
    rows = [
        _row("devices", "", _devices(before), _devices(after)),
        _row("never start", "", str(before["never_started"]), str(after["never_started"])),
        *(_waits(found, name, key) for name, key in _FIGURES.items()),
        *(
            [_row("first starts", "", str(before["first_starts"]), str(after["first_starts"]))]
            if found["never_ran"]
            else []
        ),
        _row(
            "utilization",
            "",
            percent(before["utilization"] / 100),
            percent(after["utilization"] / 100),
        ),
    ]
    parts = [_warning(found["warning"])] if found["warning"] else []
    parts.append(out.table(rows, _COLUMNS))
    parts += [
        text
        for side, name in ((before, "as it is"), (after, "with changes"))
        if (text := _causes(side, name))
    ]
    if found["accounts"]:
        parts.append(out.table(found["accounts"], _ACCOUNT_COLUMNS))
    cut = ", the newest of more" if found["is_cut"] else ""
    parts.append(
        f"Replayed jobs of {_days(found['days'])}: {found['jobs']}{cut}. Waits are those of the "
        f"{found['compared']} that start both without and with the changes.\n"
        f"Left out, as they were cancelled or paused before they ran: {found['left_out']}.\n"
        + _waiting(found)
        + "\n".join(f"- {text}" for text in found["assumptions"])
    )
    return "\n\n".join(part.rstrip("\n") for part in parts)


def _days(days: float) -> str:
    return "1 day" if days == 1 else f"{days:g} days"


def _warning(text: str) -> str:
    line = f"Warning: {text}"
    return typer.style(line, fg="red", bold=True) if out.colored() else line


def _causes(side: out.Json, name: str) -> str:
    """Say why jobs never start on one side."""
    lines = [
        f"- {cause['jobs']} job{'s' if cause['jobs'] != 1 else ''}: {cause['reason']}"
        for cause in side["causes"]
    ]
    if left := side["never_started"] - sum(cause["jobs"] for cause in side["causes"]):
        lines.append(f"- {left} more for other reasons")
    return "\n".join([f"Never start {name}:", *lines]) if lines else ""


def _never(account: out.Json) -> str:
    before, after = account["never_started_before"], account["never_started_after"]
    return str(before) if before == after else f"{before} → {after}"


def _waiting(found: out.Json) -> str:
    """Say what becomes of jobs that wait, maybe for hardware that the cluster lacks."""
    if not found["never_ran"]:
        return ""
    starts = found["after"]["first_starts"]
    return (
        f"Waiting and never run so far: {found['never_ran']}, of which {starts} would start with "
        "the changes.\n"
    )


_FIGURES = {"mean wait": "mean", "median wait": "median", "95 % wait": "p95", "longest wait": "max"}
_COLUMNS = [
    out.Column("", lambda row: row["name"]),
    out.Column("RECORDED", lambda row: row["recorded"], right=True),
    out.Column("REPLAYED", lambda row: row["before"], right=True),
    out.Column("WITH CHANGES", lambda row: row["after"], right=True),
]
_ACCOUNT_COLUMNS = [
    out.Column("KIND", lambda account: account["kind"]),
    out.Column("NAME", lambda account: account["name"]),
    out.Column("JOBS", lambda account: str(account["jobs"]), right=True),
    out.Column("NEVER START", _never, right=True),
    out.Column("MEAN WAIT", lambda account: _wait(account["before"], "mean"), right=True),
    out.Column("WITH CHANGES", lambda account: _wait(account["after"], "mean"), right=True),
]


def _row(name: str, recorded: str, before: str, after: str) -> out.Json:
    return {"name": name, "recorded": recorded, "before": before, "after": after}


def _waits(found: out.Json, name: str, key: str) -> out.Json:
    sides = (found["recorded"], found["before"]["waits"], found["after"]["waits"])
    return _row(name, *(_wait(waits, key) for waits in sides))


def _wait(waits: out.Json | None, key: str) -> str:
    return out.BLANK if waits is None else format_duration(waits[key])


def _devices(side: out.Json) -> str:
    names = {"cuda": "GPUs", "cpu": "CPU slots"}
    return ", ".join(f"{count} {names[kind]}" for kind, count in side["devices"].items()) or "none"
