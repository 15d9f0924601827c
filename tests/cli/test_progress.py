"""What the progress of a job says of the time that is left."""

from typing import Any

import pytest

from trainhall.cli import progress
from trainhall.cli.progress import Progress


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def job(step: int, state: str = "running", attempt: int = 1) -> dict[str, Any]:
    return {
        "name": "a job", "state": state, "reason": "", "step": step, "total_steps": 100,
        "attempt": attempt, "metrics": {},
    }  # fmt: skip


def test_the_time_left_follows_from_new_steps_alone(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = Progress()

    def told(*given: Any, seconds: float = 10.0) -> str:
        clock.now += seconds
        shown.show(job(*given))
        return capsys.readouterr().err

    told(0)
    assert "left" not in told(0)
    assert "1m20s left" in told(20, seconds=20.0)
    # It fails and begins again: nothing is known until there is a new step.
    for given in ((20, "recovering"), (20, "starting", 2), (20, "running", 2), (20, "running", 2)):
        assert "left" not in told(*given, seconds=60.0)
    assert "1m10s left" in told(30, "running", 2)
    # A restart that was too quick to be seen.
    assert "left" not in told(30, "running", 3, seconds=300.0)
    assert "left" not in told(30, "running", 3, seconds=300.0)


def test_what_a_job_waits_for_is_told_as_it_changes(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = Progress()

    def told(reason: str, *, seconds: float) -> str:
        clock.now += seconds
        shown.show({**job(0, "queued"), "reason": reason})
        return capsys.readouterr().err

    shown.passed("queued", "submitted")
    assert capsys.readouterr().err == "queued: submitted\n"
    assert told("submitted", seconds=0.25) == ""
    assert told("needs 2 CPU slots: 1 free", seconds=0.25) == "queued: needs 2 CPU slots: 1 free\n"
    assert told("needs 2 CPU slots: 1 free", seconds=60) == ""
    assert told("needs 2 CPU slots: 0 free", seconds=1) == "queued: needs 2 CPU slots: 0 free\n"
    # Not with every look, however often it changes.
    assert told("needs 2 CPU slots: 1 free", seconds=1) == ""
    assert told("needs 2 CPU slots: 1 free", seconds=5) == "queued: needs 2 CPU slots: 1 free\n"
    # The events were read a moment after the job.
    shown.passed("starting", "granted")
    capsys.readouterr()
    assert told("needs 2 CPU slots: 0 free", seconds=60) == ""
