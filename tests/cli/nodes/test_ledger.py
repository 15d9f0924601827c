"""`trainhall ledger`: what it asks for, and what it prints."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from typer.main import get_command

from trainhall.cli.base import output as out
from trainhall.cli.base.errors import UsageError
from trainhall.cli.main import app
from trainhall.cli.nodes import ledger

SUMS: dict[str, Any] = {
    "jobs": 2, "device_hours": 1234.56, "gpu_hours": 1234.56, "useful_hours": None,
    "data_hours": None, "redone_hours": None, "idle_hours": None, "not_measured_hours": 1234.56,
    "energy_kwh": 2.04, "metered_hours": 5.0, "cost": 99.5,
}  # fmt: skip
ROW = {**SUMS, "name": "maria", "job_id": "3f2a9c51d07b", "user": None, "project": None}


class Coordinator:
    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.items = [ROW]

    def __enter__(self) -> "Coordinator":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def pages(self, path: str, **params: Any) -> Iterator[Any]:
        self.asked.append({"path": path, **params})
        yield {"items": self.items, "total": SUMS, "currency": "EUR", "next_cursor": None}

    def text(self, path: str, **params: Any) -> str:
        self.asked.append({"path": path, **params})
        return "user,jobs\n"


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    made = Coordinator()
    monkeypatch.setattr(ledger, "connect", lambda url: made)
    monkeypatch.setattr(out, "notice_if_simulated", lambda client: None)
    return made


def run(*arguments: str) -> None:
    get_command(app).main(["ledger", *arguments], prog_name="trainhall", standalone_mode=False)


def test_lines_and_their_total_are_printed(
    coordinator: Coordinator, capsys: pytest.CaptureFixture[str]
) -> None:
    run()
    title, row, total = capsys.readouterr().out.splitlines()
    assert title.split()[:3] == ["USER", "JOBS", "DEVICE-HOURS"]
    assert title.split()[-1] == "EUR"
    figures = ["1,234.56", "—", "—", "—", "—", "1,234.56", "2.04", "0.41", "%", "99.50"]
    assert row.split() == ["maria", "2", *figures]
    assert total.split() == ["total", "2", *figures]
    run("--by", "job", "--since", "12h")
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["maria", "3f2a9c51d07b"]
    month, half_a_day = (datetime.fromisoformat(asked["since"]) for asked in coordinator.asked)
    assert timedelta(days=29.4) < half_a_day - month < timedelta(days=29.6)
    assert datetime.now(UTC) - half_a_day < timedelta(hours=12.1)


def test_ledger_is_printed_as_csv_and_json(
    coordinator: Coordinator, capsys: pytest.CaptureFixture[str]
) -> None:
    run("--csv", "--by", "project")
    assert capsys.readouterr().out == "user,jobs\n"
    assert coordinator.asked[0]["format"] == "csv"
    run("-o", "json")
    assert json.loads(capsys.readouterr().out)["items"] == [ROW]
    coordinator.items = []
    run()
    assert capsys.readouterr().err == "No attempt held devices in that time.\n"


def test_bad_option_is_refused(coordinator: Coordinator) -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        run("--csv", "-o", "json")
    with pytest.raises(UsageError, match="--since is too long"):
        run("--since", "99999999d")
    assert coordinator.asked == []


def test_little_is_not_shown_as_nothing() -> None:
    column = ledger._column("USEFUL", "useful_hours")
    shown = [column.cell({"useful_hours": hours}) for hours in (0.0, 0.001, 0.005, None)]
    assert shown == ["0.00", "<0.01", "0.01", "—"]
