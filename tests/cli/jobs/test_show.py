"""The page that `trainhall show` prints of a job."""

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from trainhall.cli.base.errors import NotFoundError
from trainhall.cli.base.options import Format
from trainhall.cli.jobs import commands as jobs
from trainhall.cli.jobs.page import RECENT_EVENTS, recent_events, strategy

JOB: dict[str, Any] = {
    "name": "digits", "user": "maria", "project": "default", "state": "running", "reason": None,
    "step": 3, "total_steps": 9,
    "attempt": 0, "generation": 1, "world_size": 1, "priority": 0,
    "metrics": {}, "main_metric": None,
    "spec": {"script": {"path": "/train.py"}, "training": {"reproducible": False}},
    "parameters": {},
    "created_at": "2026-01-01T00:00:00Z", "ran_seconds": 0.0, "running_since": None,
}  # fmt: skip


def test_show_limits_the_checkpoint_list() -> None:
    saves = [*["not_saved"] * 25, *["checkpoint"] * 5]
    kinds = ["state", "failure", *["checkpoint"] * 20, "note", *saves]
    events = [{"seq": seq, "kind": kind} for seq, kind in enumerate(kinds)]
    shown = [(event["seq"], event["kind"]) for event in recent_events(events)]
    assert shown == [
        (0, "state"), (1, "failure"), (22, "note"), (51, "checkpoint"), (52, "checkpoint")
    ]  # fmt: skip


PACKAGES = {
    "attempt": 1, "host": "gpu-07", "python": "3.12.3", "os": "Linux", "cuda": None, "driver": None,
    "packages": {"numpy": "2.3.3"},
}  # fmt: skip


class Coordinator:
    """A client of a coordinator that knows one job with so many events."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __enter__(self) -> "Coordinator":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def job(self, reference: str) -> dict[str, Any]:
        return {**JOB, "id": f"{reference:0<12}"}

    def is_simulated(self) -> bool:
        return False

    def page_of(self, job_id: str) -> str:
        return f"http://lab:8000/jobs/{job_id}"

    def get(self, path: str, **_: Any) -> Any:
        if path.endswith("/packages"):
            return PACKAGES
        if path.endswith("/provenance"):
            return {"git": None, "command": ["trainhall", "submit", "job.yaml"]}
        raise NotFoundError(path)

    def items(self, path: str, **_: Any) -> Iterator[Any]:
        if path.endswith("/events"):
            for seq in range(self._number):
                yield {"seq": seq, "kind": "note", "time": "2026-01-01T00:00:00Z",
                       "reason": f"note {seq}", "data": {}}  # fmt: skip


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    def shown(number: int, **options: Any) -> str:
        monkeypatch.setattr(jobs, "connect", lambda _: Coordinator(number))
        jobs.show("3f2a", **options)
        return capsys.readouterr().out

    return shown


def test_show_lists_packages_on_request(shown: Any) -> None:
    printed = shown(0)
    assert "ran with  Python 3.12.3, 1 package, Linux" in printed
    assert "numpy" not in printed
    assert shown(0, packages=True).splitlines()[-1].split() == ["numpy", "2.3.3"]
    found = json.loads(shown(0, packages=True, output=Format.JSON))
    assert found["packages"] == PACKAGES


def test_main_metric_is_listed_first(shown: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = {
        "metrics": {"lr": 0.1, "train/loss": 0.4, "val/f1": 0.7},
        "main_metric": {"name": "val/f1", "value": 0.7, "goal": None},
    }
    monkeypatch.setattr(sys.modules[__name__], "JOB", JOB | metrics)
    listed = shown(0).partition("Metrics\n")[2].splitlines()
    assert [line.split()[0] for line in listed] == ["val/f1", "lr", "train/loss"]


def test_warnings_stand_below_the_reason(shown: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "warning" not in shown(0)
    slow = {"rank": 1, "ratio": 1.5, "node": "alpha"}
    warned = {"warnings": ["not saved:\x1b[2J\nno space"], "straggler": slow}
    monkeypatch.setattr(sys.modules[__name__], "JOB", JOB | warned)
    lines = [line.split(maxsplit=1) for line in shown(0).splitlines() if "warning" in line]
    assert lines == [
        ["warning", "rank 1 on alpha is slow: 1.50 × the median"],
        ["warning", "not saved: no space"],
    ]


def test_events_that_are_left_out_are_counted(shown: Any) -> None:
    page = shown(48)
    assert page.count(" note ") == 2 * RECENT_EVENTS
    assert "38 more; `trainhall show 3f2a00000000 --events` lists all of them" in page
    assert "more;" not in shown(RECENT_EVENTS)


def test_show_lists_all_events_on_request(shown: Any) -> None:
    page = shown(48, all_events=True)
    assert " note 0\n" in page
    assert "more;" not in page
    found = json.loads(shown(48, all_events=True, output=Format.JSON))
    assert [event["seq"] for event in found["events"]] == list(range(48))


@pytest.mark.parametrize(
    ("asked", "mesh", "text"),
    [
        (None, {"data": 2, "servers": 0}, "ddp"),
        ({"strategy": "fsdp"}, {"data": 2, "shard": 2, "servers": 0}, "fsdp, data 2 × shard 2"),
        ({"strategy": "pipeline"}, {"data": 1, "pipeline": 4}, "pipeline, pipeline 4"),
        ({"strategy": "auto"}, None, "auto"),
    ],
)
def test_show_prints_strategy_and_mesh(
    asked: dict[str, Any] | None, mesh: dict[str, int] | None, text: str
) -> None:
    spec = {"task": {"name": "digits"}} | ({"parallelism": asked} if asked else {})
    assert strategy({"spec": spec, "mesh": mesh}) == text


@pytest.mark.parametrize(("repeats", "expected"), [(1, "trial 3"), (2, "trial 3, repeat 2")])
def test_trial_names_experiment_and_parameters(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    repeats: int,
    expected: str,
) -> None:
    class WithExperiment(Coordinator):
        def job(self, reference: str) -> dict[str, Any]:
            parameters = {"lr": 0.0123456, "opt": "sgd"}
            run = {"id": "7c0d", "trial": 3, "repeat": 2}
            return {**super().job(reference), "parameters": parameters, "experiment": run}

        def get(self, path: str, **asked: Any) -> Any:
            if path == "/experiments/7c0d":
                return {"id": "7c0d", "name": "rates", "spec": {"repeats": repeats}}
            return super().get(path, **asked)

    monkeypatch.setattr(jobs, "connect", lambda _: WithExperiment(0))
    jobs.show("3f2a")
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert ["experiment", f"rates (7c0d), {expected}"] in lines
    assert ["parameters", "lr 0.01235, opt sgd"] in lines
