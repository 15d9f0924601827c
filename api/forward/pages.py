"""Requests to the origins of jobs' ports: who has access gets what the program there answers.

Nothing of the coordinator is served on these origins, and no credential of its own counts there
but the cookie that a link sets for that one origin. Where a request may come from is checked before
(`api.guard`): a foreign page's is refused by its `Origin`. What browsers send without one, images
and frames of foreign pages, is refused here by `Sec-Fetch-Site`.
"""

from http import HTTPStatus
from urllib.parse import parse_qs
from weakref import WeakSet

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from trainhall.api.forward import headers as passed
from trainhall.api.forward.accesses import Access, Accesses
from trainhall.api.forward.origins import ForwardDomain, JobPort
from trainhall.api.forward.port_tunnel import PortTunnel
from trainhall.api.guard import host_name
from trainhall.api.limits import caller_of, limits_of
from trainhall.api.login.authentication import lookup_of
from trainhall.api.observe import FORWARDED
from trainhall.api.problems import refusal_of
from trainhall.cluster.access.principal import Principal
from trainhall.cluster.tunnels.service import NoTunnelError
from trainhall.cluster.wire.tunnel import StreamResetError, TunnelClosedError

OPEN_PATH = "/.trainhall/open"
"""Path of the links, the only one on these origins that is not the program's."""


class Forwarding:
    """The ports of an application that are open in browsers."""

    def __init__(self, domain: ForwardDomain) -> None:
        self.domain = domain
        self.accesses = Accesses()
        self._tunnels: WeakSet[PortTunnel] = WeakSet()

    def serves(self, name: str) -> bool:
        """Return whether the name of a host, in lower case, is that of a port."""
        return self.domain.parse(name) is not None

    def link(
        self, connection: HTTPConnection, principal: Principal, place: JobPort, base: str
    ) -> str:
        """Return the URL that opens a port for a user, once.

        Args:
            base: URL at which they reach the coordinator.
        """
        coordinator = connection.app.state.coordinator
        tunnel = PortTunnel(
            coordinator, place, principal, lookup_of(connection),
            limits_of(connection).sessions, caller_of(connection),
        )  # fmt: skip
        self._tunnels.add(tunnel)
        origin = self.domain.origin(place, base)
        secret = self.accesses.add_link(Access(place, tunnel, origin.startswith("https:")))
        return f"{origin}{OPEN_PATH}?link={secret}"

    async def close(self) -> None:
        for tunnel in list(self._tunnels):
            await tunnel.close()


class ForwardedPages:
    """ASGI middleware that serves the origins of jobs' ports, and passes all else on."""

    def __init__(self, app: ASGIApp, *, forwarding: Forwarding) -> None:
        self.app = app
        self._domain, self._accesses = forwarding.domain, forwarding.accesses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        place = self._place(scope) if scope["type"] in ("http", "websocket") else None
        if place is None:
            await self.app(scope, receive, send)
            return
        refused = await self._serve(place, scope, receive, send)
        if refused is None:
            return
        refused.headers["Cache-Control"] = "no-store"
        if scope["type"] == "websocket":
            await WebSocket(scope, receive, send).send_denial_response(refused)
        else:
            await refused(scope, receive, send)

    def _place(self, scope: Scope) -> JobPort | None:
        name = host_name(Headers(scope=scope).get("host", ""))
        return self._domain.parse(name) if name is not None else None

    async def _serve(
        self, place: JobPort, scope: Scope, receive: Receive, send: Send
    ) -> Response | None:
        """Serve a request; returns the answer of one that the program does not get."""
        headers = Headers(scope=scope)
        if _is_of_a_foreign_page(scope, headers):
            return _text(403, "a page of another origin may not use this one")
        if scope["type"] == "http" and scope["path"] == OPEN_PATH:
            return self._open_link(place, scope)
        access = self._access(place, headers)
        if access is None:
            return _text(
                401, f"no access to port {place.port} of job {place.job_id}: open it from the "
                "page of the job, by “Open port”",
            )  # fmt: skip
        # A coordinator whose users open no ports does without the modules of HTTP clients.
        from trainhall.api.forward import http_requests, websocket_requests

        try:
            async with access.tunnel.connection() as stream:
                scope[FORWARDED] = True
                if scope["type"] == "http":
                    await http_requests.pass_request(scope, receive, send, stream, place.port)
                else:
                    await websocket_requests.pass_websocket(
                        WebSocket(scope, receive, send), stream, place.port
                    )
        except (
            http_requests.NoAnswerError, NoTunnelError, StreamResetError, TunnelClosedError,
        ) as error:  # fmt: skip
            scope.pop(FORWARDED, None)
            return _text(502, f"nothing answers at port {place.port} beside rank 0: {error}")
        except Exception as error:
            refusal = refusal_of(error)
            if refusal is None:
                raise
            return _text(refusal.status, refusal.detail)
        return None

    def _open_link(self, place: JobPort, scope: Scope) -> Response:
        if scope["method"] != "GET":
            return _text(405, "a link is opened by GET")
        (secret,) = parse_qs(scope["query_string"].decode("latin-1")).get("link", [""])[:1]
        opened = self._accesses.open_link(secret, place)
        if opened is None:
            return _text(403, "this link was used before, or is older than a minute; make another")
        secret, access = opened
        answer = Response(status_code=303, headers={"Location": "/"})
        answer.headers["Referrer-Policy"] = "no-referrer"
        answer.set_cookie(
            passed.SECURE_COOKIE if access.is_tls else passed.COOKIE,
            secret,
            path="/",
            secure=access.is_tls,
            httponly=True,
            samesite="lax",
        )
        return answer

    def _access(self, place: JobPort, headers: Headers) -> Access | None:
        for name in (passed.SECURE_COOKIE, passed.COOKIE):
            access = self._accesses.find(passed.own_cookie(headers, name), place)
            if access is not None and access.is_tls == (name == passed.SECURE_COOKIE):
                return access
        return None


def _is_of_a_foreign_page(scope: Scope, headers: Headers) -> bool:
    """Return whether a foreign page has caused a request, other than by a link in it."""
    if headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
        return False
    is_link = headers.get("sec-fetch-mode") == "navigate" and scope.get("method") == "GET"
    return not (is_link and headers.get("sec-fetch-dest") == "document")


def _text(status: int, detail: str) -> Response:
    title = HTTPStatus(status).phrase
    return PlainTextResponse(f"{title}: {detail}\n", status)
