"""Websockets into running jobs: /training/jobs/{job_id}/exec and …/forward/{port}.

Their messages are those of `cluster.wire.tunnel` and `cluster.wire.sessions`. What is wrong with
the request is refused before the upgrade, as of other routes. Close codes after it:

    1000  the session is over; before it came an `exit`, unless the attempt ended
    4400  a message that is not understood
    4408  nothing has passed for too long
    4503  the node does not begin the session
    1008  the user was logged out, the token was revoked, or the roles have changed
    1012  the coordinator is being restarted
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from fastapi import APIRouter, WebSocket
from pydantic import ValidationError

from trainhall.api.limits import caller_of, limits_of
from trainhall.api.login.authentication import until_revoked
from trainhall.api.login.refusals import note_refusal
from trainhall.api.login.services import LimitedServices, ServicesDep
from trainhall.api.params import checked_id, parse_digits
from trainhall.api.problems import invalid, refusal_of
from trainhall.api.routes.tunnels.socket import SocketSide
from trainhall.cluster.tunnels.service import Beside, NoTunnelError
from trainhall.cluster.waiting import run_until_one_ends
from trainhall.cluster.wire.protocol import first_problem
from trainhall.cluster.wire.sessions import ExecStart
from trainhall.cluster.wire.tunnel import Socket, TunnelClosedError, TunnelError

router = APIRouter()

OVER = 1000
REVOKED = 1008
BAD_MESSAGE = 4400
IDLE = 4408
NOT_BEGUN = 4503
START_SECONDS = 10.0
"""Time for the first message."""
MAX_RANK = 2**31 - 1
MAX_PORT = 65535


class _CutOffError(Exception):
    """The session is cut off, with a close code and a reason for the user."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@router.websocket("/training/jobs/{job_id}/exec")
async def open_exec(websocket: WebSocket, job_id: str, services: ServicesDep) -> None:
    """A command beside `?rank=RANK`, by default the first one."""
    async with _admitted(websocket, services, job_id) as admitted:
        if admitted is None:
            return
        beside, rank, user = admitted
        try:
            start = await _start(user)
            async with services.tunnels.execute(beside, rank, start) as host:
                await _pass_messages(websocket, services, user, host)
        except Exception as error:
            await _close(user, error)


@router.websocket("/training/jobs/{job_id}/forward/{port}")
async def open_forward(websocket: WebSocket, job_id: str, port: str, services: ServicesDep) -> None:
    """Connections to a port of the loopback address that `?rank=RANK` sees."""
    async with _admitted(websocket, services, job_id, port) as admitted:
        if admitted is None:
            return
        beside, rank, user = admitted
        try:
            async with services.tunnels.forward(beside, rank, int(port)) as host:
                await _pass_messages(websocket, services, user, host)
        except Exception as error:
            await _close(user, error)


@asynccontextmanager
async def _admitted(
    websocket: WebSocket, services: LimitedServices, job_id: str, port: str | None = None
) -> AsyncIterator[tuple[Beside, int, SocketSide] | None]:
    """Accept a user who may begin a session; None: the request was refused."""
    async with AsyncExitStack() as held:
        try:
            rank = _number("rank", websocket.query_params.get("rank", "0"), 0, MAX_RANK)
            if port is not None:
                _number("port", port, 1, MAX_PORT)
            beside = await services.tunnels.beside_rank(checked_id("job", job_id), rank)
            turn = limits_of(websocket).sessions.turn(caller_of(websocket))
            await held.enter_async_context(turn)
        except Exception as error:
            refusal = refusal_of(error)
            if refusal is None:
                raise
            note_refusal(websocket, refusal, error)
            await websocket.send_denial_response(refusal.response())
            yield None
            return
        await websocket.accept()
        yield beside, rank, SocketSide(websocket)


def _number(name: str, text: str, least: int, most: int) -> int:
    number = parse_digits(text)
    if number is None or not least <= number <= most:
        raise invalid(name, text, f"must be an integer from {least} to {most}")
    return number


async def _start(user: SocketSide) -> ExecStart:
    try:
        async with asyncio.timeout(START_SECONDS):
            message = await user.receive()
        return ExecStart.model_validate_json(message)
    except TimeoutError:
        why = f"no start within {START_SECONDS:g} s"
    except ValidationError as error:
        why = f"not a start: {first_problem(error)}"
    raise _CutOffError(BAD_MESSAGE, why)


async def _pass_messages(
    websocket: WebSocket, services: LimitedServices, user: SocketSide, host: Socket
) -> None:
    """Pass messages on until either side leaves, the user may not any more, or nobody uses it."""
    seconds = services.unlimited.options.exec_idle_seconds
    relay = _Relay(user, host)
    await run_until_one_ends(
        relay.to_host(), relay.to_user(), relay.until_idle(seconds), _until_revoked(websocket)
    )


class _Relay:
    """Passes messages on, unread; a slow side is waited for."""

    def __init__(self, user: Socket, host: Socket) -> None:
        self._user = user
        self._host = host
        self._used_at = asyncio.get_running_loop().time()

    async def to_host(self) -> None:
        await self._pass_all(self._user, self._host)

    async def to_user(self) -> None:
        await self._pass_all(self._host, self._user)

    async def _pass_all(self, source: Socket, target: Socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            message = await source.receive()
            self._used_at = loop.time()
            await target.send(message)

    async def until_idle(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        left = seconds
        while left > 0:
            await asyncio.sleep(left)
            left = self._used_at + seconds - loop.time()
        raise _CutOffError(IDLE, f"nothing has passed for {seconds:g} s")


async def _until_revoked(websocket: WebSocket) -> None:
    raise _CutOffError(REVOKED, await until_revoked(websocket))


async def _close(user: SocketSide, error: Exception) -> None:
    """Close the user's side, and say why; raise what is nobody's fault here."""
    match error:
        case TunnelClosedError():
            code, why = OVER, None
        case _CutOffError():
            code, why = error.code, str(error)
        case TunnelError():
            code, why = BAD_MESSAGE, str(error)
        case NoTunnelError():
            code, why = NOT_BEGUN, str(error)
        case _:
            raise error
    if why is not None:
        try:
            await user.send(json.dumps({"type": "error", "detail": why}))
        except TunnelClosedError:
            return
    await user.close(code, why or "")
