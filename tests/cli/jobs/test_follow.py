"""Following a job tells every state that it was in, however short."""

from types import SimpleNamespace
from typing import Any

import pytest

from trainhall.cli.base.errors import NotFoundError, UnreachableError
from trainhall.cli.jobs import follow

JOB = {
    "name": "x", "state": "running", "reason": "every host runs its ranks", "step": 3,
    "total_steps": 9, "metrics": {}, "main_metric": None, "attempt": 1, "world_size": 2, "spec": {},
}  # fmt: skip


class Coordinator:
    """Answers as a client of one, from what was written down."""

    def __init__(self, looks: list[tuple[str, list[tuple[str, str]]]]) -> None:
        self._looks = looks
        self._events: list[Any] = []

    def request(self, method: str, path: str, *, deadline: float) -> Any:
        assert path == "/training/jobs/j"
        state, events = self._looks.pop(0)
        self._events += [
            {"seq": 3 * (len(self._events) + i), "kind": "state", "reason": why,
             "data": {"state": passed}}
            for i, (passed, why) in enumerate(events, 1)
        ]  # fmt: skip
        return {**JOB, "state": state, "reason": "as it is now"}

    def items(self, path: str, *, after: int) -> list[Any]:
        assert path == "/training/jobs/j/events"
        return [e for e in self._events if e["seq"] > after]


def test_follow_prints_missed_states_in_order(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "WATCH_SECONDS", 0)
    client: Any = Coordinator([
        # The events were read a moment after the job.
        ("queued", [("queued", "submitted"), ("starting", "granted")]),
        ("running", [("running", "every host runs its ranks"), ("recovering", "rank 1 died"),
                     ("starting", "attempt 2"), ("running", "running")]),
        ("completed", [("completed", "every rank ended with 0")]),
    ])  # fmt: skip
    assert follow.until_final(client, "j") == 0
    assert [line for line in capsys.readouterr().err.splitlines() if "step" not in line] == [
        "queued: submitted",
        "starting: granted",
        "running: every host runs its ranks",
        "recovering: rank 1 died",
        "starting: attempt 2",
        "running",
    ]


class Scripted:
    """A job whose script writes between two looks, its last line after its end was seen."""

    def __init__(self, pages: list[list[str]]) -> None:
        self._pages = pages
        self._states = ["running", "completed"]

    def request(self, method: str, path: str, *, deadline: float) -> Any:
        assert path == "/training/jobs/j"
        state = self._states.pop(0)
        return {**JOB, "state": state, "step": 0, "total_steps": None,
                "spec": {"script": {"path": "/x.py"}}}  # fmt: skip

    def get(self, path: str, **asked: Any) -> Any:
        assert (path, asked["rank"]) == ("/training/jobs/j/logs", 0)
        lines = self._pages.pop(0) if self._pages else []
        items = [{"text": line, "rank": 0} for line in lines]
        return {"items": items, "next_cursor": "later" if lines else None}

    def items(self, path: str, *, after: int) -> list[Any]:
        return []


def test_follow_prints_script_output(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "WATCH_SECONDS", 0)
    monkeypatch.setattr(follow, "POLL_SECONDS", 0)
    monkeypatch.setattr(follow, "LAST_LINES_SECONDS", 0.01)
    monkeypatch.setattr(follow, "PAGE", 2)
    # A full page may have another one behind it; one that is not is all that there is by now.
    client: Any = Scripted([["hello", "[bold]\x1b[2Jloss 3"], ["more"], [], ["bye"]])
    assert follow.until_final(client, "j") == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    shown = [line for line in lines if not line.startswith(("running", "x completed"))]
    assert shown[0] == "(Output of rank 0; `trainhall logs -f j` shows every rank.)"
    assert [shown[1], *shown[3:]] == ["hello", "more", "bye"]
    assert "[bold]" in shown[2]
    assert "\x1b" not in shown[2]


def test_traceback_comes_before_the_restart(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Restarted(Scripted):
        def items(self, path: str, *, after: int) -> list[Any]:
            state = {"seq": 1, "kind": "state", "reason": "ValueError: x; restart 1 of 3"}
            return [] if after else [{**state, "data": {"state": "recovering"}}]

    monkeypatch.setattr(follow, "WATCH_SECONDS", 0)
    monkeypatch.setattr(follow, "POLL_SECONDS", 0)
    monkeypatch.setattr(follow, "LAST_LINES_SECONDS", 0.01)
    client: Any = Restarted([["Traceback", "ValueError: x"]])
    follow.until_final(client, "j")
    lines = capsys.readouterr().err.splitlines()
    assert lines.index("ValueError: x") < lines.index("recovering: ValueError: x; restart 1 of 3")


def test_follow_waits_for_a_last_line_without_a_break(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "WATCH_SECONDS", 0)
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(follow, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    # The coordinator holds it back for a second.
    client: Any = Scripted([["first"], [], [], [], ["no line break"]])
    assert follow.until_final(client, "j") == 0
    assert "no line break" in capsys.readouterr().err.splitlines()


class Away:
    """Answers `looks` times and then no more; the clock is moved by waiting alone."""

    def __init__(self, looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self._looks = looks
        clock = SimpleNamespace(monotonic=lambda: self.now, sleep=self._sleep)
        monkeypatch.setattr(follow, "time", clock)

    def _sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds

    def request(self, method: str, path: str, *, deadline: float) -> Any:
        self._looks -= 1
        if self._looks < 0:
            raise UnreachableError("no coordinator answers")
        return {**JOB, "state": "running"}


def test_timeout_holds_while_the_coordinator_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    client: Any = Away(1, monkeypatch)
    job = follow.watch(client, "j", lambda job: None, 0.4, deadline=101.0)
    assert job["state"] == "running", "as it was known last"
    assert client.now == pytest.approx(101.0)


def test_follow_shows_elapsed_times_as_elapsed(monkeypatch: pytest.MonkeyPatch) -> None:
    client: Any = Away(0, monkeypatch)

    def slow(_: str) -> None:
        client.now += 0.02

    monkeypatch.setattr(follow, "notice", slow)
    with pytest.raises(UnreachableError):
        follow.watch(client, "j", lambda job: None, 0.4, deadline=100.01)


def test_timeout_is_not_waited_beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    client: Any = Away(100, monkeypatch)
    follow.watch(client, "j", lambda job: None, 0.4, deadline=101.0)
    assert client.now == pytest.approx(101.0)


def test_follow_reports_an_unknown_job(monkeypatch: pytest.MonkeyPatch) -> None:
    client: Any = Away(0, monkeypatch)
    with pytest.raises(UnreachableError):
        follow.watch(client, "j", lambda job: None, 0.4, deadline=101.0)
    assert client.now == pytest.approx(101.0)


def test_without_a_timeout_patience_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    client: Any = Away(1, monkeypatch)
    with pytest.raises(UnreachableError):
        follow.watch(client, "j", lambda job: None, 1.0)
    assert follow.PATIENCE_SECONDS < client.now - 100 < follow.PATIENCE_SECONDS + 3


def test_follow_sanitizes_the_final_reason(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failed:
        def job_id(self, reference: str, deadline: float) -> str:
            return reference

        def request(self, method: str, path: str, *, deadline: float) -> Any:
            reason = "rank 0 failed: \x1b]0;title\x07\x1b[2Jbad\nvalue"
            return {**JOB, "id": "j", "state": "failed", "reason": reason}

        def items(self, path: str, **asked: Any) -> list[Any]:
            return []

    client: Any = Failed()
    assert follow.wait(client, "j") == 100
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "x failed at step 3: rank 0 failed: bad value"


class Ended:
    """Jobs by the state that each look sees next; the last one stays."""

    def __init__(self, **states: list[str]) -> None:
        self._states = states

    def job_id(self, reference: str, deadline: float) -> str:
        if reference not in self._states:
            raise NotFoundError(f"there is no job {reference!r}")
        return reference

    def request(self, method: str, path: str, *, deadline: float) -> Any:
        job_id = path.rpartition("/")[2]
        left = self._states[job_id]
        if left[0] == "interrupted":
            raise KeyboardInterrupt
        state = left.pop(0) if len(left) > 1 else left[0]
        return {**JOB, "id": job_id, "name": job_id, "state": state, "reason": state}

    def items(self, path: str, **asked: Any) -> list[Any]:
        return []


@pytest.mark.parametrize(
    ("states", "code", "printed"),
    [
        ({"a": ["running", "completed"], "b": ["completed"]}, 0, ["a completed", "b completed"]),
        ({"a": ["failed"], "b": ["running", "cancelled"]}, 100, ["a failed", "b cancelled"]),
        ({"a": ["cancelled"], "b": ["completed"]}, 103, ["a cancelled", "b completed"]),
        ({"b": ["completed"]}, 102, ["trainhall: there is no job 'a'", "b completed"]),
        ({"a": ["interrupted"], "b": ["failed"]}, 101, []),
    ],
)
def test_wait_returns_the_worst_of_several(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    states: dict[str, list[str]],
    code: int,
    printed: list[str],
) -> None:
    monkeypatch.setattr(follow, "POLL_SECONDS", 0)
    client: Any = Ended(**states)
    assert follow.wait_all(client, ["a", "b"], None) == code
    lines = capsys.readouterr().err.splitlines()
    ends = [line.split(" at step")[0] for line in lines if not line.startswith("View all logs")]
    assert ends == printed


def test_wait_shares_its_timeout_among_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    client: Any = Away(100, monkeypatch)
    monkeypatch.setitem(JOB, "id", "j")
    client.job_id = lambda reference, deadline: reference
    assert follow.wait_all(client, ["j", "j"], 1.0) == 101
    assert client.now == pytest.approx(101.0)
