"""`trainhall profile` waits for the traces, and says where they are."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from trainhall.cli.base.errors import UsageError
from trainhall.cli.base.options import Format
from trainhall.cli.tunnels import profile

TRACE = {
    "rank": 3, "path": "my out/profiles/1/rank-3.json.gz", "size": 2048, "first_step": 41,
    "last_step": 60, "stall_seconds": 0.1, "note": "",
}  # fmt: skip
REQUESTED = {"id": 1, "state": "requested", "first_step": None, "traces": [], "problems": []}


class Coordinator:
    """Answers each poll with the next state of the profile."""

    def __init__(self, *states: dict[str, Any]) -> None:
        self.sent: list[Any] = []
        self._states = list(states)

    def job_id(self, reference: str) -> str:
        return f"{reference}9c51d07b"

    def request(self, method: str, path: str, json: Any) -> Any:
        self.sent.append((method, path, json))
        return REQUESTED

    def get(self, path: str) -> Any:
        return {"items": [REQUESTED | self._states.pop(0)]}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(profile, "POLL_SECONDS", 0.0)

    def profiled(coordinator: Coordinator, ranks: str | None = None, *, wait: bool = True) -> None:
        @contextlib.contextmanager
        def connect(url: str) -> Iterator[Coordinator]:
            yield coordinator

        monkeypatch.setattr(profile, "connect", connect)
        form = Format.TABLE if wait else Format.JSON
        profile.profile("3f2a", 20, ranks, True, False, wait, form, "http://lab:8000")

    return profiled


def test_profile_waits_until_traces_are_stored(
    run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    running = {"state": "running", "first_step": 41}
    unsent = {"state": "completed", "traces": [TRACE | {"size": None}]}
    coordinator = Coordinator({}, running, running | unsent, running | unsent | {"traces": [TRACE]})
    run(coordinator, "0, 3")
    body = {"steps": 20, "ranks": [0, 3], "stacks": True, "memory": False}
    assert coordinator.sent == [("POST", "/training/jobs/3f2a9c51d07b/profile", body)]
    printed = capsys.readouterr()
    assert printed.err == "profile 1 began with step 41\n"
    assert "my out/profiles/1/rank-3.json.gz  (2.0 KiB, steps 41 to 60)" in printed.out
    assert "trainhall outputs get 3f2a9c51d07b 'my out/profiles/1'" in printed.out


def test_failed_profile_says_why(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    problem = {"rank": 0, "message": "the disk is full"}
    with pytest.raises(SystemExit) as ended:
        run(Coordinator({"state": "failed", "problems": [problem]}))
    assert ended.value.code == 1
    assert "rank 0 has no trace: the disk is full" in capsys.readouterr().out


def test_no_wait_prints_the_request(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run(Coordinator(), wait=False)
    assert json.loads(capsys.readouterr().out)["state"] == "requested"


@pytest.mark.parametrize("ranks", ["", "0;3", "-1", "0,,1", "all"])
def test_wrong_ranks_are_a_usage_error(run: Any, ranks: str) -> None:
    with pytest.raises(UsageError, match="as in 0,3"):
        run(Coordinator(), ranks)
