"""How many examples or seeds a property test draws: all in `make test`, a third in `make check`."""

SHARE = 1
"""One of so many is drawn; set before the tests are imported."""


def share_of(number: int) -> int:
    """Of so many examples, those that this run draws."""
    return max(1, number // SHARE)
