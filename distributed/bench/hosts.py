"""Hosts on one machine: network namespaces joined by a bridge, on links of limited bandwidth.

Each host's link sends at most so many bits a second (`tc tbf`), and all of them together make a
network of their own: nothing of the machine's is touched. A guard, in a session of its own, takes
all of it away when this process ends, however it ends.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

INTERFACE = "eth0"
"""The network interface of every host."""
_BURST = "80kb"
"""The burst: one of the largest packets, so that it need not be cut."""
_LIMIT = "32mb"
"""The queue: more than TCP keeps on its way, so that nothing is dropped."""
_GUARD = """
cat > /dev/null
for space in "$@"; do
  ip netns pids "$space" 2> /dev/null | xargs -r kill -9
  ip netns del "$space" 2> /dev/null
done
"""


class NetworkNotAllowedError(RuntimeError):
    """Missing permission of this machine to create networks; the message says why."""


@dataclass(frozen=True)
class Host:
    space: str
    address: str

    @property
    def prefix(self) -> list[str]:
        """Before a command, it runs the command on this host."""
        return ["ip", "netns", "exec", self.space]


def check_allowed() -> None:
    """See early whether this machine can have limited links.

    Raises:
        NetworkNotAllowedError: it cannot.
    """
    missing = [program for program in ("ip", "tc") if shutil.which(program) is None]
    if missing or os.geteuid() != 0:
        why = f"there is no {' and no '.join(missing)}" if missing else "you are not root"
        raise NetworkNotAllowedError(f"limited links take Linux, root, and iproute2; {why}")


@contextmanager
def limited_hosts(count: int, bits_per_second: float) -> Iterator[list[Host]]:
    """Open hosts with a network between them, for the life of the context.

    Args:
        bits_per_second: that each host can send.

    Raises:
        NetworkNotAllowedError: it takes Linux, root, and the programs `ip` and `tc`; or they
            refuse.
    """
    check_allowed()
    name = f"trainhall-{os.getpid()}"
    switch = f"{name}-switch"
    hosts = [Host(f"{name}-{i}", f"10.213.0.{i + 1}") for i in range(count)]
    guard = subprocess.Popen(
        ["sh", "-c", _GUARD, "guard", switch, *(host.space for host in hosts)],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge", "up")
        for i, host in enumerate(hosts):
            _join(host, switch, f"port{i}", bits_per_second)
        yield hosts
    finally:
        guard.communicate()


def _join(host: Host, switch: str, port: str, bits_per_second: float) -> None:
    _ip("netns", "add", host.space)
    _ip("link", "add", INTERFACE, "netns", host.space, "type", "veth",
        "peer", "name", port, "netns", switch)  # fmt: skip
    _ip("-n", switch, "link", "set", port, "master", "bridge", "up")
    _ip("-n", host.space, "address", "add", f"{host.address}/24", "dev", INTERFACE)
    for interface in ("lo", INTERFACE):
        _ip("-n", host.space, "link", "set", interface, "up")
    _run("tc", "-n", host.space, "qdisc", "add", "dev", INTERFACE, "root", "tbf",
         "rate", f"{bits_per_second:.0f}bit", "burst", _BURST, "limit", _LIMIT)  # fmt: skip


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise NetworkNotAllowedError(
            f"this machine does not allow limited links: `{' '.join(command)}` says "
            f"{done.stderr.strip()!r}"
        )
