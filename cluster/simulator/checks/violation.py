"""Violation of an invariant, and what every check works with."""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

from trainhall.cluster.simulator.story import Story


class InvariantViolationError(Exception):
    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")


@dataclass
class Inspected:
    """The cluster as a check sees it."""

    db: sqlite3.Connection
    story: Story
    now: Callable[[], float]
    fail: Callable[[InvariantViolationError], None]
    """Called with each violation."""


class Check:
    def __init__(self, inspected: Inspected) -> None:
        self._db = inspected.db
        self._story = inspected.story
        self._now = inspected.now
        self._fail = inspected.fail

    def _violated(self, invariant: str, what: str) -> None:
        self._fail(InvariantViolationError(invariant, what))
