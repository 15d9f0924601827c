"""What one caller may have under way: attacks over real sockets, and the limits by themselves."""

import asyncio
import hashlib
import threading
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from support.archives import archive
from support.cluster.agent_process import until
from support.cluster.web import bearer_of, served
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Close

from trainhall.api.limits import Guesses, Turns
from trainhall.api.problems import RefusalError
from trainhall.api.routes import jobs as jobs_route
from trainhall.training.spec import parse_spec

API = "/api/v1"
SPEC: dict[str, Any] = {"name": "digits", "task": {"name": "digits"}}


def stream_of(url: str) -> str:
    job = httpx.post(f"{url}{API}/training/jobs", json=SPEC).json()["id"]
    return f"ws{url.removeprefix('http')}{API}/metrics/stream/{job}"


async def test_viewers_of_an_address_are_limited(make_app: Callable[..., FastAPI]) -> None:
    app = make_app(viewers_per_user=3, auth="none")
    with served(app) as url:
        stream = await asyncio.to_thread(stream_of, url)
        notifications = f"ws{url.removeprefix('http')}{API}/alerts/stream"
        async with AsyncExitStack() as viewers:
            first = await connect(stream)
            for address in (stream, notifications):
                await viewers.enter_async_context(connect(address))
            with pytest.raises(InvalidStatus) as caught:
                await connect(stream)
            response = caught.value.response
            assert response.status_code == 429
            assert int(response.headers["Retry-After"]) > 0
            assert b"TRAINHALL_VIEWERS_PER_USER" in (response.body or b"")
            await first.close()
            taken = app.state.limits.viewers._taken
            await until("the first to have left", lambda: sum(taken.values()) == 2)
            async with connect(stream):
                pass


async def end_of(viewer: ClientConnection, sending: Awaitable[None]) -> Close | None:
    """The close frame that ends a viewer; None: it ended so soon that none was read."""
    try:
        async with asyncio.timeout(60):
            await sending
            while True:
                await viewer.recv()
    except ConnectionClosed as error:
        return error.rcvd


async def test_viewer_that_sends_all_the_time_is_closed(url: str) -> None:
    async def flood() -> None:
        for _ in range(50_000):
            await viewer.send("x")

    stream = await asyncio.to_thread(stream_of, url)
    async with connect(stream) as viewer:
        end = await end_of(viewer, flood())
    assert end is None or end.code == 1008
    async with httpx.AsyncClient() as client:
        assert (await client.get(f"{url}/healthz")).is_success


@pytest.mark.parametrize(
    ("message", "code"), [(b"a" * (10 * 1024 * 1024 + 1), 1009), ([b""] * 5000, 1008)]
)
async def test_websocket_messages_are_bounded(url: str, message: Any, code: int) -> None:
    stream = await asyncio.to_thread(stream_of, url)
    async with connect(stream) as viewer:
        end = await end_of(viewer, viewer.send(message))
    assert end is None or end.code == code


async def test_flood_of_pings_ends_the_connection(url: str) -> None:
    async def flood() -> None:
        for _ in range(20_000):
            await viewer.ping()

    stream = await asyncio.to_thread(stream_of, url)
    async with connect(stream) as viewer:
        end = await end_of(viewer, flood())
    assert end is None or end.code == 1008


def caller(app: FastAPI, address: str) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, client=(address, 1))
    return httpx.AsyncClient(
        transport=transport, base_url=f"http://127.0.0.1:8000{API}", headers=bearer_of(app)
    )


async def test_guesses_of_join_tokens_are_throttled(app: FastAPI) -> None:
    guess = {
        "join_token": "thj_guess", "name": "x", "address": "x", "agent_version": "0", "devices": [],
    }  # fmt: skip
    async with caller(app, "10.0.0.66") as attacker, caller(app, "10.0.0.7") as host:
        answers = [await attacker.post("/agent/join", json=guess) for _ in range(40)]
        assert [answer.status_code for answer in answers] == [401] * 20 + [429] * 20
        assert 0 < int(answers[-1].headers["Retry-After"]) <= 61
        node = (await host.post("/cluster/nodes", json={})).json()
        joined = await host.post("/agent/join", json={**guess, "join_token": node["join_token"]})
        assert joined.status_code == 200


async def test_guesses_of_login_links_are_throttled(app: FastAPI) -> None:
    async with caller(app, "10.0.0.66") as attacker, caller(app, "10.0.0.7") as browser:
        answers = [await attacker.post("/auth/link", json={"code": "guess"}) for _ in range(40)]
        assert [answer.status_code for answer in answers] == [401] * 20 + [429] * 20
        assert 0 < int(answers[-1].headers["Retry-After"]) <= 61
        code = (await browser.post("/auth/codes")).json()["code"]
        refused = await attacker.post("/auth/link", json={"code": code})
        assert refused.status_code == 429, "a right one, too"
        assert (await browser.post("/auth/link", json={"code": code})).status_code == 204


async def test_jobs_of_a_user_in_the_queue_are_limited(make_app: Callable[..., FastAPI]) -> None:
    app = make_app(queued_jobs_per_user=2)
    async with app.router.lifespan_context(app), caller(app, "127.0.0.1") as client:
        maria = {**SPEC, "user": "maria"}
        key = {"Idempotency-Key": "second"}
        first = await client.post("/training/jobs", json=maria)
        second = await client.post("/training/jobs", json=maria, headers=key)
        third = await client.post("/training/jobs", json=maria)
        assert [first.status_code, second.status_code, third.status_code] == [201, 201, 429]
        assert int(third.headers["Retry-After"]) > 0
        assert "maria has 2 jobs in the queue" in third.json()["detail"]
        again = await client.post("/training/jobs", json=maria, headers=key)
        assert again.status_code == 201, "nothing new"
        other = await client.post("/training/jobs", json={**SPEC, "user": "li"})
        assert other.status_code == 201
        await client.delete(f"/training/jobs/{first.json()['id']}")
        assert (await client.post("/training/jobs", json=maria)).status_code == 201


async def slow_upload(url: str) -> asyncio.StreamWriter:
    """Begin to send an archive of 64 MiB, and stop after a byte."""
    host, _, port = url.removeprefix("http://").partition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    sha256 = hashlib.sha256(str(id(writer)).encode()).hexdigest()
    writer.write(
        f"PUT {API}/training/code/{sha256} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Content-Length: {64 * 1024 * 1024}\r\n\r\n1".encode()
    )
    await writer.drain()
    return writer


async def test_slow_uploads_reserve_only_what_came(make_app: Callable[..., FastAPI]) -> None:
    app = make_app(uploads_per_user=1000, auth="none")
    sha256, data = archive(train="print(1)")
    with served(app) as url:
        attackers = [await slow_upload(url) for _ in range(128)]
        store = app.state.coordinator.code
        await until("all to have begun", lambda: store._arriving.bytes == 128)
        async with httpx.AsyncClient() as client:
            reply = await client.put(f"{url}{API}/training/code/{sha256}", content=data)
        assert reply.status_code == 201, reply.text
        for writer in attackers:
            writer.close()
        await until("all to have ended", lambda: store._arriving.bytes == 0)


async def test_uploads_of_a_caller_wait_and_then_fail() -> None:
    turns = Turns("uploads", 2, "SETTING")
    async with turns.turn("a"), AsyncExitStack() as second:
        await second.enter_async_context(turns.turn("a"))
        async with turns.turn("b"):
            pass
        with pytest.raises(RefusalError) as caught:
            await turns.turn("a", 0.01).__aenter__()
        assert caught.value.status == 429
        assert "a has 2 uploads" in caught.value.detail
        assert "SETTING" in caught.value.detail

        async def third() -> None:
            async with turns.turn("a", 30):
                pass

        waiting = asyncio.create_task(third())
        await asyncio.sleep(0)
        assert not waiting.done()
        await second.aclose()
        await waiting
    assert not turns._taken


def test_old_guesses_count_no_more() -> None:
    now = [0.0]
    guesses = Guesses(2, 60, lambda: now[0])
    for _ in range(2):
        guesses.check("a")
        guesses.fail("a")
    with pytest.raises(RefusalError) as caught:
        guesses.check("a")
    assert caught.value.headers == {"Retry-After": "61"}
    guesses.check("b")
    now[0] = 60.0
    guesses.check("a")
    assert not guesses._failures


async def test_large_specs_are_parsed_beside_the_loop(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def parse(*given: Any) -> Any:
        threads.append(threading.current_thread())
        return parse_spec(*given)

    monkeypatch.setattr(jobs_route, "parse_spec", parse)
    large = {**SPEC, "notes": "x" * 8000}
    await client.post(f"{API}/training/jobs", json=large)
    assert threads
    assert threads[0] is not threading.main_thread()
