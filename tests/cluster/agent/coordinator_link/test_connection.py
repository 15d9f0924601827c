"""What a host's log says of its connection to the coordinator."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.cluster.agent_process import until
from websockets.exceptions import ConnectionClosedError
from websockets.frames import Close

from trainhall.cluster.agent.coordinator_link.connection import Connection, Socket
from trainhall.cluster.agent.options import AgentOptions
from trainhall.cluster.wire.protocol import Report

SHARED = "a newer agent took over; two agents must not share a data folder"


class Closed:
    """A connection that the coordinator closes."""

    def __init__(self, close: Close | None) -> None:
        self._error = ConnectionClosedError(close, close, True if close is not None else None)

    async def send(self, text: str, /) -> None:
        raise self._error

    async def recv(self) -> str:
        raise self._error


def report(revision: int) -> Report:
    return Report(agent_version="1", agent_id="a", time=0.0, address="", devices=[])


@pytest.mark.parametrize(
    ("close", "message"),
    [
        (Close(4409, SHARED), f'connection_closed coordinator=http://hall:1 error="{SHARED}"'),
        (Close(1001, ""), 'connection_closed coordinator=http://hall:1 error=""'),
        (None, 'connection_closed coordinator=http://hall:1 error=""'),
    ],
)
async def test_connection_logs_why_it_was_closed(
    caplog: pytest.LogCaptureFixture, close: Close | None, message: str
) -> None:
    @contextlib.asynccontextmanager
    async def dial() -> AsyncIterator[Socket]:
        yield Closed(close)

    connection = Connection(
        AgentOptions(coordinator="http://hall:1", data_dir=Path("/nowhere")),
        "credential", report, lambda _: None, lambda: None, dial=dial,
    )  # fmt: skip
    with caplog.at_level(logging.WARNING):
        running = asyncio.create_task(connection.run())
        await until("a word of it", lambda: caplog.messages or running.done())
        running.cancel()
        await asyncio.wait({running})
    assert caplog.messages[0] == message
