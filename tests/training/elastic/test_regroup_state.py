"""The source of the state of a new group, and the measurements of the old one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainhall.training.elastic.regroup_state import (
    RegroupState,
    is_reported,
    is_unsettled,
    must_save,
    ranks_to_update,
    source_rank,
    unreported_means,
)


@st.composite
def states(draw: st.DrawFn) -> list[RegroupState]:
    """States of ranks that were in one group, at most a step apart, and of new ranks."""
    step = draw(st.integers(0, 50))
    reported = draw(st.integers(0, step))
    found = []
    for _ in range(draw(st.integers(1, 6))):
        mine = draw(st.sampled_from([0, max(0, step - 1), step]))
        known = min(reported, mine)
        rows = np.full((mine - known, 2), float(mine)) if mine else None
        found.append(RegroupState(mine, known, rows, settled=draw(st.integers(0, mine))))
    return found


@given(states())
def test_source_is_lowest_of_furthest_ranks(found: list[RegroupState]) -> None:
    source = source_rank(found)
    furthest = max(s.step for s in found)
    if furthest == 0:
        assert source is None
        return
    assert source is not None
    assert found[source].step == furthest
    best = [
        r for r, s in enumerate(found) if (s.step, s.reported) == (furthest, found[source].reported)
    ]
    assert source == best[0]
    assert all(s.reported <= found[source].reported for s in found if s.step == furthest)


@given(states())
def test_state_goes_only_to_lagging_ranks(found: list[RegroupState]) -> None:
    source = source_rank(found)
    if source is not None:
        updated = ranks_to_update(found, source)
        assert source not in updated
        assert updated == [r for r, s in enumerate(found) if s.step != found[source].step]


@given(states())
def test_unreported_steps_get_a_mean(found: list[RegroupState]) -> None:
    source = source_rank(found)
    if source is not None:
        means = unreported_means(found, source)
        assert len(means) == found[source].step - found[source].reported
        assert np.isfinite(means).all()


def test_mean_covers_ranks_that_have_step() -> None:
    found = [
        RegroupState(5, 3, np.array([[1.0], [2.0]])),
        RegroupState(4, 3, np.array([[3.0]])),
        RegroupState(0),
        RegroupState(5, 3, np.array([[5.0], [4.0]])),
    ]
    assert source_rank(found) == 0
    assert unreported_means(found, 0).tolist() == [[3.0], [3.0]]


def test_reported_rows_are_not_repeated() -> None:
    # Rank 1 has come to the end of the exchange that broke off on rank 0.
    found = [RegroupState(5, 3, np.ones((2, 1))), RegroupState(5, 5, np.empty((0, 1)))]
    assert source_rank(found) == 1
    assert not len(unreported_means(found, 1))


def test_exchanged_rows_are_repeated_if_rank_0_lost() -> None:
    assert is_reported([RegroupState(5, 5, was_first=True), RegroupState(5, 5)], 0)
    assert is_reported([RegroupState(5, 5), RegroupState(5, 5, was_first=True)], 0)
    assert not is_reported([RegroupState(0), RegroupState(5, 5), RegroupState(5, 5)], 1)
    # The exchange broke off on rank 0 alone: it has nothing to write, and rank 1 no numbers left.
    found = [
        RegroupState(5, 3, np.ones((2, 1)), was_first=True),
        RegroupState(5, 5, np.empty((0, 1))),
    ]
    assert not is_reported(found, source_rank(found) or 0)


def test_save_is_repeated_unless_known_complete() -> None:
    assert must_save([RegroupState(5), RegroupState(5)])
    assert must_save([RegroupState(5, was_first=True, abandoned_save=True), RegroupState(5)])
    assert not must_save([RegroupState(5, was_first=True), RegroupState(5)])


def test_work_after_unfinished_step_is_repeated() -> None:
    assert is_unsettled([RegroupState(5, settled=5), RegroupState(5, settled=4)], 0)
    assert not is_unsettled(
        [RegroupState(5, settled=5), RegroupState(4, settled=4), RegroupState(0)], 0
    )
