"""The metrics that a script may report, and how they are written."""

import math
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.cluster.attempts import read_tables
from support.waiting import eventually

from trainhall.training.link.spool import MetricSpool
from trainhall.training.sdk import reporting
from trainhall.training.sdk.reporting import Reporter, Spooled, Terminal


class Kept:
    def __init__(self) -> None:
        self.points: list[tuple[int, dict[str, Any]]] = []

    def take(self, step: int, values: Any) -> None:
        self.points.append((step, dict(values)))

    def flush(self) -> None:
        pass


def _has_tables(path: Path, number: int) -> bool:
    return path.exists() and len(list(read_tables(path.read_bytes()))) == number


def test_numbers_of_every_kind_are_taken() -> None:
    kept = Kept()
    values = {
        "int": 2, "bool": True, "float": 0.5, "nan": math.nan,
        "numpy": np.float32(0.25), "array": np.array(3), "tensor": torch.tensor(4),
        "grad": torch.tensor(1.5, requires_grad=True),
        "half": torch.tensor(1, dtype=torch.bfloat16),
    }  # fmt: skip
    Reporter(kept).report(values, None)
    ((step, taken),) = kept.points
    assert step == 1
    assert all(type(value) is float for value in taken.values())
    assert [taken[n] for n in ("numpy", "array", "tensor", "grad")] == [0.25, 3.0, 4.0, 1.5]


@pytest.mark.parametrize(
    ("values", "step", "why"),
    [
        ({"loss": "1"}, None, "loss must be a number, not str"),
        ({"loss": None}, None, "loss must be a number, not NoneType"),
        ({"loss": 1j}, None, "not complex"),
        ({"loss": [1.0]}, None, "not list"),
        ({"loss": torch.ones(3)}, None, r"single number, not of the shape \(3,\)"),
        ({"loss": np.ones((2, 2))}, None, r"shape \(2, 2\)"),
        ({"": 1}, None, "1 to 128 printable"),
        ({"a\nb": 1}, None, "1 to 128 printable"),
        ({"x" * 129: 1}, None, "1 to 128 printable"),
        ({"loss": 1}, -1, "0 or above"),
        ({"loss": 1}, 1.5, "an integer"),
        ({"loss": 1}, 2**63, "0 or above"),
        ({f"m{i}": i for i in range(1001)}, None, "more than 1000 different"),
    ],
)
def test_log_refuses_invalid_metrics_entirely(values: Any, step: Any, why: str) -> None:
    kept = Kept()
    reporter = Reporter(kept)
    with pytest.raises((TypeError, ValueError), match=why):
        reporter.report({"good": 1, **values}, step)
    assert kept.points == []
    assert reporter.step == 0


def test_steps_count_up_unless_they_are_given() -> None:
    kept = Kept()
    reporter = Reporter(kept)
    steps: list[Any] = [None, None, 10, None, np.int64(4), None]
    for step in steps:
        reporter.report({"loss": 1}, step)
    assert [step for step, _ in kept.points] == [1, 2, 10, 11, 4, 12]
    reporter.report({}, None)
    reporter.report({}, 20)
    assert (len(kept.points), reporter.step) == (6, 20)
    assert reporter.finite() == {"loss": 1.0}


def test_points_are_written_in_order_by_a_thread(tmp_path: Path) -> None:
    spooled = Spooled(MetricSpool(tmp_path / "metrics.bin"), rank=0)
    reporter = Reporter(spooled)
    for step in range(1, 2501):
        reporter.report({"loss": step}, step)
        if step % 1000 == 0:
            reporter.report({"eval_loss": step, "accuracy": 0.5}, step)
    reporter.flush()
    tables = list(read_tables((tmp_path / "metrics.bin").read_bytes()))
    losses = [p for _, columns in tables for p in columns.get("loss", [])]
    assert losses == [(step, float(step)) for step in range(1, 2501)]
    accuracies = [p for _, columns in tables for p in columns.get("accuracy", [])]
    assert accuracies == [(1000, 0.5), (2000, 0.5)]
    assert {rank for rank, _ in tables} == {None}
    assert [t for t in threading.enumerate() if t.name == "metrics" and not t.daemon] == []


def test_many_points_of_many_metrics_fit_into_frames(tmp_path: Path) -> None:
    spooled = Spooled(MetricSpool(tmp_path / "metrics.bin"), rank=0)
    values = dict.fromkeys((f"{i:04}{'量' * 124}" for i in range(reporting.MAX_NAMES)), 0.5)
    # What waits after a stall of the disk.
    spooled._points = [reporting._Point(step, 0.0, values) for step in range(1000)]
    spooled.flush()
    tables = list(read_tables((tmp_path / "metrics.bin").read_bytes()))
    assert sum(len(columns["0000" + "量" * 124]) for _, columns in tables) == 1000


class Unreadable:
    """A value that cannot be read any more: its GPU failed, say."""

    def __float__(self) -> float:
        raise RuntimeError("the device is gone")


def test_unreadable_metric_does_not_end_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reporting, "FLUSH_SECONDS", 0.001)
    path = tmp_path / "metrics.bin"
    spooled = Spooled(MetricSpool(path), rank=0)
    for step in (1, 2):
        spooled.take(step, {"loss": Unreadable()})
        eventually("it to be given up", lambda: not spooled._points)
        spooled.take(step, {"loss": 0.5})
        eventually(
            "the next to be written",
            partial(_has_tables, path, step),
        )
    assert [r.getMessage() for r in caplog.records] == [
        'metrics_lost error="RuntimeError: the device is gone"'
    ]


def test_reporting_queue_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "MAX_WAITING", 10)
    monkeypatch.setattr(reporting, "FLUSH_SECONDS", 600)
    spooled = Spooled(MetricSpool(tmp_path / "metrics.bin"), rank=0)
    for step in range(100):
        spooled.take(step, {"loss": 1.0})
        assert len(spooled._points) <= 10
    assert spooled._points[-1].step == 99


def test_terminal_shows_a_line_a_second(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    terminal, silent = Terminal(0), Terminal(1)
    for step in range(1, 31):
        for one in (terminal, silent):
            one.take(step, {"loss": 1 / step})
        now[0] += 0.125
    terminal.take(30, {"accuracy": 0.5})
    terminal.flush()
    terminal.flush()
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in lines] == ["1", "9", "17", "25", "30"]
    assert lines[-1] == "step 30  loss 0.03333  accuracy 0.5"
