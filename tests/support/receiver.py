"""A receiver of webhooks on a real socket, and a mail server that keeps what it gets."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class Received:
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """Answers with each of `answers` in turn, then with 204."""

    url: str = ""
    answers: list[str] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    """Answers wait for it."""
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    """Set with each request."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.received.append(await _request(reader))
            self.arrived.set()
            await self.opened.wait()
            answer = self.answers.pop(0) if self.answers else "204 No Content"
            writer.write(f"HTTP/1.1 {answer}\r\nConnection: close\r\n\r\n".encode())
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the sender was killed
        finally:
            writer.close()


@asynccontextmanager
async def receiver(*answers: str, held: bool = False) -> AsyncIterator[Receiver]:
    """Listen on loopback.

    Args:
        held: no request is answered before the test sets `opened`.
    """
    made = Receiver(answers=list(answers))
    if not held:
        made.opened.set()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield made


async def _request(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.strip().split("\r\n")
    headers = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Received(first.split()[1], headers, body)


@asynccontextmanager
async def mail_server(mails: list[str], refusal: str | None = None) -> AsyncIterator[str]:
    """Take mails on loopback, without TLS; refuse the receiver with `refusal`."""
    replies: dict[str, Callable[[], str]] = {
        "RCPT": lambda: refusal or "250 ok",
        "DATA": lambda: "354 go on",
        "QUIT": lambda: "221 bye",
    }

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 test\r\n")
        while line := (await reader.readline()).decode().strip():
            verb = line.partition(" ")[0].upper()
            writer.write(replies.get(verb, lambda: "250 ok")().encode() + b"\r\n")
            if verb == "QUIT":
                break
            if verb == "DATA":
                mails.append((await reader.readuntil(b"\r\n.\r\n")).decode())
                writer.write(b"250 kept\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"smtp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
