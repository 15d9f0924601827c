"""The agent's one connection: dials the coordinator, reconnects, never stops trying."""

import asyncio
import json
import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from typing import Any, Protocol

from pydantic import ValidationError
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from trainhall.cluster.agent.coordinator_link.trust import Trust
from trainhall.cluster.agent.options import (
    AgentOptions,
    CredentialRefusedError,
    ProtocolMismatchError,
    RemovedByCoordinatorError,
)
from trainhall.cluster.agent.shim import isolation
from trainhall.cluster.backoff import Backoff
from trainhall.cluster.waiting import run_until_one_ends, wait_until_set
from trainhall.cluster.wire.protocol import (
    CloseCode,
    Desired,
    Report,
    ReportAck,
    ToAgent,
    first_problem,
)
from trainhall.training.event_log import EventLogger

logger = EventLogger(__name__)

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
FIRST_PAUSE_SECONDS = 0.1
PAUSE_SECONDS = 0.02
"""Changes within so short a time share one report."""
UNCONFIRMED_REPORTS = 64
"""Number of unconfirmed reports whose send times are kept."""


class Socket(Protocol):
    """Interface of a connection; the simulator has its own.

    Both raise `websockets.exceptions.ConnectionClosed` when the other side is gone.
    """

    async def send(self, text: str, /) -> None: ...

    async def recv(self) -> str | bytes: ...


Dial = Callable[[], AbstractAsyncContextManager[Socket]]


def open_websocket(url: str, credential: str, trust: Trust) -> connect:
    """Open the websocket, awaited or entered; a removed node is refused with `InvalidStatus`."""
    trust.refresh()
    return connect(
        url,
        ssl=trust.context if url.startswith("wss:") else None,
        additional_headers={"Authorization": f"Bearer {credential}"},
        # It costs more time than it saves.
        compression=None,
        max_size=MAX_MESSAGE_BYTES,
        open_timeout=10,
        ping_interval=10,
        ping_timeout=20,
        close_timeout=1,
        proxy=None,
    )


class Connection:
    """Keeps the coordinator informed and takes what it wants; `run` ends only when that is over."""

    def __init__(
        self,
        options: AgentOptions,
        credential: str,
        report: Callable[[int], Report],
        desired: Callable[[Desired], None],
        connected: Callable[[], None],
        *,
        raise_if_refused: bool = False,
        trust: Trust | None = None,
        dial: Dial | None = None,
        chance: random.Random | None = None,
        on_ack: Callable[[float], None] = lambda _: None,
        clock: Callable[[], float] = isolation.now,
    ) -> None:
        """Configure the connection; `run` opens it.

        Args:
            report: returns the current state, given the revision that was applied last.
            desired: receives the desired state; never an old or a repeated one.
            connected: called when a connection is open.
            raise_if_refused: raise instead of trying again with the same credential.
            trust: what the coordinator is verified with; None: what the options say.
            dial: opens a connection; None: a websocket to the coordinator of the options.
            chance: varies the pauses between two tries; None: every agent has its own.
            on_ack: called with the time at which an acknowledged report was sent, by `clock`.
            clock: seconds that keep counting while the host sleeps.
        """
        self._options = options
        self._credential = credential
        self._report = report
        self._desired = desired
        self._connected = connected
        self._raise_if_refused = raise_if_refused
        self._trust = trust or Trust(options)
        self._dial = dial or self._websocket
        self._changed = asyncio.Event()
        self._heartbeat = options.heartbeat_seconds
        self._revision = 0
        self._number = 0
        self._sent: dict[int, float] = {}
        """When the last reports of this connection were sent, by their numbers."""
        self._on_ack = on_ack
        self._clock = clock
        self._backoff = Backoff(FIRST_PAUSE_SECONDS, options.reconnect_limit_seconds, chance)
        self._problem = ("", "")
        self._changes = 0
        self._reported = 0
        """Number of changes when the last report was sent."""
        self.is_open = False
        """The coordinator is there, and listens."""

    def changed(self) -> None:
        """Note that there is something new to report."""
        self._changes += 1
        self._changed.set()

    def is_up_to_date(self) -> bool:
        """Return whether all changes were reported."""
        return self._reported == self._changes

    async def run(self) -> None:
        """Stay connected until cancelled.

        Raises:
            RemovedByCoordinatorError: the node was removed; its credential is revoked.
            ProtocolMismatchError: the coordinator runs another version.
            CredentialRefusedError: it does not know this node, and `raise_if_refused` is set.
        """
        while True:
            try:
                await self._connect_once()
            except InvalidStatus as error:
                self._check_status(error)
                self._warn("coordinator_refused_node", _refusal(error))
            except ConnectionClosed as error:
                self._check_close(error)
                self._warn("connection_closed", error.rcvd.reason if error.rcvd else "")
            except (OSError, TimeoutError, WebSocketException) as error:
                self._warn("coordinator_unreachable", self._trust.describe(error))
            await asyncio.sleep(self._backoff.next())

    def _websocket(self) -> AbstractAsyncContextManager[Socket]:
        return open_websocket(self._options.websocket_url, self._credential, self._trust)

    async def _connect_once(self) -> None:
        async with self._dial() as socket:
            self._revision = 0
            self._number = 0
            self._sent.clear()
            self._changed.set()
            try:
                await run_until_one_ends(self._listen(socket), self._send_reports(socket))
            finally:
                self.is_open = False

    async def _listen(self, socket: Socket) -> None:
        acknowledged = False
        while True:
            text = await socket.recv()
            try:
                message = ToAgent.validate_json(text)
            except ValidationError as error:
                # Of a newer coordinator, perhaps. It will be repeated; nothing else can be done.
                logger.error("message_not_understood", error=first_problem(error))
                continue
            if isinstance(message, ReportAck):
                self._note_ack(message.report)
                continue
            self._note_ack(message.acked_report)
            if not acknowledged:
                acknowledged = self.is_open = True
                logger.info("connected", coordinator=self._options.coordinator)
                self._backoff.reset()
                self._problem = ("", "")
                self._connected()
            if message.revision <= self._revision:
                continue
            self._revision = message.revision
            self._heartbeat = message.heartbeat_seconds
            self._desired(message)
            self._changed.set()

    async def _send_reports(self, socket: Socket) -> None:
        while True:
            await wait_until_set(self._changed, self._heartbeat)
            self._changed.clear()
            changes = self._changes
            # The time before the report is made: what it says is not older than this.
            self._number += 1
            self._sent[self._number] = self._clock()
            self._sent.pop(self._number - UNCONFIRMED_REPORTS, None)
            report = self._report(self._revision).model_copy(update={"number": self._number})
            await socket.send(report.model_dump_json())
            self._reported = changes
            await asyncio.sleep(PAUSE_SECONDS)

    def _note_ack(self, number: int) -> None:
        """Note that the coordinator took the report of this number and those before."""
        sent = self._sent.get(number)
        if sent is None:
            return  # repeated, or of no report
        self._sent = {n: at for n, at in self._sent.items() if n > number}
        self._on_ack(sent)

    def _warn(self, event: str, error: str) -> None:
        """Log a problem once, however often it occurs; the connection is retried anyway."""
        if (event, error) != self._problem:
            logger.warning(event, coordinator=self._options.coordinator, error=error)
            self._problem = (event, error)

    def _check_close(self, error: ConnectionClosed) -> None:
        received = error.rcvd
        if received is not None and received.code == CloseCode.REMOVED:
            raise self._removed()
        if received is not None and received.code == CloseCode.PROTOCOL:
            raise ProtocolMismatchError(received.reason or "the coordinator runs another version")

    def _check_status(self, error: InvalidStatus) -> None:
        status = error.response.status_code
        if status == HTTPStatus.GONE:
            raise self._removed()
        if status == HTTPStatus.UPGRADE_REQUIRED:
            raise ProtocolMismatchError(_refusal(error))
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN) and self._raise_if_refused:
            raise CredentialRefusedError(_refusal(error))

    def _removed(self) -> RemovedByCoordinatorError:
        return RemovedByCoordinatorError(
            f"this node was removed from {self._options.coordinator}; "
            "to bring it back, add a node there and start the agent with its --token"
        )


def _refusal(error: InvalidStatus) -> str:
    body: Any = error.response.body or b""
    try:
        detail = str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        detail = error.response.reason_phrase
    return f"the coordinator refuses this node: {detail}"
