"""Seeded randomness. Each thing draws from a stream of its own name, so that the order in which
things are read changes nothing."""

import random
import secrets


def stream(seed: int, *names: object) -> random.Random:
    """Return one thing's random numbers, the same in every process."""
    return random.Random(f"{seed}/{'/'.join(map(str, names))}")


class SeededIds:
    """Ids that a seed repeats, so that an address in a browser outlives a restart."""

    def __init__(self, seed: int) -> None:
        self._chance = stream(seed, "ids")

    def new(self) -> str:
        return f"{self._chance.getrandbits(48):012x}"

    def secret(self) -> str:
        # A node's credential must not be guessable, even where no node runs anything.
        return secrets.token_urlsafe(32)
