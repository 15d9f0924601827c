"""The lines that a built-in task writes for people."""

import os
from pathlib import Path

import pytest
from support.cluster.attempts import RankServer

from trainhall.training.link.launch import Command
from trainhall.training.loop import console
from trainhall.training.loop.console import Console


def test_console_output_comes_from_rank_0(ranks: RankServer, tmp_path: Path) -> None:
    spec = {
        "task": {"name": "digits", "params": {"hidden": [8]}},
        "resources": {"workers": 2},
        "training": {"steps": 6, "evaluate_every_steps": 3},
    }
    paused = ranks.run(tmp_path, spec, command=Command.PAUSE)
    names = [event["data"]["name"] for event in paused.events(kind="checkpoint")]
    resumed = ranks.run(tmp_path, spec, attempt=2, resume=names)
    first, second = (a.folder.stdout(0).read_text().splitlines() for a in (paused, resumed))
    assert first[0].endswith(" on 2 ranks (cpu): 1,438 samples, 610 parameters, 6 steps")
    assert first[1:] == ["step 1/6  checkpoint saved", "paused at step 1/6"]
    assert second[0].endswith("6 steps, resuming from step 1")
    assert second[1].startswith("step 3/6  eval_loss ")
    assert second[2].startswith("step 6/6  eval_loss ")
    assert second[3:] == ["step 6/6  checkpoint saved", "completed at step 6/6"]
    assert resumed.folder.stdout(1).read_text() == ""


def test_console_prints_progress_rarely(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with (tmp_path / "out").open("wb") as file:
        monkeypatch.setattr(console, "_STDOUT", file.fileno())
        output = Console(0, 50)
        for step in range(1, 51):
            now += 0.5
            output.progress(step, {"loss": 0.25, "accuracy": 1.0, "samples_per_second": 12345.6})
    assert (tmp_path / "out").read_text().splitlines() == [
        "step 20/50  loss 0.25  12,346 samples/s",
        "step 40/50  loss 0.25  12,346 samples/s",
    ]


def test_full_stdout_stops_no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    monkeypatch.setattr(console, "_STDOUT", writer)
    Console(0, 1).ended("completed", 1)
    os.close(writer)
