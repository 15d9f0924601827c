"""Who may speak to the coordinator: the address a request arrived on, its Host and its Origin."""

import socket
from collections.abc import Callable
from typing import Any

import httpx
import psutil
import pytest
from fastapi import FastAPI
from support.cluster.web import served
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from trainhall import __version__
from trainhall.api.guard import Guard, is_loopback
from trainhall.cli.nodes.doctor_checks import check_coordinator

OWN = "127.0.0.1:8000"
JOBS = "/api/v1/training/jobs"
AGENT = "/api/v1/agent/join"

# (arrives on, Host, Origin, path, served)
MATRIX: list[tuple[str, str | None, str | None, str, bool]] = [
    ("127.0.0.1", OWN, None, JOBS, True),
    ("127.0.0.1", "localhost:9000", None, JOBS, True),
    ("127.0.0.1", "LOCALHOST", None, JOBS, True),
    ("127.0.0.1", "127.0.0.53", None, JOBS, True),
    ("::1", "[::1]:8000", None, JOBS, True),
    ("::ffff:127.0.0.1", "[::1]:8000", None, JOBS, True),
    ("127.0.0.1", OWN, "http://127.0.0.1:8000", JOBS, True),
    ("127.0.0.1", "localhost:9000", "http://localhost:9000", JOBS, True),
    ("127.0.0.1", "localhost", "HTTP://LOCALHOST", JOBS, False),
    ("10.0.0.7", OWN, None, JOBS, False),
    ("10.0.0.7", OWN, None, "/", False),
    ("10.0.0.7", "lab.example:8000", None, "/healthz", True),
    ("10.0.0.7", "lab.example:8000", "http://lab.example:8000", "/healthz", False),
    ("10.0.0.7", "lab.example:8000", None, "/healthz/", False),
    ("10.0.0.7", "lab.example:8000", None, "/healthzx", False),
    ("10.0.0.7", OWN, None, "/readyz", False),
    ("10.0.0.7", OWN, None, "/metrics", False),
    ("127.0.0.1", "evil.example:8000", None, "/healthz", False),
    ("127.0.0.1", OWN, "http://evil.example", "/healthz", False),
    ("10.0.0.7", OWN, None, "/api/v1/agentx", False),
    ("10.0.0.7", OWN, None, "/api/v1/agent/../training/jobs", True),  # a path that no route has
    ("fe80::1", "[::1]:8000", None, JOBS, False),
    ("::ffff:10.0.0.7", OWN, None, JOBS, False),
    ("127.0.0.1", "evil.example:8000", None, JOBS, False),
    ("127.0.0.1", "127.0.0.1.evil.example", None, JOBS, False),
    ("127.0.0.1", "localhost.evil.example", None, JOBS, False),
    ("127.0.0.1", "evil.example@127.0.0.1", None, JOBS, False),
    ("127.0.0.1", "127.0.0.1/x", None, JOBS, False),
    ("127.0.0.1", "127.0.0.1:x", None, JOBS, False),
    ("127.0.0.1", "[::1", None, JOBS, False),
    ("127.0.0.1", "", None, JOBS, False),
    ("127.0.0.1", None, None, JOBS, False),
    ("127.0.0.1", "lab.example", None, JOBS, True),  # allowed by name
    ("127.0.0.1", OWN, "http://evil.example", JOBS, False),
    ("127.0.0.1", OWN, "http://127.0.0.1:3000", JOBS, False),
    ("127.0.0.1", OWN, "http://localhost:8000", JOBS, False),
    ("127.0.0.1", OWN, "null", JOBS, False),
    ("127.0.0.1", OWN, "", JOBS, False),
    ("127.0.0.1", OWN, "file://127.0.0.1:8000", JOBS, False),
    ("10.0.0.7", "lab.example:8000", None, AGENT, True),
    ("127.0.0.1", OWN, "http://127.0.0.1:8000", AGENT, False),
]


def scope(
    kind: str, server: str, host: str | None, origin: str | None, path: str
) -> dict[str, Any]:
    headers = [
        (name, value.encode())
        for name, value in ((b"host", host), (b"origin", origin))
        if value is not None
    ]
    return {
        "type": kind, "server": (server, 8000), "path": path, "method": "GET", "headers": headers,
        "extensions": {"websocket.http.response": {}}, "subprotocols": [],
    }  # fmt: skip


async def is_served(scope: dict[str, Any], **options: Any) -> bool:
    reached: list[str] = []
    sent: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope["type"])

    async def receive() -> dict[str, Any]:
        return {"type": f"{scope['type']}.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await Guard(app, **options)(scope, receive, send)
    assert bool(reached) != bool(sent)
    if sent:
        assert sent[0]["status"] == 403
        body = b"".join(message.get("body", b"") for message in sent)
        is_open = options.get("insecure") or options.get("asks_for_login")
        own = scope["server"][0] if is_open else "127.0.0.1"
        scheme = "https" if scope.get("scheme") in ("https", "wss") else "http"
        assert f"use {scheme}://{own}:8000,".encode() in body or b"is not an address of" not in body
        assert b"application/problem+json" in dict(sent[0]["headers"]).values()
    return bool(reached)


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize(("server", "host", "origin", "path", "expected"), MATRIX)
async def test_the_matrix(
    kind: str, server: str, host: str | None, origin: str | None, path: str, expected: bool
) -> None:
    given = scope(kind, server, host, origin, path)
    assert await is_served(given, allowed_hosts={"lab.example"}) is expected


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize(
    ("host", "origin", "path", "expected"),
    [
        (OWN, None, JOBS, True),
        ("10.0.0.7:8000", None, JOBS, True),
        ("[fd00::7]:8000", None, "/metrics", True),
        (f"{socket.gethostname()}:8000", None, JOBS, True),
        ("lab.example:8000", "http://lab.example:8000", JOBS, True),  # allowed by name
        ("10.0.0.7:8000", "http://10.0.0.7:8000", JOBS, True),
        ("other.example", None, "/healthz", True),
        ("10.0.0.7:8000", None, AGENT, True),
        ("rebind.example:8000", None, JOBS, False),
        ("rebind.example:8000", "http://rebind.example:8000", JOBS, False),
        ("10.0.0.7:8000", "http://evil.example", JOBS, False),
        ("10.0.0.7:8000", "http://10.0.0.7:3000", JOBS, False),
        ("10.0.0.7:8000", "null", JOBS, False),
        ("10.0.0.7:8000", "http://10.0.0.7:8000", AGENT, False),
        ("10.0.0.7.evil.example", None, JOBS, False),
        (None, None, JOBS, False),
    ],
)
async def test_insecure_serves_no_foreign_page(
    kind: str, host: str | None, origin: str | None, path: str, expected: bool
) -> None:
    options = {"insecure": True, "allowed_hosts": {"lab.example"}}
    assert await is_served(scope(kind, "10.0.0.7", host, origin, path), **options) is expected


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize(
    ("scheme", "host", "origin", "expected"),
    [
        ("https", "10.0.0.7:8000", None, True),
        ("https", "lab.example:8000", None, True),
        ("https", "lab.example:8000", "https://lab.example:8000", True),
        ("https", "lab.example:8000", "http://lab.example:8000", False),
        ("https", "lab.example:8000", "https://evil.example", False),
        ("https", "evil.example:8000", None, False),
        ("http", "10.0.0.7:8000", None, False),
        ("http", "lab.example:8000", None, False),
    ],
)
async def test_people_of_other_hosts_need_tls_and_login(
    kind: str, scheme: str, host: str, origin: str | None, expected: bool
) -> None:
    given = scope(kind, "10.0.0.7", host, origin, JOBS)
    given["scheme"] = scheme.replace("http", "ws") if kind == "websocket" else scheme
    allowed = {"lab.example"}
    assert await is_served(given, allowed_hosts=allowed, asks_for_login=True) is expected
    assert not await is_served(given, allowed_hosts=allowed), "without a login nobody is asked"


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize(("server", "host", "origin", "path", "_"), MATRIX)
async def test_simulation_serves_all_but_agents(
    kind: str, server: str, host: str | None, origin: str | None, path: str, _: bool
) -> None:
    expected = not path.startswith("/api/v1/agent/")
    assert await is_served(scope(kind, server, host, origin, path), simulated=True) is expected


async def test_two_hosts_are_refused() -> None:
    given = scope("http", "127.0.0.1", OWN, None, JOBS)
    given["headers"].append((b"host", b"127.0.0.1"))
    assert not await is_served(given)


async def test_unix_socket_is_of_this_host() -> None:
    given = scope("http", "127.0.0.1", "localhost", None, JOBS)
    given["server"] = ("/run/trainhall.sock", None)
    assert await is_served(given)


@pytest.mark.parametrize(
    ("host", "expected"),
    [("localhost", True), ("127.8.8.8", True), ("[::1]", True), ("::1", True), ("0.0.0.0", False),
     ("::", False), ("127.1", False), ("2130706433", False), ("", False), ("example.org", False)],
)  # fmt: skip
def test_loopback_addresses_are_recognised(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def outside_address() -> str | None:
    """An address of this host that is not loopback."""
    for addresses in psutil.net_if_addrs().values():
        for address in addresses:
            if address.family == socket.AF_INET and not is_loopback(address.address):
                return address.address
    return None


def test_over_real_sockets(make_app: Callable[..., FastAPI]) -> None:
    with served(make_app(auth="none"), host="0.0.0.0") as url:
        port = url.rsplit(":", 1)[1]
        assert httpx.get(f"{url}{JOBS}").status_code == 200
        for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
            refused = httpx.get(f"{url}{JOBS}", headers=headers)
            assert refused.status_code == 403
            assert refused.headers["content-type"] == "application/problem+json"
        stream = f"ws://127.0.0.1:{port}/api/v1/metrics/stream/abc"
        with pytest.raises(InvalidStatus) as caught:
            connect(stream, origin=Origin("http://evil.example"))
        assert caught.value.response.status_code == 403
        outside = outside_address()
        if outside is None:
            pytest.skip("this host has no address but loopback's")
        there = f"http://{outside}:{port}"
        refused = httpx.get(f"{there}{JOBS}", trust_env=False)
        assert refused.status_code == 403
        assert "--insecure" in refused.json()["detail"]
        health = httpx.get(f"{there}/healthz", trust_env=False).json()
        assert health == {"status": "ok", "version": __version__, "simulated": False}
        checks = list(check_coordinator(there, int(port), needed=True))
        assert [(c.name, c.status) for c in checks] == [("coordinator", "ok"), ("clock", "ok")]
        joining = httpx.post(f"{there}{AGENT}", json={}, trust_env=False)
        assert joining.status_code == 422, "agents of other hosts may join"


def test_insecure_over_real_sockets(make_app: Callable[..., FastAPI]) -> None:
    with served(make_app(insecure=True, auth="none"), host="0.0.0.0") as url:
        outside = outside_address()
        if outside is None:
            pytest.skip("this host has no address but loopback's")
        jobs = f"http://{outside}:{url.rsplit(':', 1)[1]}{JOBS}"
        assert httpx.get(jobs, trust_env=False).status_code == 200
        for headers in ({"Host": "rebind.example"}, {"Origin": "http://other.example"}):
            refused = httpx.get(jobs, headers=headers, trust_env=False)
            assert refused.status_code == 403
