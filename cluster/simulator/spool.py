"""The records of one rank process: kept until the coordinator has acknowledged them, and sent as
agents send them."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar

from trainhall.cluster.agent.shim.rank_process import writer_name
from trainhall.cluster.coordinator import Coordinator
from trainhall.cluster.errors import ClusterError
from trainhall.monitoring.lineage import UNKNOWN, Origin
from trainhall.training.link.events import RankEvent
from trainhall.training.link.frames import MetricTable, encode_frame, encode_tables
from trainhall.training.link.launch import Launch

T = TypeVar("T")

Stream = Literal["stdout", "stderr"]
Kind = Literal[
    "packages", "started", "stepped", "checkpoint", "failure", "completed", "paused", "gradients",
    "note",
]  # fmt: skip
Files = Mapping[str, bytes]
"""The files of a checkpoint by their paths, the manifest last."""

_MOST_BYTES = 4 * 1024 * 1024
"""Bytes of frames in one request."""


class Send(Protocol):
    """Has the coordinator do something, and waits for the answer."""

    def __call__(self, work: Callable[[Coordinator], Awaitable[T]], /) -> Awaitable[T]: ...


class Spool:
    """Every record is numbered, so that sending one twice counts once."""

    def __init__(self, launch: Launch, rank: int) -> None:
        self.rank = rank
        self.job_id = launch.job_id
        self.attempt = launch.attempt
        self.generation = launch.generation
        """In which the process began."""
        self.writer = writer_name(launch, rank)
        self.events: list[RankEvent] = []
        """Events that are not acknowledged."""
        self.newest_frame = self.acked_frames = self.sent_frames = 0
        """Written, acknowledged, and sent whether acknowledged or not."""
        self.steps: list[int] = []
        """Step of each frame, where each is of one."""
        self._newest_event = 0
        self._frames: list[bytes] = []
        """Frames that are not acknowledged."""
        self._uploads: dict[str, Files] = {}
        """By checkpoint: what goes to the coordinator's store before its event is sent."""
        self._text: list[tuple[Stream, bytearray]] = []
        """Output in the order in which it was written, each run of one stream together."""
        self._offset: dict[Stream, int] = {"stdout": 0, "stderr": 0}

    @property
    def empty(self) -> bool:
        """Everything was acknowledged."""
        return not (self._frames or self.events or self._text)

    def metrics(self, tables: Sequence[MetricTable]) -> None:
        self.newest_frame += 1
        self._frames.append(encode_frame(self.newest_frame, encode_tables(tables)))

    def measure(self, step: int, time: float, value: float, rank: int | None = None) -> None:
        """Write a measurement; without a `rank` it is the whole job's."""
        self.steps.append(step)
        self.metrics([MetricTable(rank, [step], [time], {"loss": [value]})])

    def event(self, kind: Kind, data: dict[str, Any], time: float) -> None:
        self._newest_event += 1
        self.events.append(
            RankEvent(sequence=self._newest_event, time=time, rank=self.rank, kind=kind, data=data)
        )

    def checkpoint(self, event: dict[str, Any], files: Files | None, time: float) -> None:
        """Report a committed checkpoint; `files` to upload, None on shared storage."""
        if files is not None:
            self._uploads[str(event["name"])] = files
        self.event("checkpoint", event, time)

    def write(self, text: str, stream: Stream = "stdout") -> None:
        """Write a line of output, or several."""
        if not self._text or self._text[-1][0] != stream:
            self._text.append((stream, bytearray()))
        self._text[-1][1].extend(text.encode() + b"\n")

    async def ship(
        self,
        send: Send,
        origin: Origin = UNKNOWN,
        *,
        metrics: bool = True,
        accepted: Callable[[bool], None] = lambda again: None,
    ) -> None:
        """Send all that there is, or only the events; what is not acknowledged stays.

        Args:
            accepted: called after each answer, with whether a part of it had been sent before.
        """
        if self.events:
            await self._ship_events(send, origin)
            accepted(False)
        if metrics:
            await self._ship_metrics(send, origin, accepted)
            await self._ship_text(send)

    async def _ship_metrics(
        self, send: Send, origin: Origin, accepted: Callable[[bool], None]
    ) -> None:
        while self._frames:
            body, count = bytearray(), 0
            for frame in self._frames:
                if body and len(body) + len(frame) > _MOST_BYTES:
                    break
                body += frame
                count += 1
            again = self.acked_frames < self.sent_frames
            self.sent_frames = max(self.sent_frames, self.acked_frames + count)
            acked = await send(
                lambda c, body=bytes(body): c.ingest.metrics(  # type: ignore[misc]
                    self.job_id, self.attempt, self.writer, body, origin
                )
            )
            is_refused = acked <= self.acked_frames
            del self._frames[: max(0, acked - self.acked_frames)]
            self.acked_frames = max(acked, self.acked_frames)
            accepted(again)
            if is_refused:
                return

    async def _ship_events(self, send: Send, origin: Origin) -> None:
        events = list(self.events)
        for index, event in enumerate(events):
            if event.kind == "checkpoint":
                events[index] = await self._upload(send, event)
        acked = await send(
            lambda c: c.rank_events.accept(self.job_id, self.attempt, self.writer, events, origin)
        )
        self.events = [event for event in self.events if event.sequence > acked]

    async def _upload(self, send: Send, event: RankEvent) -> RankEvent:
        """Bring a checkpoint's files to the coordinator before it receives the event."""
        name = str(event.data["name"])
        files = self._uploads.get(name)
        if files is None:
            return event

        async def upload(coordinator: Coordinator) -> None:
            uploads = coordinator.checkpoints.uploads
            for path, content in files.items():
                await uploads.receive(self.job_id, name, path, _pieces(content))
            await uploads.commit(self.job_id, name)

        try:
            await send(upload)
        except ClusterError as error:
            # Of an attempt that was replaced meanwhile, say.
            message = f"checkpoint {name} could not be uploaded: {error.message}"
            data = {"step": event.data["step"], "message": message}
            return event.model_copy(update={"kind": "not_saved", "data": data})
        finally:
            del self._uploads[name]
        return event

    async def _ship_text(self, send: Send) -> None:
        while self._text:
            stream, data = self._text.pop(0)
            offset = self._offset[stream]
            self._offset[stream] = await send(
                lambda c, s=stream, at=offset, text=bytes(data): c.ingest.logs(  # type: ignore[misc]
                    self.job_id, self.attempt, self.rank, s, at, text
                )
            )


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    yield data
