"""/metrics/stream/{jobId}: a job's frames as they come, over a websocket.

Each message is one frame, a JSON object. Close codes:

    4404  there is no such job
    4400  `after` is no sequence
    4408  the viewer was too slow; it may reconnect with `after`
    1011  the coordinator failed; it may reconnect
    1012  the coordinator is being restarted; likewise
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import cast

import structlog
from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect, WebSocketState

from trainhall.api.context import CoordinatorDep
from trainhall.api.params import MAX_SEQUENCE, checked_id, parse_digits
from trainhall.cluster.errors import NotFoundError
from trainhall.cluster.gateway.channel import close_reason
from trainhall.cluster.waiting import end_tasks
from trainhall.monitoring.live import Frame, Hub, ViewerTooSlowError

log = structlog.get_logger(__name__)
router = APIRouter(prefix="/metrics")

UNKNOWN_JOB = 4404
BAD_REQUEST = 4400
TOO_SLOW = 4408
FAILED = 1011
SEND_SECONDS = 30.0
"""Time after which a viewer that reads nothing is dropped."""
CLOSE_SECONDS = 2.0


@router.websocket("/stream/{job_id}")
async def stream(websocket: WebSocket, job_id: str, coordinator: CoordinatorDep) -> None:
    """Frames behind `?after=SEQ`, until the viewer leaves."""
    await websocket.accept()
    after = parse_digits(websocket.query_params.get("after", "0"))
    if after is None or after > MAX_SEQUENCE:
        await websocket.close(BAD_REQUEST, "after must be the seq of a frame")
        return
    try:
        checked_id("job", job_id)
    except NotFoundError as error:
        await websocket.close(UNKNOWN_JOB, close_reason(error.message))
        return
    sender = asyncio.create_task(_send(websocket, coordinator.hub, job_id, after), name="viewer")
    reader = asyncio.create_task(_until_gone(websocket), name="viewer's end")
    try:
        await asyncio.wait((sender, reader), return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_tasks((sender, reader))


async def _until_gone(websocket: WebSocket) -> None:
    """Viewers have nothing to say; what they send anyhow is thrown away."""
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass


async def _send(websocket: WebSocket, hub: Hub, job_id: str, after: int) -> None:
    try:
        # Closed with the viewer, so that the hub forgets it at once.
        frames_of = cast(AsyncGenerator[list[Frame], None], hub.follow(job_id, after))
        async with contextlib.aclosing(frames_of) as pages:
            async for frames in pages:
                for frame in frames:
                    async with asyncio.timeout(SEND_SECONDS):
                        await websocket.send_text(frame.text)
    except ViewerTooSlowError as error:
        await _close(websocket, TOO_SLOW, str(error))
    except TimeoutError:
        await _close(websocket, TOO_SLOW, f"the viewer read nothing for {SEND_SECONDS:g} s")
    except LookupError as error:
        await _close(websocket, UNKNOWN_JOB, str(error))
    except WebSocketDisconnect:
        return
    except Exception as error:
        if websocket.client_state is not WebSocketState.CONNECTED:
            return  # it left while a frame was under way
        log.error("live_stream_failed", job=job_id, exc_info=error)
        await _close(websocket, FAILED, "the stream failed; connect again")


async def _close(websocket: WebSocket, code: int, reason: str) -> None:
    """Say why; a viewer who takes nothing may not hold that up either."""
    with contextlib.suppress(TimeoutError, WebSocketDisconnect, RuntimeError):
        async with asyncio.timeout(CLOSE_SECONDS):
            await websocket.close(code, close_reason(reason))
