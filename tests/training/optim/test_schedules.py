"""Learning rates against their closed forms."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainhall.training.optim.optimizers import learning_rate
from trainhall.training.spec import LearningRateSchedule


def rates(total: int, **schedule: object) -> list[float]:
    parsed = LearningRateSchedule.model_validate(schedule)
    return [
        learning_rate(step, peak=0.5, total=total, schedule=parsed) for step in range(1, total + 1)
    ]


def test_constant_with_warmup() -> None:
    assert rates(6, warmup_steps=4) == [0.125, 0.25, 0.375, 0.5, 0.5, 0.5]


def test_cosine_ends_at_its_final_ratio() -> None:
    found = rates(8, kind="cosine", final_ratio=0.1)
    expected = [0.05 + 0.45 * (1 + math.cos(math.pi * s / 8)) / 2 for s in range(1, 9)]
    assert found == pytest.approx(expected, rel=1e-12)
    assert found[-1] == pytest.approx(0.05)


def test_steps_decay_after_the_warmup() -> None:
    found = rates(7, kind="step", warmup_steps=1, decay_every=2, decay_factor=0.1)
    assert found == pytest.approx([0.5, 0.5, 0.5, 0.05, 0.05, 0.005, 0.005])


@given(
    st.integers(1, 60),
    st.integers(0, 80),
    st.sampled_from(["constant", "cosine", "step"]),
    st.floats(0, 1),
)
def test_rates_rise_to_the_peak_and_never_again(
    total: int, warmup: int, kind: str, final_ratio: float
) -> None:
    found = rates(total, kind=kind, warmup_steps=warmup, final_ratio=final_ratio, decay_every=3)
    assert all(0 <= rate <= 0.5 for rate in found)
    assert found[:warmup] == sorted(found[:warmup])
    assert found[warmup:] == sorted(found[warmup:], reverse=True)
