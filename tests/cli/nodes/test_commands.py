"""`trainhall nodes remove` and `drain`, with the jobs that have to move."""

from collections.abc import Callable
from typing import Any

import pytest
import typer

from trainhall.cli.base.errors import CliError, UsageError, WrongStateError
from trainhall.cli.nodes import commands as nodes

JOBS = {"j1": {"id": "j1", "name": "one", "state": "running", "step": 7},
        "j2": {"id": "j2", "name": "two", "state": "pausing", "step": 9}}  # fmt: skip


class Coordinator:
    """A client of a coordinator that knows two jobs and one node."""

    def __init__(self, *holders: str | None) -> None:
        devices = [
            {"job_id": h, "job_name": JOBS[h]["name"] if h else None, "busy": h is not None}
            for h in holders
        ]
        self.found = {"id": "n1", "name": "gpu-07", "devices": devices}
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


def test_idle_node_goes_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = Coordinator(None, None)
    remove(coordinator, monkeypatch)
    assert coordinator.removed == ["/cluster/nodes/n1"]


def test_jobs_that_would_move_are_named_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    coordinator = Coordinator("j2", "j1", "j1", None)
    remove(coordinator, monkeypatch, answer=True)
    assert coordinator.removed == ["/cluster/nodes/n1"]
    printed = capsys.readouterr().err
    assert "If gpu-07 is removed, these jobs save and wait for other devices:" in printed
    assert printed.count("j1  one") == printed.count("j2  two") == 1


def test_confirmation_defaults_to_no(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = Coordinator("j1", "j2")
    with pytest.raises(CliError, match="gpu-07 was not removed"):
        remove(coordinator, monkeypatch, answer=False)
    with pytest.raises(UsageError, match="2 jobs would have to move; confirm with --yes"):
        remove(coordinator, monkeypatch)
    assert coordinator.removed == []
    remove(coordinator, monkeypatch, yes=True)
    assert coordinator.removed == ["/cluster/nodes/n1"]


class Draining(Coordinator):
    """A node that drains for a while."""

    def __init__(self, *states: str) -> None:
        super().__init__("j1")
        self.states = list(states)
        self.sent: list[tuple[str, Any]] = []

    def get(self, _path: str) -> Any:
        return self._next()

    def request(self, method: str, path: str, json: Any = None) -> Any:
        self.sent.append((f"{method} {path}", json))
        return self._next()

    def _next(self) -> Any:
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        drain = None if state == "ready" else "dust"
        return {**self.found, "state": state, "reason": "why", "drain_reason": drain,
                "labels": {"rack": "c"}}  # fmt: skip


@pytest.fixture
def draining(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Draining]:
    def begin(*states: str) -> Draining:
        coordinator = Draining(*states)
        monkeypatch.setattr(nodes, "connect", lambda _: coordinator)
        monkeypatch.setattr(nodes, "POLL_SECONDS", 0.0)
        return coordinator

    return begin


def test_drain_is_waited_for(
    draining: Callable[..., Draining], capsys: pytest.CaptureFixture[str]
) -> None:
    coordinator = draining("draining", "draining", "drained")
    nodes.drain("gpu-07", reason="dust", wait=True, url="http://lab:8000")
    assert coordinator.sent == [("POST /cluster/nodes/n1/drain", {"reason": "dust"})]
    printed = capsys.readouterr()
    assert printed.out == "gpu-07  drained: why\n"
    assert printed.err == "Waiting for one (j1).\n", "once"


def test_drain_continues_after_its_timeout(draining: Callable[..., Draining]) -> None:
    draining("draining")
    with pytest.raises(typer.Exit) as ended:
        nodes.drain("gpu-07", wait=True, timeout=0.0, url="http://lab:8000")
    assert ended.value.exit_code == 101
    with pytest.raises(UsageError, match="--wait"):
        nodes.drain("gpu-07", timeout=1.0, url="http://lab:8000")


def test_drain_of_a_pending_node_returns(
    draining: Callable[..., Draining], capsys: pytest.CaptureFixture[str]
) -> None:
    draining("pending")
    nodes.drain("gpu-07", reason="dust", wait=True, timeout=5.0, url="http://lab:8000")
    assert capsys.readouterr().out == "gpu-07  pending: why\n"


@pytest.mark.parametrize(("state", "why"), [("ready", "undone"), ("lost", "is unknown")])
def test_drain_wait_ends_when_it_cannot_succeed(
    draining: Callable[..., Draining], state: str, why: str
) -> None:
    draining("draining", state)
    with pytest.raises(WrongStateError, match=why):
        nodes.drain("gpu-07", wait=True, url="http://lab:8000")


def test_labels_are_set_and_taken_away(draining: Callable[..., Draining]) -> None:
    coordinator = draining("ready")
    nodes.label("gpu-07", ["rack=c", "gpu-", "note=a=b-"], url="http://lab:8000")
    assert coordinator.sent == [
        ("PATCH /cluster/nodes/n1", {"labels": {"rack": "c", "gpu": None, "note": "a=b-"}})
    ]
    for bad in ("rack", "=c", "-", ""):
        with pytest.raises(UsageError, match="KEY=VALUE"):
            nodes.label("gpu-07", [bad], url="http://lab:8000")
