"""Streams of a tunnel: whole, in order, bounded, and each for itself."""

import asyncio
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainhall.cluster.wire.tunnel import (
    MAX_STREAMS,
    WINDOW,
    Frame,
    Kind,
    Socket,
    Stream,
    StreamResetError,
    Tunnel,
    TunnelClosedError,
    TunnelError,
    splice,
)

frames = st.builds(
    Frame,
    st.sampled_from([kind for kind in Kind if kind is not Kind.CREDIT]),
    st.integers(0, 2**32 - 1),
    st.binary(max_size=50),
)


class Pipe(Socket):
    """One end of a connection in memory."""

    def __init__(self) -> None:
        self.arrived: asyncio.Queue[str | bytes | None] = asyncio.Queue()
        self.other: Pipe

    @classmethod
    def pair(cls) -> tuple["Pipe", "Pipe"]:
        one, other = cls(), cls()
        one.other, other.other = other, one
        return one, other

    async def send(self, message: str | bytes) -> None:
        await asyncio.sleep(0)
        self.other.arrived.put_nowait(message)

    async def receive(self) -> str | bytes:
        message = await self.arrived.get()
        if message is None:
            raise TunnelClosedError("over")
        return message

    def close(self) -> None:
        self.arrived.put_nowait(None)
        self.other.arrived.put_nowait(None)


class Ends:
    """The two sides of a tunnel, which run; `opened` has what the first one opened."""

    def __init__(self) -> None:
        self.opened: asyncio.Queue[Stream] = asyncio.Queue()
        self.near_pipe, self.far_pipe = Pipe.pair()
        self.near = Tunnel(self.near_pipe, lambda _: None)
        self.far = Tunnel(self.far_pipe, lambda _: None, self.opened.put_nowait)

    async def __aenter__(self) -> "Ends":
        self.tasks = [asyncio.create_task(each.run()) for each in (self.near, self.far)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.near_pipe.close()
        await asyncio.gather(*self.tasks)

    async def connect(self) -> tuple[Stream, Stream]:
        near = await self.near.open()
        return near, await self.opened.get()


async def read_all(stream: Stream) -> bytes:
    found = b""
    while data := await stream.read():
        found += data
    return found


async def send_all(stream: Stream, pieces: list[bytes]) -> None:
    for piece in pieces:
        await stream.write(piece)
    await stream.end()


@given(frames)
def test_frame_round_trip_is_exact(frame: Frame) -> None:
    assert Frame.decode(frame.encode()) == frame


@given(st.binary(max_size=12))
def test_no_bytes_decode_to_another_frame(message: bytes) -> None:
    try:
        frame = Frame.decode(message)
    except TunnelError:
        return
    assert frame.encode() == message


@settings(max_examples=20)
@given(
    st.lists(st.lists(st.binary(max_size=9).map(lambda data: data * 9001), max_size=6), max_size=5)
)
def test_streams_arrive_whole_in_both_directions(sent: list[list[bytes]]) -> None:
    async def check() -> None:
        async with Ends() as ends:
            for pieces in sent:
                near, far = await ends.connect()
                found = await asyncio.gather(
                    read_all(far), read_all(near), send_all(near, pieces), send_all(far, pieces)
                )
                assert found[0] == found[1] == b"".join(pieces)

    asyncio.run(check())


async def test_unread_stream_holds_up_no_other() -> None:
    async with Ends() as ends:
        slow, unread = await ends.connect()
        quick, far = await ends.connect()
        flood = asyncio.create_task(slow.write(bytes(3 * WINDOW)))
        await send_all(quick, [b"x"])
        assert await read_all(far) == b"x"
        assert not flood.done()
        assert len(await unread.read()) > 0
        while not flood.done():
            await unread.read()


async def test_half_closed_stream_still_receives() -> None:
    async with Ends() as ends:
        near, far = await ends.connect()
        await near.end()
        assert await far.read() == b""
        await far.write(b"answer")
        await far.end()
        assert await read_all(near) == b"answer"


async def test_reset_ends_both_directions_with_reason() -> None:
    async with Ends() as ends:
        near, far = await ends.connect()
        await far.reset("nothing listens there")
        with pytest.raises(StreamResetError, match="nothing listens"):
            await near.read()
        with pytest.raises(StreamResetError):
            await near.write(b"x")


async def test_closed_tunnel_ends_its_streams() -> None:
    async with Ends() as ends:
        near, _ = await ends.connect()
        ends.near_pipe.close()
        with pytest.raises(TunnelClosedError):
            await near.read()


async def test_too_many_streams_are_refused() -> None:
    async with Ends() as ends:
        for _ in range(MAX_STREAMS):
            await ends.connect()
        near = await ends.near.open()
        with pytest.raises(StreamResetError, match="no more at once"):
            await near.read()


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"", "not a frame"),
        (b"\x09\x00\x00\x00\x00", "not a frame"),
        (Frame(Kind.CREDIT, 0, b"xyz").encode(), "four bytes"),
        (Frame(Kind.CREDIT, 0, struct.pack("!I", 1)).encode(), "more credit"),
        (Frame(Kind.DATA, 0, bytes(WINDOW + 1)).encode(), "more data"),
        (Frame(Kind.OPEN, 0).encode(), "open already|opened before"),
        (Frame(Kind.OPEN, 1).encode(), "no streams"),
        ("[]", "JSON object"),
        ("{", "JSON object"),
    ],
)
async def test_broken_rules_end_the_tunnel(message: str | bytes, why: str) -> None:
    near, far = Pipe.pair()
    tunnel = Tunnel(near, lambda _: None)
    stream = tunnel.stream(0)
    await far.send(message)
    with pytest.raises(TunnelError, match=why):
        await tunnel.run()
    with pytest.raises(TunnelClosedError):
        await stream.read()


async def test_splice_keeps_half_closes_of_connections() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.read()  # until the other side has ended
        writer.write(asked[::-1])
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, Ends() as ends:
        near, far = await ends.connect()
        port = server.sockets[0].getsockname()[1]
        passing = asyncio.create_task(splice(far, *await asyncio.open_connection(port=port)))
        await send_all(near, [b"abc" * 100_000])
        assert await read_all(near) == b"cba" * 100_000
        await passing
