"""What `trainhall diff` prints of two jobs."""

import json
from typing import Any

import pytest

from trainhall.cli.base.errors import NotAllowedError
from trainhall.cli.base.options import ReportFormat
from trainhall.cli.jobs import diff as command

SPEC: dict[str, Any] = {"name": "a", "parameters": {"lr": 0.1}, "code": "1"}
JOBS = {"a": SPEC, "b": {**SPEC, "parameters": {"lr": 0.2}, "code": "2"}}
ITEMS = [
    {"path": "train.py", "change": "changed", "diff": "-lr = 0.1\n+lr = 0.2"},
    {"path": "logo.png", "change": "added", "diff": None},
]


class Coordinator:
    reads_code = True
    is_in_git = False

    def __enter__(self) -> "Coordinator":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def job(self, reference: str) -> Any:
        return {"id": reference, "spec": JOBS[reference]}

    def get(self, path: str, **query: str) -> Any:
        job, _, what = path.removeprefix("/training/jobs/").partition("/")
        match what:
            case "packages":
                return {"attempt": 1, "python": "3.12", "os": "Linux", "cuda": None, "driver": None,
                        "packages": {"torch": f"2.1{job}"}}  # fmt: skip
            case "provenance":
                return {"git": None, "command": None}
        assert query == {"other": "b"}
        if not self.reads_code:
            raise NotAllowedError("no")
        if self.is_in_git:
            return {"identical": None, "items": []}
        return {"identical": False, "items": ITEMS}


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    coordinator = Coordinator()
    monkeypatch.setattr(command, "connect", lambda _: coordinator)
    return coordinator


def test_diff_shows_spec_packages_and_code(
    coordinator: Coordinator, capsys: pytest.CaptureFixture[str]
) -> None:
    command.diff("a", "b")
    text = capsys.readouterr().out
    lines = [line.split() for line in text.splitlines()]
    assert ["parameters.lr", "0.1", "0.2"] in lines
    assert ["torch", "2.1a", "2.1b"] in lines
    assert "+lr = 0.2" in text
    assert "added: logo.png (binary or large)" in text
    command.diff("a", "b", output=ReportFormat.JSON)
    assert json.loads(capsys.readouterr().out)["code"] == ITEMS


def test_diff_says_that_code_is_not_compared(
    coordinator: Coordinator, capsys: pytest.CaptureFixture[str]
) -> None:
    coordinator.reads_code = False
    command.diff("a", "b")
    assert "your role may not read it" in capsys.readouterr().err


def test_code_in_git_is_compared_by_commit(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    coordinator.is_in_git = True
    code = {"git": "https://git.example/lab", "ref": "main"}
    monkeypatch.setitem(JOBS, "a", {**SPEC, "code": code})
    monkeypatch.setitem(JOBS, "b", {**SPEC, "code": {**code, "ref": "v2"}})
    command.diff("a", "b")
    printed = capsys.readouterr()
    assert ["code.ref", "main", "v2"] in [line.split() for line in printed.out.splitlines()]
    assert "Code: identical" not in printed.out
    assert "only the commits" in printed.err
