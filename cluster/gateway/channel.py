"""An agent's connection as the gateway sees it: a port; tests and the simulator bring their own."""

from enum import IntEnum
from typing import Protocol

_REASON_BYTES = 123
"""RFC 6455: a control frame has 125 bytes at most, of which the close code takes two."""


class ChannelClosedError(Exception):
    """The other side is gone."""


class CloseCode(IntEnum):
    """Why the coordinator closes a connection (WebSocket application codes)."""

    STOPPING = 1001
    """The coordinator shuts down; connect again."""
    INVALID = 4400
    """A message that is not understood."""
    REMOVED = 4403
    """The node was removed; its credential is revoked."""
    NO_REPORT = 4408
    """Nothing was received for too long; connect again."""
    REPLACED = 4409
    """A newer connection of this node took over."""
    PROTOCOL = 4426
    """Another version of the protocol; upgrade."""


def close_reason(text: str) -> str:
    """Return as much of a text as fits into the close frame of a WebSocket."""
    return text.encode("utf-8", "replace")[:_REASON_BYTES].decode("utf-8", "ignore")


class Channel(Protocol):
    async def send_text(self, text: str) -> None:
        """Send text; raise ChannelClosedError when the other side is gone."""

    async def receive_text(self) -> str:
        """Receive text; raise ChannelClosedError when the other side is gone."""

    async def close(self, code: int, reason: str) -> None:
        """Close; closing twice is harmless."""
