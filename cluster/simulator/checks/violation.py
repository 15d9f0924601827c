"""What is told of an invariant that does not hold."""


class InvariantViolationError(Exception):
    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
