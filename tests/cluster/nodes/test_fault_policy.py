"""Which nodes are set aside for what went wrong on them."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from trainhall.cluster.nodes.fault_policy import (
    Ended,
    can_quarantine,
    is_node_fault,
    quarantine_reason,
)
from trainhall.training.link.failure import Cause

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def at(minutes: float, cause: Cause | None, job: str = "a", message: str = "") -> Ended:
    """An end so many minutes ago."""
    return Ended(NOW - timedelta(minutes=minutes), job, cause, message)


def test_fault_policy_quarantines_after_second_device_fault() -> None:
    once = [at(90, Cause.DEVICE_FAULT, message="uncorrectable ECC")]
    assert quarantine_reason(NOW, once) is None
    reason = quarantine_reason(NOW, [*once, at(5, Cause.DEVICE_FAULT, message="Xid 79")])
    assert reason is not None
    assert "a device failed 2 times" in reason
    assert "Xid 79" in reason
    # What went well on its other devices between the two takes nothing back.
    assert quarantine_reason(NOW, [*once, at(50, None), at(5, Cause.DEVICE_FAULT)])


def test_quarantine_reason_names_no_job() -> None:
    message = "uncorrectable ECC while maria's secret was trained"
    ended = [at(minutes, Cause.DEVICE_FAULT, "a1b2c3", message) for minutes in (9, 2)]
    reason = str(quarantine_reason(NOW, ended))
    assert reason.endswith("within 24 hours; the last: uncorrectable ECC")
    assert "a1b2c3" not in reason


def test_fault_policy_ignores_faults_before_release() -> None:
    faults = [at(25 * 60, Cause.DEVICE_FAULT), at(30, Cause.DEVICE_FAULT)]
    assert quarantine_reason(NOW, faults) is None
    both = [at(40, Cause.DEVICE_FAULT), at(30, Cause.DEVICE_FAULT)]
    assert quarantine_reason(NOW, both)
    assert quarantine_reason(NOW, both, since=NOW - timedelta(minutes=35)) is None


def test_fault_policy_counts_consecutive_failed_starts() -> None:
    starts = [at(n, Cause.NOT_STARTED) for n in (30, 20, 10)]
    assert quarantine_reason(NOW, starts) is None
    mixed = [at(30, Cause.NOT_STARTED), at(20, Cause.NOT_STARTED, "b"), at(10, Cause.NOT_STARTED)]
    assert "3 attempts in a row" in str(quarantine_reason(NOW, mixed))
    assert quarantine_reason(NOW, [*mixed, at(15, None, "c")]) is None


def test_fault_policy_counts_deaths_of_different_jobs() -> None:
    deaths = [
        at(40, Cause.KILLED),
        at(30, Cause.CRASH, "b"),
        at(20, Cause.HANG, "c"),
        at(10, Cause.KILLED, "c"),
    ]
    assert "ranks of 3 jobs died here" in str(quarantine_reason(NOW, deaths))
    assert quarantine_reason(NOW, deaths[1:]) is None
    assert quarantine_reason(NOW, [*deaths, at(5, None, "d")]) is None
    one_job = [at(n, Cause.CRASH) for n in range(1, 20)]
    assert quarantine_reason(NOW, one_job) is None


def test_fault_policy_ignores_faults_of_jobs_and_networks() -> None:
    causes = (
        Cause.USER_ERROR, Cause.OUT_OF_MEMORY, Cause.NETWORK, Cause.PREEMPTED, Cause.RESIZED,
        Cause.BAD_CHECKPOINT,
    )  # fmt: skip
    ended = [at(n, cause, job=f"{n}") for n in range(50) for cause in causes]
    assert quarantine_reason(NOW, ended) is None
    assert not any(is_node_fault(cause) for cause in causes)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3000),
            st.sampled_from([None, *Cause]),
            st.sampled_from("abcd"),
        )
    )
)
def test_fault_policy_ignores_the_order_of_ends(
    given_ends: list[tuple[int, Cause | None, str]],
) -> None:
    # At one moment two ends have no order.
    ended = list({minutes: at(minutes, cause, job) for minutes, cause, job in given_ends}.values())
    assert quarantine_reason(NOW, ended) == quarantine_reason(NOW, list(reversed(ended)))


@given(
    st.lists(
        st.tuples(st.integers(1, 1600), st.sampled_from([None, *Cause]), st.sampled_from("abcd")),
        max_size=12,
    ),
    st.sampled_from([None, *(cause for cause in Cause if not can_quarantine(cause))]),
    st.integers(0, 1600),
)
def test_fault_policy_never_quarantines_for_excluded_causes(
    before: list[tuple[int, Cause | None, str]], cause: Cause | None, later: int
) -> None:
    """Neither such an end nor the time that passes."""
    ended = [at(minutes, cause, job) for minutes, cause, job in before]
    if quarantine_reason(NOW, ended) is None:
        then = NOW + timedelta(minutes=later)
        assert quarantine_reason(then, [*ended, Ended(then, "e", cause)]) is None
