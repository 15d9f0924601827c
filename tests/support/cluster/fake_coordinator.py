"""The coordinator's side of the agent protocol, as little as it takes, and as honest.

It keeps what it acknowledged, checks every position, and tells each agent what a test wants of it.
"""

import asyncio
import contextlib
import hashlib
import json
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response, WebSocket
from starlette.websockets import WebSocketDisconnect
from support.cluster.agent_process import until
from support.ports import bound, reserve
from support.storage.fake_outputs import FakeOutputs

from trainhall.cluster.wire.batches import BatchItem, BatchReply, decode_batch, encode_replies
from trainhall.cluster.wire.protocol import Assignment, Desired, Report
from trainhall.training.link.events import RankEvent
from trainhall.training.link.frames import complete_frames
from trainhall.training.link.launch import Launch

TOKEN = "join-me"
CREDENTIAL = "node-credential"


@dataclass
class FakeCoordinator:
    """State and switches; `serving` makes it answer."""

    port: int = 0
    desired: list[Assignment] = field(default_factory=list)
    remove: list[str] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    logs: dict[tuple[str, int, int, str], bytearray] = field(
        default_factory=lambda: defaultdict(bytearray)
    )
    frames: dict[tuple[str, int, str], bytearray] = field(
        default_factory=lambda: defaultdict(bytearray)
    )
    sequences: dict[tuple[str, str, int, str], int] = field(
        default_factory=lambda: defaultdict(int)
    )
    events: list[RankEvent] = field(default_factory=list)
    files: dict[tuple[str, str, str], bytes] = field(default_factory=dict)
    outputs: FakeOutputs = field(default_factory=FakeOutputs)
    committed: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    """What came of checkpoints, in the order of its coming."""
    joins: int = 0
    requests: int = 0
    heartbeat_seconds: float = 0.2
    repeat_seconds: float = 0.1
    """How often the same is wanted again."""
    close_with: int | None = None
    """Close connections with this code after the first report."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def last(self) -> Report:
        return self.reports[-1]

    def want(self, *assignments: tuple[Launch, str]) -> None:
        """Make this, and only this, what the agent shall run."""
        self.desired = [
            Assignment.model_validate({"launch": launch.model_dump(), "goal": goal})
            for launch, goal in assignments
        ]
        self._changed.set()

    def reported(self, launch: Launch) -> Any:
        """What the last report says of an attempt; None when it says nothing."""
        if not self.reports:
            return None
        token = launch.token
        for assignment in self.last.assignments:
            if (assignment.job_id, assignment.attempt, assignment.generation) == token:
                return assignment
        return None

    def outcome(self, launch: Launch) -> str | None:
        reported = self.reported(launch)
        return reported.outcome if reported is not None else None

    def log(self, launch: Launch, rank: int = 0, stream: str = "stdout") -> bytes:
        return bytes(self.logs[(launch.job_id, launch.attempt, rank, stream)])

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Listen on `port`; the first time on a free one, later on the same."""
        if self.port == 0:
            self.port = reserve(self)
        listener = bound(self.port)
        config = uvicorn.Config(
            self._app(), log_level="critical", lifespan="off", timeout_graceful_shutdown=1,
            ws="websockets-sansio",
        )  # fmt: skip
        server = uvicorn.Server(config)
        server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        task = asyncio.create_task(server._serve([listener]))
        try:
            await until("the server", lambda: server.started)
            yield
        finally:
            server.should_exit = server.force_exit = True
            await task
            listener.close()

    def _app(self) -> FastAPI:
        app = FastAPI()
        base = "/api/v1/agent"
        attempt = base + "/jobs/{job}/attempts/{attempt}"
        file = base + "/jobs/{job}/checkpoints/{name}/files/{path:path}"
        app.add_api_route(base + "/join", self._join, methods=["POST"])
        app.add_api_route(attempt + "/metrics", self._metrics, methods=["POST"])
        app.add_api_route(attempt + "/events", self._events, methods=["POST"])
        app.add_api_route(attempt + "/logs", self._logs, methods=["POST"])
        app.add_api_route(file, self._put, methods=["PUT"])
        app.add_api_route(file, self._get, methods=["GET"])
        app.add_api_route(
            base + "/jobs/{job}/checkpoints/{name}/commit", self._commit, methods=["POST"]
        )
        self.outputs.add_routes(app, base)
        app.add_api_websocket_route(base + "/connect", self._connect)
        app.add_api_websocket_route(base + "/ship", self._ship)
        return app

    async def _join(self, request: Request) -> Response:
        body = await request.json()
        if body["join_token"] != TOKEN:
            return _problem(401, "the join token is unknown, used or expired")
        self.joins += 1
        return _json({"node_id": "n1", "credential": CREDENTIAL})

    async def _ship(self, websocket: WebSocket) -> None:
        if websocket.headers.get("authorization") != f"Bearer {CREDENTIAL}":
            await websocket.send_denial_response(_problem(401, "the credential is unknown"))
            return
        await websocket.accept()
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            while True:
                self.requests += 1
                answers = [self._take(*p) for p in decode_batch(await websocket.receive_bytes())]
                await websocket.send_text(encode_replies(answers))

    def _take(self, piece: BatchItem, data: bytes) -> BatchReply:
        if piece.kind == "metrics":
            answer = self._take_metrics(piece.job_id, piece.attempt, piece.writer, data)
            return BatchReply(position=answer)
        key = (piece.job_id, piece.attempt, piece.rank, piece.kind)
        following = self._take_log(key, piece.offset, data)
        if following is None:
            return BatchReply(refusal=f"offset {len(self.logs[key])} is expected", status=409)
        return BatchReply(position=following)

    async def _metrics(self, request: Request, job: str, attempt: int, writer: str) -> Response:
        body = await self._body(request)
        return _json({"sequence": self._take_metrics(job, attempt, writer, body)})

    def _take_metrics(self, job: str, attempt: int, writer: str, body: bytes) -> int:
        key = ("metrics", job, attempt, writer)
        start = 0
        for frame in complete_frames(body):
            if frame.sequence > self.sequences[key]:
                assert frame.sequence == self.sequences[key] + 1, "a frame was left out"
                self.frames[(job, attempt, writer)] += body[start : frame.end]
                self.sequences[key] = frame.sequence
            start = frame.end
        assert start == len(body), "only whole frames are sent"
        return self.sequences[key]

    async def _events(self, request: Request, job: str, attempt: int, writer: str) -> Response:
        key = ("events", job, attempt, writer)
        for line in (await self._body(request)).splitlines():
            event = RankEvent.model_validate_json(line)
            if event.sequence > self.sequences[key]:
                # Of what an agent recovers, the numbers follow from the steps.
                gap = event.sequence - self.sequences[key] > 1
                assert not gap or writer.startswith("recovered-"), "an event was left out"
                self.sequences[key] = event.sequence
                self.events.append(event)
                if event.kind == "checkpoint":
                    self.steps.append(f"event {event.data['name']}")
        return _json({"sequence": self.sequences[key]})

    async def _logs(
        self, request: Request, job: str, attempt: int, rank: int, stream: str, offset: int
    ) -> Response:
        body = await self._body(request)
        key = (job, attempt, rank, stream)
        following = self._take_log(key, offset, body)
        if following is None:
            return _problem(409, f"offset {len(self.logs[key])} is expected")
        return _json({"next_offset": following})

    def _take_log(self, key: tuple[str, int, int, str], offset: int, body: bytes) -> int | None:
        """The offset that is wanted next; None: something before this has not come."""
        assert len(body) <= 256 * 1024
        log = self.logs[key]
        if offset > len(log):
            return None
        log += body[len(log) - offset :]
        return len(log)

    async def _put(self, request: Request, job: str, name: str, path: str, sha256: str) -> Response:
        body = await self._body(request)
        if hashlib.sha256(body).hexdigest() != sha256:
            return _problem(422, "the bytes are not what was promised")
        self.files[(job, name, path)] = body
        self.steps.append(f"put {name}/{path}")
        return Response(status_code=204)

    async def _get(self, request: Request, job: str, name: str, path: str) -> Response:
        await self._body(request)
        if (job, name, path) not in self.files:
            return _problem(404, f"there is no file {path!r}")
        return Response(self.files[(job, name, path)])

    async def _commit(self, request: Request, job: str, name: str) -> Response:
        await self._body(request)
        self.committed.append(name)
        self.steps.append(f"commit {name}")
        return Response(status_code=204)

    async def _body(self, request: Request) -> bytes:
        assert request.headers["authorization"] == f"Bearer {CREDENTIAL}"
        self.requests += 1
        return await request.body()

    async def _connect(self, websocket: WebSocket) -> None:
        if websocket.headers.get("authorization") != f"Bearer {CREDENTIAL}":
            await websocket.send_denial_response(_problem(401, "the credential is unknown"))
            return
        await websocket.accept()
        listening = asyncio.create_task(self._listen(websocket))
        revision = 0
        try:
            while not listening.done():
                if self.close_with is not None and self.reports:
                    await websocket.close(self.close_with, "as the test wants it")
                    return
                if self.reports:
                    revision += 1
                    message = Desired(
                        revision=revision,
                        heartbeat_seconds=self.heartbeat_seconds,
                        assignments=self.desired,
                        remove=self.remove,
                    )
                    await websocket.send_text(message.model_dump_json())
                self._changed.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), self.repeat_seconds)
        except (WebSocketDisconnect, RuntimeError):
            return
        finally:
            listening.cancel()

    async def _listen(self, websocket: WebSocket) -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            while True:
                self.reports.append(Report.model_validate_json(await websocket.receive_text()))
                if len(self.reports) == 1:
                    self._changed.set()


def _json(data: dict[str, Any]) -> Response:
    return Response(json.dumps(data), media_type="application/json")


def _problem(status: int, detail: str) -> Response:
    body = json.dumps({"title": "refused", "status": status, "detail": detail})
    return Response(body, status, media_type="application/problem+json")
