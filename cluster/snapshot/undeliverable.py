"""Attempts that this coordinator cannot deliver to their hosts: it does not understand their spec.

Found as an assignment is built, and known to this process alone: one of another version may do
better.
"""

from collections.abc import Mapping

from trainhall.training.fencing import FencingToken


class UndeliverableAttempts:
    def __init__(self) -> None:
        self._why: dict[FencingToken, str] = {}

    def note(self, found: Mapping[FencingToken, str]) -> bool:
        """Remember them; return whether any of them is new.

        Args:
            found: why each of some attempts cannot be delivered.
        """
        new = {token: why for token, why in found.items() if token not in self._why}
        self._why.update(new)
        return bool(new)

    def why(self, token: FencingToken) -> str | None:
        """Return why it is undeliverable; None: nothing is known against it."""
        return self._why.get(token)
