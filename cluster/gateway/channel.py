"""An agent's connection as the gateway sees it: a port; tests and the simulator bring their own."""

from typing import Protocol

_REASON_BYTES = 123
"""RFC 6455: a control frame has 125 bytes at most, of which the close code takes two."""


class ChannelClosedError(Exception):
    """The other side is gone."""


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
