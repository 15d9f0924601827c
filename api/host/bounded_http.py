"""HTTP with limits before the application sees a request: size and time of heads, time of bodies,
connections of an address, descriptors.

uvicorn has none of these. What goes beyond them is answered as any error is, if there is someone
to answer, and the connection ends.
"""

import asyncio
import json
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from trainhall.api.host.connection_table import ConnectionTable, UnreadOutput

_LINGER_BYTES = 16 * 1024 * 1024
_LINGER_TICKS = 3
"""So much and so long is read behind a refusal: if a connection ends while the other side still
sends, it may lose the reply."""
_RETRY_SECONDS = 5

# What a connection is at.
_IDLE = 0
_HEAD = 1
_BODY = 2
_REFUSED = 3


class BoundedConfig(uvicorn.Config):
    """A server's configuration, with the table of its connections."""

    def __init__(self, app: Any, *, table: ConnectionTable, **options: Any) -> None:
        super().__init__(app, http=BoundedHttp, **options)
        self.table = table


class BoundedHttp(HttpToolsProtocol):
    """A connection, until it ends or becomes a websocket."""

    def __init__(
        self,
        config: BoundedConfig,
        server_state: ServerState,
        app_state: Any,
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._table = config.table
        self._address: str | None = None
        self._counted = False
        self._at = _IDLE
        self._since = self._last_byte = self._table.now
        self._head_bytes = 0
        self._heads_begun = 0
        self._check_head = False
        self._refusal: bytes | None = None
        self._discarded = 0
        self._unread = UnreadOutput(self._table.now)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._address = self.client[0] if self.client else None
        self._table.watch(self, self.loop)
        self._since = self._last_byte = self._table.now
        opened = transport.get_extra_info("socket")
        if opened is not None and not self._table.has_room(opened.fileno()):
            self._table.waiting.discard(self)
            transport.abort()
            return
        self._counted = self._table.connections.enter(self._address)
        if not self._counted:
            most = self._table.per_address
            self._refuse(
                429, "too-many-requests", "Too many requests",
                f"{self._address} has {most} connections to the coordinator, and may have no more; "
                "close some, or raise TRAINHALL_CONNECTIONS_PER_ADDRESS",
                retry=True,
            )  # fmt: skip

    def connection_lost(self, exc: Exception | None) -> None:
        self._left()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self) -> None:
        self._left()  # counted again as what it becomes
        super().handle_websocket_upgrade()

    def _left(self) -> None:
        self._table.waiting.discard(self)
        if self._counted:
            self._counted = False
            self._table.connections.leave(self._address)

    def data_received(self, data: bytes) -> None:
        if self._at == _REFUSED:
            self._discarded += len(data)
            if self._discarded > _LINGER_BYTES:
                self.transport.abort()
            return
        size = len(data)
        before = self._at
        self._last_byte = self._table.now
        self._check_head = self._head_bytes + size > self._table.limits.head_bytes
        self._heads_begun = 0
        super().data_received(data)
        if self._at == _HEAD:
            # The end of a body may be part of these bytes, or heads before this one.
            whole = before != _BODY and self._heads_begun <= 1
            self._head_bytes += size if whole else 0
            if self._head_bytes > self._table.limits.head_bytes:
                self._refuse_head()

    def on_message_begin(self) -> None:
        self._at = _HEAD
        self._since = self._table.now
        self._head_bytes = 0
        self._heads_begun += 1
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._at = _BODY
        self._head_bytes = 0
        if self._check_head and self._head_size() > self._table.limits.head_bytes:
            # Ends the parsing, too.
            raise ValueError("the head is too long")
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._at = _IDLE
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if self._check_head and self._at == _BODY and self._head_size() > self._limit:
            self._refuse_head()
        else:
            self._refuse(400, "bad-request", "Malformed request", "this is no HTTP request")

    @property
    def _limit(self) -> int:
        return self._table.limits.head_bytes

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def check_time(self, now: int) -> None:
        if self._unread.ticks(self.transport, now) > self._table.body_ticks:
            self.transport.abort()
        elif self._at == _REFUSED:
            if now - self._since > _LINGER_TICKS:
                self.transport.abort()
        elif self._at == _HEAD:
            if self.flow.read_paused:
                self._since = now  # it waits behind another request of its connection
            elif now - self._since > self._table.head_ticks:
                seconds = self._table.limits.head_seconds
                self._refuse_late(f"the headers did not end within {seconds:g} s")
        elif self._at == _BODY:
            self._check_body(now)
        elif self.cycle is None and now - self._since > self._table.head_ticks:
            self.transport.close()  # it has never sent anything

    def _check_body(self, now: int) -> None:
        cycle = self.cycle
        if self.flow.read_paused or cycle.waiting_for_100_continue:
            self._last_byte = now  # it is us that the other side waits for
        elif now - self._last_byte > self._table.body_ticks:
            seconds = self._table.limits.body_seconds
            self._refuse_late(f"no byte of the body came for {seconds:g} s")

    def idle_since(self, now: int) -> tuple[int, int] | None:
        if self._at == _REFUSED:
            return 0, self._since
        if self._at == _IDLE:
            if self.cycle is None:
                return 0, self._since
            return (1, self._last_byte) if self.cycle.response_complete else None
        # A whole head takes no second.
        return (2, self._since) if self._at == _HEAD and now - self._since > 1 else None

    def close_idle(self) -> None:
        self._table.waiting.discard(self)
        self.transport.abort()

    def _refuse_head(self) -> None:
        size = self._limit // 1024
        if len(self.url) > self._limit:
            self._refuse(414, "too-large", "Request too large", f"the URL is over {size} KiB")
        else:
            what = f"the request line and the headers are over {size} KiB"
            self._refuse(431, "too-large", "Request too large", what)

    def _refuse_late(self, why: str) -> None:
        self._refuse(408, "too-slow", "Request too slow", f"{why}; send it again")

    def _refuse(
        self, status: int, kind: str, title: str, detail: str, *, retry: bool = False
    ) -> None:
        if self._at == _REFUSED or self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            if self.cycle.response_started:
                self.transport.close()
                return
            # The application learns that nothing more comes; what it answers has no reader.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._at = _REFUSED
        self._since = self._table.now
        self._table.waiting.add(self)
        self._unset_keepalive_if_required()
        self.flow.resume_reading()
        self.transport.write(_reply(status, kind, title, detail, retry=retry))
        if self.transport.can_write_eof():
            self.transport.write_eof()


def _reply(status: int, kind: str, title: str, detail: str, *, retry: bool) -> bytes:
    body = json.dumps(
        {
            "type": f"urn:problem-type:trainhall:{kind}",
            "title": title,
            "status": status,
            "detail": detail,
            "errors": [],
        }
    ).encode()
    head = [
        f"HTTP/1.1 {status} {title}",
        "content-type: application/problem+json",
        f"content-length: {len(body)}",
        "cache-control: no-store",
        "x-content-type-options: nosniff",
        "connection: close",
        *([f"retry-after: {_RETRY_SECONDS}"] if retry else []),
    ]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body
