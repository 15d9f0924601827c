"""Access of users to ports of jobs in a browser: links that count once, and cookies.

Kept in memory, as the sessions that they open: a restart of the coordinator ends all of them.
"""

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from trainhall.api.forward.origins import JobPort
from trainhall.api.forward.port_tunnel import PortTunnel

LINK_SECONDS = 60.0
ACCESS_SECONDS = 12 * 3600.0
MAX_KEPT = 1000
"""Links, and cookies, beyond which the oldest are forgotten."""


@dataclass(frozen=True)
class Access:
    """The right of a user to a port."""

    place: JobPort
    tunnel: PortTunnel
    is_tls: bool
    """Browsers reach the port over TLS."""


class _Secrets:
    def __init__(self, seconds: float, now: Callable[[], float]) -> None:
        self._seconds, self._now = seconds, now
        self._kept: OrderedDict[bytes, tuple[float, Access]] = OrderedDict()

    def add(self, access: Access) -> str:
        secret = secrets.token_urlsafe(32)
        self._kept[_hash(secret)] = self._now() + self._seconds, access
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        return secret

    def find(self, secret: str, place: JobPort) -> Access | None:
        ends, access = self._kept.get(_hash(secret), (0.0, None))
        if access is None or access.place != place or ends <= self._now():
            return None
        return access

    def remove(self, secret: str) -> None:
        self._kept.pop(_hash(secret), None)


class Accesses:
    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._links = _Secrets(LINK_SECONDS, now)
        self._cookies = _Secrets(ACCESS_SECONDS, now)

    def add_link(self, access: Access) -> str:
        """Return the secret of a link to a port, which counts once and for `LINK_SECONDS`."""
        return self._links.add(access)

    def open_link(self, secret: str, place: JobPort) -> tuple[str, Access] | None:
        """Trade a link's secret for that of a cookie; None: it is none of this port, or was used
        before."""
        access = self._links.find(secret, place)
        if access is None:
            return None
        self._links.remove(secret)
        return self._cookies.add(access), access

    def find(self, secret: str, place: JobPort) -> Access | None:
        """Return the access to a port that a cookie stands for; None: there is none."""
        return self._cookies.find(secret, place)


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
