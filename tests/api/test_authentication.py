"""Who a request comes from: without a credential nothing is answered but what is meant to be."""

import re
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from support.access.routes import routes_of
from support.cluster.web import bearer, bearer_of, served
from support.nodes.mock_history import shorten_history
from support.waiting import PATIENCE
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from trainhall.api.app import create_app
from trainhall.api.host.credentials import admin_token
from trainhall.api.login import authentication
from trainhall.api.settings import Settings
from trainhall.cluster.api_paths import AGENT_PREFIX, API_PREFIX

OWN = "http://127.0.0.1:8000"
LINK = f"{API_PREFIX}/auth/link"
LOGIN = f"{API_PREFIX}/auth/login"
OPEN = {
    ("GET", "/healthz"), ("GET", "/readyz"), ("POST", LINK), ("POST", LOGIN),
    ("GET", f"{API_PREFIX}/auth/methods"), ("POST", f"{API_PREFIX}/auth/device"),
    ("POST", f"{API_PREFIX}/auth/device/token"), ("POST", f"{API_PREFIX}/auth/browser/token"),
    ("GET", f"{API_PREFIX}/auth/oidc/login"), ("GET", f"{API_PREFIX}/auth/oidc/callback"),
}  # fmt: skip
"""Routes that need no credential; every other needs one of a user, or is an agent's."""
SOCKETS = {
    f"{API_PREFIX}/metrics/stream/{{job_id}}", f"{API_PREFIX}/alerts/stream",
    f"{API_PREFIX}/training/jobs/{{job_id}}/exec",
    f"{API_PREFIX}/training/jobs/{{job_id}}/forward/{{port}}",
    f"{AGENT_PREFIX}/connect", f"{AGENT_PREFIX}/ship", f"{AGENT_PREFIX}/tunnels/{{ticket}}",
}  # fmt: skip


@pytest.fixture
async def closed(inline_database: None, make_app: Callable[..., FastAPI]) -> AsyncIterator[FastAPI]:
    """An application that asks for a credential."""
    made = make_app()
    async with made.router.lifespan_context(made):
        yield made


@pytest.fixture
async def anyone(closed: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """Somebody on the same host, without a credential."""
    transport = httpx.ASGITransport(closed, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url=OWN) as made:
        yield made


async def log_in(client: httpx.AsyncClient, app: FastAPI) -> httpx.Response:
    made = await client.post(f"{API_PREFIX}/auth/codes", headers=bearer_of(app))
    assert made.status_code == 201
    return await client.post(LINK, json={"code": made.json()["code"]})


async def test_every_route_needs_a_credential_unless_listed(
    closed: FastAPI, anyone: httpx.AsyncClient
) -> None:
    routes = {(m, p) for m, p in routes_of(list(closed.router.routes)) if m != "HEAD"}
    documented = {
        (method.upper(), path)
        for path, methods in closed.openapi()["paths"].items()
        for method in methods
    }
    assert documented <= {(method, path.replace(":path}", "}")) for method, path in routes}
    sockets = {path for method, path in routes if method == "WS"}
    assert sockets == SOCKETS
    assert {("GET", "/docs"), ("GET", "/openapi.json"), ("GET", "/metrics")} <= routes
    assert routes >= OPEN
    for method, path in sorted(routes - OPEN):
        if path.startswith(f"{AGENT_PREFIX}/") or method == "WS":
            continue  # credentials of their own; tested below
        reply = await anyone.request(method, re.sub(r"\{[^}]*\}", "x", path))
        assert reply.status_code == 401, (method, path)
        assert reply.headers["WWW-Authenticate"] == "Bearer"
        assert reply.headers["Content-Type"] == "application/problem+json"
        assert "trainhall open" in reply.json()["detail"]


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/training/jobs/", "/api/v1", "/api/v2/x", "/docs/", "/docsx", "/metrics/",
        "/openapi.json/", "/api/v1/agent", "//api/v1/training/jobs", "/api/v1/auth/link/",
        "/api/v1/auth/me",
    ],
)  # fmt: skip
async def test_paths_beside_routes_show_nothing(anyone: httpx.AsyncClient, path: str) -> None:
    reply = await anyone.get(path)
    page = reply.headers["Content-Type"].startswith("text/html")
    assert reply.status_code == 401 or page


async def test_agents_keep_their_own_credential(anyone: httpx.AsyncClient, closed: FastAPI) -> None:
    batch = f"{AGENT_PREFIX}/jobs/x/attempts/1/metrics"
    for headers in ({}, bearer_of(closed)):
        reply = await anyone.post(batch, headers=headers)
        assert reply.status_code == 401
        assert "node" in reply.json()["detail"] or "credential" in reply.json()["detail"]
    joined = await anyone.post(f"{AGENT_PREFIX}/join", json={})
    assert joined.status_code == 422


async def test_pages_and_probes_need_nothing(anyone: httpx.AsyncClient) -> None:
    for path in ("/", "/jobs", "/login", "/favicon.svg"):
        assert (await anyone.get(path)).status_code == 200
    assert (await anyone.get("/healthz")).json()["status"] == "ok"
    assert (await anyone.get("/readyz")).json() == {"status": "ready"}


async def test_reasons_of_readiness_are_for_users(
    anyone: httpx.AsyncClient, closed: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainhall.api.routes.site.probes._MIN_FREE_BYTES", 2**62)
    reply = await anyone.get("/readyz")
    assert (reply.status_code, reply.json()["detail"]) == (503, "not ready")
    known = await anyone.get("/readyz", headers=bearer_of(closed))
    assert (known.status_code, "disk" in known.json()["detail"]) == (503, True)


@pytest.mark.parametrize(
    "header",
    [
        "", "Bearer", "Bearer ", "Basic YTpi", "Bearer th_x", "Bearer {token}x", "{token}",
        "Bearer {token} {token}", "Basic {token}", "Bearer th_" + "a" * 100_000, "Bearer \x00",
    ],
)  # fmt: skip
async def test_wrong_credentials_are_refused(
    anyone: httpx.AsyncClient, closed: FastAPI, header: str
) -> None:
    token = admin_token(closed.state.settings.data_dir)
    headers = {"Authorization": header.format(token=token)}
    reply = await anyone.get("/api/v1/training/jobs", headers=headers)
    assert reply.status_code == 401
    assert "unknown, was revoked, or has expired" in reply.json()["detail"]


async def test_two_headers_are_refused(anyone: httpx.AsyncClient, closed: FastAPI) -> None:
    good = ("Authorization", bearer_of(closed)["Authorization"])
    for pair in ([good, ("Authorization", "Bearer x")], [("Authorization", "Bearer x"), good]):
        assert (await anyone.get("/api/v1/training/jobs", headers=pair)).status_code == 401


async def test_token_admits_everywhere(anyone: httpx.AsyncClient, closed: FastAPI) -> None:
    for path in ("/api/v1/training/jobs", "/metrics", "/docs", "/openapi.json"):
        assert (await anyone.get(path, headers=bearer_of(closed))).status_code == 200
    me = await anyone.get("/api/v1/auth/me", headers=bearer_of(closed))
    default = [{"name": "default", "role": "maintainer"}]
    admin = {"user": closed.state.admin.user, "admin": True, "projects": default}
    assert me.json() == {**admin, "how": "token"}


async def test_admin_token_is_private_and_kept(
    make_app: Callable[..., FastAPI], tmp_path: Path
) -> None:
    path = tmp_path / "data" / "admin.token"
    tokens = []
    for _ in range(2):
        app = make_app()
        async with app.router.lifespan_context(app):
            assert path.stat().st_mode & 0o777 == 0o600
            tokens.append(path.read_text())
    assert tokens[0] == tokens[1]


async def test_removed_admin_token_is_replaced(
    make_app: Callable[..., FastAPI], tmp_path: Path
) -> None:
    path = tmp_path / "data" / "admin.token"
    app = make_app()
    async with app.router.lifespan_context(app):
        old = path.read_text().strip()
    path.write_text("th_not_one\n")
    app = make_app()
    async with app.router.lifespan_context(app):
        new = path.read_text().strip()
        accounts = app.state.coordinator.accounts
        assert await accounts.of_token(old) is None
        assert await accounts.of_token(new) is not None


async def test_link_logs_a_browser_in(anyone: httpx.AsyncClient, closed: FastAPI) -> None:
    reply = await log_in(anyone, closed)
    assert reply.status_code == 204
    cookie = reply.headers["Set-Cookie"]
    assert cookie.startswith(f"trainhall-{closed.state.coordinator_id[:16]}=")
    parts = {part.strip().lower() for part in cookie.split(";")[1:]}
    assert {"httponly", "path=/", "samesite=strict"} <= parts
    assert not {"secure"} & parts
    me = await anyone.get("/api/v1/auth/me")
    assert (me.json()["user"], me.json()["how"]) == (closed.state.admin.user, "session")
    (session,) = (await anyone.get("/api/v1/auth/sessions")).json()["items"]
    assert session["current"] is True
    assert (await anyone.post("/api/v1/auth/logout")).status_code == 204
    assert not anyone.cookies
    assert (await anyone.get("/api/v1/auth/me")).status_code == 401


async def test_cookie_needs_no_clock_of_the_browser(
    anyone: httpx.AsyncClient, closed: FastAPI
) -> None:
    """An end as a date would be another one for a browser whose clock is wrong."""
    cookie = (await log_in(anyone, closed)).headers["Set-Cookie"].lower()
    assert "max-age=2592000" in cookie
    assert "expires=" not in cookie


async def test_life_of_a_token_is_by_the_coordinators_clock(
    anyone: httpx.AsyncClient, closed: FastAPI
) -> None:
    headers = bearer_of(closed)
    before = datetime.now(UTC)

    async def make(**body: object) -> httpx.Response:
        return await anyone.post("/api/v1/auth/tokens", json=body, headers=headers)

    made = await make(name="ci", expires_in=3600)
    end = datetime.fromisoformat(made.json()["expires_at"])
    assert timedelta(hours=1) <= end - before + timedelta(milliseconds=1)
    assert end - datetime.now(UTC) <= timedelta(hours=1)
    both = await make(name="both", expires_in=60, expires_at="2100-01-01T00:00:00Z")
    assert both.status_code == 422
    assert "expires_in" in both.text
    for wrong in (0, -1, 1e12, "60", True):
        assert (await make(name="wrong", expires_in=wrong)).status_code == 422


async def test_ended_session_is_void_in_the_browser(
    anyone: httpx.AsyncClient, closed: FastAPI
) -> None:
    await log_in(anyone, closed)
    (session,) = (await anyone.get("/api/v1/auth/sessions")).json()["items"]
    path = f"/api/v1/auth/sessions/{session['id']}"
    assert (await anyone.delete(path, headers=bearer_of(closed))).status_code == 204
    assert (await anyone.get("/api/v1/auth/me")).status_code == 401


async def test_cookie_over_tls_is_for_tls_alone(
    make_app: Callable[..., FastAPI],
) -> None:
    app = make_app(public_url="https://lab.example", allowed_hosts="lab.example")
    name = "__Host-trainhall-"
    async with app.router.lifespan_context(app):
        for base in ("https://127.0.0.1:8000", "http://lab.example"):
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url=base) as client:
                cookie = (await log_in(client, app)).headers["Set-Cookie"]
                assert cookie.startswith(name)
                assert "Secure" in cookie


async def test_header_counts_before_the_cookie(anyone: httpx.AsyncClient, closed: FastAPI) -> None:
    await log_in(anyone, closed)
    reply = await anyone.get("/api/v1/auth/me", headers={"Authorization": "Bearer nothing"})
    assert reply.status_code == 401
    for_proxy = {"Authorization": "Basic bWFyaWE6c2VjcmV0"}
    assert (await anyone.get("/api/v1/auth/me", headers=for_proxy)).status_code == 200


async def test_cookie_of_another_coordinator_is_nobodys(
    make_app: Callable[..., FastAPI], anyone: httpx.AsyncClient, closed: FastAPI
) -> None:
    await log_in(anyone, closed)
    (secret,) = anyone.cookies.values()
    headers = {"Cookie": f"trainhall-0123456789abcdef={secret}; trainhall={secret}"}
    reply = await httpx.AsyncClient(transport=httpx.ASGITransport(closed), base_url=OWN).get(
        "/api/v1/auth/me", headers=headers
    )
    assert reply.status_code == 401


async def test_tokens_are_made_listed_and_revoked(
    anyone: httpx.AsyncClient, closed: FastAPI
) -> None:
    admin = bearer_of(closed)
    made = await anyone.post("/api/v1/auth/tokens", json={"name": "ci"}, headers=admin)
    assert made.status_code == 201
    mine = {"Authorization": f"Bearer {made.json()['token']}"}
    listed = (await anyone.get("/api/v1/auth/tokens", headers=mine)).json()["items"]
    assert [item["name"] for item in listed][1:] == ["ci"]
    assert "token" not in listed[1]
    path = f"/api/v1/auth/tokens/{made.json()['id']}"
    assert (await anyone.delete(path, headers=mine)).status_code == 204
    assert (await anyone.get("/api/v1/auth/tokens", headers=mine)).status_code == 401
    for end in ("2020-01-01T00:00:00Z", "9999-12-31T23:59:59-12:00", "yesterday", 4e9):
        wished = {"name": "past", "expires_at": end}
        refused = await anyone.post("/api/v1/auth/tokens", json=wished, headers=admin)
        assert refused.status_code == 422, end
        assert refused.json()["errors"][0]["field"] == "expires_at"


async def test_open_coordinator_takes_requests_for_its_admins(
    make_app: Callable[..., FastAPI],
) -> None:
    app = make_app(auth="none")
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url=OWN) as client,
    ):
        me = (await client.get("/api/v1/auth/me")).json()
        assert (me["admin"], me["how"]) == (True, "none")
        made = await client.post("/api/v1/auth/tokens", json={"name": "ci"})
        assert made.status_code == 201
        token = {"Authorization": f"Bearer {made.json()['token']}"}
        assert (await client.get("/api/v1/auth/me", headers=token)).json()["how"] == "token"
        wrong = {"Authorization": "Bearer th_old"}
        assert (await client.get("/api/v1/training/jobs", headers=wrong)).status_code == 200


@pytest.mark.parametrize("asks", [False, True])
async def test_mock_mode_needs_a_login_if_asked(
    asks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_history(monkeypatch)
    settings = Settings(mock=True, mock_auth=asks, auth="token", data_dir=tmp_path / "data")
    links: list[str] = []
    app = create_app(settings, on_login_link=links.append)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://any.host") as client:
            me = await client.get("/api/v1/auth/me")
            assert me.status_code == (401 if asks else 200)
            if asks:
                code = links[0].partition("#code=")[2]
                assert (await client.post(LINK, json={"code": code})).status_code == 204
                me = await client.get("/api/v1/auth/me")
            assert me.json()["admin"] is True
    assert len(links) == asks
    assert not (tmp_path / "data").exists()


async def test_root_path_opens_no_door(closed: FastAPI) -> None:
    """Routes are matched behind it, so a check of the bare path would let everybody in."""
    transport = httpx.ASGITransport(closed, root_path="/behind")
    async with httpx.AsyncClient(transport=transport, base_url=OWN) as client:
        reply = await client.get("/behind/api/v1/training/jobs")
        assert reply.status_code == 401


def test_streams_need_a_credential(make_app: Callable[..., FastAPI], tmp_path: Path) -> None:
    with served(make_app()) as url:
        address = url.replace("http", "ws") + f"{API_PREFIX}/alerts/stream"
        with pytest.raises(InvalidStatus) as refused, connect(address):
            pass
        assert refused.value.response.status_code == 401
        with connect(address, additional_headers=bearer(tmp_path / "data")) as stream:
            assert "ready" in str(stream.recv(timeout=PATIENCE))


def test_revoked_token_closes_its_streams(
    make_app: Callable[..., FastAPI], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainhall.api.login.authentication.RECHECK_SECONDS", 0.05)
    with served(make_app()) as url:
        admin = bearer(tmp_path / "data")
        path = f"{url}{API_PREFIX}/auth/tokens"
        made = httpx.post(path, json={"name": "viewer"}, headers=admin).json()
        mine = {"Authorization": f"Bearer {made['token']}"}
        address = url.replace("http", "ws") + f"{API_PREFIX}/alerts/stream"
        with (
            connect(address, additional_headers=mine) as stream,
            connect(address, additional_headers=admin) as other,
        ):
            assert "ready" in str(stream.recv(timeout=PATIENCE))
            assert httpx.delete(f"{path}/{made['id']}", headers=admin).status_code == 204
            with pytest.raises(ConnectionClosed):
                stream.recv(timeout=PATIENCE)
            assert stream.close_code == 1008
            assert "ready" in str(other.recv(timeout=PATIENCE))
            with pytest.raises(TimeoutError):
                other.recv(timeout=0.2)


def test_ended_session_closes_its_streams(
    make_app: Callable[..., FastAPI], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert authentication.RECHECK_SECONDS <= 5
    monkeypatch.setattr(authentication, "RECHECK_SECONDS", 0.05)
    with served(make_app()) as url, httpx.Client(base_url=f"{url}{API_PREFIX}") as client:
        admin = bearer(tmp_path / "data")
        code = client.post("/auth/codes", headers=admin).json()["code"]
        assert client.post("/auth/link", json={"code": code}).status_code == 204
        cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
        address = url.replace("http", "ws") + f"{API_PREFIX}/alerts/stream"
        with connect(address, additional_headers={"Cookie": cookie}) as stream:
            assert "ready" in str(stream.recv(timeout=PATIENCE))
            (session,) = client.get("/auth/sessions").json()["items"]
            ended = client.delete(f"/auth/sessions/{session['id']}", headers=admin)
            assert ended.status_code == 204
            with pytest.raises(ConnectionClosed):
                stream.recv(timeout=PATIENCE)
            assert stream.close_code == 1008


def test_changed_roles_close_streams(
    make_app: Callable[..., FastAPI], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainhall.api.login.authentication.RECHECK_SECONDS", 0.05)
    with served(make_app()) as url, httpx.Client(base_url=f"{url}{API_PREFIX}") as admin:
        admin.headers.update(bearer(tmp_path / "data"))
        service = {"name": "ci", "kind": "service"}
        assert admin.post("/users", json=service).status_code == 201
        assert admin.post("/projects", json={"name": "vision"}).status_code == 201
        made = admin.post("/auth/tokens", json={"name": "viewer", "user": "ci"}).json()
        headers = {"Authorization": f"Bearer {made['token']}"}
        address = url.replace("http", "ws") + f"{API_PREFIX}/alerts/stream"
        with connect(address, additional_headers=headers) as stream:
            assert "ready" in str(stream.recv(timeout=PATIENCE))
            role = {"role": "viewer"}
            assert admin.put("/projects/vision/members/ci", json=role).status_code == 204
            with pytest.raises(ConnectionClosed):
                stream.recv(timeout=PATIENCE)
            assert stream.close_code == 1008
            assert "roles" in (stream.close_reason or "")


def test_foreign_page_is_refused_with_a_cookie(
    make_app: Callable[..., FastAPI], tmp_path: Path
) -> None:
    with served(make_app()) as url, httpx.Client(base_url=url) as client:
        code = client.post(f"{API_PREFIX}/auth/codes", headers=bearer(tmp_path / "data")).json()
        assert client.post(LINK, json={"code": code["code"]}).status_code == 204
        assert client.get(f"{API_PREFIX}/auth/me").status_code == 200
        spec: dict[str, Any] = {"name": "x", "script": {"path": "/bin/true"}}
        evil = {"Origin": "http://evil.example"}
        reply = client.post(f"{API_PREFIX}/training/jobs", json=spec, headers=evil)
        assert reply.status_code == 403
