"""Measurements of an attempt, for comparison with its plan."""

import pytest
import torch

from trainhall.training.loop import plan_measurement
from trainhall.training.loop.plan_measurement import Measured


@pytest.mark.parametrize(("peak", "grown"), [(100.0, None), (164.0, 64)])
def test_cpu_run_is_measured_though_it_does_not_grow(
    monkeypatch: pytest.MonkeyPatch, peak: float, grown: int | None
) -> None:
    monkeypatch.setattr(plan_measurement, "peak_memory_bytes", lambda _: 100.0)
    measured = Measured(torch.device("cpu"))
    assert measured.as_event(2048) is None, "no step was taken"
    measured.add([9.0, 9.0, 9.0, 0.5, 0.25, 0.5], peak)
    assert measured.as_event(2048) == {
        "peak_memory_bytes": grown, "step_seconds": 0.5, "steps": 6, "communication_bytes": 2048,
    }  # fmt: skip
