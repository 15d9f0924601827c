"""Tunnels that the coordinator asks for: each a websocket, and a process within an attempt.

This agent only passes messages on between the two. It opens a websocket for each tunnel, so that
the one with its reports is never behind what users copy.
"""

import asyncio
import contextlib
import json
import socket
import subprocess
from collections.abc import Iterable

from pydantic import ValidationError
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, WebSocketException

from trainhall.cluster.agent.attempts import Attempts
from trainhall.cluster.agent.coordinator_link.connection import open_websocket
from trainhall.cluster.agent.coordinator_link.trust import Trust
from trainhall.cluster.agent.launch.launcher import CannotStartError
from trainhall.cluster.agent.options import AgentOptions
from trainhall.cluster.agent.tunnels.local_socket import LocalSocket
from trainhall.cluster.waiting import end_tasks, run_until_one_ends
from trainhall.cluster.wire.sessions import TICKET_SECONDS, AnySession, ToAgent
from trainhall.cluster.wire.tunnel import TunnelClosedError
from trainhall.training.event_log import EventLogger

logger = EventLogger(__name__)

INSIDE = "trainhall.cluster.agent.tunnels.inside"
MAX_TUNNELS = 64
"""Tunnels of this host at once."""
END_SECONDS = 5.0
"""Time for a session's process to end what it started."""
_POLL_SECONDS = 0.02


class Tunnels:
    """Opens what is asked for, each once."""

    def __init__(self, options: AgentOptions, trust: Trust, attempts: Attempts) -> None:
        self._options = options
        self._trust = trust
        self._attempts = attempts
        self._known: set[str] = set()
        """Tickets that the coordinator still asks for, and that are taken up here."""
        self._running: set[asyncio.Task[None]] = set()

    def take(self, tickets: Iterable[str], credential: str) -> None:
        """Take up the tickets that are asked for now."""
        wanted = set(tickets)
        for ticket in wanted - self._known:
            task = asyncio.create_task(self._serve(ticket, credential), name="tunnel")
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        self._known = wanted

    async def close(self) -> None:
        """End all sessions."""
        await end_tasks(self._running)

    async def _serve(self, ticket: str, credential: str) -> None:
        url = self._options.tunnel_url(ticket)
        try:
            async with open_websocket(url, credential, self._trust) as websocket:
                with contextlib.suppress(ConnectionClosed):
                    await self._serve_session(websocket)
        except (OSError, TimeoutError, WebSocketException) as error:
            logger.warning("tunnel_not_opened", error=self._trust.describe(error))

    async def _serve_session(self, websocket: ClientConnection) -> None:
        async with asyncio.timeout(TICKET_SECONDS):
            first = await websocket.recv()
        try:
            session = ToAgent.validate_json(first)
        except ValidationError:
            await _refuse(websocket, "the node's agent is of another version; upgrade it")
            return
        if len(self._running) > MAX_TUNNELS:
            await _refuse(websocket, f"the node has {MAX_TUNNELS} sessions, and takes no more")
        elif not self._options.allows_exec and session.type != "stacks":
            await _refuse(websocket, "the node's agent allows no sessions (--no-exec)")
        elif session.type == "stacks":
            await self._run(websocket, session)
        else:
            with self._attempts.session(session.job_id, session.attempt):
                await self._run(websocket, session)

    async def _run(self, websocket: ClientConnection, session: AnySession) -> None:
        ours, theirs = socket.socketpair()
        try:
            process = self._attempts.start_inside(
                session.job_id, session.attempt, INSIDE, theirs.fileno()
            )
        except (OSError, CannotStartError) as error:
            ours.close()
            await _refuse(websocket, f"the node cannot start a process: {error}")
            return
        finally:
            theirs.close()
        if process is None:
            ours.close()
            await _refuse(websocket, "the attempt does not run on this node any more")
            return
        logger.info("session_started", job=session.job_id, kind=session.type, pid=process.pid)
        local = await LocalSocket.connect(ours)
        try:
            await local.send(session.model_dump_json())
            with contextlib.suppress(TunnelClosedError):
                await run_until_one_ends(_to_user(local, websocket), _to_host(websocket, local))
        finally:
            local.close()
            await _end(process)
            logger.info("session_ended", job=session.job_id, kind=session.type, pid=process.pid)


async def _to_user(local: LocalSocket, websocket: ClientConnection) -> None:
    while True:
        await websocket.send(await local.receive())


async def _to_host(websocket: ClientConnection, local: LocalSocket) -> None:
    while True:
        await local.send(await websocket.recv())


async def _refuse(websocket: ClientConnection, detail: str) -> None:
    await websocket.send(json.dumps({"type": "error", "detail": detail}))


async def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait until a session's process has ended what it started; end it if that takes too long."""
    for _ in range(round(END_SECONDS / _POLL_SECONDS)):
        if process.poll() is not None:
            return
        await asyncio.sleep(_POLL_SECONDS)
    process.kill()
