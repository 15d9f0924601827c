"""Where an attempt's ranks meet: addresses and ports of this host."""

import ipaddress
import socket

BACKLOG = 4096
"""Every rank of an attempt connects at about the same time."""


def listen(address: str) -> socket.socket:
    """A socket for the rendezvous store on a free port; ranks may connect from now on.

    Args:
        address: how the attempt's ranks reach this host. Only there it listens, if that is an
            address of this host; behind address translation it listens on all of them.

    Raises:
        OSError: the address has no meaning here, or no port is free.
    """
    found = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, where = found[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    anywhere = ("::" if family == socket.AF_INET6 else _ANY, 0)
    # Many hosts find their own name at a loopback address, where the others cannot reach them.
    misled = ipaddress.ip_address(str(where[0])).is_loopback and not _means_loopback(address)
    try:
        listener.bind(anywhere if misled else where)
    except OSError:
        listener.bind(anywhere)
    listener.listen(BACKLOG)
    return listener


def free_port(address: str) -> int:
    """A port that nobody uses at this moment; rank 0 of a script opens it a little later."""
    try:
        probe = socket.create_server((address, 0))
    except OSError:
        # Not an address of this host itself, but of the one that translates for it.
        probe = socket.create_server(("", 0))
    with probe:
        return int(probe.getsockname()[1])


def _means_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


_ANY = str(ipaddress.IPv4Address(0))
