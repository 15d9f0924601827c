"""Addresses that messages may be sent to: a target must not reach into the coordinator's network.

A name is checked at the moment of the connection, by the address that is connected to: what it
resolved to when the alert was made proves nothing.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any

import httpcore

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host and port to addresses."""

_NAT64 = IPv6Network("64:ff9b::/96")


class PrivateAddressError(OSError):
    """An address that messages may not be sent to."""

    def __init__(self, host: str, addresses: Sequence[str]) -> None:
        where = host if host in addresses else f"{host} ({', '.join(addresses)})"
        super().__init__(
            f"{where} is not a public address; to send alerts into the own network, start the "
            "coordinator with TRAINHALL_ALERTS_PRIVATE_TARGETS=true"
        )


def is_public(address: str) -> bool:
    """Return whether an address is outside of loopback, link-local, private and other own ranges;
    of one of IPv6 that stands for one of IPv4, that one decides."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return all(each.is_global and not each.is_multicast for each in _meant(parsed))


def _meant(address: IPv4Address | IPv6Address) -> Iterable[IPv4Address | IPv6Address]:
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return [address.ipv4_mapped]
        if address in _NAT64:
            return [IPv4Address(int(address) & 0xFFFFFFFF)]
        if address.sixtofour is not None:
            return [address, address.sixtofour]
        if address.teredo is not None:
            return [address, *address.teredo]
    return [address]


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
