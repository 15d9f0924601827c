"""Connections to targets: their addresses are checked when they are connected to."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import httpcore

from trainhall.cluster.alerts.addresses import PrivateAddressError, is_public

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host and port to addresses."""


async def resolve(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host, as the system knows them."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class PublicNetwork(httpcore.AsyncNetworkBackend):
    """Connects to public addresses alone, whatever a name resolves to.

    Args:
        private_too: connect to others as well.
    """

    def __init__(self, *, private_too: bool, resolve: Resolve = resolve) -> None:
        self._inner = httpcore.AnyIOBackend()
        self._private_too = private_too
        self._resolve = resolve

    async def connect_tcp(
        self,
        host: str,
        port: int,
        *args: Any,
        **options: Any,
    ) -> httpcore.AsyncNetworkStream:
        addresses = await self._resolve(host, port)
        allowed = [each for each in addresses if self._private_too or is_public(each)]
        if not allowed:
            raise PrivateAddressError(host, addresses)
        failed: Exception | None = None
        for address in allowed:
            try:
                # The address that was checked, not the name, which may resolve to another one now.
                return await self._inner.connect_tcp(address, port, *args, **options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
        assert failed is not None
        raise failed

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)
