"""Record of what the tracking clients of an attempt log on this host.

Points go to a metric spool, parameters and tags to an event spool, before the client is answered:
the agent ships both, as it ships what the SDK writes. The record is read back from these files
where a process has served the attempt before.
"""

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from trainhall.cluster.wire.mlflow import Point, tables_of
from trainhall.training.link.folder import AttemptFolder, Writer
from trainhall.training.link.frames import complete_frames, decode_tables
from trainhall.training.link.spool import EventSpool, MetricSpool, newest_event, newest_frame

MAX_NAMES = 1000
"""Metrics, and as many parameters, of a job; more are left out, and an event says so."""
MAX_RECENT = 10_000
"""Points among which a repetition is found: a client that got no answer sends the same again."""
MAX_TABLES = 10_000
_NESTED = re.compile(r"[A-Za-z0-9-]+")
"""Name of a nested run, and of its folder."""


@dataclass
class Run:
    """A run as a client sees it: the job's, or a nested one with names of its own.

    Args:
        prefix: of the names of its metrics and parameters among those of the job.
    """

    id: str
    name: str
    prefix: str
    start: int
    end: int | None = None
    status: str = "RUNNING"
    parameters: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)


class Record:
    """
    Args:
        writer: name of the files: a rank of this host, and the generation in which it began.
        run: the job's own.
    """

    def __init__(self, folder: AttemptFolder, writer: Writer, run: Run) -> None:
        self._path = folder.tracked_metrics(writer)
        events = folder.tracked_events(writer)
        self._lock = threading.Lock()
        self._last: dict[str, Point] = {}
        self._recent: OrderedDict[tuple[object, ...], None] = OrderedDict()
        self._noted: set[str] = set()
        self._run = run
        self._runs = {run.id: run}
        self._metrics = MetricSpool(self._path, after=self._read_metrics())
        self._events = EventSpool(events, writer.rank, after=self._read_events(events))

    # -- runs -----------------------------------------------------------------------------------

    @property
    def run(self) -> Run:
        """The job's own run."""
        return self._run

    def runs(self) -> list[Run]:
        return list(self._runs.values())

    def find(self, run_id: str) -> Run | None:
        found = self._runs.get(run_id)
        name = run_id.removeprefix(f"{self._run.id}-")
        if found is None and name != run_id and _NESTED.fullmatch(name):
            # Nested, and this process has not made it.
            found = self._runs[run_id] = Run(run_id, name, f"{name}/", self._run.start)
        return found

    def nest(self, name: str, start: int) -> Run:
        """Return a new run below the job's own."""
        with self._lock:
            short = "".join(c if c.isascii() and c.isalnum() else "-" for c in name)[:40].strip("-")
            wanted = short = short or "run"
            number = 1
            while f"{self._run.id}-{wanted}" in self._runs:
                number += 1
                wanted = f"{short}-{number}"
            run = Run(f"{self._run.id}-{wanted}", name or wanted, f"{wanted}/", start)
            self._runs[run.id] = run
            return run

    # -- metrics --------------------------------------------------------------------------------

    def log(self, rank: int, points: Iterable[Point]) -> None:
        """Store points, each once. Those of rank 0 are the job's own, others the rank's."""
        with self._lock:
            new = [point for point in points if self._is_new(rank, point)]
            tables = list(tables_of(new, rank or None))
            for start in range(0, len(tables), MAX_TABLES):
                self._metrics.append(tables[start : start + MAX_TABLES])

    def last(self, prefix: str) -> list[Point]:
        """Return the newest point of each metric of a run, without its prefix."""
        with self._lock:
            found = [p for name, p in self._last.items() if name.startswith(prefix)]
            nested = tuple(run.prefix for run in self._runs.values() if run.prefix)
        if not prefix and nested:
            found = [point for point in found if not point.name.startswith(nested)]
        return [
            Point(p.name.removeprefix(prefix), p.step, p.timestamp, p.value)
            for p in sorted(found, key=lambda p: p.name)
        ]

    def history(self, name: str) -> list[Point]:
        """Return all points of a metric, in their order."""
        return [point for _, point in _stored(self._path) if point.name == name]

    def _is_new(self, rank: int, point: Point) -> bool:
        key = rank, *point.identity
        if key in self._recent:
            return False
        if point.name not in self._last and len(self._last) >= MAX_NAMES:
            self._note(
                f"more than {MAX_NAMES} metrics were logged: {point.name} and further ones are "
                "left out; a name is that of a curve, and what changes from step to step belongs "
                "into the step or the value"
            )
            return False
        self._recent[key] = None
        if len(self._recent) > MAX_RECENT:
            self._recent.popitem(last=False)
        self._see(point)
        return True

    def _see(self, point: Point) -> None:
        last = self._last.get(point.name)
        if last is None or (point.step, point.timestamp) >= (last.step, last.timestamp):
            self._last[point.name] = point

    def _read_metrics(self) -> int:
        """Read what an earlier process wrote; return its newest sequence."""
        sequence = newest_frame(self._path)
        for rank, point in _stored(self._path):
            self._see(point)
            self._recent[rank, *point.identity] = None
        while len(self._recent) > MAX_RECENT:
            self._recent.popitem(last=False)
        return sequence

    # -- parameters and tags --------------------------------------------------------------------

    def describe(self, run: Run, parameters: dict[str, str], tags: dict[str, str]) -> None:
        """Store parameters and tags of a run; the newest value of a name counts."""
        with self._lock:
            new = {k: v for k, v in parameters.items() if run.parameters.get(k) != v}
            room = MAX_NAMES - sum(len(each.parameters) for each in self._runs.values())
            added = [name for name in new if name not in run.parameters]
            for name in added[max(room, 0) :]:
                del new[name]
                self._note(
                    f"more than {MAX_NAMES} parameters were logged: {run.prefix}{name} and further "
                    "ones are left out"
                )
            changed = {k: v for k, v in tags.items() if run.tags.get(k) != v}
            run.parameters |= new
            run.tags |= changed
            data = {"parameters": {run.prefix + k: v for k, v in new.items()}, "tags": {}}
            if run is self._run:
                data["tags"] = changed
            if any(data.values()):
                self._events.append("logged", data)

    def forget_tag(self, run: Run, name: str) -> None:
        with self._lock:
            if run.tags.pop(name, None) is not None and run is self._run:
                self._events.append("logged", {"parameters": {}, "tags": {name: None}})

    def _note(self, message: str) -> None:
        subject = message[:30]
        if subject not in self._noted:
            self._noted.add(subject)
            self._events.append("note", {"message": message})

    def _read_events(self, path: Path) -> int:
        """Read what an earlier process wrote; return its newest sequence."""
        sequence = newest_event(path)
        for event in map(json.loads, path.read_bytes().splitlines() if sequence else ()):
            if event["kind"] == "logged":
                self._run.parameters |= event["data"]["parameters"]
                tags = self._run.tags | event["data"]["tags"]
                self._run.tags = {k: v for k, v in tags.items() if v is not None}
        return sequence


def _stored(path: Path) -> Iterator[tuple[int, Point]]:
    """Yield the points of a spool, each with its rank; none if the file is missing."""
    if not path.exists():
        return
    data = path.read_bytes()
    for frame in complete_frames(data):
        for table in decode_tables(data[frame.payload : frame.end]):
            times = [round(1000 * time) for time in table.times]
            for name, values in table.columns.items():
                for step, time, value in zip(table.steps, times, values, strict=True):
                    yield table.rank or 0, Point(name, step, time, value)
