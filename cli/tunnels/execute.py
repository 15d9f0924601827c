"""A command beside a rank, with this process's input and outputs."""

import asyncio
import contextlib
import os
import signal
import threading
from typing import Any

from trainhall.cli.base.client import Client
from trainhall.cli.tunnels import terminal
from trainhall.cli.tunnels.connection import Session, open_session
from trainhall.cluster.wire.sessions import ERRORS, INPUT, OUTPUT
from trainhall.cluster.wire.tunnel import CHUNK, Stream, StreamResetError, TunnelClosedError

_STDIN, _STDOUT, _STDERR = 0, 1, 2


async def execute(client: Client, path: str, command: list[str], *, in_terminal: bool) -> int:
    """Run a command until it ends; return its exit code.

    Args:
        path: of the session, below /api/v1.
        in_terminal: it has a terminal, which is the user's.

    Raises:
        CliError: it cannot begin, or was cut off.
        BrokenPipeError: nobody reads its output any more.
    """
    async with open_session(client, path, lambda: None) as session:
        described = terminal.described() if in_terminal else None
        start: dict[str, Any] = {"type": "start", "command": command, "terminal": described}
        input_stream = session.tunnel.stream(INPUT)
        outputs = [
            asyncio.create_task(_write(session.tunnel.stream(number), fd))
            for number, fd in ((OUTPUT, _STDOUT), (ERRORS, _STDERR))[: 1 if in_terminal else 2]
        ]
        with contextlib.suppress(TunnelClosedError):
            await session.tunnel.send(start)
        with terminal.raw() if in_terminal else contextlib.nullcontext():
            if in_terminal:
                asyncio.get_running_loop().add_signal_handler(
                    signal.SIGWINCH, lambda: asyncio.ensure_future(_resize(session))
                )
            left = _read_input(input_stream, in_terminal=in_terminal)
            await _until_over(session, outputs, left)
        if left.is_set() and session.exit_code is None:
            return 128 + signal.SIGHUP
        return session.check_end()


async def _until_over(
    session: Session, outputs: list[asyncio.Task[None]], left: asyncio.Event
) -> None:
    """Wait until the tunnel is closed and its output written, or the user leaves."""
    receiving = asyncio.create_task(session.tunnel.run())
    leaving = asyncio.create_task(left.wait())
    try:
        # An output ends early where nobody reads it any more.
        pending: set[asyncio.Task[Any]] = {receiving, leaving, *outputs}
        while not leaving.done() and not receiving.done():
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        if receiving.done():
            await asyncio.gather(*outputs)
    finally:
        for task in (receiving, leaving, *outputs):
            task.cancel()
        await asyncio.gather(receiving, leaving, *outputs, return_exceptions=True)


async def _write(stream: Stream, fd: int) -> None:
    with contextlib.suppress(StreamResetError, TunnelClosedError):
        while data := await stream.read():
            # Whatever the reader does, the connection has to be served.
            await asyncio.to_thread(_write_all, fd, data)


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


async def _resize(session: Session) -> None:
    with contextlib.suppress(TunnelClosedError):
        await session.tunnel.send({"type": "resize", **terminal.size()})


def _read_input(stream: Stream, *, in_terminal: bool) -> asyncio.Event:
    """Send this process's input; the event is set when the user leaves by the escape."""
    left = asyncio.Event()
    loop = asyncio.get_running_loop()
    escape = terminal.Escape()

    def read() -> None:
        with contextlib.suppress(StreamResetError, TunnelClosedError, RuntimeError, OSError):
            while data := os.read(_STDIN, CHUNK):
                if in_terminal and escape.is_in(data):
                    loop.call_soon_threadsafe(left.set)
                    return
                asyncio.run_coroutine_threadsafe(stream.write(data), loop).result()
            asyncio.run_coroutine_threadsafe(stream.end(), loop).result()

    # A daemon: a read of a terminal ends with the next key only.
    threading.Thread(target=read, daemon=True, name="input").start()
    return left
