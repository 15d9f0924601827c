"""Streams of bytes through one websocket, between a user's command and a process beside a job.

The coordinator passes the messages of a tunnel on unread. A text is a JSON object with a `type`
(`cluster.wire.sessions`). A binary message is a kind, in one byte, the number of a stream, in four,
and for each kind:

    0  OPEN    nothing: a stream of this number begins, which the user's side chose
    1  DATA    bytes of the stream
    2  END     nothing: no more data comes in this direction; the other one stays open
    3  RESET   why the stream is over in both directions, in UTF-8
    4  CREDIT  four bytes: so many more bytes of data may be sent

Numbers are big-endian. At the beginning each side may send `WINDOW` bytes on a stream, and more as
the other side takes them. So both sides always read their websocket: a stream that nobody reads
holds up neither other streams nor the pings that show that a connection lives.
"""

import asyncio
import contextlib
import json
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

WINDOW = 256 * 1024
"""Bytes on their way on one stream in one direction."""
CHUNK = 32 * 1024
"""Bytes of data in one message at most."""
MAX_STREAMS = 256
"""Streams that are open at once."""
MAX_MESSAGE = 64 * 1024
"""Bytes of a message at most, and of a text as UTF-8."""
MAX_REASON = 500
_HEAD = struct.Struct("!BI")
_CREDIT = struct.Struct("!I")


class TunnelClosedError(Exception):
    """The tunnel is closed: the other side left, or was cut off."""


class TunnelError(Exception):
    """The other side breaks the rules of a tunnel."""


class StreamResetError(Exception):
    """The other side has given a stream up."""


class Kind(IntEnum):
    OPEN = 0
    DATA = 1
    END = 2
    RESET = 3
    CREDIT = 4


@dataclass(frozen=True)
class Frame:
    """A binary message."""

    kind: Kind
    stream: int
    data: bytes = b""

    def encode(self) -> bytes:
        return _HEAD.pack(self.kind, self.stream) + self.data

    @classmethod
    def decode(cls, message: bytes) -> "Frame":
        """
        Raises:
            TunnelError: it is none.
        """
        try:
            kind, stream = _HEAD.unpack_from(message)
            frame = cls(Kind(kind), stream, message[_HEAD.size :])
        except (struct.error, ValueError) as error:
            raise TunnelError(f"not a frame of a tunnel: {error}") from None
        if frame.kind is Kind.CREDIT and len(frame.data) != _CREDIT.size:
            raise TunnelError("a credit has four bytes")
        return frame


class Socket(Protocol):
    """A websocket, or what carries its messages further.

    Both methods raise TunnelClosedError once the other side is gone.
    """

    async def send(self, message: str | bytes, /) -> None: ...

    async def receive(self) -> str | bytes: ...


class Stream:
    """One stream of a tunnel. One task reads it and one writes it, at most."""

    def __init__(self, tunnel: "Tunnel", number: int) -> None:
        self.number = number
        self._tunnel = tunnel
        self._received: deque[bytes] = deque()
        self._unread = 0
        """Bytes that came and were not read yet."""
        self._taken = 0
        """Bytes that were read, for which the other side has no credit yet."""
        self._credit = WINDOW
        self._changed = asyncio.Event()
        self._has_ended = False
        """The other side sends no more."""
        self._is_ended = False
        """This side sends no more."""
        self._failure: Exception | None = None

    async def read(self) -> bytes:
        """Return the next bytes; none: the other side has ended the stream.

        Raises:
            StreamResetError, TunnelClosedError: it was cut off.
        """
        while not self._received:
            if self._has_ended:
                return b""
            if self._failure is not None:
                raise self._failure
            self._changed.clear()
            await self._changed.wait()
        data = self._received.popleft()
        self._unread -= len(data)
        self._taken += len(data)
        if self._taken >= WINDOW // 2 and not self._has_ended:
            taken, self._taken = self._taken, 0
            await self._tunnel.send_frame(Frame(Kind.CREDIT, self.number, _CREDIT.pack(taken)))
        return data

    async def write(self, data: bytes) -> None:
        """Send bytes, as fast as the other side reads.

        Raises:
            StreamResetError, TunnelClosedError: it was cut off.
        """
        view = memoryview(data)
        while view:
            while not self._credit:
                if self._failure is not None:
                    raise self._failure
                self._changed.clear()
                await self._changed.wait()
            if self._failure is not None:
                raise self._failure
            part = view[: min(CHUNK, self._credit)]
            self._credit -= len(part)
            await self._tunnel.send_frame(Frame(Kind.DATA, self.number, bytes(part)))
            view = view[len(part) :]

    async def end(self) -> None:
        """Send no more; what the other side sends is still read."""
        if self._is_ended or self._failure is not None:
            return
        self._is_ended = True
        self._forget_if_over()
        await self._tunnel.send_frame(Frame(Kind.END, self.number))

    async def reset(self, reason: str) -> None:
        """Give the stream up, in both directions."""
        if self._failure is not None:
            return
        self.fail(StreamResetError(reason))
        self._tunnel.forget(self.number)
        data = reason.encode("utf-8", "replace")[:MAX_REASON]
        await self._tunnel.send_frame(Frame(Kind.RESET, self.number, data))

    def fail(self, error: Exception) -> None:
        """Cut the stream off."""
        self._failure = self._failure or error
        self._changed.set()

    def take(self, frame: Frame) -> None:
        """Take a frame of the other side.

        Raises:
            TunnelError: it is against the rules.
        """
        match frame.kind:
            case Kind.DATA if self._has_ended:
                raise TunnelError(f"data of stream {self.number}, which was ended")
            case Kind.DATA:
                self._unread += len(frame.data)
                if self._unread + self._taken > WINDOW:
                    raise TunnelError(f"more data of stream {self.number} than was asked for")
                if frame.data:
                    self._received.append(frame.data)
            case Kind.CREDIT:
                self._credit += _CREDIT.unpack(frame.data)[0]
                if self._credit > WINDOW:
                    raise TunnelError(f"more credit for stream {self.number} than was used")
            case Kind.END:
                self._has_ended = True
                self._forget_if_over()
            case Kind.RESET:
                self.fail(StreamResetError(frame.data[:MAX_REASON].decode("utf-8", "replace")))
                self._tunnel.forget(self.number)
            case Kind.OPEN:
                raise TunnelError(f"stream {self.number} is open already")
        self._changed.set()

    def _forget_if_over(self) -> None:
        if self._has_ended and self._is_ended:
            self._tunnel.forget(self.number)


class Tunnel:
    """One side of a tunnel.

    Args:
        on_message: gets the texts of the other side, parsed; what it raises ends the tunnel.
        on_open: gets the streams that the other side opens; None: it may open none.
    """

    def __init__(
        self,
        socket: Socket,
        on_message: Callable[[dict[str, Any]], None],
        on_open: Callable[[Stream], None] | None = None,
    ) -> None:
        self._socket = socket
        self._on_message = on_message
        self._on_open = on_open
        self._streams: dict[int, Stream] = {}
        self._newest = -1
        self._is_closed = False

    async def run(self) -> None:
        """Receive until the other side is gone.

        Raises:
            TunnelError: it breaks the rules.
        """
        try:
            with contextlib.suppress(TunnelClosedError):
                while True:
                    await self._take(await self._socket.receive())
        finally:
            self._is_closed = True
            for stream in list(self._streams.values()):
                stream.fail(TunnelClosedError("the tunnel was closed"))

    def stream(self, number: int) -> Stream:
        """Begin a stream that both sides know of."""
        self._newest = max(self._newest, number)
        stream = self._streams[number] = Stream(self, number)
        if self._is_closed:
            stream.fail(TunnelClosedError("the tunnel was closed"))
        return stream

    async def open(self) -> Stream:
        """Begin a stream, of which the other side learns now."""
        stream = self.stream(self._newest + 1)
        await self.send_frame(Frame(Kind.OPEN, stream.number))
        return stream

    async def send(self, message: dict[str, Any]) -> None:
        """Send a JSON object with a `type`."""
        await self._socket.send(json.dumps(message))

    async def send_frame(self, frame: Frame) -> None:
        """Send a frame of one of the streams."""
        await self._socket.send(frame.encode())

    def forget(self, number: int) -> None:
        """Forget a stream that is over; frames of it that are on their way are dropped."""
        self._streams.pop(number, None)

    async def _take(self, message: str | bytes) -> None:
        if isinstance(message, str):
            self._on_message(parse(message))
            return
        frame = Frame.decode(message)
        if frame.kind is Kind.OPEN and frame.stream > self._newest:
            await self._take_open(frame.stream)
        elif frame.stream in self._streams:
            self._streams[frame.stream].take(frame)
        elif frame.kind is Kind.OPEN:
            raise TunnelError(f"stream {frame.stream} was opened before")

    async def _take_open(self, number: int) -> None:
        if self._on_open is None:
            raise TunnelError("no streams can be opened here")
        if len(self._streams) >= MAX_STREAMS:
            self._newest = number
            reason = f"{MAX_STREAMS} connections are open; no more at once".encode()
            await self.send_frame(Frame(Kind.RESET, number, reason))
            return
        self._on_open(self.stream(number))


def parse(text: str) -> dict[str, Any]:
    """Parse a text of a tunnel.

    Raises:
        TunnelError: it is no JSON object.
    """
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise TunnelError("a text has to be a JSON object")
    return message


async def splice(
    stream: Stream,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    on_reset: Callable[[str], None] = lambda _: None,
) -> None:
    """Pass bytes on between a stream and a connection, until both directions have ended.

    Args:
        on_reset: gets the other side's reason to give it up.
    """

    async def to_stream() -> None:
        while data := await reader.read(CHUNK):
            await stream.write(data)
        await stream.end()

    async def from_stream() -> None:
        while data := await stream.read():
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()

    directions = [asyncio.create_task(to_stream()), asyncio.create_task(from_stream())]
    try:
        await asyncio.gather(*directions)
        writer.close()
    except StreamResetError as error:
        writer.transport.abort()
        on_reset(str(error))
    except TunnelClosedError:
        writer.transport.abort()
    except OSError as error:
        writer.transport.abort()
        with contextlib.suppress(TunnelClosedError):
            await stream.reset(f"the connection broke: {error.strerror or error}")
    finally:
        for direction in directions:
            direction.cancel()
        await asyncio.gather(*directions, return_exceptions=True)
