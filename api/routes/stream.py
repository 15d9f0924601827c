"""Live streams over websockets: /metrics/stream/{jobId}, a job's frames as they come, and
/alerts/stream, the notifications of browsers.

Each message is a JSON object. Close codes:

    4404  there is no such job
    4400  `after` is no sequence
    4408  the viewer was too slow; it may reconnect with `after`
    1008  the viewer sends messages all the time
    1008  the viewer was logged out, its token was revoked, or its roles have changed
    1011  the coordinator failed; it may reconnect
    1012  the coordinator is being restarted; likewise
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from functools import partial
from typing import Any, cast

import structlog
from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect, WebSocketState

from trainhall.api.context import CoordinatorDep
from trainhall.api.limits import caller_of, limits_of
from trainhall.api.login.authentication import get_principal, until_revoked
from trainhall.api.login.services import LimitedServices, ServicesDep
from trainhall.api.params import MAX_SEQUENCE, checked_id, parse_digits
from trainhall.api.problems import RefusalError
from trainhall.cluster.access.principal import Principal
from trainhall.cluster.access.roles import Action
from trainhall.cluster.alerts.feed import BrowserFeed
from trainhall.cluster.coordinator import Coordinator
from trainhall.cluster.errors import NotFoundError
from trainhall.cluster.gateway.channel import close_reason
from trainhall.cluster.waiting import end_tasks
from trainhall.monitoring.live import Frame, ViewerTooSlowError

log = structlog.get_logger(__name__)
router = APIRouter()

UNKNOWN_JOB = 4404
BAD_REQUEST = 4400
TOO_SLOW = 4408
LOGGED_OUT = 1008
FAILED = 1011
SEND_SECONDS = 30.0
"""Time after which a viewer that reads nothing is dropped."""
CLOSE_SECONDS = 2.0
CHATTERS = 1008
CHATTER_SECONDS = 10.0
MAX_CHATTER = 100
"""Messages that a viewer may send within `CHATTER_SECONDS`."""


@router.websocket("/metrics/stream/{job_id}")
async def stream(websocket: WebSocket, job_id: str, services: ServicesDep) -> None:
    """Frames behind `?after=SEQ`, until the viewer leaves, or may not see the job any more."""
    async with _admitted(websocket) as is_admitted:
        if is_admitted:
            await _stream(websocket, job_id, services)


async def _stream(websocket: WebSocket, job_id: str, services: LimitedServices) -> None:
    after = parse_digits(websocket.query_params.get("after", "0"))
    if after is None or after > MAX_SEQUENCE:
        await websocket.close(BAD_REQUEST, "after must be the seq of a frame")
        return
    await _until_either_ends(websocket, _send(websocket, services, job_id, after))


@router.websocket("/alerts/stream")
async def stream_notifications(websocket: WebSocket, coordinator: CoordinatorDep) -> None:
    """Notifications behind `?after=SEQUENCE`, by default those from now on. The first message has
    the sequence to begin with."""
    async with _admitted(websocket) as is_admitted:
        if is_admitted:
            await _stream_notifications(websocket, coordinator)


async def _stream_notifications(websocket: WebSocket, coordinator: Coordinator) -> None:
    text = websocket.query_params.get("after", str(MAX_SEQUENCE))
    after = parse_digits(text)
    if after is None or after > MAX_SEQUENCE:
        await websocket.close(BAD_REQUEST, "after must be the sequence of a notification")
        return
    reader = await get_principal(websocket)
    await _until_either_ends(websocket, _notify(websocket, coordinator.alert_feed, after, reader))


@contextlib.asynccontextmanager
async def _admitted(websocket: WebSocket) -> AsyncIterator[bool]:
    """Accept a viewer, if its address has not as many as it may; whether it was accepted."""
    async with contextlib.AsyncExitStack() as held:
        turn = limits_of(websocket).viewers.turn(caller_of(websocket))
        try:
            await held.enter_async_context(turn)
        except RefusalError as refusal:
            # Before the upgrade: browsers then try again less and less often.
            await websocket.send_denial_response(refusal.response())
            yield False
            return
        await websocket.accept()
        yield True


async def _until_either_ends(websocket: WebSocket, sending: Coroutine[Any, Any, None]) -> None:
    sender = asyncio.create_task(sending, name="viewer")
    reader = asyncio.create_task(_until_gone(websocket), name="viewer's end")
    revoked = asyncio.create_task(until_revoked(websocket), name="viewer's credential")
    tasks = (sender, reader, revoked)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        why = revoked.result() if revoked.done() and not reader.done() else None
    finally:
        await end_tasks(tasks)
    if why is not None:
        await _close(websocket, LOGGED_OUT, why)


async def _until_gone(websocket: WebSocket) -> None:
    """Wait for the end. Viewers have nothing to say: a little of what they send is thrown away."""
    loop = asyncio.get_running_loop()
    since, messages = loop.time(), 0
    while (await websocket.receive())["type"] != "websocket.disconnect":
        if loop.time() - since > CHATTER_SECONDS:
            since, messages = loop.time(), 0
        messages += 1
        if messages > MAX_CHATTER:
            await _close(websocket, CHATTERS, "viewers have nothing to send")
            return


async def _notify(websocket: WebSocket, feed: BrowserFeed, after: int, reader: Principal) -> None:
    async with _closing(websocket):
        # Beyond the newest one, where the database is another one now.
        after = min(after, await feed.newest())
        await _send_text(websocket, f'{{"type":"ready","sequence":{after}}}')
        async with contextlib.aclosing(feed.follow(after, reader)) as notifications:
            async for notification in notifications:
                await _send_text(websocket, notification.model_dump_json())


async def _send(websocket: WebSocket, services: LimitedServices, job_id: str, after: int) -> None:
    async with _closing(websocket):
        followed = services.unlimited.hub.follow(
            checked_id("job", job_id), after, partial(services.caller.may, Action.READ)
        )
        # Closed with the viewer, so that the hub forgets it at once.
        frames_of = cast(AsyncGenerator[list[Frame], None], followed)
        async with contextlib.aclosing(frames_of) as pages:
            async for frames in pages:
                for frame in frames:
                    await _send_text(websocket, frame.text)


async def _send_text(websocket: WebSocket, text: str) -> None:
    async with asyncio.timeout(SEND_SECONDS):
        await websocket.send_text(text)


@contextlib.asynccontextmanager
async def _closing(websocket: WebSocket) -> AsyncIterator[None]:
    """Close the socket of a stream that fails, with the reason."""
    try:
        yield
    except ViewerTooSlowError as error:
        await _close(websocket, TOO_SLOW, str(error))
    except TimeoutError:
        await _close(websocket, TOO_SLOW, f"the viewer read nothing for {SEND_SECONDS:g} s")
    except (LookupError, NotFoundError) as error:
        await _close(websocket, UNKNOWN_JOB, str(error))
    except WebSocketDisconnect:
        return
    except Exception as error:
        if websocket.client_state is not WebSocketState.CONNECTED:
            return  # it left while a frame was under way
        log.error("live_stream_failed", path=websocket.url.path, exc_info=error)
        await _close(websocket, FAILED, "the stream failed; connect again")


async def _close(websocket: WebSocket, code: int, reason: str) -> None:
    """Say why; a viewer who takes nothing may not hold that up either."""
    with contextlib.suppress(TimeoutError, WebSocketDisconnect, RuntimeError):
        async with asyncio.timeout(CLOSE_SECONDS):
            await websocket.close(code, close_reason(reason))
