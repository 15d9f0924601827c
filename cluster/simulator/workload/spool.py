"""What one rank wrote: kept until the coordinator has acknowledged it, sent as agents send it."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trainhall.cluster.coordinator import Coordinator
from trainhall.cluster.errors import ClusterError
from trainhall.training.link.events import RankEvent
from trainhall.training.link.frames import MetricTable, encode_frame, encode_tables

Stream = Literal["stdout", "stderr"]
Kind = Literal["started", "checkpoint", "failure", "completed", "paused", "gradients", "note"]
Files = Mapping[str, bytes]
"""The files of a checkpoint by their paths, the manifest last."""

_MOST_BYTES = 4 * 1024 * 1024
"""Of frames in one request."""


@dataclass
class _Frame:
    sequence: int
    data: bytes


class Spool:
    """Every record is numbered, so that sending one twice counts once."""

    def __init__(self, job_id: str, attempt: int, rank: int, writer: str) -> None:
        self.job_id = job_id
        self.attempt = attempt
        self.rank = rank
        self.writer = writer
        self._frames: list[_Frame] = []
        self._newest_frame = 0
        self._events: list[RankEvent] = []
        self._newest_event = 0
        self._uploads: dict[str, Files] = {}
        """By checkpoint: what goes to the coordinator's store before its event is told."""
        self._text: list[tuple[Stream, bytearray]] = []
        """Output in the order in which it was written, each run of one stream together."""
        self._offset: dict[Stream, int] = {"stdout": 0, "stderr": 0}

    @property
    def empty(self) -> bool:
        """Everything was acknowledged."""
        return not (self._frames or self._events or self._text)

    def metrics(self, tables: Sequence[MetricTable]) -> None:
        self._newest_frame += 1
        data = encode_frame(self._newest_frame, encode_tables(tables))
        self._frames.append(_Frame(self._newest_frame, data))

    def event(self, kind: Kind, data: dict[str, Any], time: float) -> None:
        self._newest_event += 1
        self._events.append(
            RankEvent(sequence=self._newest_event, time=time, rank=self.rank, kind=kind, data=data)
        )

    def checkpoint(self, event: dict[str, Any], files: Files | None, time: float) -> None:
        """A checkpoint was committed; `files` are to be uploaded, None on shared storage."""
        if files is not None:
            self._uploads[str(event["name"])] = files
        self.event("checkpoint", event, time)

    def write(self, text: str, stream: Stream = "stdout") -> None:
        """A line of output, or several."""
        if not self._text or self._text[-1][0] != stream:
            self._text.append((stream, bytearray()))
        self._text[-1][1].extend(text.encode() + b"\n")

    async def ship(self, coordinator: Coordinator, *, metrics: bool = True) -> None:
        """Send all that there is, or only what the rank told; what is not acknowledged stays."""
        await self._ship_events(coordinator)
        if metrics:
            await asyncio.gather(self._ship_metrics(coordinator), self._ship_text(coordinator))

    async def _ship_metrics(self, coordinator: Coordinator) -> None:
        while self._frames:
            body = bytearray()
            for frame in self._frames:
                if body and len(body) + len(frame.data) > _MOST_BYTES:
                    break
                body += frame.data
            acked = await coordinator.ingest.metrics(
                self.job_id, self.attempt, self.writer, bytes(body)
            )
            if acked < self._frames[0].sequence:
                return
            self._frames = [frame for frame in self._frames if frame.sequence > acked]

    async def _ship_events(self, coordinator: Coordinator) -> None:
        if not self._events:
            return
        events = list(self._events)
        for index, event in enumerate(events):
            if event.kind == "checkpoint":
                events[index] = await self._upload(coordinator, event)
        acked = await coordinator.events(self.job_id, self.attempt, self.writer, events)
        self._events = [event for event in self._events if event.sequence > acked]

    async def _upload(self, coordinator: Coordinator, event: RankEvent) -> RankEvent:
        """Bring a checkpoint's files to the coordinator before it hears of it."""
        name = str(event.data["name"])
        files = self._uploads.get(name)
        if files is None:
            return event
        store = coordinator.checkpoints
        try:
            for path, content in files.items():
                await store.uploads.receive(self.job_id, name, path, _pieces(content))
            await store.uploads.commit(self.job_id, name)
        except ClusterError as error:
            # Of an attempt that was replaced meanwhile, say.
            message = f"checkpoint {name} could not be uploaded: {error.message}"
            data = {"step": event.data["step"], "message": message}
            return event.model_copy(update={"kind": "not_saved", "data": data})
        finally:
            del self._uploads[name]
        return event

    async def _ship_text(self, coordinator: Coordinator) -> None:
        while self._text:
            stream, data = self._text.pop(0)
            self._offset[stream] = await coordinator.ingest.logs(
                self.job_id, self.attempt, self.rank, stream, self._offset[stream], bytes(data)
            )


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    yield data
