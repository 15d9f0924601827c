"""The rendezvous store of an attempt: a process that holds a TCPStore until it is ended.

Run as `python -m trainhall.training.process.rendezvous_store ADDRESS FD`, or in a fork that has
torch imported.
"""

import signal
import socket
import sys

from torch.distributed import TCPStore


def hold(address: str, listen_fd: int) -> int:
    """Serve the store and stay until a signal.

    Args:
        address: how the attempt's ranks reach this host.
        listen_fd: a socket that listens already, so ranks that connect before this runs wait here.
    """
    with socket.socket(fileno=listen_fd) as listener:
        port = int(listener.getsockname()[1])
        store = TCPStore(
            address,
            port,
            is_master=True,
            wait_for_workers=False,
            master_listen_fd=listener.detach(),
        )
    while store is not None:
        signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(hold(sys.argv[1], int(sys.argv[2])))
