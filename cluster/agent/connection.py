"""The agent's one connection: it goes out, it comes back, it never gives up."""

import asyncio
import contextlib
import json
import logging
import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from pydantic import ValidationError
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from trainhall.cluster.agent import isolation
from trainhall.cluster.agent.options import (
    AgentOptions,
    CredentialRefused,
    NodeRemoved,
    ProtocolMismatch,
)
from trainhall.cluster.protocol import Desired, Heard, Report, ToAgent

logger = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
FIRST_PAUSE_SECONDS = 0.1
CALM_SECONDS = 0.02
"""Changes within so short a time are told in one report."""
UNCONFIRMED_REPORTS = 64
"""Of so many reports at most is it kept when they were sent, until the coordinator confirms one."""
REMOVED = 4403
PROTOCOL = 4426
UNAUTHORIZED, FORBIDDEN, GONE, UPGRADE_REQUIRED = 401, 403, 410, 426


class Socket(Protocol):
    """What a connection is made of; the simulator brings its own.

    Both raise `websockets.exceptions.ConnectionClosed` when the other side is gone.
    """

    async def send(self, text: str, /) -> None: ...

    async def recv(self) -> str | bytes: ...


Dial = Callable[[], AbstractAsyncContextManager[Socket]]


def open_websocket(url: str, credential: str) -> connect:
    """To be awaited, or entered; a removed node is refused with `InvalidStatus`."""
    return connect(
        url,
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
        give_up_if_refused: bool = False,
        dial: Dial | None = None,
        chance: random.Random | None = None,
        heard: Callable[[float], None] = lambda _: None,
        clock: Callable[[], float] = isolation.now,
    ) -> None:
        """
        Args:
            report: what is, given the revision that was taken up last.
            desired: takes what shall be. Old or repeated ones never reach it.
            connected: called when a connection stands.
            give_up_if_refused: raise instead of trying again with the same credential.
            dial: opens a connection; None: a websocket to the coordinator of the options.
            chance: varies the pauses between two tries; None: every agent has its own.
            heard: told when a report was sent that the coordinator has taken, by `clock`.
            clock: seconds that go on while the host sleeps.
        """
        self._options = options
        self._credential = credential
        self._report = report
        self._desired = desired
        self._connected = connected
        self._give_up_if_refused = give_up_if_refused
        self._dial = dial or self._websocket
        self._chance = chance or random.Random()
        self._changed = asyncio.Event()
        self._heartbeat = options.heartbeat_seconds
        self._revision = 0
        self._number = 0
        self._sent: dict[int, float] = {}
        """When the last reports of this connection were sent, by their numbers."""
        self._heard = heard
        self._clock = clock
        self._pause = FIRST_PAUSE_SECONDS
        self._said = ""
        self._changes = 0
        self._reported = 0
        """How many of the changes were there when the last report was sent."""
        self.is_open = False
        """The coordinator is there, and listens."""

    def changed(self) -> None:
        """There is something new to report."""
        self._changes += 1
        self._changed.set()

    def is_up_to_date(self) -> bool:
        """All that changed was reported."""
        return self._reported == self._changes

    async def run(self) -> None:
        """Be connected, for ever.

        Raises:
            NodeRemoved: the node was removed; its credential is void.
            ProtocolMismatch: the coordinator is of another version.
            CredentialRefused: it does not know this node, and the caller wants to be told.
        """
        while True:
            try:
                await self._connect_once()
            except InvalidStatus as error:
                self._check_status(error)
                self._say(_refusal(error))
            except ConnectionClosed as error:
                self._check_close(error)
                why = f": {error.rcvd.reason}" if error.rcvd and error.rcvd.reason else ""
                self._say(f"the connection to {self._options.coordinator} ended{why}")
            except (OSError, TimeoutError, WebSocketException) as error:
                self._say(f"{self._options.coordinator} cannot be reached ({_told(error)})")
            await asyncio.sleep(self._pause * self._chance.uniform(0.5, 1.0))
            self._pause = min(self._pause * 2, self._options.reconnect_limit_seconds)

    def _websocket(self) -> AbstractAsyncContextManager[Socket]:
        return open_websocket(self._options.websocket_url, self._credential)

    async def _connect_once(self) -> None:
        async with self._dial() as socket:
            self._revision = 0
            self._number = 0
            self._sent.clear()
            self._changed.set()
            tasks = [
                asyncio.create_task(self._listen(socket), name="listen"),
                asyncio.create_task(self._tell(socket), name="tell"),
            ]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    await task
            finally:
                self.is_open = False
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self, socket: Socket) -> None:
        greeted = False
        while True:
            text = await socket.recv()
            try:
                message = ToAgent.validate_json(text)
            except ValidationError as error:
                # Of a newer coordinator, perhaps. It will be repeated; nothing else can be done.
                logger.error("a message of the coordinator is not understood: %s", _short(error))
                continue
            if isinstance(message, Heard):
                self._note_heard(message.report)
                continue
            self._note_heard(message.heard)
            if not greeted:
                greeted = self.is_open = True
                logger.info("connected to %s", self._options.coordinator)
                self._pause, self._said = FIRST_PAUSE_SECONDS, ""
                self._connected()
            if message.revision <= self._revision:
                continue
            self._revision = message.revision
            self._heartbeat = message.heartbeat_seconds
            self._desired(message)
            self._changed.set()

    async def _tell(self, socket: Socket) -> None:
        while True:
            # Not `wait_for`, which on Python 3.11 may swallow a cancellation that meets the event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._heartbeat):
                    await self._changed.wait()
            self._changed.clear()
            changes = self._changes
            # The time before the report is made: what it says is not older than this.
            self._number += 1
            self._sent[self._number] = self._clock()
            self._sent.pop(self._number - UNCONFIRMED_REPORTS, None)
            report = self._report(self._revision).model_copy(update={"number": self._number})
            await socket.send(report.model_dump_json())
            self._reported = changes
            await asyncio.sleep(CALM_SECONDS)

    def _note_heard(self, number: int) -> None:
        """The coordinator has taken the report of this number, and with it those before."""
        sent = self._sent.get(number)
        if sent is None:
            return  # told again, or of no report
        self._sent = {n: at for n, at in self._sent.items() if n > number}
        self._heard(sent)

    def _say(self, problem: str) -> None:
        """Once per problem, however often it is met."""
        if problem != self._said:
            logger.warning("%s; trying again until it works", problem)
            self._said = problem

    def _check_close(self, error: ConnectionClosed) -> None:
        received = error.rcvd
        if received is not None and received.code == REMOVED:
            raise self._removed()
        if received is not None and received.code == PROTOCOL:
            raise ProtocolMismatch(received.reason or "the coordinator is of another version")

    def _check_status(self, error: InvalidStatus) -> None:
        status = error.response.status_code
        if status == GONE:
            raise self._removed()
        if status == UPGRADE_REQUIRED:
            raise ProtocolMismatch(_refusal(error))
        if status in (UNAUTHORIZED, FORBIDDEN) and self._give_up_if_refused:
            raise CredentialRefused(_refusal(error))

    def _removed(self) -> NodeRemoved:
        return NodeRemoved(
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


def _told(error: Exception) -> str:
    return str(error) or type(error).__name__


def _short(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
