"""Logins of commands that a browser approves: by a code, and by a page on the same host."""

from collections.abc import AsyncIterator, Callable

import httpx
import pytest
from fastapi import FastAPI
from support.cluster.web import bearer_of

from trainhall.api.login.command_logins import (
    MAX_PENDING_OF_ONE,
    CommandLogins,
    challenge_of,
)
from trainhall.api.problems import RefusalError
from trainhall.cluster.access.principal import Principal
from trainhall.cluster.api_paths import API_PREFIX
from trainhall.cluster.errors import NotAllowedError, NotFoundError

AUTH = f"{API_PREFIX}/auth"
VERIFIER = "v" * 50


@pytest.fixture
async def app(inline_database: None, make_app: Callable[..., FastAPI]) -> AsyncIterator[FastAPI]:
    made = make_app(auth="token")
    async with made.router.lifespan_context(made):
        yield made


@pytest.fixture
async def commands(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """Commands without a credential."""
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as made:
        yield made


@pytest.fixture
async def browser(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A browser that is logged in."""
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as made:
        code = await made.post(f"{AUTH}/codes", headers=bearer_of(app))
        await made.post(f"{AUTH}/link", json={"code": code.json()["code"]})
        yield made


@pytest.fixture
def clock(app: FastAPI) -> list[float]:
    """The monotonic time of logins."""
    now = [1000.0]
    app.state.command_logins.now = lambda: now[0]
    return now


def test_logins_of_a_network_are_limited() -> None:
    logins = CommandLogins()
    for number in range(MAX_PENDING_OF_ONE):
        logins.begin("gpu-07", f"2001:db8::{number}")
    with pytest.raises(RefusalError):
        logins.begin("gpu-07", "2001:db8::ffff")
    logins.begin("gpu-07", "2001:db8:0:1::1")


def test_codes_of_a_user_are_limited() -> None:
    logins, otto = CommandLogins(), Principal("otto", False, "session", "2")
    for _ in range(MAX_PENDING_OF_ONE):
        logins.new_code(otto, "challenge")
    with pytest.raises(RefusalError):
        logins.new_code(otto, "challenge")
    logins.new_code(Principal("maria", False, "session", "1"), "challenge")


async def begin(commands: httpx.AsyncClient) -> dict[str, str]:
    reply = await commands.post(f"{AUTH}/device", json={"client": "gpu-07"})
    assert reply.status_code == 201
    return dict(reply.json())


async def poll(commands: httpx.AsyncClient, begun: dict[str, str]) -> httpx.Response:
    code = {"device_code": begun["device_code"]}
    return await commands.post(f"{AUTH}/device/token", json=code)


async def test_approved_code_gives_a_token_once(
    app: FastAPI, commands: httpx.AsyncClient, browser: httpx.AsyncClient, clock: list[float]
) -> None:
    begun = await begin(commands)
    assert begun["url"] == "http://127.0.0.1:8000/login/device"
    assert (await poll(commands, begun)).json() == {"state": "pending", "token": None}
    path = f"{AUTH}/device/{begun['user_code'].lower().replace('-', ' ')}"
    shown = (await browser.get(path)).json()
    assert (shown["client"], shown["address"]) == ("gpu-07", "127.0.0.1")
    assert (await browser.put(path, json={"approve": True})).status_code == 204
    assert (await browser.get(path)).status_code == 404
    clock[0] += 5
    given = (await poll(commands, begun)).json()
    assert given["state"] == "approved"
    headers = {"Authorization": f"Bearer {given['token']['token']}"}
    me = (await commands.get(f"{AUTH}/me", headers=headers)).json()
    assert (me["user"], me["how"]) == (app.state.admin.user, "token")
    clock[0] += 5
    assert (await poll(commands, begun)).status_code == 404


async def test_refused_code_gives_no_token(
    commands: httpx.AsyncClient, browser: httpx.AsyncClient
) -> None:
    begun = await begin(commands)
    path = f"{AUTH}/device/{begun['user_code']}"
    assert (await browser.put(path, json={"approve": False})).status_code == 204
    assert (await poll(commands, begun)).json() == {"state": "denied", "token": None}


async def test_polling_in_haste_is_refused(commands: httpx.AsyncClient, clock: list[float]) -> None:
    begun = await begin(commands)
    assert (await poll(commands, begun)).status_code == 200
    reply = await poll(commands, begun)
    assert (reply.status_code, reply.headers["Retry-After"]) == (429, "5")
    clock[0] += 5
    assert (await poll(commands, begun)).status_code == 200


async def test_codes_end_after_ten_minutes(
    commands: httpx.AsyncClient, browser: httpx.AsyncClient, clock: list[float]
) -> None:
    begun = await begin(commands)
    clock[0] += 600
    path = f"{AUTH}/device/{begun['user_code']}"
    assert (await browser.put(path, json={"approve": True})).status_code == 404
    assert (await poll(commands, begun)).status_code == 404


async def test_only_sessions_approve(app: FastAPI, commands: httpx.AsyncClient) -> None:
    begun = await begin(commands)
    path = f"{AUTH}/device/{begun['user_code']}"
    assert (await commands.put(path, json={"approve": True})).status_code == 401
    token = bearer_of(app)
    assert (await commands.put(path, json={"approve": True}, headers=token)).status_code == 403
    asked = {"challenge": challenge_of(VERIFIER)}
    assert (await commands.post(f"{AUTH}/browser", json=asked)).status_code == 401
    reply = await commands.post(f"{AUTH}/browser", json=asked, headers=token)
    assert reply.status_code == 403


async def test_guessing_is_throttled(
    commands: httpx.AsyncClient, browser: httpx.AsyncClient
) -> None:
    for _ in range(20):
        assert (await browser.get(f"{AUTH}/device/BBBB-BBBB")).status_code == 404
    assert (await browser.get(f"{AUTH}/device/BBBB-BBBB")).status_code == 429
    for _ in range(20):
        assert (await poll(commands, {"device_code": "x"})).status_code == 404
    assert (await poll(commands, {"device_code": "x"})).status_code == 429


async def test_browser_code_needs_its_verifier(
    app: FastAPI, commands: httpx.AsyncClient, browser: httpx.AsyncClient
) -> None:
    asked = {"challenge": challenge_of(VERIFIER)}
    code = (await browser.post(f"{AUTH}/browser", json=asked)).json()["code"]
    wanted = {"code": code, "verifier": "w" * 50, "client": "laptop"}
    assert (await commands.post(f"{AUTH}/browser/token", json=wanted)).status_code == 401
    code = (await browser.post(f"{AUTH}/browser", json=asked)).json()["code"]
    wanted = {"code": code, "verifier": VERIFIER, "client": "laptop"}
    reply = await commands.post(f"{AUTH}/browser/token", json=wanted)
    assert reply.status_code == 201
    assert reply.json()["name"].startswith("login from laptop")
    assert (await commands.post(f"{AUTH}/browser/token", json=wanted)).status_code == 401


async def test_methods_need_no_credential(commands: httpx.AsyncClient) -> None:
    reply = await commands.get(f"{AUTH}/methods")
    assert reply.json() == {"password": False, "oidc": None}


def test_waiting_logins_are_limited() -> None:
    logins = CommandLogins()
    for _ in range(20):
        logins.begin("a", "10.0.0.1")
    with pytest.raises(RefusalError):
        logins.begin("a", "10.0.0.1")
    logins.begin("a", "10.0.0.2")


def test_ended_logins_leave_no_trace() -> None:
    now = [0.0]
    logins = CommandLogins(lambda: now[0])
    code, _ = logins.begin("a", "10.0.0.1")
    now[0] = 600.0
    with pytest.raises(NotFoundError):
        logins.poll(code)
    with pytest.raises(NotAllowedError):
        logins.trade("x", VERIFIER)
    assert not logins._devices
