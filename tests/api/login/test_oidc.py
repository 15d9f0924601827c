"""The login by a real OpenID provider, and what of it is refused."""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from authlib.oidc.core import CodeIDToken
from fastapi import FastAPI
from sqlalchemy import update
from support.login.oidc_provider import WARNS, TestProvider, provider, query_of

from trainhall.api.login.provider import Pending, own_path
from trainhall.cluster.api_paths import API_PREFIX
from trainhall.db.accounts import User

LOGIN = f"{API_PREFIX}/auth/oidc/login"
CALLBACK = f"{API_PREFIX}/auth/oidc/callback"
ME = f"{API_PREFIX}/auth/me"
RULES: list[dict[str, Any]] = [
    {"group": "ops", "admin": True},
    {"group": "vision", "member_of": "team"},
    {"group": "leads", "project": "default", "role": "maintainer"},
    {"group": "leads", "project": "missing", "role": "viewer"},
]


pytestmark = pytest.mark.filterwarnings(WARNS)


@pytest.fixture
def idp() -> Iterator[TestProvider]:
    with provider() as made:
        yield made


@pytest.fixture
def make_with(
    inline_database: None, make_app: Callable[..., FastAPI], tmp_path: Path
) -> Callable[..., FastAPI]:
    secret = tmp_path / "client.secret"
    secret.write_text("s3cret\n")

    def make(issuer: str, **oidc: Any) -> FastAPI:
        values = {
            "issuer": issuer,
            "client-id": "trainhall",
            "client_secret_file": str(secret),
            "name": "Lab",
            "rules": RULES,
            **oidc,
        }
        return make_app(auth="token", oidc=values)

    return make


@pytest.fixture
async def app(make_with: Callable[..., FastAPI], idp: TestProvider) -> AsyncIterator[FastAPI]:
    made = make_with(idp.issuer)
    async with made.router.lifespan_context(made):
        yield made


@asynccontextmanager
async def browser(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as made:
        yield made


async def begin(client: httpx.AsyncClient, **query: str) -> str:
    reply = await client.get(LOGIN, params=query)
    assert reply.status_code == 302, reply.text
    return reply.headers["Location"]


async def log_in(
    client: httpx.AsyncClient, idp: TestProvider, subject: str, **query: str
) -> httpx.Response:
    back = idp.approve(await begin(client, **query), subject)
    return await client.get(back)


async def test_login_makes_a_user_without_rights(app: FastAPI, idp: TestProvider) -> None:
    idp.set_user("1", preferred_username="maria", email="root@example.org")
    async with browser(app) as client:
        asked = query_of(await begin(client, next="/nodes?search=a"))
        assert asked["code_challenge_method"] == "S256"
        assert asked["redirect_uri"] == f"http://127.0.0.1:8000{CALLBACK}"
        assert {"state", "nonce", "code_challenge"} <= asked.keys()
        reply = await log_in(client, idp, "1", next="/nodes?search=a")
        assert (reply.status_code, reply.headers["Location"]) == (303, "/nodes?search=a")
        cookies = [value.lower() for value in reply.headers.get_list("Set-Cookie")]
        assert any("samesite=strict" in each and "httponly" in each for each in cookies)
        assert len(client.cookies) == 1
        me = (await client.get(ME)).json()
        assert (me["user"], me["admin"], me["how"]) == ("maria", False, "session")
        jobs = await client.get(f"{API_PREFIX}/training/jobs")
        assert jobs.json()["items"] == []


async def test_state_cookie_is_lax_and_short(app: FastAPI) -> None:
    async with browser(app) as client:
        cookie = (await client.get(LOGIN)).headers["Set-Cookie"].lower()
    assert "samesite=lax" in cookie
    assert "httponly" in cookie
    assert "max-age=600" in cookie


async def test_groups_give_rights_and_end_them(app: FastAPI, idp: TestProvider) -> None:
    idp.set_user("1", preferred_username="maria", groups=["ops", "leads", "vision", "other"])
    async with browser(app) as client:
        await log_in(client, idp, "1")
        assert (await client.get(ME)).json()["admin"] is True
    async with browser(app) as client:
        idp.set_user("1", preferred_username="maria", groups=["leads"])
        await log_in(client, idp, "1")
        assert (await client.get(ME)).json()["admin"] is False
        (secret,) = client.cookies.values()
        principal = await app.state.coordinator.accounts.of_session(secret)
        assert principal.roles == {"default": "maintainer"}
        idp.set_user("1", preferred_username="maria")
        await log_in(client, idp, "1")
        (secret,) = client.cookies.values()
        principal = await app.state.coordinator.accounts.of_session(secret)
        assert principal.roles == {}


async def test_same_name_is_another_user(app: FastAPI, idp: TestProvider) -> None:
    admin = app.state.admin.user
    idp.set_user("1", preferred_username=admin.upper())
    idp.set_user("2", preferred_username=admin)
    names = []
    for subject in ("1", "2", "1"):
        async with browser(app) as client:
            await log_in(client, idp, subject)
            me = (await client.get(ME)).json()
            assert me["admin"] is False
            names.append(me["user"])
    assert names == [f"{admin.upper()}-2", f"{admin}-3", f"{admin.upper()}-2"]


async def test_code_works_once(app: FastAPI, idp: TestProvider) -> None:
    async with browser(app) as client:
        url = await begin(client)
        cookies = dict(client.cookies)
        back = idp.approve(url, "1")
        assert (await client.get(back)).status_code == 303
        assert (await client.get(back)).status_code == 400
    async with browser(app) as client:
        client.cookies.update(cookies)
        assert (await client.get(back)).status_code == 403
        assert (await client.get(ME)).status_code == 401


@pytest.mark.parametrize("kept", ["none", "another"])
async def test_foreign_state_is_refused(app: FastAPI, idp: TestProvider, kept: str) -> None:
    async with browser(app) as attacker, browser(app) as victim:
        back = idp.approve(await begin(attacker), "1")
        if kept == "another":
            await begin(victim)
        reply = await victim.get(back)
        assert reply.status_code == 400
        assert "text/html" in reply.headers["Content-Type"]
        assert (await victim.get(ME)).status_code == 401


async def test_code_needs_its_verifier(app: FastAPI, idp: TestProvider) -> None:
    async with browser(app) as client:
        first = idp.approve(await begin(client), "1")
        second = query_of(await begin(client))
        code = query_of(first)["code"]
        reply = await client.get(CALLBACK, params={"code": code, "state": second["state"]})
        assert reply.status_code == 403


async def test_nonce_of_another_login_is_refused(app: FastAPI, idp: TestProvider) -> None:
    async with browser(app) as client:
        back = idp.approve(await begin(client), "1")
        idp.forget_nonce()
        reply = await client.get(back)
        assert reply.status_code == 403
        assert "nonce" in reply.text


async def test_expired_tokens_are_refused(make_with: Callable[..., FastAPI]) -> None:
    with provider(token_life=timedelta(seconds=-200)) as idp:
        app = make_with(idp.issuer)
        async with app.router.lifespan_context(app), browser(app) as client:
            reply = await log_in(client, idp, "1")
            assert reply.status_code == 403
            assert "expired" in reply.text


@pytest.mark.parametrize(
    ("skew", "status"), [(100, 303), (-100, 303), (2 * 3600, 403), (-3600, 403)]
)
async def test_clocks_may_differ_by_two_minutes(
    app: FastAPI, idp: TestProvider, monkeypatch: pytest.MonkeyPatch, skew: int, status: int
) -> None:
    """The coordinator's is ahead of the provider's by `skew` seconds."""
    validate = CodeIDToken.validate

    def later(token: CodeIDToken, now: int | None = None, leeway: int = 0) -> None:
        validate(token, int(time.time()) + skew, leeway)

    monkeypatch.setattr(CodeIDToken, "validate", later)
    async with browser(app) as client:
        reply = await log_in(client, idp, "1")
    assert reply.status_code == status
    assert ("compare the clocks" in reply.text) == (status == 403)


@pytest.mark.parametrize(("jump", "status"), [(-60, 303), (-3600, 400), (3600, 400)])
async def test_clock_may_be_set_back_a_little(
    app: FastAPI, idp: TestProvider, monkeypatch: pytest.MonkeyPatch, jump: int, status: int
) -> None:
    async with browser(app) as client:
        back = idp.approve(await begin(client), "1")
        now = time.time()
        monkeypatch.setattr("trainhall.api.login.provider.time", Wrong(now + jump))
        assert (await client.get(back)).status_code == status


@dataclass
class Wrong:
    """A clock that stands still."""

    at: float

    def time(self) -> float:
        return self.at


async def test_login_ends_after_ten_minutes(
    app: FastAPI, idp: TestProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with browser(app) as client:
        back = idp.approve(await begin(client), "1")
        now = time.time()
        monkeypatch.setattr("trainhall.api.login.provider.time.time", lambda: now + 601)
        assert (await client.get(back)).status_code == 400


async def test_refusal_of_the_provider_is_shown_as_text(app: FastAPI) -> None:
    async with browser(app) as client:
        state = query_of(await begin(client))["state"]
        query = {"state": state, "error": "x", "error_description": "<script>alert(1)</script>"}
        reply = await client.get(CALLBACK, params=query)
        assert reply.status_code == 403
        assert "Lab refused it: &lt;script" in reply.text


async def test_new_keys_are_asked_for(app: FastAPI, idp: TestProvider) -> None:
    for _ in range(2):
        async with browser(app) as client:
            assert (await log_in(client, idp, "1")).status_code == 303
        idp.rotate_keys()


async def test_provider_that_is_away_stops_nothing_else(
    make_with: Callable[..., FastAPI], idp: TestProvider
) -> None:
    app = make_with(idp.issuer)
    async with app.router.lifespan_context(app), browser(app) as client, browser(app) as other:
        await log_in(client, idp, "1")
        back = idp.approve(await begin(other), "2")
        idp.stop()
        reply = await other.get(back)
        assert reply.status_code == 503
        assert "Lab is unreachable" in reply.text
        assert (await client.get(ME)).status_code == 200


async def test_coordinator_starts_without_its_provider(
    make_with: Callable[..., FastAPI],
) -> None:
    with provider() as idp:
        pass
    app = make_with(idp.issuer)
    async with app.router.lifespan_context(app), browser(app) as client:
        for _ in range(2):
            reply = await client.get(LOGIN)
            assert reply.status_code == 503
            assert "Retry-After" in reply.headers
        assert (await client.get("/healthz")).status_code == 200


async def test_removed_user_is_refused(app: FastAPI, idp: TestProvider) -> None:
    idp.set_user("1", preferred_username="maria")
    async with browser(app) as client:
        await log_in(client, idp, "1")
    coordinator = app.state.coordinator
    async with coordinator.db.transaction() as session:
        gone = update(User).where(User.name == "maria").values(removed_at=coordinator.clock.now())
        await session.execute(gone)
    async with browser(app) as client:
        reply = await log_in(client, idp, "1")
        assert reply.status_code == 403
        assert "maria was removed" in reply.text
        assert not client.cookies


async def test_failing_logins_are_throttled(app: FastAPI, idp: TestProvider) -> None:
    async with browser(app) as client:
        state = query_of(await begin(client))["state"]
        cookies = dict(client.cookies)
        statuses = []
        for _ in range(21):
            client.cookies.update(cookies)
            reply = await client.get(CALLBACK, params={"code": "x", "state": state})
            statuses.append(reply.status_code)
        assert statuses == [403] * 20 + [429]


async def test_routes_are_absent_without_a_provider(make_app: Callable[..., FastAPI]) -> None:
    app = make_app()
    async with app.router.lifespan_context(app), browser(app) as client:
        for path in (LOGIN, CALLBACK):
            assert (await client.get(path)).status_code == 404


@pytest.mark.parametrize(
    "path",
    ["//evil.example", "/\\evil.example", "https://evil.example", "", "/a\nb", "/" + "a" * 2000,
     "javascript:alert(1)", "/\u202e"],
)  # fmt: skip
def test_return_leads_to_no_other_site(path: str) -> None:
    assert own_path(path) == "/jobs"
    assert own_path("/jobs/1?tab=logs#x") == "/jobs/1?tab=logs#x"


@pytest.mark.parametrize("cookie", ["", "x", "e30=", "bnVsbA==", "W10=", "\u00e9", "9" * 5000])
def test_broken_state_cookies_are_none(cookie: str) -> None:
    assert Pending.of(cookie) is None
