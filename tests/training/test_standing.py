"""Who gives the others its state, and what of the old group's measurements counts."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainhall.training.standing import (
    Standing,
    is_told,
    is_unsettled,
    lacking,
    means_of,
    must_save,
    source_of,
)


@st.composite
def standings(draw: st.DrawFn) -> list[Standing]:
    """Of ranks that were in one group: nobody is further than a step behind the others, but for
    those that are new."""
    step = draw(st.integers(0, 50))
    told = draw(st.integers(0, step))
    found = []
    for _ in range(draw(st.integers(1, 6))):
        mine = draw(st.sampled_from([0, max(0, step - 1), step]))
        known = min(told, mine)
        rows = np.full((mine - known, 2), float(mine)) if mine else None
        found.append(Standing(mine, known, rows, settled=draw(st.integers(0, mine))))
    return found


@given(standings())
def test_the_source_is_the_lowest_of_those_that_are_furthest(found: list[Standing]) -> None:
    source = source_of(found)
    furthest = max(s.step for s in found)
    if furthest == 0:
        assert source is None
        return
    assert source is not None
    assert found[source].step == furthest
    best = [r for r, s in enumerate(found) if (s.step, s.told) == (furthest, found[source].told)]
    assert source == best[0]
    assert all(s.told <= found[source].told for s in found if s.step == furthest)


@given(standings())
def test_whoever_is_behind_gets_its_state_and_nobody_else(found: list[Standing]) -> None:
    source = source_of(found)
    if source is not None:
        needy = lacking(found, source)
        assert source not in needy
        assert needy == [r for r, s in enumerate(found) if s.step != found[source].step]


@given(standings())
def test_every_step_that_nobody_told_has_a_mean(found: list[Standing]) -> None:
    source = source_of(found)
    if source is not None:
        means = means_of(found, source)
        assert len(means) == found[source].step - found[source].told
        assert np.isfinite(means).all()


def test_a_mean_is_that_of_the_ranks_that_have_the_step() -> None:
    found = [
        Standing(5, 3, np.array([[1.0], [2.0]])),
        Standing(4, 3, np.array([[3.0]])),
        Standing(0),
        Standing(5, 3, np.array([[5.0], [4.0]])),
    ]
    assert source_of(found) == 0
    assert means_of(found, 0).tolist() == [[3.0], [3.0]]


def test_numbers_that_were_told_are_not_told_again() -> None:
    # Rank 1 has come to the end of the exchange that broke off on rank 0.
    found = [Standing(5, 3, np.ones((2, 1))), Standing(5, 5, np.empty((0, 1)))]
    assert source_of(found) == 1
    assert not len(means_of(found, 1))


def test_what_was_exchanged_is_told_again_unless_rank_0_is_left_and_had_come_as_far() -> None:
    assert is_told([Standing(5, 5, was_first=True), Standing(5, 5)], 0)
    assert is_told([Standing(5, 5), Standing(5, 5, was_first=True)], 0)
    assert not is_told([Standing(0), Standing(5, 5), Standing(5, 5)], 1)
    # The exchange broke off on rank 0 alone: it has nothing to write, and rank 1 no numbers left.
    found = [Standing(5, 3, np.ones((2, 1)), was_first=True), Standing(5, 5, np.empty((0, 1)))]
    assert not is_told(found, source_of(found) or 0)


def test_a_save_is_made_again_unless_somebody_knows_of_its_end() -> None:
    assert must_save([Standing(5), Standing(5)])
    assert must_save([Standing(5, was_first=True, gave_up_save=True), Standing(5)])
    assert not must_save([Standing(5, was_first=True), Standing(5)])


def test_what_was_due_behind_a_step_is_done_again_if_some_had_not_come_to_its_end() -> None:
    assert is_unsettled([Standing(5, settled=5), Standing(5, settled=4)], 0)
    assert not is_unsettled([Standing(5, settled=5), Standing(4, settled=4), Standing(0)], 0)
