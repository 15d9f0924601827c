"""Attempts that this coordinator cannot tell to their hosts: it does not understand their spec.

Found as a host is to be told, and held by this process alone: one of another version may do better.
"""

from collections.abc import Mapping

Token = tuple[str, int, int]
"""Job, attempt, generation."""


class Untold:
    def __init__(self) -> None:
        self._why: dict[Token, str] = {}

    def note(self, found: Mapping[Token, str]) -> bool:
        """Whether anything of it is new.

        Args:
            found: why each of some attempts cannot be told.
        """
        new = {token: why for token, why in found.items() if token not in self._why}
        self._why.update(new)
        return bool(new)

    def why(self, token: Token) -> str | None:
        """None: nothing is known against it."""
        return self._why.get(token)
