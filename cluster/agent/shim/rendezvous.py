"""The rendezvous of an attempt's ranks: the address where they meet, and the store behind it.

The first host of an attempt opens it. For a built-in task a child process of the shim holds torch's
store; its socket listens before the ranks start. In a script, rank 0 opens a store of its own.

Torch's store asks nobody who they are. So it listens on one address, that of the job's interface,
and its keys have a random prefix, which only ranks of the attempt get.
"""

import importlib
import ipaddress
import os
import secrets
import signal
import socket
import sys
from dataclasses import dataclass

from trainhall.cluster.agent.os_support import processes
from trainhall.cluster.agent.shim import folder_ipc, rank_process
from trainhall.training.link.failure import Cause, Failure
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.launch import Launch, Rendezvous

STORE_MODULE = "trainhall.training.process.rendezvous_store"
BACKLOG = 4096
"""Every rank of an attempt connects at about the same time."""
_ANYWHERE = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}
"""Documentation addresses (RFC 5737, RFC 3849): no host has them, and nothing is sent to them."""


@dataclass(frozen=True)
class RendezvousHandle:
    rendezvous: Rendezvous
    store_pid: int | None = None
    """Child that holds the store. None: it ended, or another host or a script's rank 0 holds it."""
    opened_at: str = ""
    """The address of this host for which the store was opened."""

    def serves(self, launch: Launch) -> bool:
        """Return whether the ranks of a later generation can use this rendezvous, too."""
        stands = self.store_pid is not None and self.opened_at == _own_address(launch)
        return not launch.ranks or (launch.node_rank == 0 and stands)

    def close(self) -> None:
        """End the store: the ranks of no generation meet here any more."""
        if self.store_pid is not None:
            processes.send([self.store_pid], signal.SIGKILL)


def open_rendezvous(
    folder: AttemptFolder, launch: Launch, *, fork: bool
) -> RendezvousHandle | Failure:
    """Open the rendezvous of a launch on its first host; on a further one, take the launch's.

    Args:
        fork: serve the store in a copy of this process, which has torch imported.
    """
    if launch.node_rank > 0:
        if launch.rendezvous is None:
            return Failure(message="the launch of a further host has no rendezvous")
        return RendezvousHandle(launch.rendezvous)
    address = own = _own_address(launch)
    if launch.spec.script is not None:
        return RendezvousHandle(Rendezvous(address=address, port=free_port(address)))
    prefix = f"{secrets.token_urlsafe(16)}/"
    try:
        pid, address, port = start_store(folder, address, fork=fork)
    except OSError as error:
        message = f"the rendezvous cannot listen at {address}: {error}"
        return Failure(message=message, cause=Cause.NETWORK)
    return RendezvousHandle(Rendezvous(address=address, port=port, prefix=prefix), pid, own)


def start_store(folder: AttemptFolder, address: str, *, fork: bool) -> tuple[int, str, int]:
    """Listen at an address, so that ranks can start at once, and have a child serve the store.

    Args:
        fork: serve in a copy of this process, which has torch imported.

    Returns:
        The child's pid, and address and port for the ranks of all hosts.

    Raises:
        OSError: the address has no meaning here, or no port is free.
    """
    listener, address = listen(address)
    fd, port = listener.fileno(), int(listener.getsockname()[1])
    log = folder_ipc.log_path(folder)
    arguments = [sys.executable, "-m", STORE_MODULE, address, str(fd)]
    env = dict(os.environ) | {processes.MARK: str(folder.path)}

    def work() -> int:
        if not fork:
            os.set_inheritable(fd, True)
            os.execve(arguments[0], arguments, env)
        rank_process.ignore_what_python_ignores()
        return int(importlib.import_module(STORE_MODULE).hold(address, fd))

    with listener:
        pid = rank_process.fork_child("rendezvous", (log, log), env, folder.path, work, keep=(fd,))
    return pid, address, port


def listen(address: str) -> tuple[socket.socket, str]:
    """Open a socket for the store on a free port; ranks may connect from now on.

    It listens on one interface: that of the address, or behind address translation the one from
    which this host reaches the address.

    Args:
        address: how the attempt's ranks reach this host.

    Returns:
        The socket, and the address for the ranks: many hosts find their own name at a loopback
        address, where neither the others reach them nor the socket listens; then it is a number.

    Raises:
        OSError: the address has no meaning here, or no port is free.
    """
    found = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, where = found[0]
    if _is_loopback(str(where[0])) and not _means_loopback(address):
        address = _own_address_to(_ANYWHERE[family], family)
        where = (address, 0)
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        try:
            listener.bind(where)
        except OSError:
            listener.bind((_own_address_to(str(where[0]), family), 0))
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener, address


def _own_address_to(address: str, family: int) -> str:
    """Return this host's address on the interface that leads to another one.

    Raises:
        OSError: no interface does.
    """
    # Connecting a datagram socket sends nothing; it only asks the kernel for the route.
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))
        return str(probe.getsockname()[0])


def free_port(address: str) -> int:
    """Find a port that is unused at this moment; rank 0 of a script opens it a little later."""
    try:
        probe = socket.create_server((address, 0))
    except OSError:
        # Not an address of this host itself, but of the one that translates for it.
        probe = socket.create_server(("", 0))
    with probe:
        return int(probe.getsockname()[1])


def _own_address(launch: Launch) -> str:
    return launch.address if launch.num_nodes > 1 else "127.0.0.1"


def _means_loopback(address: str) -> bool:
    try:
        return _is_loopback(address)
    except ValueError:
        return address == "localhost"


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback
