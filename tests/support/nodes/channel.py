"""A connection between an agent and the gateway, in memory."""

import asyncio
from collections import deque
from collections.abc import Callable

from trainhall.cluster.gateway.channel import ChannelClosedError


class MemoryChannel:
    """The gateway's side of a connection; the node holds the other ends.

    Args:
        on_sent: called when there is something new for the node.
    """

    def __init__(self, on_sent: Callable[[], None] | None = None) -> None:
        self.to_gateway: asyncio.Queue[str | None] = asyncio.Queue()
        self.to_node: deque[str] = deque()
        self.closed: tuple[int, str] | None = None
        self.dropped = False
        """The node's side is gone."""
        self.waiting = False
        """The gateway has taken all that was sent and waits for more."""
        self._on_sent = on_sent

    async def send_text(self, text: str) -> None:
        if self.dropped or self.closed:
            raise ChannelClosedError
        self.to_node.append(text)
        if self._on_sent is not None:
            self._on_sent()

    async def receive_text(self) -> str:
        if self.to_gateway.empty():
            self.waiting = True
        text = await self.to_gateway.get()
        self.waiting = False
        if text is None:
            raise ChannelClosedError
        return text

    async def close(self, code: int, reason: str) -> None:
        if self.closed is None:
            self.closed = (code, reason)
            self.to_gateway.put_nowait(None)

    def drop(self) -> None:
        """The node's side goes away; the gateway finds out."""
        self.dropped = True
        self.to_gateway.put_nowait(None)
