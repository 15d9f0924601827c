"""Errors in a document, and its limits."""

from dataclasses import dataclass

MAX_DEPTH = 32
MAX_NODES = 10_000
"""Keys and values of a document: each may take milliseconds to explain."""


@dataclass(frozen=True)
class SpecProblem:
    """One error; `field` is dotted ("training.steps"), empty for the document as a whole."""

    field: str
    message: str
    value: str | None = None


TOO_DEEP = SpecProblem("", f"the spec is nested deeper than {MAX_DEPTH} levels")
TOO_MANY = SpecProblem("", f"the spec has more than {MAX_NODES:,} keys and values")


class SpecError(ValueError):
    """The document is not a valid job spec."""

    def __init__(self, problems: list[SpecProblem]) -> None:
        self.problems = problems
        super().__init__(
            "; ".join(f"{p.field}: {p.message}" if p.field else p.message for p in problems)
        )
