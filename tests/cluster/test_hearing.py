"""Whom the coordinator takes for silent."""

from trainhall.cluster.hearing import Hearing
from trainhall.cluster.simulation.clock import SimulatedClock


def test_a_process_that_slept_holds_it_against_nobody() -> None:
    clock = SimulatedClock()
    hearing = Hearing(clock)
    hearing.start(deaf_after_seconds=6)
    hearing.heard("alpha")
    clock.advance(500)
    assert hearing.silent_seconds("alpha") == 0, "asked right after the sleep, before a tick"
    assert hearing.listening_seconds == 0
    for _ in range(45):
        clock.advance(2)
        silent = hearing.silent_seconds("alpha")
    assert silent == 90, "a node that stays silent is silent"
    clock.advance(500)
    hearing.heard("beta")
    assert hearing.silent_seconds("alpha") == 0, "nor where somebody is heard first"


def test_silence_from_before_the_start_does_not_count() -> None:
    clock = SimulatedClock()
    hearing = Hearing(clock)
    clock.advance(100)
    hearing.start(deaf_after_seconds=6)
    assert hearing.silent_seconds("alpha") == 0
