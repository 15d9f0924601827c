"""Follows the event files of an attempt, and appends what they gain to spools of its host.

What is read when is noted twice. `state.json` says how far each file was read once the frame that
it numbers is in the spool, and how far before. So an agent that is killed at any point continues
where the spool ends, and each value is in it once.
"""

import errno
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from trainhall.cluster.agent.event_files.folders import MAX_FILES, EventFolders
from trainhall.cluster.agent.event_files.messages import Event, read_event
from trainhall.cluster.agent.event_files.records import read_records
from trainhall.cluster.wire.mlflow import Point, tables_of
from trainhall.training.event_log import EventLogger
from trainhall.training.link.folder import AttemptFolder, Writer, replace_json, working_folder
from trainhall.training.link.frames import encode_frame, encode_tables
from trainhall.training.link.launch import Launch
from trainhall.training.link.regular_file import open_regular, read_regular
from trainhall.training.link.spool import EventSpool, append_or_nothing, newest_event, newest_frame
from trainhall.training.link.status import ShimStatus

logger = EventLogger(__name__)

SETTLE_SECONDS = 2.0
"""From the first event file on, others may appear, as when a script opens a writer for training and
one for validation: whether there are several decides about the names."""
PART_BYTES = 512 * 1024
"""Bytes that are read of all files at once: a frame holds their values, and a host has other things
to do meanwhile."""
MAX_KNOWN = 2 * MAX_FILES
"""Files that may be noted; of more, those that are gone are not any longer."""
MAX_NAME = 128
MAX_NAMES = 1000
MAX_STEP = 2**62
MAX_NOTES = 20
MAX_STATE_BYTES = 4 * 2**20
MAX_STATUS_BYTES = 2**20
_LAST_SECOND = 2**43


class Progress(BaseModel):
    """Position in each file.

    Args:
        sequence: of the frame with which they were.
        offsets: by their paths below the working folder; None: it is not read any further.
    """

    sequence: int = 0
    offsets: dict[str, int | None] = Field(default_factory=dict)


class State(BaseModel):
    """State from which the next agent continues."""

    rank: int
    """The host's lowest one when the attempt began here."""
    generation: int
    """In which that was."""
    before: Progress = Progress()
    after: Progress = Progress()
    """Is in effect once the frame of its number is in the spool."""
    origin: str | None = None
    """Folder from which the names of folders count. None: not chosen yet."""
    notes: list[str] = Field(default_factory=list)
    """Events for the job's page that were appended."""


def prepare(folder: AttemptFolder, launch: Launch) -> None:
    """Note what event files are there before the ranks of an attempt start: what the code and the
    outputs of earlier attempts have brought is not this attempt's.

    Raises:
        OSError: the disk is full, say.
    """
    if not launch.ranks or launch.trace is not None:
        return
    there, _ = EventFolders(working_folder(folder, launch)).look()
    found = Progress(offsets=dict(there))
    rank = min(slot.rank for slot in launch.ranks)
    state = State(rank=rank, generation=launch.generation, before=found, after=found)
    folder.event_files.mkdir(exist_ok=True)
    replace_json(_state_path(folder), state)


class EventFileTail:
    """Reads the event files of an attempt on this host. Its methods touch files only, with the
    rights of their caller.

    Args:
        state: as an earlier agent, or `prepare`, has left it.
    """

    def __init__(self, folder: AttemptFolder, launch: Launch, state: State) -> None:
        self._folder = folder
        self._state = state
        self.writer = Writer(state.rank, state.generation)
        self._root = working_folder(folder, launch)
        self._folders = EventFolders(self._root)
        self._first_seen: float | None = None
        self._names: set[str] = set()
        """Counted by each agent from 0; the coordinator counts, too."""
        self._ranks: dict[str, int] = {}
        self._events: EventSpool | None = None
        sequence = newest_frame(folder.file_metrics)
        self._now = state.after if sequence >= state.after.sequence else state.before
        self._sequence = sequence

    @classmethod
    def open(cls, folder: AttemptFolder, launch: Launch) -> "EventFileTail | None":
        """Continue where `prepare` or an earlier agent ended; None: there is nothing to follow, or
        the job has damaged what was noted."""
        try:
            data = read_regular(_state_path(folder), MAX_STATE_BYTES)
            return cls(folder, launch, State.model_validate_json(data))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError) as error:
            logger.warning("event_files_not_followed", path=folder.path, error=error)
            return None

    def poll(self, *, ended: bool) -> bool:
        """Read what is new; return whether there may be more.

        Args:
            ended: the ranks have: nothing else will appear.

        Raises:
            OSError: the disk is full, say; nothing is lost if it is tried again.
        """
        sizes, others = self._folders.look()
        self._note_others(others, len(sizes))
        grown = [name for name, size in sizes.items() if self._has_grown(name, size)]
        if not grown:
            return False
        if self._state.origin is None and not self._choose_origin(grown, ended=ended):
            return False
        offsets = dict(self._now.offsets)
        if len(offsets) > MAX_KNOWN:
            there = {*sizes, *others}
            offsets = {name: at for name, at in offsets.items() if name in there}
        values: list[tuple[float, int, str, Event]] = []
        left = PART_BYTES
        for name in sorted(grown):
            if left <= 0:
                break
            left -= self._read(name, offsets, values)
        if offsets == self._now.offsets:
            return False
        # Files of several writers are merged, as if one had written them.
        values.sort(key=lambda value: value[0])
        self._append(values, offsets)
        # A file may have grown since, and been read further than it was long.
        reached = [(offsets.get(name, 0), sizes[name]) for name in grown]
        return any(offset is not None and offset < size for offset, size in reached)

    def _has_grown(self, name: str, size: int) -> bool:
        offset = self._now.offsets.get(name, 0)
        if offset is not None and size < offset:
            self._stop(name, f"has become shorter, from {offset:,} to {size:,} bytes")
            return False
        return offset is not None and size > offset

    def _choose_origin(self, grown: list[str], *, ended: bool) -> bool:
        """Choose from where folders are named, if it is time for that."""
        now = time.monotonic()
        if self._first_seen is None:
            self._first_seen = now
        if not ended and now - self._first_seen < SETTLE_SECONDS:
            return False
        folders = {os.path.dirname(name) for name in grown}
        origin = os.path.commonpath(folders) if "" not in folders else ""
        self._state.origin = origin
        return True

    # -- one file -------------------------------------------------------------------------------

    def _read(
        self,
        name: str,
        offsets: dict[str, int | None],
        values: list[tuple[float, int, str, Event]],
    ) -> int:
        """Read the next part of a file; return how many bytes that were."""
        offset = offsets.get(name) or 0
        try:
            with open(open_regular(self._root / name), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                data = os.pread(file.fileno(), PART_BYTES, offset)
        except OSError as error:
            self._note(f"{name} cannot be read: {error.strerror or error}")
            offsets[name] = None
            return 0
        records = read_records(data)
        end = offset + records.end
        if end + records.passed_over <= size:
            end += records.passed_over
        offsets[name] = end
        rank, prefix = self._rank_of(name), self._prefix_of(name)
        for record in records.data:
            try:
                event = read_event(record)
            except ValueError:
                self._note(f"{name}: a record is no event; it is left out")
                continue
            values.append((event.wall_time, rank, prefix, event))
        if records.damaged_at is not None:
            at = offset + records.damaged_at
            self._note(f"{name} is damaged at byte {at:,}: what follows there is left out")
            offsets[name] = None
        return len(data) if end > offset else 0

    def _prefix_of(self, name: str) -> str:
        """Return what comes before the names of a file's metrics: its folder, unless it is the only
        one, as TensorBoard names runs."""
        path = os.path.relpath(os.path.dirname(name) or ".", self._state.origin or ".")
        parts = [part for part in path.split("/") if part not in (".", "..")]
        return "".join(f"{part}/" for part in parts)

    def _rank_of(self, name: str) -> int:
        """Return the rank whose process has written a file, which its name tells; of an unknown
        process the host's lowest."""
        known = self._ranks.get(name)
        if known is None:
            known = self._state.rank
            # events.out.tfevents.TIME.HOST.PID.NUMBER, and HOST may have dots.
            parts = os.path.basename(name).split(".")
            for rank, pid in self._pids():
                if str(pid) in parts[4:]:
                    known = rank
            self._ranks[name] = known
        return known

    def _pids(self) -> Iterator[tuple[int, int]]:
        try:
            data = read_regular(self._folder.status, MAX_STATUS_BYTES)
            status = ShimStatus.model_validate_json(data)
        except (OSError, ValidationError):
            return
        for state in status.ranks:
            if state.pid is not None:
                yield state.rank, state.pid

    # -- what is appended -----------------------------------------------------------------------

    def _append(
        self, values: list[tuple[float, int, str, Event]], offsets: Mapping[str, int | None]
    ) -> None:
        points: dict[int, list[Point]] = {}
        parameters: dict[str, str] = {}
        for wall_time, rank, prefix, event in values:
            parameters |= event.parameters
            points.setdefault(rank, []).extend(self._points(wall_time, prefix, event))
        tables = [
            table for rank, own in sorted(points.items()) for table in tables_of(own, rank or None)
        ]
        self._state.before = self._now
        after = Progress(sequence=self._sequence + bool(tables), offsets=dict(offsets))
        self._state.after = after
        replace_json(_state_path(self._folder), self._state)
        if parameters:
            self._event_spool().append("logged", {"parameters": parameters, "tags": {}})
        if tables:
            frame = encode_frame(after.sequence, encode_tables(tables))
            if not append_or_nothing(self._folder.file_metrics, frame):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._now, self._sequence = after, after.sequence

    def _points(self, wall_time: float, prefix: str, event: Event) -> Iterator[Point]:
        if not 0 <= wall_time < _LAST_SECOND:
            wall_time = time.time()
        for tag, value in event.scalars:
            name = prefix + tag
            if len(name) > MAX_NAME or not name.isprintable():
                self._note(f"{name[:60]!r} is left out: a name has 1 to {MAX_NAME} printable "
                           "characters")  # fmt: skip
            elif not 0 <= event.step < MAX_STEP:
                self._note(f"{name} is left out at step {event.step}: a step is 0 or above, and "
                           "below 2^62")  # fmt: skip
            elif name not in self._names and len(self._names) >= MAX_NAMES:
                self._note(f"more than {MAX_NAMES} metrics are in event files: {name} and further "
                           "ones are left out")  # fmt: skip
            else:
                self._names.add(name)
                yield Point(name, event.step, int(1000 * wall_time), value)

    def _note_others(self, others: list[str], files: int) -> None:
        for name in others[:MAX_NOTES]:
            if name not in self._now.offsets:
                self._stop(name, "is no regular file, and is not read")
        if files >= MAX_FILES:
            self._note(f"there are more than {MAX_FILES} event files; further ones are not read")

    def _stop(self, name: str, why: str) -> None:
        self._now.offsets[name] = None
        self._note(f"{name} {why}")

    def _note(self, message: str) -> None:
        """Append an event for the job's page, each once, and not too many."""
        if message not in self._state.notes and len(self._state.notes) < MAX_NOTES:
            self._state.notes.append(message)
            self._event_spool().append("note", {"message": f"TensorBoard: {message}"})
            replace_json(_state_path(self._folder), self._state)

    def _event_spool(self) -> EventSpool:
        if self._events is None:
            path = self._folder.file_events
            self._events = EventSpool(path, self._state.rank, after=newest_event(path))
        return self._events


def _state_path(folder: AttemptFolder) -> Path:
    return folder.event_files / "state.json"
