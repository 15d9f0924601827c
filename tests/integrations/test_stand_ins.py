"""Callbacks without their libraries: which calls of the SDK they make, and what they refuse."""

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from trainhall.integrations import metrics
from trainhall.training.sdk import api

NAMES = ("transformers", "lightning")


class Sdk:
    """Takes the place of a job's session."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.stops = False

    def init(self, **options: Any) -> Any:
        self.calls.append(("init", options["total_steps"]))
        return SimpleNamespace(job_id="job")

    def report(self, values: Any = None, *, step: int) -> None:
        self.calls.append(("report", (dict(values or {}), step)))

    def should_stop(self) -> bool:
        return self.stops

    def resume_own(self, step: int) -> None:
        self.calls.append(("resume_own", step))

    def leave(self, saved: str) -> None:
        self.calls.append(("leave", saved))


@pytest.fixture
def sdk(monkeypatch: pytest.MonkeyPatch) -> Sdk:
    sdk = Sdk()
    for name in ("init", "report", "should_stop", "resume_own", "leave"):
        monkeypatch.setattr(api, name, getattr(sdk, name))
    return sdk


@pytest.fixture
def transformers(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = ModuleType("transformers")
    module.TrainerCallback = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "transformers", module)
    monkeypatch.delitem(sys.modules, "trainhall.integrations.transformers", raising=False)
    return importlib.import_module("trainhall.integrations.transformers")


@pytest.mark.parametrize("name", NAMES)
def test_missing_library_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"trainhall.integrations.{name}", raising=False)
    with pytest.raises(ImportError, match=f"integrations.{name} needs the package {name}"):
        importlib.import_module(f"trainhall.integrations.{name}")


def test_trainer_saves_and_leaves_when_asked(transformers: Any, sdk: Sdk) -> None:
    callback = transformers.TrainhallCallback()
    state = SimpleNamespace(global_step=20, max_steps=100, is_world_process_zero=True)
    control = SimpleNamespace(should_save=False, should_training_stop=False)
    callback.on_train_begin(None, state, control)
    state.global_step = 21
    callback.on_step_end(None, state, control)
    callback.on_log(None, state, control, logs={"loss": 0.5, "note": "text"})
    assert not control.should_save
    sdk.stops = True
    state.global_step = 22
    callback.on_step_end(None, state, control)
    assert control.should_save
    assert control.should_training_stop
    callback.on_train_end(None, state, control)
    assert sdk.calls == [
        ("init", 100),
        ("resume_own", 20),
        ("report", ({}, 21)),
        ("report", ({"loss": 0.5}, 21)),
        ("report", ({}, 22)),
        ("leave", "checkpoint-22"),
    ]


def test_half_written_checkpoints_are_skipped(transformers: Any, tmp_path: Path) -> None:
    assert transformers.newest_checkpoint(tmp_path / "none") is None
    states = {"checkpoint-9": "{}", "checkpoint-10": json.dumps({}), "checkpoint-11": "{"}
    for name, text in states.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "trainer_state.json").write_text(text)
    (tmp_path / "checkpoint-12").mkdir()
    (tmp_path / "checkpoint-best").mkdir()
    assert transformers.newest_checkpoint(tmp_path) == str(tmp_path / "checkpoint-10")


def test_refused_metric_stops_no_training(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reported: list[Any] = []

    def report(values: dict[str, Any], *, step: int) -> None:
        if "bad" in values:
            raise ValueError("no name of a metric")
        reported.append((values, step))

    monkeypatch.setattr(api, "report", report)
    for step in (1, 2):
        metrics.report({"bad": 1.0, "loss": 0.5}, step)
    assert reported == [({"loss": 0.5}, 1), ({"loss": 0.5}, 2)]
    assert caplog.text.count("no name of a metric") == 1
