"""Messages of a tunnel between an agent and the process of a session, over a local socket.

Each is its kind in one byte (T: text, B: binary), its length in four, and its bytes.
"""

import asyncio
import socket
import struct

from trainhall.cluster.wire.tunnel import TunnelClosedError

_HEAD = struct.Struct("!cI")
MAX_BYTES = 2**20


class LocalSocket:
    """A `cluster.wire.tunnel.Socket`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, connected: socket.socket) -> "LocalSocket":
        """Take over a connected socket, and its end."""
        return cls(*await asyncio.open_connection(sock=connected))

    async def send(self, message: str | bytes) -> None:
        data = message.encode() if isinstance(message, str) else message
        kind = b"T" if isinstance(message, str) else b"B"
        try:
            self._writer.write(_HEAD.pack(kind, len(data)) + data)
            await self._writer.drain()
        except OSError as error:
            raise TunnelClosedError(str(error)) from None

    async def receive(self) -> str | bytes:
        try:
            kind, size = _HEAD.unpack(await self._reader.readexactly(_HEAD.size))
            if size > MAX_BYTES:
                raise TunnelClosedError(f"a message of {size} bytes")
            data = await self._reader.readexactly(size)
            return data.decode() if kind == b"T" else data
        except (OSError, asyncio.IncompleteReadError, UnicodeDecodeError) as error:
            raise TunnelClosedError(str(error)) from None

    def close(self) -> None:
        self._writer.close()
