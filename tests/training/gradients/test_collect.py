"""Gradients that a job records: by parameter, over all ranks, at the requested steps."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.cluster.attempts import Attempt, RankServer

from trainhall.training.gradients.capture import histogram_of, magnitudes
from trainhall.training.gradients.collect import folded
from trainhall.training.link.control import Control
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.gradient_record import HISTOGRAM_BINS, LOWEST_EXPONENT, GradientRecord

STEPS = 4
HIDDEN = [30, 16, 12]


def digits(workers: int, parallelism: dict[str, Any], **training: Any) -> dict[str, Any]:
    return {
        "task": {"name": "digits", "params": {"hidden": HIDDEN, "dropout": 0.0}},
        "resources": {"workers": workers},
        "parallelism": parallelism,
        "training": {
            "steps": STEPS,
            "global_batch_size": 48,
            "gradient_clip": 0.1,
            "capture_gradients_every_steps": 2,
            **training,
        },
    }


def records(attempt: Attempt) -> list[GradientRecord]:
    assert attempt.codes == [0] * len(attempt.codes), attempt.stderr()
    return [GradientRecord.model_validate(e["data"]) for e in attempt.events(kind="gradients")]


@pytest.fixture(scope="module")
def serial(ranks: RankServer, tmp_path_factory: pytest.TempPathFactory) -> list[GradientRecord]:
    """The record of a single rank."""
    return records(ranks.run(tmp_path_factory.mktemp("serial"), digits(1, {})))


@pytest.mark.parametrize(
    ("workers", "parallelism", "training"),
    [
        pytest.param(2, {}, {"gradient_accumulation": 2}, id="ddp, accumulation"),
        pytest.param(2, {}, {"precision": "fp16"}, id="ddp, fp16"),
        pytest.param(2, {}, {"reproducible": True}, id="reproducible"),
        pytest.param(3, {"strategy": "fsdp"}, {}, id="fsdp"),
        pytest.param(4, {"strategy": "fsdp", "tensor": 2}, {}, id="fsdp × tensor"),
        pytest.param(4, {"strategy": "pipeline", "data": 2}, {}, id="pipeline × data"),
        pytest.param(2, {"strategy": "pipeline", "schedule": "zbv"}, {}, id="zbv"),
        pytest.param(
            2, {"strategy": "pipeline", "schedule": "interleaved_zero_bubble"}, {},
            id="interleaved_zero_bubble",
        ),
        pytest.param(3, {"strategy": "parameter_server"}, {}, id="parameter_server"),
    ],
)  # fmt: skip
def test_gradient_norms_match_a_single_rank(
    ranks: RankServer,
    tmp_path: Path,
    serial: list[GradientRecord],
    workers: int,
    parallelism: dict[str, Any],
    training: dict[str, Any],
) -> None:
    attempt = ranks.run(tmp_path, digits(workers, parallelism, **training))
    recorded = records(attempt)
    assert [record.step for record in recorded] == [2, 4]
    norms = dict(attempt.curve("gradient_norm"))
    close = 0.1 if "precision" in training else 2e-3
    for record, expected in zip(recorded, serial, strict=True):
        assert (record.request, record.histograms) == (0, None)
        assert record.names == expected.names
        assert record.norms == pytest.approx(expected.norms, rel=close)
        assert math.hypot(*record.norms) == pytest.approx(norms[record.step], rel=1e-4)
        assert all(norm > 0 for norm in (*record.norms, *record.largest))


@pytest.mark.parametrize("parallelism", [{}, {"strategy": "fsdp"}])
def test_request_is_answered_once_with_histograms(
    ranks: RankServer, tmp_path: Path, parallelism: dict[str, Any]
) -> None:
    spec = digits(2, parallelism, capture_gradients_every_steps=None)
    folder = ranks.start(tmp_path, spec)
    Control.ask(folder.control, 7)
    (record,) = records(ranks.wait(folder))
    assert record.request == 7
    assert record.step >= 2
    assert record.histograms is not None
    sizes = {
        name: sum(h.counts) + h.zeros + h.not_finite
        for name, h in zip(record.names, record.histograms, strict=True)
    }
    first, *_, bias = sizes.values()
    assert (first, bias) == (64 * HIDDEN[0], 10)
    for norm, histogram in zip(record.norms, record.histograms, strict=True):
        # The norm lies between those of the bins' lower and upper ends.
        low = sum(
            count * 4.0 ** (LOWEST_EXPONENT + histogram.first + i)
            for i, count in enumerate(histogram.counts)
        )
        assert low**0.5 <= norm * (1 + 1e-5)
        assert norm <= 2 * low**0.5 * (1 + 1e-5)


def test_gradients_are_captured_only_on_request(ranks: RankServer, tmp_path: Path) -> None:
    assert not records(ranks.run(tmp_path, digits(2, {}, capture_gradients_every_steps=None)))


@given(st.lists(st.floats(width=32), min_size=1, max_size=50))
def test_every_number_falls_into_one_bin(values: list[float]) -> None:
    tensor = torch.tensor(values)
    histogram = histogram_of(magnitudes(tensor).tolist())
    assert sum(histogram.counts) + histogram.zeros + histogram.not_finite == len(values)
    assert histogram.zeros == values.count(0.0)
    assert histogram.not_finite == sum(not math.isfinite(value) for value in values)
    found = histogram_of(magnitudes(tensor[:1]).tolist())
    if found.counts:
        low, high = LOWEST_EXPONENT, LOWEST_EXPONENT + HISTOGRAM_BINS
        size = min(max(abs(values[0]), 2.0**low), 2.0**high * 0.99)
        assert 2.0 ** (low + found.first) <= size < 2.0 ** (low + found.first + 1)


def test_gradients_of_many_parameters_use_modules() -> None:
    names = [f"layers.{i}.{part}.weight" for i in range(8) for part in ("first", "second")]
    assert folded(names, 100) == (list(range(16)), names)
    entries, folds = folded(names, 8)
    assert folds == [f"layers.{i}" for i in range(8)]
    assert entries == [i for i in range(8) for _ in range(2)]
    assert folded(names, 7) == ([0] * 16, ["layers"])
    flat = [f"w{i}" for i in range(9)]
    assert folded(flat, 4) == ([0, 1, 2, 3, 3, 3, 3, 3, 3], ["w0", "w1", "w2", "(others)"])


def test_gradient_request_changes_no_other_field(tmp_path: Path) -> None:
    folder = AttemptFolder(tmp_path)
    control = Control(folder.control, create=True)
    control.listen()
    listened = control.listened
    Control.ask(folder.control, 3)
    assert (control.request, control.listened, int(control.command)) == (3, listened, 0)
    control.close()


def test_non_finite_norms_travel_as_strings() -> None:
    record = GradientRecord(step=1, names=["a"], norms=[math.nan], largest=[math.inf])
    assert record.as_json()["norms"] == ["NaN"]
    found = GradientRecord.model_validate(json.loads(json.dumps(record.as_json(), allow_nan=False)))
    assert math.isnan(found.norms[0])
    assert found.largest == [math.inf]
