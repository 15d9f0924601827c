"""What is shipped at the same time shares one message of one websocket (`cluster.pieces`).

A request over HTTP costs a host a millisecond or two, a message a fifth of it; and a few messages a
second are enough for all ranks. Spools know nothing of it: each sends its piece and waits for its
own answer. One message is under way at a time; what is sent meanwhile shares the next.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import InvalidStatus, WebSocketException

from trainhall.cluster.agent.api import CoordinatorApi, Refused, Source, Unreachable, failure_of
from trainhall.cluster.agent.connection import open_websocket
from trainhall.cluster.agent.options import AgentOptions
from trainhall.cluster.pieces import (
    MOST_BYTES,
    MOST_PIECES,
    Answer,
    Piece,
    decode_answers,
    encode,
)

SMALL_BYTES = 64 * 1024
"""What is larger has a request of its own, so that what is live waits for no backlog."""
ANSWER_SECONDS = 30.0
"""For a message to be taken and answered, a new connection included."""
REMOVED = 410
"""A connection is refused with it for good."""


class SharingApi(CoordinatorApi):
    """Metrics and output go together where they are small; all else as it does."""

    def __init__(self, options: AgentOptions) -> None:
        super().__init__(options)
        self._messages = Messages(self._dial)

    async def _dial(self) -> ClientConnection:
        return await open_websocket(self._options.shipping_url, self.credential)

    async def close(self) -> None:
        await self._messages.close()
        await super().close()

    async def send_metrics(self, source: Source, frames: bytes) -> int:
        if len(frames) > SMALL_BYTES:
            return await super().send_metrics(source, frames)
        piece = Piece(
            job_id=source.job_id, attempt=source.attempt, generation=source.generation,
            kind="metrics", size=len(frames), writer=source.writer,
        )  # fmt: skip
        return await self._messages.send(piece, frames)

    async def send_logs(self, source: Source, stream: str, offset: int, data: bytes) -> int:
        if len(data) > SMALL_BYTES:
            return await super().send_logs(source, stream, offset, data)
        piece = Piece(
            job_id=source.job_id, attempt=source.attempt, generation=source.generation,
            kind=stream, size=len(data), rank=source.rank, offset=offset,
        )  # fmt: skip
        return await self._messages.send(piece, data)


@dataclass
class _Waiting:
    piece: Piece
    data: bytes
    position: "asyncio.Future[int]"


class Messages:
    """
    Args:
        dial: opens a connection; what is shared goes over it until it ends.
    """

    def __init__(self, dial: Callable[[], Awaitable[ClientConnection]]) -> None:
        self._dial = dial
        self._socket: ClientConnection | None = None
        self._waiting: deque[_Waiting] = deque()
        self._task: asyncio.Task[None] | None = None

    async def send(self, piece: Piece, data: bytes) -> int:
        """The position that the coordinator tells of it.

        Raises:
            Unreachable: try again later.
            Refused: the coordinator does not want it.
        """
        waiting = _Waiting(piece, data, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._task is None:
            # It begins when all that is sent in this turn of the loop is there.
            self._task = asyncio.create_task(self._send_waiting(), name="shared shipping")
        return await waiting.position

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._socket is not None:
            await self._socket.close()

    async def _send_waiting(self) -> None:
        sent: list[_Waiting] = []
        try:
            while sent := self._next_message():
                answers = await self._exchange(encode([(w.piece, w.data) for w in sent]))
                if len(answers) != len(sent):
                    raise Unreachable(f"{len(answers)} answers came to {len(sent)} pieces")
                for waiting, answer in zip(sent, answers, strict=True):
                    _take(waiting, answer)
        except (Unreachable, Refused) as error:
            self._fail(sent, error)
        except BaseException:
            self._fail(sent, Unreachable("the sending was ended"))
            raise
        finally:
            self._task = None

    def _next_message(self) -> list[_Waiting]:
        """As many pieces as one message takes, but for those whose sender has left."""
        found: list[_Waiting] = []
        room = MOST_BYTES
        while self._waiting and len(found) < MOST_PIECES:
            if self._waiting[0].position.done():
                self._waiting.popleft()
                continue
            room -= len(self._waiting[0].data)
            if found and room < 0:
                break
            found.append(self._waiting.popleft())
        return found

    async def _exchange(self, message: bytes) -> list[Answer]:
        answers = None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                if self._socket is None:
                    self._socket = await self._dial()
                await self._socket.send(message)
                answers = decode_answers(await self._socket.recv())
        except InvalidStatus as error:
            told = f"{error.response.status_code} {error.response.reason_phrase}"
            if error.response.status_code == REMOVED:
                raise Refused(REMOVED, told) from None
            # It says nothing of the pieces: a proxy answers so, or an older coordinator.
            raise Unreachable(told) from None
        except TimeoutError:
            raise Unreachable(f"no answer within {ANSWER_SECONDS:g} s") from None
        except (OSError, WebSocketException, ValueError) as error:
            raise Unreachable(str(error) or type(error).__name__) from None
        finally:
            if answers is None and self._socket is not None:
                # An answer that comes late would be taken for that of the next message.
                self._socket.transport.abort()
                self._socket = None
        return answers

    def _fail(self, sent: list[_Waiting], error: Exception) -> None:
        """Nothing that waits gets further than what was just tried."""
        for waiting in [*sent, *self._waiting]:
            if not waiting.position.done():
                waiting.position.set_exception(error)
        self._waiting.clear()


def _take(waiting: _Waiting, answer: Answer) -> None:
    if waiting.position.done():
        return  # whoever sent it has left
    if answer.refusal is None:
        waiting.position.set_result(answer.position)
    else:
        waiting.position.set_exception(failure_of(answer.status, answer.refusal))
