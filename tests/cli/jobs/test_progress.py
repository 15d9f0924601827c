"""What the progress of a job says of the time that is left."""

from typing import Any

import pytest

from trainhall.cli.jobs import progress
from trainhall.cli.jobs.progress import Progress


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def job(step: int, state: str = "running", attempt: int = 1, generation: int = 1) -> dict[str, Any]:
    return {
        "name": "a job", "state": state, "reason": "", "step": step, "total_steps": 100,
        "attempt": attempt, "generation": generation, "metrics": {}, "main_metric": None,
    }  # fmt: skip


def test_bar_is_drawn_before_the_first_look(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with Progress() as shown:
        shown._bar.refresh()
        shown.show(job(3))
    assert "3/100" in capsys.readouterr().err


def test_time_left_follows_from_new_steps_alone(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = Progress()

    def time_left(*given: Any, seconds: float = 10.0) -> str:
        clock.now += seconds
        shown.show(job(*given))
        return capsys.readouterr().err

    time_left(0)
    assert "left" not in time_left(0)
    assert "1 min 20 s left" in time_left(20, seconds=20.0)
    # It fails and begins again: nothing is known until there is a new step.
    for given in ((20, "recovering"), (20, "starting", 2), (20, "running", 2), (20, "running", 2)):
        assert "left" not in time_left(*given, seconds=60.0)
    assert "1 min 10 s left" in time_left(30, "running", 2)
    # A restart that was too quick to be seen.
    assert "left" not in time_left(30, "running", 3, seconds=300.0)
    assert "left" not in time_left(30, "running", 3, seconds=300.0)
    # Its ranks regroup in place.
    assert "1 min left" in time_left(40, "running", 3)
    assert "left" not in time_left(41, "running", 3, 2, seconds=300.0)
    assert "50 s left" in time_left(50, "running", 3, 2, seconds=9.0)


@pytest.mark.parametrize(
    ("metrics", "main", "shown"),
    [
        ({"loss": 0.5}, ("loss", 0.5), "step 4/100  loss 0.5\n"),
        ({"loss": 0.5}, ("eval_accuracy", 0.9), "step 4/100  loss 0.5  eval_accuracy 0.9\n"),
        ({"train/loss": 0.5}, ("train/loss", 0.5), "step 4/100  train/loss 0.5\n"),
        ({"loss": 0.5}, ("val/f1", None), "step 4/100  loss 0.5\n"),
    ],
)
def test_progress_shows_loss_and_main_metric(
    capsys: pytest.CaptureFixture[str],
    metrics: dict[str, float],
    main: tuple[str, float | None],
    shown: str,
) -> None:
    metric = {"name": main[0], "value": main[1], "goal": None}
    Progress().show(job(4) | {"metrics": metrics, "main_metric": metric})
    assert capsys.readouterr().err.endswith(shown)


def test_progress_shows_changing_reasons(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    shown = Progress()

    def line(reason: str, *, seconds: float) -> str:
        clock.now += seconds
        shown.show({**job(0, "queued"), "reason": reason})
        return capsys.readouterr().err

    shown.passed("queued", "submitted")
    assert capsys.readouterr().err == "queued: submitted\n"
    assert line("submitted", seconds=0.25) == ""
    assert line("needs 2 CPU slots: 1 free", seconds=0.25) == "queued: needs 2 CPU slots: 1 free\n"
    assert line("needs 2 CPU slots: 1 free", seconds=60) == ""
    assert line("needs 2 CPU slots: 0 free", seconds=1) == "queued: needs 2 CPU slots: 0 free\n"
    # Not with every look, however often it changes.
    assert line("needs 2 CPU slots: 1 free", seconds=1) == ""
    assert line("needs 2 CPU slots: 1 free", seconds=5) == "queued: needs 2 CPU slots: 1 free\n"
    # The events were read a moment after the job.
    shown.passed("starting", "granted")
    capsys.readouterr()
    assert line("needs 2 CPU slots: 0 free", seconds=60) == ""


def test_step_is_printed_once(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    shown = Progress()
    for step, attempt in ((40, 1), (40, 2), (30, 2)):
        clock.now += 10.0
        shown.show(job(step, attempt=attempt))
    lines = [line.split()[1] for line in capsys.readouterr().err.splitlines() if "step" in line]
    assert lines == ["40/100", "30/100"]
