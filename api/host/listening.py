"""The socket of a coordinator, and the URL at which its own host reaches it."""

import errno
import socket

BACKLOG = 1024


class ListenError(Exception):
    """The address cannot be listened on."""


def listen(host: str, port: int) -> socket.socket:
    """Open a socket that listens there.

    Raises:
        ListenError: the port is taken, or the address is none of this host's.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        # asyncio sends without delay (TCP_NODELAY) only where a socket says that it is TCP.
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ListenError(f"cannot listen on {host}: {error.strerror}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        remedy = "choose another --port (0 picks a free one)"
        if error.errno == errno.EADDRNOTAVAIL:
            remedy = "this host has no such address; choose another --host"
        message = f"cannot listen on {host} port {port}: {error.strerror}; {remedy}"
        raise ListenError(message) from None
    return listener


def inherited(fd: int) -> socket.socket:
    """Open a socket that listens already.

    Raises:
        ListenError: it is none.
    """
    try:
        return socket.socket(fileno=fd)
    except OSError as error:
        raise ListenError(f"file descriptor {fd} is not a socket: {error.strerror}") from None


def url_of(listener: socket.socket, host: str, *, tls: bool = False) -> str:
    """Return the URL at which this host reaches a server on this socket."""
    name = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)
    scheme = "https" if tls else "http"
    return f"{scheme}://{f'[{name}]' if ':' in name else name}:{listener.getsockname()[1]}"
