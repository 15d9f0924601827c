"""Following a job tells every state that it was in, however short."""

from typing import Any

import pytest

from trainhall.cli import follow

JOB = {
    "name": "x", "state": "running", "reason": "every host runs its ranks", "step": 3,
    "total_steps": 9, "metrics": {},
}  # fmt: skip


class Coordinator:
    """Answers as a client of one, from what was written down."""

    def __init__(self, looks: list[tuple[str, list[tuple[str, str]]]]) -> None:
        self._looks = looks
        self._events: list[Any] = []

    def get(self, path: str) -> Any:
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


def test_states_between_two_looks_are_told_once_and_in_order(
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
