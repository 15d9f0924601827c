"""`trainhall doctor`: whether this host can do what Trainhall asks of it, and what to do if not."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainhall.api.host.config_file import user_data_dir
from trainhall.cli.base import output as out
from trainhall.cli.base.options import DEFAULT_URL, Report, ReportFormat, Url

if TYPE_CHECKING:
    from trainhall.cli.nodes.doctor_checks import Check

MARKS = {"ok": ("ok  ", "green"), "warn": ("warn", "yellow"), "fail": ("FAIL", "red")}


def doctor(
    path: Annotated[
        Path | None,
        typer.Option("--path", help="Shared checkpoint storage to test.", metavar="FOLDER"),
    ] = None,
    port: Annotated[
        int, typer.Option("--port", min=1, max=65535, help="The coordinator's port.")
    ] = 8000,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            envvar="TRAINHALL_DATA_DIR",
            help="Data folder to check.",
            show_default="the coordinator's on this host, else that of `up`",
            file_okay=False,
        ),
    ] = None,
    form: Report = ReportFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Check this host, and say what to do about each problem.

    Looks at Python, PyTorch, GPUs, disk, limits, network and the coordinator.

    \b
    Examples:
      trainhall doctor
      trainhall doctor --url http://lab:8000 --path /mnt/shared/checkpoints

    \b
    Exit codes: 0 nothing failed (there may be warnings), 1 something failed.
    """
    from trainhall.cli.base.running import data_dir_of
    from trainhall.cli.nodes.doctor_checks import all_checks

    folder = data_dir or data_dir_of(url) or user_data_dir()
    checks = all_checks(
        url=url.rstrip("/"),
        # No coordinator is needed here unless its address is given.
        needs_coordinator=url != DEFAULT_URL,
        port=port,
        data_dir=folder.absolute(),
        shared=path,
    )
    found = []
    for check in checks:
        found.append(check)
        if form is ReportFormat.TABLE:
            print(_line(check), flush=True)
    if form is not ReportFormat.TABLE:
        items = [vars(check) for check in found]
        print(out.rendered(items, form))
    out.notice(_summary(found))
    raise typer.Exit(1 if any(check.status == "fail" for check in found) else 0)


def _line(check: "Check") -> str:
    mark, color = MARKS[check.status]
    shown = typer.style(mark, color) if out.colored() else mark
    remedy = f"\n      → {check.remedy}" if check.remedy else ""
    return f"{shown}  {check.name}: {check.detail}{remedy}"


def _summary(checks: "Sequence[Check]") -> str:
    failed = sum(check.status == "fail" for check in checks)
    warned = sum(check.status == "warn" for check in checks)
    if not failed and not warned:
        return "All checks passed."
    warnings = "1 warning" if warned == 1 else f"{warned} warnings"
    return f"{failed} failed, {warnings}, {len(checks) - failed - warned} ok."
