"""Headers between a browser and a program beside a job.

The program is addressed as it would be on its own host, `127.0.0.1:PORT`: servers such as Jupyter's
refuse other names. So it cannot tell foreign pages, which are refused before (`api.guard`,
`api.forward.pages`).
"""

from collections.abc import Iterable

from starlette.datastructures import Headers

Pairs = list[tuple[bytes, bytes]]

COOKIE = "trainhall-forward"
SECURE_COOKIE = f"__Host-{COOKIE}"
_OWN_COOKIES = ("trainhall-", "__host-trainhall-")
"""Beginnings of the names of the coordinator's cookies, in lower case."""
_HOP_BY_HOP = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate",
        b"proxy-authorization", b"te", b"trailer", b"transfer-encoding", b"upgrade",
    }
)  # fmt: skip
_OF_THE_WAY = frozenset(
    {
        b"host", b"origin", b"referer", b"cookie", b"expect", b"forwarded", b"x-forwarded-for",
        b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip",
    }
)  # fmt: skip
_BEYOND_THE_ORIGIN = frozenset({b"alt-svc", b"clear-site-data"})
"""Headers of answers that count for more than their origin: the second one also clears the cookies
of names beside and above it."""
_WEBSOCKET = b"sec-websocket-"


def own_cookie(headers: Headers, name: str) -> str:
    """Return the value of one of the coordinator's cookies; empty: there is none."""
    for key, value in _cookies(headers):
        if key == name:
            return value
    return ""


def _cookies(headers: Headers) -> Iterable[tuple[str, str]]:
    for text in headers.getlist("cookie"):
        for pair in text.split(";"):
            key, _, value = pair.strip().partition("=")
            yield key, value


def to_program(headers: Headers, port: int) -> Pairs:
    """Return the headers of a request as the program is to see them, without `Host`."""
    dropped = _HOP_BY_HOP | _OF_THE_WAY | _named_by_connection(headers)
    kept = [
        (name, value)
        for name, value in headers.raw
        if name not in dropped and not name.startswith(_WEBSOCKET)
    ]
    cookies = [f"{k}={v}" for k, v in _cookies(headers) if not k.lower().startswith(_OWN_COOKIES)]
    if cookies:
        kept.append((b"cookie", "; ".join(cookies).encode("latin-1")))
    if "origin" in headers:
        kept.append((b"origin", f"http://127.0.0.1:{port}".encode()))
    scheme, _, rest = headers.get("referer", "").partition("://")
    host, slash, path = rest.partition("/")
    if scheme in ("http", "https") and slash and host == headers.get("host"):
        kept.append((b"referer", f"http://127.0.0.1:{port}/{path}".encode("latin-1")))
    return kept


def _named_by_connection(headers: Headers) -> set[bytes]:
    text = ",".join(headers.getlist("connection")).lower()
    return {name.strip().encode("latin-1") for name in text.split(",")}


def to_browser(pairs: Iterable[tuple[bytes, bytes]], port: int) -> Pairs:
    """Return the headers of a program's answer as the browser is to see them."""
    kept: Pairs = []
    for key, value in pairs:
        name = key.lower()
        if name == b"set-cookie":
            cookie = _own_alone(value.decode("latin-1"))
            if cookie is not None:
                kept.append((name, cookie.encode("latin-1")))
        elif name == b"location":
            kept.append((name, _relative(value.decode("latin-1"), port).encode("latin-1")))
        elif name not in _HOP_BY_HOP | _BEYOND_THE_ORIGIN:
            kept.append((name, value))
    return kept


def _own_alone(cookie: str) -> str | None:
    """Return a cookie as one of this origin alone; None: it has a name of the coordinator's."""
    first, *attributes = cookie.split(";")
    if first.partition("=")[0].strip().lower().startswith(_OWN_COOKIES):
        return None
    kept = [each for each in attributes if each.partition("=")[0].strip().lower() != "domain"]
    return ";".join([first, *kept])


def _relative(location: str, port: int) -> str:
    for host in ("127.0.0.1", "localhost"):
        address = f"http://{host}:{port}"
        path = location.removeprefix(address)
        if path != location and path[:1] in ("", "/", "?", "#") and not path.startswith("//"):
            return path or "/"
    return location
