"""Batches small uploads into shared websocket messages (`cluster.wire.batches`).

A request over HTTP costs a host a millisecond or two, a message a fifth of it, and a few messages a
second are enough for all ranks. Spools do not know about it: each sends its item and waits for its
own reply. One message is in flight at a time; items sent meanwhile share the next.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import InvalidStatus, WebSocketException

from trainhall.cluster.agent.coordinator_link.connection import open_websocket
from trainhall.cluster.agent.coordinator_link.http_api import (
    CoordinatorApi,
    RefusedError,
    Source,
    UnavailableError,
    failure_of,
)
from trainhall.cluster.agent.coordinator_link.trust import Trust
from trainhall.cluster.agent.options import AgentOptions
from trainhall.cluster.wire.batches import (
    MAX_BATCH_BYTES,
    MAX_BATCH_ITEMS,
    BatchItem,
    BatchReply,
    decode_replies,
    encode_batch,
)
from trainhall.monitoring.batcher import Batcher

SMALL_BYTES = 64 * 1024
"""Largest item that is batched. Larger ones get a request of their own, so that live data does
not wait behind a backlog."""
ANSWER_SECONDS = 30.0
"""For a message to be taken and answered, a new connection included."""


class BatchedApi(CoordinatorApi):
    """Metrics and output go together where they are small; all else as it does."""

    def __init__(self, options: AgentOptions, trust: Trust | None = None) -> None:
        super().__init__(options, trust)
        self._sender = BatchSender(self._dial, self._trust.describe)

    async def _dial(self) -> ClientConnection:
        return await open_websocket(self._options.shipping_url, self.credential, self._trust)

    async def close(self) -> None:
        await self._sender.close()
        await super().close()

    async def send_metrics(self, source: Source, frames: bytes) -> int:
        if len(frames) > SMALL_BYTES:
            return await super().send_metrics(source, frames)
        item = BatchItem(
            job_id=source.job_id, attempt=source.attempt, generation=source.generation,
            kind="metrics", size=len(frames), writer=source.writer,
        )  # fmt: skip
        return await self._sender.send(item, frames)

    async def send_logs(self, source: Source, stream: str, offset: int, data: bytes) -> int:
        if len(data) > SMALL_BYTES:
            return await super().send_logs(source, stream, offset, data)
        item = BatchItem(
            job_id=source.job_id, attempt=source.attempt, generation=source.generation,
            kind=stream, size=len(data), rank=source.rank, offset=offset,
        )  # fmt: skip
        return await self._sender.send(item, data)


class BatchSender:
    """
    Args:
        dial: opens a connection; what is shared goes over it until it ends.
        describe: words for an error of it.
    """

    def __init__(
        self,
        dial: Callable[[], Awaitable[ClientConnection]],
        describe: Callable[[Exception], str] = str,
    ) -> None:
        self._dial = dial
        self._describe = describe
        self._socket: ClientConnection | None = None
        self._batcher = Batcher(
            self._send_batch, max_bytes=MAX_BATCH_BYTES, max_items=MAX_BATCH_ITEMS
        )

    async def send(self, item: BatchItem, data: bytes) -> int:
        """Return the position in its reply: a sequence of frames or an offset of output.

        Raises:
            UnavailableError: try again later.
            RefusedError: the coordinator does not want it.
        """
        return await self._batcher.submit((item, data), len(data))

    async def close(self) -> None:
        await self._batcher.close()
        if self._socket is not None:
            await self._socket.close()

    async def _send_batch(
        self, batch: Sequence[tuple[BatchItem, bytes]]
    ) -> Sequence[int | Exception]:
        try:
            replies = await self._exchange(encode_batch(batch))
        except asyncio.CancelledError:
            # Senders see it like any other failure, and ship later.
            raise UnavailableError("sending was stopped") from None
        if len(replies) != len(batch):
            raise UnavailableError(f"{len(replies)} replies for {len(batch)} items")
        return [
            reply.position if reply.refusal is None else failure_of(reply.status, reply.refusal)
            for reply in replies
        ]

    async def _exchange(self, message: bytes) -> list[BatchReply]:
        replies = None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                if self._socket is None:
                    self._socket = await self._dial()
                await self._socket.send(message)
                replies = decode_replies(await self._socket.recv())
        except InvalidStatus as error:
            reason = f"{error.response.status_code} {error.response.reason_phrase}"
            if error.response.status_code == HTTPStatus.GONE:
                # A node that was removed.
                raise RefusedError(HTTPStatus.GONE, reason) from None
            # It says nothing of the items: a proxy replies so, or an older coordinator.
            raise UnavailableError(reason) from None
        except TimeoutError:
            raise UnavailableError(f"no answer within {ANSWER_SECONDS:g} s") from None
        except (OSError, WebSocketException, ValueError) as error:
            raise UnavailableError(self._describe(error)) from None
        finally:
            if replies is None and self._socket is not None:
                # An answer that comes late would be taken for that of the next message.
                self._socket.transport.abort()
                self._socket = None
        return replies
