"""The files that a rank appends to, as streams with a position: what the coordinator committed.

A position only ever follows what the coordinator acknowledged. After a crash it may be behind; then
something is sent twice, which the coordinator notices by sequence or offset.
"""

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from trainhall.cluster.agent.coordinator_link.http_api import RefusedError, Shipping, Source
from trainhall.cluster.agent.os_support.accounts import Owner, acting_as
from trainhall.monitoring.lines import LOG_FULL
from trainhall.training.event_log import EventLogger
from trainhall.training.link.frames import MAX_FRAME_BYTES, complete_frames
from trainhall.training.link.regular_file import REPLACED, open_regular, size_of_regular

logger = EventLogger(__name__)

CONFLICT = 409
LOG_BYTES = 256 * 1024
"""The most that one request carries of a log."""
METRIC_BYTES = 1024 * 1024
EVENT_BYTES = 1024 * 1024
_FRAME_HEADER_BYTES = 64
MAX_EVENT_BYTES = 8 * 1024 * 1024


class FileShipper(ABC):
    """One file of one rank on its way to the coordinator.

    Args:
        owner: as whom the file is read; None: as this process.
    """

    name = ""

    def __init__(
        self, source: Source, path: Path, api: Shipping, *, owner: Owner | None = None
    ) -> None:
        self.source = source
        self.path = path
        self.api = api
        self.owner = owner
        self.offset = 0
        self.sequence = 0
        self._partial_size = -1
        """Size of the file when nothing more could be sent of it: a line or frame was not whole."""

    def has_more(self) -> bool:
        """Return whether the file holds more than was read."""
        size = self._size()
        return size > self.offset and size != self._partial_size

    @property
    def backlog(self) -> int:
        """Bytes of the file that the coordinator has not acknowledged."""
        return max(self._size() - self.offset, 0)

    async def ship(self) -> bool:
        """Send the next part; False when all that is whole was sent.

        Raises:
            UnavailableError: try again later.
        """
        size = self._size()
        if size <= self.offset:
            return False
        try:
            sent = await self._ship()
        except RefusedError as error:
            if error.status == CONFLICT and self.offset > 0:
                self._rewind(error.expected)
            else:
                self._stop_shipping(error.detail)
            return True
        except OSError as error:
            if error.errno not in REPLACED:
                raise
            self._stop_shipping(f"the job has replaced it: {error.strerror}")
            return True
        if not sent:
            self._partial_size = size
        return sent

    @abstractmethod
    async def _ship(self) -> bool: ...

    def _rewind(self, expected: int | None) -> None:
        """Send all again, as the coordinator has less than it acknowledged (a restored database);
        it skips what it has."""
        self.offset = self.sequence = 0

    def _size(self) -> int:
        with acting_as(self.owner):
            return size_of_regular(self.path)

    def _read(self, limit: int) -> bytes:
        with acting_as(self.owner):
            fd = open_regular(self.path)
        try:
            # As much memory is taken as is asked for, however little there is.
            there = max(os.fstat(fd).st_size - self.offset, 0)
            return os.pread(fd, min(limit, there), self.offset)
        finally:
            os.close(fd)

    def _stop_shipping(self, reason: str) -> None:
        """Take all that is there as shipped: sending it again would end in the same way."""
        logger.error("shipping_abandoned", path=self.path, error=reason)
        self.offset = self._size()

    def position(self) -> list[int]:
        return [self.offset, self.sequence]

    def restore(self, position: list[int]) -> None:
        self.offset, self.sequence = position


class LogShipper(FileShipper):
    """A rank's output, byte for byte."""

    def __init__(
        self,
        source: Source,
        path: Path,
        api: Shipping,
        stream: str,
        *,
        owner: Owner | None = None,
    ) -> None:
        super().__init__(source, path, api, owner=owner)
        self.name = stream
        self._is_full = False
        """True once no more of the job's output is stored."""

    def _size(self) -> int:
        return self.offset if self._is_full else super()._size()

    async def _ship(self) -> bool:
        data = self._read(LOG_BYTES)
        acked = await self.api.send_logs(self.source, self.name, self.offset, data)
        if acked >= LOG_FULL:
            logger.warning("log_full", path=self.path)
            self.offset, self._is_full = self._size(), True
            return False
        # It may have more than was sent just now, from before a crash of this agent; what it says
        # counts, but never beyond what the file holds.
        self.offset = min(acked, self._size())
        return True

    def _rewind(self, expected: int | None) -> None:
        # Without an offset send the first bytes again: the reply is the offset to continue from.
        known = expected is not None and 0 <= expected < self.offset
        self.offset = expected if expected is not None and known else 0


class MetricShipper(FileShipper):
    """A rank's metric frames, forwarded unread."""

    name = "metrics"

    async def _ship(self) -> bool:
        data = self._read(METRIC_BYTES)
        frames = self._frames(data)
        if not frames and len(data) == METRIC_BYTES:
            data = self._read(MAX_FRAME_BYTES + _FRAME_HEADER_BYTES)
            frames = self._frames(data)
        if not frames:
            return False
        end, last = frames[-1]
        acked = await self.api.send_metrics(self.source, data[:end])
        if acked >= last:
            self.offset += end
            self.sequence = last
        elif acked < frames[0][1] - 1 and self.offset > 0:
            # It has less than it acknowledged; from the start on, what it has it skips.
            self.offset = self.sequence = 0
        else:
            self.offset += next((e for e, s in reversed(frames) if s <= acked), 0)
            self.sequence = acked
        return True

    def _frames(self, data: bytes) -> list[tuple[int, int]]:
        """End and sequence of each whole frame."""
        try:
            return [(frame.end, frame.sequence) for frame in complete_frames(data)]
        except ValueError as error:
            self._stop_shipping(str(error))
            return []


Upload = Callable[[str, dict[str, Any]], Awaitable[str | None]]
"""Uploads the checkpoint of an event; returns why that is not possible, if it never will be."""


class EventShipper(FileShipper):
    """A rank's events in order; a checkpoint's is sent once others can read the checkpoint."""

    name = "events"

    def __init__(
        self,
        source: Source,
        path: Path,
        api: Shipping,
        upload: Upload | None = None,
        *,
        profiled: Callable[[], None] = lambda: None,
        owner: Owner | None = None,
    ) -> None:
        super().__init__(source, path, api, owner=owner)
        self._upload = upload
        self._profiled = profiled
        """Called when the rank has reported a profile."""

    async def _ship(self) -> bool:
        lines = self._lines()
        if not lines:
            return False
        batch = self._before_checkpoint(lines)
        if batch:
            body = b"".join(raw for raw, _ in batch)
        else:
            batch = [lines[0], *self._before_checkpoint(lines[1:])]
            body = await self._uploaded(*lines[0]) + b"".join(raw for raw, _ in batch[1:])
        acked = await self.api.send_events(self.source, body)
        last = batch[-1][1].get("sequence", 0)
        if acked >= last:
            self.offset += sum(len(raw) for raw, _ in batch)
            self.sequence = last
            if any(event.get("kind") == "profile" for _, event in batch):
                self._profiled()
        elif self.offset > 0:
            self.offset = self.sequence = 0
        else:
            self._stop_shipping(f"the coordinator acknowledges only event {acked} of {last}")
        return True

    def _lines(self) -> list[tuple[bytes, dict[str, Any]]]:
        data = self._read(EVENT_BYTES)
        if b"\n" not in data and len(data) == EVENT_BYTES:
            data = self._read(MAX_EVENT_BYTES)
        found = []
        for raw in data[: data.rfind(b"\n") + 1].splitlines(keepends=True):
            try:
                event = json.loads(raw)
                found.append((raw, dict(event)))
            except (ValueError, TypeError) as error:
                if found:
                    break
                self._stop_shipping(f"event at byte {self.offset} is damaged: {error}")
                return []
        return found

    def _before_checkpoint(
        self, lines: list[tuple[bytes, dict[str, Any]]]
    ) -> list[tuple[bytes, dict[str, Any]]]:
        if self._upload is None:
            return lines
        batch = []
        for raw, event in lines:
            if event.get("kind") == "checkpoint":
                break
            batch.append((raw, event))
        return batch

    async def _uploaded(self, raw: bytes, event: dict[str, Any]) -> bytes:
        """Return the line of a checkpoint's event, once it is uploaded or never can be."""
        assert self._upload is not None
        why_not = await self._upload(self.source.job_id, event.get("data", {}))
        if why_not is None:
            return raw
        data = event.get("data", {})
        message = f"checkpoint {data.get('name', '?')} was not uploaded: {why_not}"
        unsaved = {"kind": "not_saved", "data": {"step": data.get("step"), "message": message}}
        return json.dumps({**event, **unsaved}).encode() + b"\n"
