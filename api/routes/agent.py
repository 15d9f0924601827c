"""/agent: what agents ask and send (`trainhall.cluster.protocol`). Not part of the public document.

Bodies are bounded, and streamed where they may be large. Every request may be repeated. These are
plain routes, whose few parameters are read by hand: with FastAPI's own reading of parameters a
small batch costs four times as much.
"""

from pydantic import ValidationError
from starlette.requests import HTTPConnection, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from trainhall.api.auth import bearer
from trainhall.api.bodies import read_body, read_json, uploaded
from trainhall.api.params import checked_id
from trainhall.api.problems import invalid, refusal_of, shown
from trainhall.cluster.channel import ChannelClosed
from trainhall.cluster.coordinator import Coordinator
from trainhall.cluster.errors import NotFound
from trainhall.cluster.protocol import Acked, JoinRequest, LogAcked
from trainhall.training.link import RankEvent

BATCH_BYTES = 16 * 1024 * 1024
"""Limit of one batch of metrics, events or log bytes."""
JOIN_BYTES = 1024 * 1024
MAX_EVENTS = 100_000
MAX_INT32 = 2**31 - 1
MAX_OFFSET = 2**62
MAX_WRITER = 64


async def join(request: Request) -> Response:
    """A host joins with its token."""
    wanted = await read_json(request, JoinRequest, JOIN_BYTES)
    reply = await _coordinator(request).nodes.join(wanted)
    return _json(reply.model_dump_json())


async def ship_metrics(request: Request) -> Response:
    await authenticate(request)
    job_id, attempt = _attempt(request)
    writer = _writer(request)
    body = await read_body(request, BATCH_BYTES)
    sequence = await _coordinator(request).ingest.metrics(job_id, attempt, writer, body)
    return _json(Acked(sequence=sequence).model_dump_json())


async def ship_events(request: Request) -> Response:
    await authenticate(request)
    job_id, attempt = _attempt(request)
    writer = _writer(request)
    lines = (await read_body(request, BATCH_BYTES)).splitlines()
    if len(lines) > MAX_EVENTS:
        raise invalid("body", len(lines), f"at most {MAX_EVENTS} events")
    events = [_event(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    sequence = await _coordinator(request).rank_events.accept(job_id, attempt, writer, events)
    return _json(Acked(sequence=sequence).model_dump_json())


async def ship_logs(request: Request) -> Response:
    await authenticate(request)
    job_id, attempt = _attempt(request)
    rank = _number(request, "rank", MAX_INT32)
    offset = _number(request, "offset", MAX_OFFSET)
    stream = request.query_params.get("stream", "")
    if stream not in ("stdout", "stderr"):
        raise invalid("stream", stream, "must be stdout or stderr")
    body = await read_body(request, BATCH_BYTES)
    ingest = _coordinator(request).ingest
    following = await ingest.logs(job_id, attempt, rank, stream, offset, body)
    return _json(LogAcked(next_offset=following).model_dump_json())


async def put_file(request: Request) -> Response:
    """Received as it comes: neither side ever holds the whole file."""
    await authenticate(request)
    job_id, name, path = _file(request)
    sha256 = request.query_params.get("sha256")
    if sha256 is not None and not (len(sha256) == 64 and sha256.isalnum() and sha256.isascii()):
        raise invalid("sha256", sha256, "must be 64 hexadecimal digits")
    coordinator = _coordinator(request)
    chunks = uploaded(request, coordinator.options.max_upload_file_bytes)
    await coordinator.checkpoints.receive(job_id, name, path, chunks, sha256=sha256)
    return Response(status_code=204)


async def get_file(request: Request) -> Response:
    await authenticate(request)
    file = await _coordinator(request).checkpoints.fetch(*_file(request))
    return FileResponse(file, media_type="application/octet-stream")


async def get_code(request: Request) -> Response:
    await authenticate(request)
    file = _coordinator(request).code.file(request.path_params["sha256"])
    return FileResponse(file, media_type="application/octet-stream")


async def commit(request: Request) -> Response:
    await authenticate(request)
    job_id = checked_id("job", request.path_params["job_id"])
    await _coordinator(request).checkpoints.commit(job_id, request.path_params["name"])
    return Response(status_code=204)


async def connect(websocket: WebSocket) -> None:
    """The connection of one agent, until either side ends it."""
    try:
        node_id = await authenticate(websocket)
    except Exception as error:
        refusal = refusal_of(error)
        if refusal is None:
            raise
        await websocket.send_denial_response(refusal.response())
        return
    await websocket.accept()
    await _coordinator(websocket).gateway.serve(SocketChannel(websocket), node_id)


_JOB = "/jobs/{job_id}"
_FILE = _JOB + "/checkpoints/{name}/files/{path:path}"
ROUTES = [
    Route("/join", join, methods=["POST"]),
    WebSocketRoute("/connect", connect),
    Route(_JOB + "/attempts/{attempt:int}/metrics", ship_metrics, methods=["POST"]),
    Route(_JOB + "/attempts/{attempt:int}/events", ship_events, methods=["POST"]),
    Route(_JOB + "/attempts/{attempt:int}/logs", ship_logs, methods=["POST"]),
    Route(_FILE, put_file, methods=["PUT"]),
    Route(_FILE, get_file, methods=["GET"]),
    Route(_JOB + "/checkpoints/{name}/commit", commit, methods=["POST"]),
    Route("/code/{sha256}", get_code, methods=["GET"]),
]
MOUNT = "/agent"


def mounted(prefix: str) -> Mount:
    return Mount(prefix + MOUNT, routes=ROUTES)


class SocketChannel:
    """A websocket as the gateway's port."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket
        self._closed = False

    async def send_text(self, text: str) -> None:
        try:
            await self._websocket.send_text(text)
        except (WebSocketDisconnect, RuntimeError) as error:
            raise ChannelClosed(str(error)) from None

    async def receive_text(self) -> str:
        try:
            return await self._websocket.receive_text()
        except (WebSocketDisconnect, RuntimeError, KeyError) as error:
            # A KeyError is a binary message, which agents don't send.
            raise ChannelClosed(str(error)) from None

    async def close(self, code: int, reason: str) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            await self._websocket.close(code, reason[:120])
        except (WebSocketDisconnect, RuntimeError):
            return  # the other side was quicker


async def authenticate(connection: HTTPConnection) -> str:
    """The id of the node whose credential the request carries.

    Raises:
        Refusal: there is no credential.
        NotAllowed: it is none, or of a removed node.
    """
    return await _coordinator(connection).nodes.authenticate(bearer(connection))


def _coordinator(connection: HTTPConnection) -> Coordinator:
    coordinator: Coordinator = connection.app.state.coordinator
    return coordinator


def _attempt(request: Request) -> tuple[str, int]:
    job_id = checked_id("job", request.path_params["job_id"])
    attempt: int = request.path_params["attempt"]
    if not 1 <= attempt <= MAX_INT32:
        raise NotFound("attempt", f"{shown(attempt)} of job {job_id}")
    return job_id, attempt


def _file(request: Request) -> tuple[str, str, str]:
    given = request.path_params
    return checked_id("job", given["job_id"]), given["name"], given["path"]


def _writer(request: Request) -> str:
    writer = request.query_params.get("writer", "")
    if not (1 <= len(writer) <= MAX_WRITER and writer.isascii() and writer.isprintable()):
        raise invalid("writer", writer, f"must have 1 to {MAX_WRITER} printable characters")
    return writer


def _number(request: Request, name: str, largest: int) -> int:
    text = request.query_params.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= largest):
        raise invalid(name, text, f"must be a whole number from 0 to {largest}")
    return int(text)


def _event(number: int, line: bytes) -> RankEvent:
    try:
        return RankEvent.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join([f"line {number}", *map(str, first["loc"])])
        raise invalid(where, None, first["msg"]) from None


def _json(text: str) -> Response:
    return Response(text, media_type="application/json")
