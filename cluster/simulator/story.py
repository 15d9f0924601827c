"""The log of a run as text, with counts of each kind of event."""

import contextlib
import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

import structlog

_SILENT = ("event", "level", "timestamp")


class Story:
    """
    Args:
        now: virtual seconds since the start.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.lines: list[str] = []
        self.faults: Counter[str] = Counter()
        """By kind."""
        self.checks: Counter[str] = Counter()
        """By invariant."""
        self.exercised: Counter[str] = Counter()
        """By what happened that could have broken an invariant."""
        self.muted = False
        """Set while a process is killed: its log is not read."""
        self.events = 0
        """Number of deliveries, commits, starts, ends and faults."""

    def log(self, who: str, what: str) -> None:
        self.events += 1
        self.lines.append(f"{self._now():9.3f}  {who:<12} {what}")

    def fault(self, kind: str, who: str, what: str) -> None:
        self.faults[kind] += 1
        self.log(who, f"! {what}")

    @property
    def digest(self) -> str:
        """Return the hash of all lines: two runs of one seed have the same."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Record the coordinator's and the agents' own log in the story."""
        before = structlog.get_config()
        structlog.configure(processors=[self._take])
        handler = _Handler(self)
        agents = logging.getLogger("trainhall.cluster.agent")
        propagates, level = agents.propagate, agents.level
        agents.addHandler(handler)
        agents.propagate = False
        agents.setLevel(logging.INFO)
        try:
            yield
        finally:
            structlog.configure(**before)
            agents.removeHandler(handler)
            agents.propagate = propagates
            agents.setLevel(level)

    def _take(
        self, logger: object, method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        data = ", ".join(f"{k} {v}" for k, v in event.items() if k not in _SILENT)
        if not self.muted:
            what = str(event["event"])
            self.log("coordinator", f"{what}: {data}" if data else what)
        raise structlog.DropEvent


class _Handler(logging.Handler):
    def __init__(self, story: Story) -> None:
        super().__init__()
        self._story = story

    def emit(self, record: logging.LogRecord) -> None:
        if not self._story.muted:
            self._story.log("agent", record.getMessage())
