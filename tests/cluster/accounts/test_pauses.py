"""Pauses after wrong passwords."""

import pytest
from support.nodes.clock import SimulatedClock

from trainhall.cluster.accounts import pauses as module
from trainhall.cluster.accounts.pauses import Pauses
from trainhall.cluster.errors import TooManyError


@pytest.fixture
def pauses(clock: SimulatedClock) -> Pauses:
    return Pauses(clock.monotonic)


def wait(pauses: Pauses, *keys: str) -> int:
    """Seconds to wait before the next attempt; 0: it was begun."""
    try:
        pauses.start(keys)
    except TooManyError as error:
        return error.retry_seconds
    return 0


def test_pauses_grow_up_to_a_limit(pauses: Pauses, clock: SimulatedClock) -> None:
    assert [wait(pauses, "maria") for _ in range(module.FREE_FAILURES + 1)] == [0] * 5
    found = []
    for _ in range(12):
        seconds = wait(pauses, "maria")
        clock.advance(seconds - 1.5)
        assert wait(pauses, "maria") > 0
        clock.advance(1.5)
        assert wait(pauses, "maria") == 0
        found.append(seconds - 1)
    assert found == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]


def test_pause_of_any_key_counts(pauses: Pauses) -> None:
    for number in range(5):
        assert wait(pauses, f"name {number}", "address") == 0
    assert wait(pauses, "name 9", "address") > 0
    assert wait(pauses, "name 0", "another address") == 0


def test_success_forgets_the_name_alone(pauses: Pauses) -> None:
    """Else an own account would reset the count of its address."""
    for _ in range(4):
        pauses.start(["maria", "address"])
    pauses.forget("maria")
    pauses.undo("address")
    assert [wait(pauses, "maria") for _ in range(5)] == [0] * 5
    assert [wait(pauses, "address") for _ in range(3)] == [0, 0, 2]


def test_failures_are_forgotten_in_time(pauses: Pauses, clock: SimulatedClock) -> None:
    for _ in range(5):
        pauses.start(["maria"])
    clock.advance(module.FORGOTTEN_SECONDS)
    assert [wait(pauses, "maria") for _ in range(5)] == [0] * 5


def test_known_keys_are_bounded(pauses: Pauses, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KNOWN", 10)
    for number in range(30):
        pauses.start([f"name {number}", "address"]) if number < 5 else pauses.start([f"{number}"])
    assert len(pauses._failures) == 10
