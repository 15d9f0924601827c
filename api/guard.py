"""Admission to the coordinator before there are accounts: programs and pages of this host.

Submitting a job means running code, so by default only requests that arrived over loopback are
served, and of those only ones that no foreign page caused:

- The address a request *arrived on* must be loopback. The peer's address says nothing: a forwarded
  port has a local one too, and that is the door its owner opened on purpose.
- `Host` must be a loopback name or address, or one that was allowed. A page of a foreign site whose
  name was rebound to 127.0.0.1 still sends its own name.
- `Origin`, which browsers add to what a page sends (websockets too), must be the very host that is
  addressed.

Where every request shows a credential, those over TLS are served on every address, too.

With `insecure` all requests are. `Host` may then also be an IP address or this
host's name, and both headers are checked as ever: else a page of a foreign site, open in a browser
of that network, could submit jobs.

A coordinator whose cluster is simulated runs no code, so it answers everyone. It takes no agents,
which would bring hosts that do run code.

Agents of other hosts are served anywhere, since every one of their routes but `join` takes a
credential, and `join` a token; browsers have no business there. So is `/healthz`, which returns
the version alone: a new host asks for it before it joins, and what keeps the coordinator running
may."""

import ipaddress
import socket
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from trainhall.api.problems import RefusalError
from trainhall.cluster.api_paths import AGENT_PREFIX

HEALTH = "/healthz"


class Guard:
    """ASGI middleware that refuses with 403; a websocket is refused before it is accepted.

    Args:
        is_forwarded: tells the names under which ports of jobs are served (`api.forward`).
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        insecure: bool = False,
        asks_for_login: bool = False,
        simulated: bool = False,
        allowed_hosts: Iterable[str] = (),
        is_forwarded: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self.app = app
        self._insecure = insecure
        self._asks_for_login = asks_for_login
        self._simulated = simulated
        own = {socket.gethostname().lower()} if insecure or asks_for_login else set()
        self._allowed = frozenset(allowed_hosts) | own
        self._is_forwarded = is_forwarded

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            refusal = self._refusal(scope)
            if refusal is not None:
                await refusal.response()(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _refusal(self, scope: Scope) -> RefusalError | None:
        headers = Headers(scope=scope)
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if scope["path"].startswith(f"{AGENT_PREFIX}/"):
            return self._agent_refusal(origins)
        if self._simulated:
            return None
        # Without a port it is the path of a Unix socket.
        address, port = scope.get("server") or ("", None)
        if port is not None and not is_loopback(address):
            if scope["path"] == HEALTH and not origins:
                return None
            if self._insecure or (self._asks_for_login and _is_tls(scope)):
                return self._host_refusal(scope, hosts, origins, address)
            return _refused(
                f"this request arrived on {address}, and the coordinator answers on loopback "
                f"only: forward a port (ssh -L) to reach it, or start it with {self._remedy()}"
            )
        return self._host_refusal(scope, hosts, origins, "127.0.0.1")

    def _remedy(self) -> str:
        if self._asks_for_login:
            return "--tls-cert or --tls-self-signed"
        return "--insecure in a network where everyone may run code"

    def _host_refusal(
        self, scope: Scope, hosts: list[str], origins: list[str], address: str
    ) -> RefusalError | None:
        if len(hosts) != 1:
            return _refused("a request needs exactly one Host header")
        name = host_name(hosts[0])
        if name is None or not self._is_own(name):
            return _refused(
                f"Host {hosts[0]!r} is not an address of this coordinator: use "
                f"{_url(scope, address)}, or add the name to TRAINHALL_ALLOWED_HOSTS"
            )
        # A page without TLS could be of someone on its way. (A proxy may end a page's TLS.)
        schemes = ("https",) if _is_tls(scope) else ("http", "https")
        if any(not _same_host(origin, hosts[0], schemes) for origin in origins):
            return _refused(f"a page of {origins[0]!r} may not use this coordinator")
        return None

    def _is_own(self, name: str) -> bool:
        if is_loopback(name) or name in self._allowed or self._is_forwarded(name):
            return True
        # No site's name can be rebound to where the Host says an address.
        return (self._insecure or self._asks_for_login) and _is_address(name)

    def _agent_refusal(self, origins: list[str]) -> RefusalError | None:
        if self._simulated:
            return _refused("this cluster is simulated (MOCK_DB); agents cannot join it")
        if origins:
            return _refused("this route is for agents, not for browsers")
        return None


def _refused(detail: str) -> RefusalError:
    # A refused caller of HTTP/1.1 may have a body under way that is never read.
    return RefusalError(403, "not-allowed", detail, headers={"Connection": "close"})


def is_loopback(host: str) -> bool:
    """Return whether a name or an address (IPv6 with or without brackets) is this host alone."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_tls(scope: Scope) -> bool:
    return scope.get("scheme") in ("https", "wss")


def _url(scope: Scope, address: str) -> str:
    scheme = "https" if _is_tls(scope) else "http"
    host = f"[{address}]" if ":" in address else address
    _, port = scope.get("server") or ("", None)
    return f"{scheme}://{host}" + (f":{port}" if port is not None else "")


def host_name(host: str) -> str | None:
    """Return the name in a Host header, in lower case; None when it is none."""
    try:
        parts = urlsplit(f"//{host}")
        parts.port  # noqa: B018 - raises when it is no port
    except ValueError:
        return None
    if parts.netloc != host or parts.username is not None:
        return None
    return parts.hostname


def _same_host(origin: str, host: str, schemes: tuple[str, ...]) -> bool:
    scheme, separator, authority = origin.partition("://")
    return bool(separator) and scheme in schemes and authority.lower() == host.lower()
