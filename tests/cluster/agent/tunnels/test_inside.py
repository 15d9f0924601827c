"""Sessions within an attempt, by real processes, terminals and connections."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.cluster.agent_process import launch_of, script, until
from support.waiting import PATIENCE

from trainhall.cluster.agent.os_support.processes import MARK
from trainhall.cluster.agent.tunnels.local_socket import LocalSocket
from trainhall.cluster.wire.sessions import (
    ERRORS,
    INPUT,
    OUTPUT,
    AnySession,
    ExecSession,
    ForwardSession,
    StacksSession,
    Terminal,
)
from trainhall.cluster.wire.tunnel import Stream, StreamResetError, Tunnel
from trainhall.training.link.folder import AttemptFolder, replace_json
from trainhall.training.link.status import RankState, ShimStatus

pytestmark = pytest.mark.processes

INSIDE = "trainhall.cluster.agent.tunnels.inside"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[AttemptFolder]:
    """An attempt whose rank 0 runs; it has a variable of its own."""
    found = AttemptFolder(tmp_path / "attempt")
    work = tmp_path / "work"
    for each in (found.path, work):
        each.mkdir()
    env = {**os.environ, MARK: str(found.path), "OF_THE_JOB": "yes", "TRAINHALL_WRITER": "w"}
    with subprocess.Popen(["sleep", "1000"], env=env, cwd=work) as rank:
        replace_json(found.launch, launch_of(script(tmp_path, "")))
        status = ShimStatus(
            job_id="job", attempt=1, generation=1, phase="running",
            ranks=[RankState(rank=0, pid=rank.pid, started_at=time.time())],
        )  # fmt: skip
        replace_json(found.status, status)
        yield found
        rank.kill()


class Session:
    """The user's side of a session."""

    def __init__(self, connection: LocalSocket, process: subprocess.Popen[bytes]) -> None:
        self.messages: list[dict[str, Any]] = []
        self.tunnel = Tunnel(connection, self.messages.append)
        self.process = process
        self.input, self.output, self.errors = map(self.tunnel.stream, (INPUT, OUTPUT, ERRORS))

    async def wait_for(self, kind: str) -> dict[str, Any]:
        """The first message of a kind."""
        found = await until(kind, lambda: [m for m in self.messages if m["type"] == kind])
        return found[0]


@asynccontextmanager
async def session(folder: AttemptFolder, first: AnySession) -> AsyncIterator[Session]:
    ours, theirs = socket.socketpair()
    process = subprocess.Popen(  # noqa: ASYNC220 - it takes a moment
        [sys.executable, "-m", INSIDE, str(folder.path), str(theirs.fileno())],
        pass_fds=(theirs.fileno(),), env={**os.environ, MARK: str(folder.path)},
    )  # fmt: skip
    theirs.close()
    connection = await LocalSocket.connect(ours)
    opened = Session(connection, process)
    await connection.send(first.model_dump_json())
    receiving = asyncio.create_task(opened.tunnel.run())
    try:
        yield opened
    finally:
        connection.close()
        await asyncio.gather(receiving, return_exceptions=True)
        await until("the end", lambda: process.poll() is not None)


def command(*arguments: str, terminal: Terminal | None = None) -> ExecSession:
    return ExecSession(job_id="job", attempt=1, rank=0, command=list(arguments), terminal=terminal)


def names_of(process: subprocess.Popen[bytes]) -> list[str]:
    return [each.name() for each in psutil.Process(process.pid).children(recursive=True)]


async def read_all(stream: Stream) -> bytes:
    found = b""
    async with asyncio.timeout(PATIENCE):
        while data := await stream.read():
            found += data
    return found


async def read_until(stream: Stream, text: bytes) -> bytes:
    found = b""
    async with asyncio.timeout(PATIENCE):
        while text not in found:
            found += await stream.read()
    return found


async def test_command_has_the_streams_of_a_rank(folder: AttemptFolder) -> None:
    text = 'echo "$OF_THE_JOB $TRAINHALL_WRITER"; pwd; cat; echo bad >&2; exit 7'
    async with session(folder, command("sh", "-c", text)) as opened:
        await opened.input.write(b"x" * 300_000)  # more than a window, before it has started
        await opened.input.end()
        output, errors = await asyncio.gather(read_all(opened.output), read_all(opened.errors))
        assert await opened.wait_for("exit") == {"type": "exit", "code": 7}
    first, second, rest = output.split(b"\n", 2)
    assert (first, second) == (b"yes ", str(folder.path.parent / "work").encode())
    assert (len(rest), errors) == (300_000, b"bad\n")


async def test_terminal_has_size_control_characters_and_jobs(folder: AttemptFolder) -> None:
    size = Terminal(rows=33, columns=99, term="vt100")
    async with session(folder, command("sh", terminal=size)) as opened:
        await opened.input.write(b"stty size; echo $TERM; tty\n")
        shown = await read_until(opened.output, b"/dev/")
        assert b"33 99" in shown
        assert b"vt100" in shown
        await opened.tunnel.send({"type": "resize", "rows": 44, "columns": 111})
        await opened.input.write(b"stty size\n")
        await read_until(opened.output, b"44 111")
        await opened.input.write(b"echo be''gun; sleep 1000\n")
        await read_until(opened.output, b"begun")
        # Before it runs, the shell itself would be interrupted, and forget what it has read.
        await until("the sleep", lambda: "sleep" in names_of(opened.process))
        await opened.input.write(b"\x03")
        await read_until(opened.output, b"^C")
        await opened.input.write(b"exit 5\n")
        await read_all(opened.output)
        assert (await opened.wait_for("exit"))["code"] == 5


async def test_unknown_program_exits_as_in_a_shell(folder: AttemptFolder) -> None:
    async with session(folder, command("no-such-program")) as opened:
        assert (await opened.wait_for("exit"))["code"] == 127
        assert "no program 'no-such-program'" in (await opened.wait_for("error"))["detail"]


async def test_nothing_is_left_when_the_user_leaves(folder: AttemptFolder) -> None:
    text = "setsid nohup sleep 1001 >/dev/null 2>&1 & trap '' HUP; echo $!; sleep 1001"
    async with session(folder, command("sh", "-c", text)) as opened:
        await opened.output.read()
        left = psutil.Process(opened.process.pid).children(recursive=True)
        assert len(left) >= 2
    assert not [each for each in left if each.is_running()]


async def test_flood_stops_until_it_is_read(folder: AttemptFolder) -> None:
    async with session(folder, command("yes")) as opened:
        await opened.wait_for("started")
        writer = psutil.Process(opened.process.pid).children()[0]
        await until("a full pipe", lambda: writer.status() == psutil.STATUS_SLEEPING)
        assert (await opened.output.read()).startswith(b"y\n")


async def test_rank_that_does_not_run_is_refused(folder: AttemptFolder) -> None:
    first = command("true").model_copy(update={"rank": 3})
    async with session(folder, first) as opened:
        detail = (await opened.wait_for("error"))["detail"]
        assert detail == "rank 3 does not run on this host at the moment"


async def test_forward_passes_many_connections_on(folder: AttemptFolder) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read())[::-1])
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    first = ForwardSession(job_id="job", attempt=1, rank=0, port=port)
    async with server, session(folder, first) as opened:
        await opened.wait_for("started")
        streams = [await opened.tunnel.open() for _ in range(20)]
        for number, stream in enumerate(streams):
            await stream.write(f"connection {number}".encode())
            await stream.end()
        for number, stream in enumerate(streams):
            assert await read_all(stream) == f"connection {number}".encode()[::-1]
        server.close()
        await server.wait_closed()
        stream = await opened.tunnel.open()
        with pytest.raises(StreamResetError, match="Connection refused"):
            await stream.read()


async def test_stacks_are_those_of_this_moment(folder: AttemptFolder) -> None:
    async with session(folder, StacksSession(job_id="job", attempt=1, ranks=[0, 1])) as opened:
        await opened.wait_for("exit")
        ranks = [each["rank"] for each in opened.messages if each["type"] == "stacks"]
        assert ranks == [0]
        assert "not available" in opened.messages[0]["text"]
