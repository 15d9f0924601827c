"""A websocket at the end of its server."""

import asyncio
from typing import Any

from uvicorn.server import ServerState
from websockets.client import ClientProtocol
from websockets.uri import parse_uri

from trainhall.api.host.bounded_http import BoundedConfig
from trainhall.api.host.bounded_websocket import BoundedWebSocket
from trainhall.api.host.connection_table import ConnectionTable


class SlowTransport(asyncio.Transport):
    """A transport that is not closed yet, as of TLS, which waits for the other side's answer."""

    def __init__(self) -> None:
        super().__init__({"socket": None})
        self.written = b""

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        pass

    def is_closing(self) -> bool:
        return False


async def accepts(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    await asyncio.Event().wait()


async def test_server_ends_beside_a_websocket_that_closes() -> None:
    config = BoundedConfig(accepts, table=ConnectionTable(), lifespan="off")
    config.load()
    state, transport = ServerState(), SlowTransport()
    socket = BoundedWebSocket(config, state, {})
    socket.connection_made(transport)
    client = ClientProtocol(parse_uri("ws://127.0.0.1/"))
    client.send_request(client.connect())
    socket.data_received(b"".join(client.data_to_send()))
    async with asyncio.timeout(10):
        while b"101" not in transport.written:  # noqa: ASYNC110 - the application accepts
            await asyncio.sleep(0)
    client.receive_data(transport.written)
    client.send_close(1000)
    socket.data_received(b"".join(client.data_to_send()))
    socket.shutdown()
    for task in state.tasks:
        task.cancel()
