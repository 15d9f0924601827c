"""Violation of an invariant, and what every check works with."""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

from trainhall.cluster.simulator.story import Story


@dataclass
class Inspected:
    """The cluster as a check sees it."""

    db: sqlite3.Connection
    story: Story
    now: Callable[[], float]
    violation: str | None = None
    """The first one: what comes after it may be its consequence."""

    def violated(self, invariant: str, what: str) -> None:
        if self.violation is None:
            self.violation = f"{invariant}: {what}"
            self.story.log("INVARIANT", self.violation)


class Check:
    def __init__(self, inspected: Inspected) -> None:
        self._db = inspected.db
        self._story = inspected.story
        self._now = inspected.now
        self._violated = inspected.violated
