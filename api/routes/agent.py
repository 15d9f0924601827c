"""/agent: what agents ask and send (`cluster.wire.protocol`). Not part of the public document.

Bodies are bounded, and streamed where they may be large. Every request may be repeated. These are
plain routes, whose few parameters are read by hand: with FastAPI's own reading of parameters a
small batch costs four times as much.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TypeVar

import structlog
from pydantic import ValidationError
from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import HTTPConnection, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from trainhall.api.bodies import read_body, read_json, uploaded
from trainhall.api.context import coordinator_of
from trainhall.api.limits import TURN_SECONDS, limits_of, network_at
from trainhall.api.login.refusals import note_agent_refusal
from trainhall.api.params import checked_id, parse_digits
from trainhall.api.problems import RefusalError, invalid, refusal_of, shown
from trainhall.api.routes.tunnels.socket import SocketSide
from trainhall.cluster.api_paths import AGENT_PREFIX
from trainhall.cluster.errors import NodeRemovedError, NotAllowedError, NotFoundError, NotHeldError
from trainhall.cluster.gateway.channel import ChannelClosedError, close_reason
from trainhall.cluster.nodes.holders import Holders
from trainhall.cluster.tls import CA_PATH
from trainhall.cluster.wire.batches import BatchItem, BatchReply, decode_batch, encode_replies
from trainhall.cluster.wire.data_sets import MAX_REPORT_BYTES, DataReport
from trainhall.cluster.wire.environment_lock import MAX_LOCK_BYTES, EnvironmentLock
from trainhall.cluster.wire.outputs import (
    MAX_SIZE,
    MAX_TOGETHER_BODY,
    Commit,
    Offer,
    decode_contents,
)
from trainhall.cluster.wire.protocol import (
    Acked,
    AttemptToken,
    CloseCode,
    JoinRequest,
    LogAcked,
    PinnedCommit,
    Secrets,
    Verified,
)
from trainhall.monitoring.ingest import Ingest
from trainhall.monitoring.lineage import Origin
from trainhall.training.checkpoint.format.names import parse_name
from trainhall.training.link.events import RankEvent
from trainhall.training.spec.job import SHA256

log = structlog.get_logger(__name__)
T = TypeVar("T")

BATCH_BYTES = 16 * 1024 * 1024
"""Limit of one batch of metrics, events or log bytes."""
JOIN_BYTES = 1024 * 1024
MAX_EVENTS = 100_000
MAX_TUNNEL_BYTES = 1024 * 1024
"""Limit of one message of a tunnel: the stacks of a rank are one."""
MAX_INT32 = 2**31 - 1
MAX_OFFSET = 2**62
MAX_WRITER = 64


async def join(request: Request) -> Response:
    """A host joins with its token."""
    with limits_of(request).joins.attempt(network_at(request)):
        wanted = await read_json(request, JoinRequest, JOIN_BYTES)
        reply = await coordinator_of(request).nodes.join(wanted)
    return _json(reply.model_dump_json())


async def read_authority(request: Request) -> Response:
    """Return the authority of this coordinator's certificate, which is no secret; who asks for it
    knows its fingerprint."""
    anchor = await asyncio.to_thread(request.app.state.settings.tls.anchor)
    if anchor is None:
        detail = "there is no authority to pin: a public one vouches for the certificate, if any"
        raise RefusalError(404, "not-found", detail)
    return Response(anchor.pem, media_type="application/x-pem-file")


async def ship_metrics(request: Request) -> Response:
    node_id = await authenticate(request)
    job_id, attempt, writer = await _writer(request, node_id)
    body = await read_body(request, BATCH_BYTES)
    origin = Origin(_number(request, "generation", MAX_INT32, default="0"), node_id)
    sequence = await coordinator_of(request).ingest.metrics(job_id, attempt, writer, body, origin)
    return _json(Acked(sequence=sequence).model_dump_json())


async def ship_events(request: Request) -> Response:
    node_id = await authenticate(request)
    job_id, attempt, writer = await _writer(request, node_id)
    origin = Origin(_number(request, "generation", MAX_INT32, default="0"), node_id)
    lines = (await read_body(request, BATCH_BYTES)).splitlines()
    if len(lines) > MAX_EVENTS:
        raise invalid("body", len(lines), f"at most {MAX_EVENTS} events")
    events = [_event(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    sequence = await coordinator_of(request).rank_events.accept(
        job_id, attempt, writer, events, origin
    )
    return _json(Acked(sequence=sequence).model_dump_json())


async def ship_logs(request: Request) -> Response:
    node_id = await authenticate(request)
    given = request.path_params
    job_id, attempt = _checked_attempt(given["job_id"], given["attempt"])
    rank = _number(request, "rank", MAX_INT32)
    await coordinator_of(request).holders.check_rank(node_id, job_id, attempt, rank)
    origin = Origin(_number(request, "generation", MAX_INT32, default="0"), node_id)
    offset = _number(request, "offset", MAX_OFFSET)
    stream = _checked_stream(request.query_params.get("stream", ""))
    body = await read_body(request, BATCH_BYTES)
    ingest = coordinator_of(request).ingest
    following = await ingest.logs(job_id, attempt, rank, stream, offset, body, origin)
    return _json(LogAcked(next_offset=following).model_dump_json())


async def create_token(request: Request) -> Response:
    """An attempt whose spec asks for it gets its API token."""
    node_id, job_id, attempt = await _held_attempt(request)
    token = await coordinator_of(request).attempt_tokens.issue(node_id, job_id, attempt)
    return _json(AttemptToken(token=token).model_dump_json())


async def get_environment(request: Request) -> Response:
    _, job_id, attempt = await _held_attempt(request)
    lock = await coordinator_of(request).environments.lock_of(job_id, attempt)
    return _json(lock.model_dump_json()) if lock is not None else Response(status_code=204)


async def put_environment(request: Request) -> Response:
    """A host has locked a job's environment; it gets the job's lock, which may be another."""
    node_id, job_id, attempt = await _held_attempt(request)
    lock = await read_json(request, EnvironmentLock, 2 * MAX_LOCK_BYTES)
    stored = await coordinator_of(request).environments.store(node_id, job_id, attempt, lock)
    return _json(stored.model_dump_json())


async def put_data(request: Request) -> Response:
    """A host has the data sets of an attempt ready."""
    node_id, job_id, attempt = await _held_attempt(request)
    report = await read_json(request, DataReport, MAX_REPORT_BYTES)
    await coordinator_of(request).data.store(node_id, job_id, attempt, report)
    return Response(status_code=204)


async def get_commit(request: Request) -> Response:
    node_id, job_id, attempt = await _held_attempt(request)
    found = await coordinator_of(request).commits.of_attempt(node_id, job_id, attempt)
    if found is None:
        return Response(status_code=204)
    return _json(PinnedCommit(commit=found).model_dump_json())


async def put_commit(request: Request) -> Response:
    """A host has resolved a job's code in git; it gets the job's commit, which may be another."""
    node_id, job_id, attempt = await _held_attempt(request)
    resolved = await read_json(request, PinnedCommit, 4096)
    pinned = await coordinator_of(request).commits.pin(node_id, job_id, attempt, resolved.commit)
    return _json(PinnedCommit(commit=pinned).model_dump_json())


async def read_secrets(request: Request) -> Response:
    """An attempt gets the secrets that its spec names."""
    _, job_id, attempt = await _held_attempt(request)
    found = await coordinator_of(request).secrets.of_attempt(job_id, attempt)
    return _json(Secrets(values=dict(found)).model_dump_json())


async def put_file(request: Request) -> Response:
    """Received as it comes: neither side ever holds the whole file."""
    node_id = await authenticate(request)
    job_id, name = await _checkpoint(request, node_id)
    path = request.path_params["path"]
    sha256 = request.query_params.get("sha256")
    if sha256 is not None and not SHA256.fullmatch(sha256):
        raise invalid("sha256", sha256, "must be 64 lower-case hexadecimal digits")
    coordinator = coordinator_of(request)
    chunks = uploaded(request, coordinator.options.max_upload_file_bytes)
    async with limits_of(request).node_uploads.turn(f"node {node_id}", TURN_SECONDS):
        await coordinator.checkpoints.uploads.receive(job_id, name, path, chunks, sha256=sha256)
    return Response(status_code=204)


async def get_file(request: Request) -> Response:
    node_id = await authenticate(request)
    job_id, name, path = _file(request)
    await coordinator_of(request).holders.check_reader(node_id, job_id)
    file = coordinator_of(request).store.file(job_id, name, path)
    return FileResponse(file, media_type="application/octet-stream")


async def read_outputs(request: Request) -> Response:
    _, job_id, attempt = await _held_attempt(request)
    rank = _number(request, "rank", MAX_INT32)
    stored = await coordinator_of(request).outputs.uploads.stored(job_id, attempt, rank)
    return _json(stored.model_dump_json())


async def offer_outputs(request: Request) -> Response:
    _, job_id, attempt = await _held_attempt(request)
    offer = await read_json(request, Offer, BATCH_BYTES)
    received = await coordinator_of(request).outputs.uploads.received(job_id, attempt, offer)
    return _json(received.model_dump_json())


async def put_output(request: Request) -> Response:
    """Received as it comes; what came before a connection breaks is kept."""
    node_id, job_id, attempt = await _held_attempt(request)
    sha256 = request.path_params["sha256"]
    size = _number(request, "size", MAX_SIZE)
    offset = _number(request, "offset", MAX_SIZE, default="0")
    coordinator = coordinator_of(request)
    chunks = uploaded(request, coordinator.options.output_file_bytes)
    async with limits_of(request).node_uploads.turn(f"node {node_id}", TURN_SECONDS):
        await coordinator.outputs.uploads.receive(
            job_id, attempt, sha256, chunks, size=size, offset=offset
        )
    return Response(status_code=204)


async def put_outputs(request: Request) -> Response:
    """Small contents in one request."""
    node_id, job_id, attempt = await _held_attempt(request)
    coordinator = coordinator_of(request)
    async with limits_of(request).node_uploads.turn(f"node {node_id}", TURN_SECONDS):
        body = await read_body(request, MAX_TOGETHER_BODY)
        try:
            contents = decode_contents(body)
        except ValueError as error:
            raise invalid("body", None, str(error)) from None
        taken = await coordinator.outputs.uploads.receive_small(job_id, attempt, contents)
    return _json(taken.model_dump_json())


async def commit_outputs(request: Request) -> Response:
    node_id, job_id, attempt = await _held_attempt(request)
    changes = await read_json(request, Commit, BATCH_BYTES)
    await coordinator_of(request).holders.check_rank(node_id, job_id, attempt, changes.rank)
    committed = await coordinator_of(request).outputs.uploads.commit(job_id, attempt, changes)
    return _json(committed.model_dump_json())


async def get_output(request: Request) -> Response:
    node_id = await authenticate(request)
    job_id = checked_id("job", request.path_params["job_id"])
    await coordinator_of(request).holders.check_reader(node_id, job_id)
    file = coordinator_of(request).outputs.content(job_id, request.path_params["sha256"])
    return FileResponse(file, media_type="application/octet-stream")


async def get_code(request: Request) -> Response:
    node_id = await authenticate(request)
    sha256 = request.path_params["sha256"]
    await coordinator_of(request).holders.check_code(node_id, sha256)
    file = coordinator_of(request).code.file(sha256)
    return FileResponse(file, media_type="application/octet-stream")


async def commit(request: Request) -> Response:
    node_id = await authenticate(request)
    job_id, name = await _checkpoint(request, node_id)
    await coordinator_of(request).checkpoints.uploads.commit(job_id, name)
    return Response(status_code=204)


async def verify(request: Request) -> Response:
    node_id = await authenticate(request)
    job_id = checked_id("job", request.path_params["job_id"])
    await coordinator_of(request).holders.check_reader(node_id, job_id)
    name = request.path_params["name"]
    problems = await coordinator_of(request).checkpoints.verification.verify_stored(job_id, name)
    return _json(Verified(problems=[*problems]).model_dump_json())


async def connect(websocket: WebSocket) -> None:
    """Serve one agent's connection, until either side ends it."""
    node_id = await _admitted(websocket)
    if node_id is not None:
        await coordinator_of(websocket).gateway.serve(SocketChannel(websocket), node_id)


async def ship(websocket: WebSocket) -> None:
    """Receive messages of small items (`cluster.wire.batches`), each stored at once, until the
    agent leaves."""
    if await _admitted(websocket) is None:
        return
    channel = SocketChannel(websocket)
    try:
        while True:
            items = decode_batch(await channel.receive_bytes())
            results = await _stored(websocket, items)
            await channel.send_text(encode_replies([_reply(result) for result in results]))
    except ChannelClosedError:
        return
    except (NotAllowedError, NodeRemovedError) as error:
        # Not answered: the agent may have joined again meanwhile, and then sends it all again.
        _note(websocket, error)
        await channel.close(CloseCode.REMOVED, str(error))
    except ValueError as error:
        await channel.close(CloseCode.INVALID, str(error))


async def open_tunnel(websocket: WebSocket) -> None:
    """Hand over a tunnel that the node was asked for, until it is not used any more."""
    node_id = await _admitted(websocket)
    if node_id is None:
        return
    side = SocketSide(websocket, MAX_TUNNEL_BYTES)
    waiting = coordinator_of(websocket).waiting_tunnels
    if await waiting.hand_over(node_id, websocket.path_params["ticket"], side):
        await side.close(1000)
    else:
        await side.close(CloseCode.INVALID, "this tunnel is not asked for")


async def _stored(
    websocket: WebSocket, items: Sequence[tuple[BatchItem, bytes]]
) -> Sequence[int | BaseException]:
    """Return the position of each item, or why it was not taken.

    Raises:
        NotAllowedError, NodeRemovedError: the node has joined again, or was removed.
    """
    results: Sequence[int | BaseException]
    try:
        node_id = await authenticate(websocket)
    except SQLAlchemyError as error:
        results = [error] * len(items)
    else:
        ingest = coordinator_of(websocket).ingest
        holders = coordinator_of(websocket).holders
        stores = (_store(ingest, holders, node_id, item, data) for item, data in items)
        results = await asyncio.gather(*stores, return_exceptions=True)
    for result in results:
        if isinstance(result, NotHeldError):
            _note(websocket, result)
    failures = {
        repr(result)[:500]: result
        for result in results
        if isinstance(result, Exception) and refusal_of(result) is None
    }
    for message, failure in failures.items():
        known = isinstance(failure, SQLAlchemyError)
        log.error("items_not_stored", error=message, exc_info=None if known else failure)
    return results


async def _store(
    ingest: Ingest, holders: Holders, node_id: str, item: BatchItem, data: bytes
) -> int:
    job_id, attempt = _checked_attempt(item.job_id, item.attempt)
    origin = Origin(_within("generation", item.generation, MAX_INT32), node_id)
    if item.kind == "metrics":
        writer = _checked_writer(item.writer)
        await holders.check_writer(node_id, job_id, attempt, writer)
        return await ingest.metrics(job_id, attempt, writer, data, origin)
    stream = _checked_stream(item.kind)
    rank = _within("rank", item.rank, MAX_INT32)
    await holders.check_rank(node_id, job_id, attempt, rank)
    offset = _within("offset", item.offset, MAX_OFFSET)
    return await ingest.logs(job_id, attempt, rank, stream, offset, data, origin)


def _reply(result: int | BaseException) -> BatchReply:
    if isinstance(result, int):
        return BatchReply(position=result)
    if not isinstance(result, Exception):
        raise result
    refusal = refusal_of(result) or RefusalError(503, "unavailable", "it cannot be stored now")
    return BatchReply(refusal=refusal.detail, status=refusal.status)


async def _admitted(websocket: WebSocket) -> str | None:
    """Return the id of the node that connects; None: it was refused."""
    try:
        node_id = await authenticate(websocket)
    except Exception as error:
        refusal = refusal_of(error)
        if refusal is None:
            raise
        note_agent_refusal(websocket, refusal, error)
        await websocket.send_denial_response(refusal.response())
        return None
    await websocket.accept()
    return node_id


def _note(websocket: WebSocket, error: Exception) -> None:
    refusal = refusal_of(error)
    assert refusal is not None
    note_agent_refusal(websocket, refusal, error)


_JOB = "/jobs/{job_id}"
_FILE = _JOB + "/checkpoints/{name}/files/{path:path}"
_OUTPUTS = _JOB + "/attempts/{attempt:int}/outputs"
ROUTES = [
    Route("/join", join, methods=["POST"]),
    Route(CA_PATH.removeprefix(AGENT_PREFIX), read_authority, methods=["GET"]),
    WebSocketRoute("/connect", connect),
    WebSocketRoute("/ship", ship),
    WebSocketRoute("/tunnels/{ticket}", open_tunnel),
    Route(_JOB + "/attempts/{attempt:int}/metrics", ship_metrics, methods=["POST"]),
    Route(_JOB + "/attempts/{attempt:int}/events", ship_events, methods=["POST"]),
    Route(_JOB + "/attempts/{attempt:int}/logs", ship_logs, methods=["POST"]),
    Route(_JOB + "/attempts/{attempt:int}/token", create_token, methods=["POST"]),
    Route(_JOB + "/attempts/{attempt:int}/secrets", read_secrets, methods=["POST"]),
    Route(_JOB + "/attempts/{attempt:int}/environment", get_environment, methods=["GET"]),
    Route(_JOB + "/attempts/{attempt:int}/environment", put_environment, methods=["PUT"]),
    Route(_JOB + "/attempts/{attempt:int}/data", put_data, methods=["PUT"]),
    Route(_JOB + "/attempts/{attempt:int}/commit", get_commit, methods=["GET"]),
    Route(_JOB + "/attempts/{attempt:int}/commit", put_commit, methods=["PUT"]),
    Route(_FILE, put_file, methods=["PUT"]),
    Route(_FILE, get_file, methods=["GET"]),
    Route(_JOB + "/checkpoints/{name}/commit", commit, methods=["POST"]),
    Route(_JOB + "/checkpoints/{name}/verify", verify, methods=["POST"]),
    Route(_OUTPUTS, read_outputs, methods=["GET"]),
    Route(_OUTPUTS, commit_outputs, methods=["POST"]),
    Route(_OUTPUTS + "/received", offer_outputs, methods=["POST"]),
    Route(_OUTPUTS + "/contents", put_outputs, methods=["POST"]),
    Route(_OUTPUTS + "/contents/{sha256}", put_output, methods=["PUT"]),
    Route(_JOB + "/outputs/contents/{sha256}", get_output, methods=["GET"]),
    Route("/code/{sha256}", get_code, methods=["GET"]),
]


def mounted() -> Mount:
    return Mount(AGENT_PREFIX, routes=ROUTES)


class SocketChannel:
    """A websocket as the gateway's port."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket
        self._closed = False

    async def send_text(self, text: str) -> None:
        try:
            await self._websocket.send_text(text)
        except (WebSocketDisconnect, RuntimeError) as error:
            raise ChannelClosedError(str(error)) from None

    async def receive_text(self) -> str:
        return await self._received(self._websocket.receive_text())

    async def receive_bytes(self) -> bytes:
        return await self._received(self._websocket.receive_bytes())

    async def _received(self, message: Awaitable[T]) -> T:
        try:
            return await message
        except (WebSocketDisconnect, RuntimeError, KeyError) as error:
            # A KeyError is a text where agents send bytes, or the other way round.
            raise ChannelClosedError(str(error)) from None

    async def close(self, code: int, reason: str) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            await self._websocket.close(code, close_reason(reason))
        except (WebSocketDisconnect, RuntimeError):
            return  # the other side was quicker


async def authenticate(connection: HTTPConnection) -> str:
    """Return the id of the node whose credential the request carries.

    Raises:
        RefusalError: there is no credential.
        NodeRemovedError: the node that held it was removed.
        NotAllowedError: no node holds it.
    """
    node_id = await coordinator_of(connection).nodes.authenticate(_bearer(connection))
    connection.scope["trainhall.node"] = node_id
    return node_id


def _bearer(connection: HTTPConnection) -> str:
    """Return the credential of the `Authorization` header.

    Raises:
        RefusalError: there is none.
    """
    scheme, _, credential = connection.headers.get("authorization", "").partition(" ")
    credential = credential.strip()
    if scheme.lower() != "bearer" or not credential:
        raise RefusalError(
            401, "not-authenticated",
            "the node's credential is missing: send it as `Authorization: Bearer …`",
            headers={"WWW-Authenticate": "Bearer"},
        )  # fmt: skip
    return credential


async def _held_attempt(request: Request) -> tuple[str, str, int]:
    """Return the node that asks, and job and attempt, of which it holds, or held, a part."""
    node_id = await authenticate(request)
    given = request.path_params
    job_id, attempt = _checked_attempt(given["job_id"], given["attempt"])
    await coordinator_of(request).holders.check_attempt(node_id, job_id, attempt)
    return node_id, job_id, attempt


async def _writer(request: Request, node_id: str) -> tuple[str, int, str]:
    """Return job, attempt and writer of a request; the writer is a process of the node."""
    given = request.path_params
    job_id, attempt = _checked_attempt(given["job_id"], given["attempt"])
    writer = _checked_writer(request.query_params.get("writer", ""))
    await coordinator_of(request).holders.check_writer(node_id, job_id, attempt, writer)
    return job_id, attempt, writer


async def _checkpoint(request: Request, node_id: str) -> tuple[str, str]:
    """Return job and name of a checkpoint, of whose attempt the node holds a part."""
    job_id = checked_id("job", request.path_params["job_id"])
    name: str = request.path_params["name"]
    parsed = parse_name(name)
    if parsed is None:
        raise NotFoundError("checkpoint", name[:160])
    await coordinator_of(request).holders.check_attempt(node_id, job_id, parsed.attempt)
    return job_id, name


def _checked_attempt(job_id: str, attempt: int) -> tuple[str, int]:
    job_id = checked_id("job", job_id)
    if not 1 <= attempt <= MAX_INT32:
        raise NotFoundError("attempt", f"{shown(attempt)} of job {job_id}")
    return job_id, attempt


def _file(request: Request) -> tuple[str, str, str]:
    given = request.path_params
    return checked_id("job", given["job_id"]), given["name"], given["path"]


def _checked_writer(writer: str) -> str:
    if not (1 <= len(writer) <= MAX_WRITER and writer.isascii() and writer.isprintable()):
        raise invalid("writer", writer, f"must have 1 to {MAX_WRITER} printable ASCII characters")
    return writer


def _checked_stream(stream: str) -> str:
    if stream not in ("stdout", "stderr"):
        raise invalid("stream", stream, "must be stdout or stderr")
    return stream


def _number(request: Request, name: str, largest: int, default: str = "") -> int:
    text = request.query_params.get(name, default)
    number = parse_digits(text)
    return _within(name, -1 if number is None else number, largest, text)


def _within(name: str, number: int, largest: int, given: object = None) -> int:
    if not 0 <= number <= largest:
        shown_value = number if given is None else given
        raise invalid(name, shown_value, f"must be an integer from 0 to {largest}")
    return number


def _event(number: int, line: bytes) -> RankEvent:
    try:
        return RankEvent.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join([f"line {number}", *map(str, first["loc"])])
        raise invalid(where, None, first["msg"]) from None


def _json(text: str) -> Response:
    return Response(text, media_type="application/json")
