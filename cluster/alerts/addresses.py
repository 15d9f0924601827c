"""Addresses that messages may be sent to: a target must not reach into the coordinator's network.

A name is checked at the moment of the connection, by the address that is connected to: what it
resolved to when the alert was made proves nothing.
"""

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

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
