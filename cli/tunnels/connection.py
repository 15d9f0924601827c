"""The command's side of a tunnel: a websocket to the coordinator."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from trainhall.cli.base.client import Client, problem_of
from trainhall.cli.base.errors import CliError, NotAllowedError, UnreachableError
from trainhall.cli.base.output import notice, one_line
from trainhall.cluster.tls import describe_refusal
from trainhall.cluster.wire.tunnel import Tunnel, TunnelClosedError, TunnelError

LOGGED_OUT = 1008
OPEN_SECONDS = 20.0
_BREAKS = (1001, 1012)
"""Close codes of a coordinator that ends."""


class _Side:
    """A `cluster.wire.tunnel.Socket`."""

    def __init__(self, websocket: ClientConnection) -> None:
        self._websocket = websocket

    async def send(self, message: str | bytes) -> None:
        try:
            await self._websocket.send(message)
        except ConnectionClosed as error:
            raise TunnelClosedError(str(error)) from None

    async def receive(self) -> str | bytes:
        try:
            return await self._websocket.recv()
        except ConnectionClosed as error:
            raise TunnelClosedError(str(error)) from None


class Session:
    """A session beside a job, as its messages tell of it."""

    def __init__(self, websocket: ClientConnection, on_started: Callable[[], None]) -> None:
        self._websocket = websocket
        self._on_started = on_started
        self.tunnel = Tunnel(_Side(websocket), self._take)
        self.exit_code: int | None = None
        self.problem: str | None = None
        """Why it did not begin, or was cut off."""

    def _take(self, message: dict[str, Any]) -> None:
        match message.get("type"):
            case "started":
                self._on_started()
            case "exit":
                self.exit_code = int(message["code"])
            case "error":
                self.problem = one_line(str(message.get("detail", "")))

    def check_end(self) -> int:
        """Return the exit code of a session whose tunnel is closed.

        Raises:
            CliError: it was cut off.
        """
        if self.exit_code is not None:
            if self.problem is not None:
                notice(self.problem)
            return self.exit_code
        code = self._websocket.close_code
        if code == LOGGED_OUT:
            raise NotAllowedError(self.problem or self._websocket.close_reason or "logged out")
        if self.problem is not None:
            raise CliError(self.problem)
        if code in _BREAKS:
            raise UnreachableError("the coordinator has ended, and the session with it")
        if code == 1006:
            raise UnreachableError("the connection to the coordinator broke, and the session ended")
        raise CliError("the session has ended with its attempt, or with the agent of its node")


@asynccontextmanager
async def open_session(
    client: Client, path: str, on_started: Callable[[], None]
) -> AsyncIterator[Session]:
    """Open a session below /api/v1.

    Raises:
        CliError: it is refused, by the answer's status, or nothing answers.
    """
    url, headers, context = client.websocket(path)
    try:
        websocket = await connect(
            url,
            ssl=context,
            additional_headers=headers,
            compression=None,
            open_timeout=OPEN_SECONDS,
            close_timeout=1,
            proxy=None,
        )
    except InvalidStatus as error:
        answer = error.response
        raise problem_of(
            httpx.Response(answer.status_code, content=bytes(answer.body or b""))
        ) from None
    except (OSError, TimeoutError, WebSocketException) as error:
        why = describe_refusal(error, client.url) or str(error) or type(error).__name__
        raise UnreachableError(f"no coordinator answers at {client.url} ({why})") from None
    async with websocket:
        try:
            yield Session(websocket, on_started)
        except TunnelError as error:
            raise CliError(f"the session is broken off: {error}") from None
