"""Pauses between tries."""

from random import Random

from trainhall.cluster.backoff import Backoff


def test_backoff_doubles_to_its_limit_and_starts_again() -> None:
    class Longest(Random):
        def uniform(self, a: float, b: float) -> float:
            return b

    backoff = Backoff(0.5, 3.0, Longest())
    assert [backoff.next() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    backoff.reset()
    assert backoff.next() == 0.5


def test_backoff_varies_by_chance() -> None:
    assert 0.5 <= Backoff(1.0, chance=Random(1)).next() <= 1.0
