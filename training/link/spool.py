"""Spool files: what a rank appends and its agent ships."""

import errno
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trainhall.training.link.events import RankEvent
from trainhall.training.link.frames import (
    MAX_FRAME_BYTES,
    MetricTable,
    complete_frames,
    encode_frame,
    encode_tables,
)
from trainhall.training.link.regular_file import open_regular
from trainhall.training.link.secrets.masking import own_masker

_PART_BYTES = 2 * MAX_FRAME_BYTES
"""Holds any frame, and any event."""
MAX_WAITING_BYTES = 64 * 1024 * 1024
"""The most bytes of metrics or events that a rank keeps in memory while the disk is full."""


class _RecordSpool:
    """Appends records to a file, numbered from 1, each as a whole or not at all.

    A full disk stops no training: records wait in memory until there is room again, the oldest
    giving way beyond `MAX_WAITING_BYTES`. They are numbered when they are written, so none is
    missed by who reads them.
    """

    def __init__(self, path: Path, encode: Callable[[int, bytes], bytes], after: int) -> None:
        self.path = path
        self._encode = encode
        self._sequence = after
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0

    def _append(self, body: bytes) -> None:
        self._waiting.append(body)
        self._waiting_bytes += len(body)
        while self._waiting:
            if not append_or_nothing(self.path, self._encode(self._sequence + 1, self._waiting[0])):
                break
            self._sequence += 1
            self._drop_oldest()
        while self._waiting_bytes > MAX_WAITING_BYTES:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        self._waiting_bytes -= len(self._waiting.popleft())


class MetricSpool(_RecordSpool):
    """Appends a rank's metric frames to its file, numbered from 1 for the life of the writer.

    Args:
        after: the newest number in the file, where another process of the rank wrote before.
    """

    def __init__(self, path: Path, after: int = 0) -> None:
        super().__init__(path, encode_frame, after)

    def append(self, tables: Sequence[MetricTable]) -> None:
        """Write one frame. A kill leaves at most a partial frame at the end."""
        self._append(encode_tables(tables))


class EventSpool(_RecordSpool):
    """Appends a rank's events to its file, numbered from 1 for the life of the writer."""

    def __init__(self, path: Path, rank: int, after: int = 0) -> None:
        super().__init__(path, _encode_event, after)
        self.rank = rank
        self._lock = threading.Lock()

    def append(self, kind: str, data: dict[str, Any]) -> None:
        """Write one event, without secrets of this process. Any thread may call it: checkpoints are
        committed in the background."""
        masker = own_masker()
        data = data if masker is None else masker.json(data)
        event = RankEvent.model_validate(
            {"sequence": 0, "time": time.time(), "rank": self.rank, "kind": kind, "data": data}
        )
        fields = _encode(event.model_dump(mode="json", exclude={"sequence"}))
        with self._lock:
            self._append(fields)


def _encode(fields: dict[str, Any]) -> bytes:
    text = json.dumps(fields, separators=(",", ":"))
    if "\\ud" in text:  # perhaps half a surrogate pair, as of a file name that is not UTF-8
        whole = json.dumps(fields, ensure_ascii=False).encode(errors="replace")
        text = json.dumps(json.loads(whole), separators=(",", ":"))
    return text.encode()


def _encode_event(sequence: int, fields: bytes) -> bytes:
    return b'{"sequence":%d,' % sequence + fields.removeprefix(b"{") + b"\n"


def newest_frame(path: Path) -> int:
    """Return the newest number in a file of frames, 0 if there is none, and cut off what a killed
    process has left of the next."""
    try:
        fd = open_regular(path, os.O_RDWR)
    except FileNotFoundError:
        return 0
    sequence = end = 0
    with open(fd, "r+b") as file:
        # Not mapped: a job that shortens the file would end the agent, which reads it, by a signal.
        while frames := list(complete_frames(file.read(_PART_BYTES))):
            sequence, end = frames[-1].sequence, end + frames[-1].end
            file.seek(end)
        file.truncate(end)
    return sequence


def newest_event(path: Path) -> int:
    """Return the newest number in a file of events, as `newest_frame` does."""
    try:
        fd = open_regular(path, os.O_RDWR)
    except FileNotFoundError:
        return 0
    with open(fd, "r+b") as file:
        # Not the whole file, which a job may have made as large as it likes.
        start = file.seek(max(0, os.fstat(fd).st_size - _PART_BYTES))
        data = file.read(_PART_BYTES)
        whole = data[: data.rfind(b"\n") + 1]
        file.truncate(start + len(whole))
    return int(json.loads(whole.splitlines()[-1])["sequence"]) if whole else 0


def append_or_nothing(path: Path, data: bytes) -> bool:
    """Append bytes to a file of this process; False, and nothing appended, on a full disk."""
    try:
        fd = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as error:
        return _refuse_unless_full(error)
    try:
        size = os.fstat(fd).st_size
        view = memoryview(data)
        try:
            while view:  # a signal may cut a write short
                view = view[os.write(fd, view) :]
        except OSError as error:
            # Whatever followed half a record could not be read.
            os.ftruncate(fd, size)
            return _refuse_unless_full(error)
    finally:
        os.close(fd)
    return True


def _refuse_unless_full(error: OSError) -> bool:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return False
    raise error
