"""Ranks of a job with `on_isolation: stop` are gone before their node is declared lost."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainhall.cluster.agent.shim import isolation
from trainhall.cluster.agent.shim.isolation import CHECK_SECONDS, SAVING_SHARE, Step, limits, step
from trainhall.training.link.folder import AttemptFolder

LOST_AFTER = st.floats(2.0, 3600.0)
SAVING = st.floats(0.0, 4000.0)


@given(LOST_AFTER, SAVING)
def test_first_save_then_kill_then_lost(lost_after: float, saving: float) -> None:
    bounds = limits(lost_after, saving)
    assert 0 < bounds.save <= bounds.kill < lost_after
    assert bounds.kill - bounds.save <= SAVING_SHARE * lost_after + 1e-9
    drift = 2 * 500e-6 * lost_after
    assert lost_after - bounds.kill > CHECK_SECONDS + drift, "the margin covers looks and clocks"


def test_times_of_the_default() -> None:
    long, short = limits(90.0, math.inf), limits(90.0, 10.0)
    assert (long.save, long.kill) == pytest.approx((55.5, 85.5))
    assert (short.save, short.kill) == pytest.approx((75.5, 85.5))


REPORTS = st.lists(
    st.tuples(
        st.floats(0.1, 40.0),  # since the one before was sent
        st.floats(0.0, 100.0) | st.none(),  # until the coordinator takes it; None: lost
        st.floats(0.0, 100.0) | st.none(),  # until its acknowledgement is passed on
    ),
    min_size=1,
    max_size=12,
)


@given(st.floats(10.0, 120.0), REPORTS, st.floats(0.0, 1.0))
def test_isolated_ranks_end_before_their_replacement(
    lost_after: float, reports: list[tuple[float, float | None, float | None]], phase: float
) -> None:
    """A model of both sides. The coordinator counts from the reports that it takes; the shim looks
    every so often at the newest time that was passed on."""
    received, passed_on, sent = [0.0], [(0.0, 0.0)], 0.0
    for pause, to_coordinator, back in reports:
        sent += pause
        if to_coordinator is not None:
            received.append(sent + to_coordinator)
            if back is not None:
                passed_on.append((sent + to_coordinator + back, sent))
    received.sort()
    lost_at = next(
        taken + lost_after
        for taken, following in zip(received, [*received[1:], math.inf], strict=True)
        if following >= taken + lost_after
    )
    bounds = limits(lost_after, 10.0)
    look = phase * CHECK_SECONDS
    while True:
        newest = max((at for known, at in passed_on if known <= look), default=-math.inf)
        if step(look, newest, bounds) is Step.KILL:
            break
        look += CHECK_SECONDS
    assert look < lost_at


def test_newest_time_counts(tmp_path: Path) -> None:
    folder = AttemptFolder(tmp_path)
    watch = isolation.IsolationWatch(folder, 90.0)
    assert watch.poll(10.0) is Step.KILL, "nobody has said that the node is heard"
    isolation.write_last_ack(folder, isolation.now() - 80.0)
    assert watch.poll(10.0) is Step.SAVE
    isolation.write_last_ack(folder, isolation.now())
    assert watch.poll(10.0) is Step.CONTINUE
    isolation.write_last_ack(folder, isolation.now() - 88.0)
    assert watch.poll(10.0) is Step.CONTINUE, "an older time comes from an agent that was stopped"
    isolation.write_last_ack(folder, isolation.now() + 1000.0)
    assert watch.poll(10.0) is Step.CONTINUE, "a time to come is half a write, and not kept"
    (tmp_path / "last-ack.bin").write_bytes(b"")
    assert watch.poll(10.0) is Step.CONTINUE


def test_last_ack_is_not_written_for_removed_attempt(tmp_path: Path) -> None:
    isolation.write_last_ack(AttemptFolder(tmp_path / "gone"), 1.0)
