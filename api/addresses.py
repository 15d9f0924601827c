"""Under which address agents on other hosts reach the coordinator."""

import ipaddress
import shlex
import socket
from urllib.parse import urlsplit

from starlette.requests import Request

from trainhall.api.guard import is_loopback
from trainhall.api.settings import Settings
from trainhall.cluster.tls import is_https
from trainhall.cluster.wire.join_token import JoinToken

# Documentation addresses (RFC 5737, RFC 3849): no host has them, and nothing is sent to them.
_ANYWHERE = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}


def join_command(request: Request, token: str) -> str:
    """Return the command to run on a host that is to join."""
    # Not as an option: every user of the host sees the arguments of its processes.
    url = shlex.quote(agent_url(request))
    return f"TRAINHALL_JOIN_TOKEN={token} trainhall agent --coordinator {url}"


def pinned(request: Request, token: str) -> str:
    """Return a join token that carries what the coordinator is known by, if TLS needs that."""
    settings: Settings = request.app.state.settings
    anchor = settings.tls.anchor() if is_https(agent_url(request)) else None
    return str(JoinToken(token, anchor.fingerprint if anchor is not None else None))


def join_note(request: Request) -> str | None:
    """Return the limitation of that command; None when it works on any host."""
    name = urlsplit(agent_url(request)).hostname
    if name is not None and not is_loopback(name):
        return None
    return (
        "the coordinator answers on loopback only, so only an agent on its own host can "
        "reach it; for other hosts start it with `trainhall server --host 0.0.0.0` and add "
        "the node again"
    )


def agent_url(request: Request) -> str:
    """Return the configured address, else the one of the listener, else this request's."""
    settings: Settings = request.app.state.settings
    if settings.public_url:
        return settings.public_url.rstrip("/")
    server = request.scope.get("server") or ("127.0.0.1", settings.port)
    name = _listened(settings.host) or request.url.hostname or server[0]
    host = f"[{name}]" if ":" in name else name
    return f"{request.url.scheme}://{host}:{server[1] or settings.port}"


def _listened(host: str) -> str | None:
    """Return the address at which others reach a server on `host`; None when nobody else does."""
    if is_loopback(host):
        return None
    try:
        address = ipaddress.ip_address(host or "0.0.0.0")
    except ValueError:
        return host
    if not address.is_unspecified:
        return host
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    # Connecting a datagram socket sends nothing; it only picks the address of the default route.
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((_ANYWHERE[family], 9))
        except OSError:
            return socket.gethostname()
        return str(probe.getsockname()[0])
