"""Ports of this host that a test has for itself."""

import socket
import weakref


def bound(port: int = 0) -> socket.socket:
    """A socket at a port of loopback, 0 for a free one. Another may be bound to it and listen."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind(("127.0.0.1", port))
    return found


def reserve(owner: object) -> int:
    """A port that nobody on this host is given while `owner` lives, even if nobody listens there.

    So a server that was killed can be started where it was.
    """
    reserved = bound()
    weakref.finalize(owner, reserved.close)
    return int(reserved.getsockname()[1])
