"""Joining and leaving the process group of one generation of an attempt."""

import contextlib
import ipaddress
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Event, Thread

import psutil
import torch
import torch.distributed as dist

from trainhall.distributed import breakable
from trainhall.distributed.environment import RankEnvironment

JOIN_TIMEOUT = timedelta(minutes=5)
"""The slowest host may need this long to start (a cold import over a network file system)."""
ROLL_CALL_TIMEOUT = timedelta(minutes=25)
"""Another host may fetch a large checkpoint before its ranks start. It is less than the coordinator
waits for an attempt to begin: the ranks know better which are missing."""
CONNECT_TIMEOUT = timedelta(seconds=20)
"""Between ranks that were there at the roll call a moment ago; for those that can join another
group if one of them is gone by now, which nothing else would notify the others."""
_REACH_TIMEOUT = timedelta(seconds=5)
"""One try to reach the store, by ranks that can join another group."""
_LOOK_SECONDS = (0.005, 0.1)
"""Seconds between two checks which ranks are there: at first, and at most."""
_ASK_SECONDS = 0.02
"""Between two checks whether there is another group to join."""
_SLOW_SECONDS = 5.0
"""Connecting takes longer only if a rank is gone."""
COLLECTIVE_TIMEOUT = timedelta(minutes=30)
"""A rank may wait this long for the others: one of them may be writing a large checkpoint."""


class JoinError(RuntimeError):
    """Some ranks did not join; the message names them."""


class GroupSupersededError(RuntimeError):
    """The group will never be complete: there is a newer one to join."""


@contextmanager
def joined(
    environment: RankEnvironment,
    *,
    device: torch.device,
    namespace: str,
) -> Iterator[None]:
    """Be a member of the default process group: Gloo for CPU tensors, NCCL for those on a GPU.

    Args:
        namespace: prefix of the keys in the store, fresh for every generation. A restart that
            shared the keys of the ranks before it could wait for the dead ones forever.

    Raises:
        JoinError: not every rank came in time.
    """
    join(environment, device=device, namespace=namespace)
    yield
    # After an exception there is no barrier: others may be inside a collective, and the closed
    # sockets notify them. The group is not destroyed, since that can deadlock in Gloo; the process
    # leaves with `os._exit`.
    final_barrier()


def join(
    environment: RankEnvironment,
    *,
    device: torch.device,
    namespace: str,
    superseded: Callable[[], bool] | None = None,
    has_lost: Callable[[], bool] = lambda: False,
) -> None:
    """Become a member of the default process group, as `joined` does.

    Args:
        superseded: called now and then while this rank waits for others, also from other threads.
        has_lost: the same; a rank of this group is known to be gone.

    Raises:
        JoinError: not every rank came in time.
        GroupSupersededError: `superseded` returned True.
    """
    choose_interface(environment.master_addr)
    store = _reach_store(environment.master_addr, environment.master_port, superseded)
    ours = dist.PrefixStore(f"{environment.store_prefix}{namespace}", store)
    call_roll(ours, environment.rank, environment.world_size, ROLL_CALL_TIMEOUT, superseded)
    # Groups are named by a number, which one that could not be joined would have used up.
    dist.distributed_c10d._world.group_count = 0
    with _unless(superseded, has_lost, environment.master_port):
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            store=ours,
            rank=environment.rank,
            world_size=environment.world_size,
            timeout=COLLECTIVE_TIMEOUT if superseded is None else CONNECT_TIMEOUT,
        )
    if superseded is not None:
        _set_timeout(cpu_group(), COLLECTIVE_TIMEOUT)


def new_group(backend: str, timeout: timedelta) -> dist.ProcessGroup:
    """Create another group of all ranks. A collective.

    Args:
        timeout: of its collectives. Ranks that were there a moment ago connect sooner, or one of
            them is gone, and nothing else would notify the others.
    """
    breakable.barrier(cpu_group())
    group: dist.ProcessGroup = dist.new_group(
        backend=backend, timeout=min(timeout, CONNECT_TIMEOUT)
    )
    _set_timeout(group, timeout)
    return group


def alone() -> dist.ProcessGroup:
    """Create a group of this rank alone, for host memory."""
    group: dist.ProcessGroup = dist.new_group(
        [dist.get_rank()], backend="gloo", use_local_synchronization=True
    )
    return group


def _reach_store(address: str, port: int, superseded: Callable[[], bool] | None) -> dist.TCPStore:
    """Connect to the store.

    Raises:
        dist.DistNetworkError: no process listens there.
        GroupSupersededError: `superseded` returned True.
    """
    ends = time.monotonic() + JOIN_TIMEOUT.total_seconds()
    while True:
        try:
            store = dist.TCPStore(
                address,
                port,
                is_master=False,
                wait_for_workers=False,
                timeout=JOIN_TIMEOUT if superseded is None else _REACH_TIMEOUT,
            )
        except (dist.DistNetworkError, dist.DistStoreError):
            # The store's host may have gone since, and never answer.
            if superseded is None or time.monotonic() > ends:
                raise
            if superseded():
                raise GroupSupersededError("the ranks moved to another generation") from None
            continue
        store.set_timeout(JOIN_TIMEOUT)
        return store


@contextmanager
def _unless(
    superseded: Callable[[], bool] | None, has_lost: Callable[[], bool], port: int
) -> Iterator[None]:
    """Interrupt the connecting of ranks within, once `superseded` is True.

    A rank that died after the roll call publishes no address, and the others wait for it in the
    store. An interruption may leave others waiting, and live ranks do connect in the end: unless
    one of them has been lost, it is delayed for long enough for that.

    Args:
        port: of the store.

    Raises:
        GroupSupersededError: `superseded` returned True. Whatever was connected is of no use.
    """
    if superseded is None:
        yield
        return
    connected, broken_off = Event(), Event()

    def look() -> None:
        slow_at = time.monotonic() + _SLOW_SECONDS
        while not connected.wait(_ASK_SECONDS):
            is_slow = time.monotonic() > slow_at
            if broken_off.is_set() or (superseded() and (is_slow or has_lost())):
                broken_off.set()
                _hang_up(port)

    looking = Thread(target=look, name="connecting", daemon=True)
    looking.start()
    try:
        yield
    except RuntimeError:
        if not broken_off.is_set():
            raise
    finally:
        connected.set()
        looking.join()
    if broken_off.is_set():
        raise GroupSupersededError("the ranks moved to another generation")


def _hang_up(port: int) -> None:
    """Fail every request that waits for the store: torch has no other way to notify it."""
    for connection in psutil.Process().net_connections("tcp"):
        if connection.raddr and connection.raddr.port == port:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fd)) as ours:
                ours.shutdown(socket.SHUT_RDWR)


def _set_timeout(group: dist.ProcessGroup, timeout: timedelta) -> None:
    """Set the timeout of collectives from now on; that of `init_process_group` is for connecting
    too."""
    dist.distributed_c10d._set_pg_timeout(timeout, group)


def final_barrier() -> None:
    """Keep every rank until no other waits for its numbers."""
    breakable.barrier(cpu_group())


def call_roll(
    store: dist.Store,
    rank: int,
    world_size: int,
    timeout: timedelta,
    superseded: Callable[[], bool] | None = None,
) -> None:
    """Wait until every rank is there. The backends would wait too, but not name the missing ones.

    Raises:
        JoinError: not every rank came in time.
        GroupSupersededError: `superseded` returned True.
    """
    keys = [f"here/{other}" for other in range(world_size)]
    store.set(keys[rank], "")
    try:
        if superseded is None:
            store.wait(keys, timeout)
        else:
            _look_for(store, keys, timeout, superseded)
    except (dist.DistStoreError, TimeoutError):
        missing = [str(other) for other, key in enumerate(keys) if not store.check([key])]
        if not missing:
            return  # the last one came just now
        names = f"rank{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
        raise JoinError(
            f"{names} did not join within {timeout.total_seconds():g} s: see their logs and "
            "their hosts"
        ) from None


def _look_for(
    store: dist.Store, keys: list[str], timeout: timedelta, superseded: Callable[[], bool]
) -> None:
    """Wait for keys of the store, in a way that can be interrupted.

    Torch's own wait cannot, and logs each timeout. If the store's host has vanished, not even a
    poll returns, so another thread polls.
    """
    ends = time.monotonic() + timeout.total_seconds()
    found, cancelled = Event(), Event()
    errors: list[Exception] = []

    def look() -> None:
        pause, longest = _LOOK_SECONDS
        try:
            while not store.check(keys) and not cancelled.wait(pause):
                pause = min(pause * 1.5, longest)
        except Exception as error:
            errors.append(error)
        found.set()

    Thread(target=look, name="roll call", daemon=True).start()
    try:
        while not found.wait(_ASK_SECONDS):
            if superseded():
                raise GroupSupersededError("the ranks moved to another generation")
            if time.monotonic() > ends:
                raise TimeoutError
    finally:
        cancelled.set()
    for error in errors:
        raise error


def cpu_group() -> dist.ProcessGroup:
    """Return the default group, for tensors in host memory."""
    group = dist.group.WORLD
    if group is None:
        raise RuntimeError("the process group has not been joined")
    return group


def choose_interface(address: str) -> None:
    """Set the network interface of Gloo and NCCL to the other hosts, unless the user did.

    Without it Gloo takes the interface of the host's own name, which on a laptop may be a VPN that
    is down. `address` is the rendezvous store's.
    """
    interface = interface_to(address)
    if interface is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        if interface != _loopback():
            os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)


def interface_to(address: str) -> str | None:
    """Return this host's interface to `address`; None where it is unknown."""
    if _is_loopback(address):
        return _loopback()
    try:
        family, _, _, _, target = socket.getaddrinfo(address, 9, type=socket.SOCK_DGRAM)[0]
        # Connecting a datagram socket sends nothing; it only asks the kernel for the route.
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(target)
            own = str(probe.getsockname()[0])
    except OSError:
        return None
    for name, addresses in psutil.net_if_addrs().items():
        if any(a.address.partition("%")[0] == own for a in addresses):
            return name
    return None


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _loopback() -> str:
    return "lo0" if sys.platform == "darwin" else "lo"
