"""The coordinator's socket."""

import asyncio
import socket

from trainhall.api.host.listening import listen


async def test_responses_are_sent_without_delay() -> None:
    """Else each request of a connection that is kept waits 40 ms for an acknowledgement."""
    accepted: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
    with listen("127.0.0.1", 0) as listener:
        server = await asyncio.start_server(
            lambda _, writer: accepted.put_nowait(writer), sock=listener
        )
        async with server:
            _, client = await asyncio.open_connection(*listener.getsockname())
            connection = await accepted.get()
            ours = connection.get_extra_info("socket")
            without_delay = ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            for writer in (client, connection):
                writer.close()
                await writer.wait_closed()
    assert without_delay
