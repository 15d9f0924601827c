"""Violation of an invariant."""


class InvariantViolationError(Exception):
    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
