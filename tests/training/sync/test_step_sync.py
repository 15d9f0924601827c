"""The step sync decides the same on every rank, from the same numbers in the same order."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainhall.training.link.launch import Command
from trainhall.training.sync.step_sync import MAX_STEPS, TARGET_SECONDS, combine, next_interval

NUMBERS = st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf])


@st.composite
def vectors(draw: st.DrawFn) -> tuple[list[np.ndarray], int]:
    """Every rank's header and rows, and the number of steps."""
    world, steps, columns = draw(st.tuples(*[st.integers(1, 4)] * 3))
    ranks = []
    for _ in range(world):
        header = [draw(st.sampled_from(Command)), draw(st.booleans()), draw(st.floats(0, 1e12))]
        header += [draw(st.integers(0, 2**40)), draw(st.integers(1, 2**31))]
        header += [draw(st.integers(0, 3))]
        rows = draw(st.lists(NUMBERS, min_size=steps * columns, max_size=steps * columns))
        ranks.append(np.asarray([*header, *rows], dtype=np.float64))
    return ranks, steps


@given(vectors())
def test_step_sync_result_combines_all_ranks(drawn: tuple[list[np.ndarray], int]) -> None:
    ranks, steps = drawn
    before = [vector.copy() for vector in ranks]
    first, second = combine(ranks, steps), combine(ranks, steps)
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(before, ranks, strict=True))
    assert first.means.tobytes() == second.means.tobytes()
    assert first.command == max(Command(int(v[0])) for v in ranks)
    assert first.save == any(v[1] for v in ranks)
    assert first.peak_memory_bytes == max(v[2] for v in ranks)
    assert first.request == max(v[3] for v in ranks)
    assert first.generation == max(v[4] for v in ranks)
    assert first.profile == min(v[5] for v in ranks)
    expected = sum(v[6:].reshape(steps, -1) for v in ranks) / len(ranks)
    np.testing.assert_allclose(first.means, expected, rtol=1e-12, atol=1e-6)


def test_mean_is_summed_in_rank_order() -> None:
    values = [1e16, 1.0, -1e16, 1.0]
    ranks = [np.asarray([0, 0, 0, 0, 1, 0, value]) for value in values]
    assert combine(ranks, 1).means.tolist() == [[((1e16 + 1.0 - 1e16) + 1.0) / 4]]


@given(st.integers(1, MAX_STEPS), st.floats(0, 1e4))
def test_step_sync_interval_approaches_target_slowly(previous: int, seconds: float) -> None:
    found = next_interval(previous, seconds)
    assert 1 <= found <= min(2 * previous, MAX_STEPS)
    assert found == 1 or found * seconds <= TARGET_SECONDS * (1 + 1e-9)
