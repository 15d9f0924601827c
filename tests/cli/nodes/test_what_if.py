"""`trainhall what-if`: what it asks for, and what it prints."""

from typing import Any

import pytest
from typer.main import get_command

from trainhall.cli.base import output as out
from trainhall.cli.base.errors import UsageError
from trainhall.cli.main import app
from trainhall.cli.nodes import what_if

WAITS = {"mean": 90.0, "median": 60.0, "p95": 300.0, "max": 3600.0}
ANSWER: dict[str, Any] = {
    "days": 7.0, "jobs": 12, "compared": 0, "no_longer_started": 10,
    "warning": "10 of 12 jobs would never start.",
    "left_out": 1, "never_ran": 3, "is_cut": True, "recorded": None,
    "before": {
        "devices": {"cuda": 8, "cpu": 4}, "waits": WAITS, "never_started": 2, "utilization": 80.4,
        "first_starts": 0, "causes": [{"reason": "needs 9 GPUs", "jobs": 1}],
    },
    "after": {
        "devices": {}, "waits": None, "never_started": 12, "utilization": 0.0, "first_starts": 2,
        "causes": [],
    },
    "accounts": [
        {"kind": "user", "name": "maria", "jobs": 3, "never_started_before": 0,
         "never_started_after": 3, "before": WAITS, "after": None},
    ],
    "assumptions": ["nodes stay in service"],
}  # fmt: skip


class Coordinator:
    def __init__(self, url: str) -> None:
        self.asked: list[Any] = []

    def __enter__(self) -> "Coordinator":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def what_if(self, question: Any) -> Any:
        self.asked.append(question)
        return ANSWER


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    made = Coordinator("")
    monkeypatch.setattr(what_if, "connect", lambda url: made)
    monkeypatch.setattr(out, "notice_if_simulated", lambda client: None)
    return made


def run(*arguments: str) -> None:
    get_command(app).main(["what-if", *arguments], prog_name="trainhall", standalone_mode=False)


def test_changes_are_asked_for(
    coordinator: Coordinator, capsys: pytest.CaptureFixture[str]
) -> None:
    run(
        "--add", "2x8", "--add", "1x64:cpu", "--remove", "gpu-03", "--days", "7",
        "--quota", "project:vision=8", "--priority", "user:maria=-5",
    )  # fmt: skip
    assert coordinator.asked == [{
        "days": 7.0,
        "add": [
            {"nodes": 2, "devices": 8, "device": None},
            {"nodes": 1, "devices": 64, "device": "cpu"},
        ],
        "remove": ["gpu-03"],
        "quotas": {"projects": {"vision": 8}, "users": {}},
        "priorities": {"projects": {}, "users": {"maria": -5}},
    }]  # fmt: skip
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["Warning: 10 of 12 jobs would never start.", ""]
    assert [line.split() for line in lines[2:5]] == [
        ["RECORDED", "REPLAYED", "WITH", "CHANGES"],
        ["devices", "—", "8", "GPUs,", "4", "CPU", "slots", "none"],
        ["never", "start", "—", "2", "12"],
    ]
    assert any(line.split() == ["longest", "wait", "—", "1", "h", "—"] for line in lines)
    assert any(
        line.split() == ["user", "maria", "3", "0", "→", "3", "1", "min", "30", "s", "—"]
        for line in lines
    )
    never = lines.index("Never start as it is:")
    assert lines[never + 1 : never + 3] == ["- 1 job: needs 9 GPUs", "- 1 more for other reasons"]
    assert "- 12 more for other reasons" in lines
    assert ["first", "starts", "—", "0", "2"] in [line.split() for line in lines]
    assert lines[-4:] == [
        "Replayed jobs of 7 days: 12, the newest of more. Waits are those of the 0 that start "
        "both without and with the changes.",
        "Left out, as they were cancelled or paused before they ran: 1.",
        "Waiting and never run so far: 3, of which 2 would start with the changes.",
        "- nodes stay in service",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--add", "2y8"), "--add takes NODESxDEVICES, as in 2x8 or 1x64:cpu, not '2y8'"),
        (("--quota", "vision=8"), "--quota takes project:NAME=NUMBER or user:NAME=NUMBER"),
        (("--priority", "user:maria=high"), "--priority takes project:NAME=NUMBER"),
    ],
)
def test_bad_change_is_refused(
    coordinator: Coordinator, arguments: tuple[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=message.replace("(", r"\(")):
        run(*arguments)
    assert coordinator.asked == []
