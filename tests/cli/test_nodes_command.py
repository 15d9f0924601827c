"""`trainhall nodes remove` tells what it costs before it does it."""

from typing import Any

import pytest
import typer

from trainhall.cli import nodes
from trainhall.cli.errors import CliError, Usage

JOBS = {"j1": {"id": "j1", "name": "one", "state": "running", "step": 7},
        "j2": {"id": "j2", "name": "two", "state": "pausing", "step": 9}}  # fmt: skip


class Coordinator:
    """A client of a coordinator that knows two jobs and one node."""

    def __init__(self, *holders: str | None) -> None:
        self.found = {"id": "n1", "name": "gpu-07", "devices": [{"job_id": h} for h in holders]}
        self.removed: list[str] = []

    def __enter__(self) -> "Coordinator":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def node(self, _reference: str) -> Any:
        return self.found

    def get(self, path: str) -> Any:
        return JOBS[path.rpartition("/")[2]]

    def request(self, method: str, path: str) -> None:
        assert method == "DELETE"
        self.removed.append(path)


def remove(
    coordinator: Coordinator,
    monkeypatch: pytest.MonkeyPatch,
    *,
    yes: bool = False,
    answer: bool | None = None,
) -> None:
    """Run the command; `answer` is what a person at a terminal says, None: nobody is there."""
    monkeypatch.setattr(nodes, "connect", lambda _: coordinator)
    monkeypatch.setattr("sys.stdin.isatty", lambda: answer is not None, raising=False)
    monkeypatch.setattr(typer, "confirm", lambda *_, **__: answer)
    nodes.remove("gpu-07", yes=yes, url="http://lab:8000")


def test_an_idle_node_goes_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = Coordinator(None, None)
    remove(coordinator, monkeypatch)
    assert coordinator.removed == ["/cluster/nodes/n1"]


def test_jobs_that_would_move_are_named_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    coordinator = Coordinator("j2", "j1", "j1", None)
    remove(coordinator, monkeypatch, answer=True)
    assert coordinator.removed == ["/cluster/nodes/n1"]
    told = capsys.readouterr().err
    assert "Removing gpu-07 makes these jobs save and wait for other devices:" in told
    assert told.count("j1  one") == told.count("j2  two") == 1


def test_no_is_no_and_nobody_is_no(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = Coordinator("j1", "j2")
    with pytest.raises(CliError, match="gpu-07 stays"):
        remove(coordinator, monkeypatch, answer=False)
    with pytest.raises(Usage, match="2 jobs would move; --yes removes gpu-07 all the same"):
        remove(coordinator, monkeypatch)
    assert coordinator.removed == []
    remove(coordinator, monkeypatch, yes=True)
    assert coordinator.removed == ["/cluster/nodes/n1"]
