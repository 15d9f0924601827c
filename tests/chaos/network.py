"""Hosts with addresses of their own: network namespaces on a bridge. It takes root."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx
from support.forking.forks import enter_network

from trainhall.distributed.bench.hosts import Host as NetworkHost
from trainhall.distributed.bench.hosts import NetworkNotAllowedError, limited_hosts

_FORWARDING, _DISABLED = "3", "0"
_BITS_PER_SECOND = 1e10


class Network:
    """The hosts of the coordinator and of the agents. Of one that is cut off, packets vanish."""

    def __init__(self, hosts: list[NetworkHost]) -> None:
        self.coordinator, *self.hosts = hosts
        self._switch = f"{self.coordinator.space.rsplit('-', 1)[0]}-switch"
        self._ports = hosts

    def cut(self, host: NetworkHost) -> None:
        self._port(host, _DISABLED)

    def heal(self, host: NetworkHost) -> None:
        self._port(host, _FORWARDING)

    def _port(self, host: NetworkHost, state: str) -> None:
        port = f"port{self._ports.index(host)}"
        subprocess.run(
            ["ip", "netns", "exec", self._switch, "bridge", "link", "set", "dev", port,
             "state", state],
            check=True,
        )  # fmt: skip


@contextmanager
def network(hosts: int) -> Iterator[Network]:
    """A network for a coordinator and so many hosts.

    Raises:
        NetworkNotAllowedError: it takes Linux, root and iproute2.
    """
    with limited_hosts(hosts + 1, _BITS_PER_SECOND) as all_hosts:
        yield Network(all_hosts)


@cache
def why_not_root() -> str | None:
    """Why this process may make no networks, and so no mounts and control groups either."""
    try:
        with network(1):
            return None
    except NetworkNotAllowedError as error:
        return str(error)


class ClientInside(httpx.Client):
    """An HTTP client whose connections begin in a namespace; the process itself stays outside."""

    def __init__(self, space: str, **options: Any) -> None:
        super().__init__(**options)
        self._space = space

    def request(self, *arguments: Any, **options: Any) -> httpx.Response:
        with _inside(self._space):
            return super().request(*arguments, **options)


@contextmanager
def _inside(space: str) -> Iterator[None]:
    """What this thread opens meanwhile is of the namespace."""
    with Path("/proc/thread-self/ns/net").open() as home, Path("/run/netns", space).open() as there:
        enter_network(there.fileno())
        try:
            yield
        finally:
            enter_network(home.fileno())
