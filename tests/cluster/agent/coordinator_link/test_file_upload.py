import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from trainhall.cluster.agent.coordinator_link.file_upload import BrokenUploadError, FileUploads

SIZE = 3 * 2**20
CONTENT = bytes(range(256)) * (SIZE // 256)
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
def uploads() -> FileUploads:
    return FileUploads(5.0, 10.0, [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "weights.bin"
    path.write_bytes(CONTENT)
    return path


@contextlib.asynccontextmanager
async def server(answer: Answer) -> AsyncIterator[httpx.URL]:
    tasks = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.current_task())
        with contextlib.suppress(ConnectionError):
            await answer(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        yield httpx.URL(f"http://127.0.0.1:{port}/contents/a%20b", params={"offset": 7})
        async with asyncio.timeout(10):
            await asyncio.gather(*(task for task in tasks if task is not None))


async def test_sends_the_rest_of_a_file(uploads: FileUploads, file: Path) -> None:
    heads, bodies = [], []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        bodies.append(await reader.readexactly(SIZE - 7))
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    async with server(take) as url:
        with file.open("rb") as opened:
            answer = await uploads.put(url, {"Authorization": "Bearer x"}, opened, 7, SIZE - 7)
    assert answer.status_code == 204
    assert heads[0].startswith(b"PUT /contents/a%20b?offset=7 HTTP/1.1\r\n")
    assert b"authorization: bearer x\r\n" in heads[0].lower()
    assert f"content-length: {SIZE - 7}\r\n".encode() in heads[0].lower()
    assert bodies == [CONTENT[7:]]


async def test_returns_refusals_sent_before_the_end(uploads: FileUploads, file: Path) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\n{}")
        writer.write_eof()
        await reader.read()

    async with server(refuse) as url:
        with file.open("rb") as opened:
            answer = await uploads.put(url, {}, opened, 0, SIZE)
    assert (answer.status_code, answer.json()) == (413, {})


async def test_breaks_off_when_a_file_has_shrunk(uploads: FileUploads, file: Path) -> None:
    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with server(take) as url:
        with file.open("rb") as opened, pytest.raises(BrokenUploadError, match="5 bytes less"):
            await uploads.put(url, {}, opened, 0, SIZE + 5)


async def test_without_a_server_says_why(uploads: FileUploads, file: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = httpx.URL(f"http://127.0.0.1:{unused.getsockname()[1]}/")
        with file.open("rb") as opened, pytest.raises(BrokenUploadError, match="no connection"):
            await uploads.put(url, {}, opened, 0, SIZE)


async def test_cancelling_ends_the_connection_first(uploads: FileUploads, file: Path) -> None:
    began, left = asyncio.Event(), asyncio.Event()

    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        began.set()
        with contextlib.suppress(ConnectionError):
            await reader.read()
        left.set()

    async with server(stall) as url:
        with file.open("rb") as opened:
            task = asyncio.create_task(uploads.put(url, {}, opened, 0, SIZE))
            await began.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        async with asyncio.timeout(10):
            await left.wait()
