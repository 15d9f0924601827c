"""The live stream over real websockets."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from support.cluster.web import served
from support.waiting import eventually
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

SPEC: dict[str, Any] = {"name": "digits", "task": {"name": "digits"}, "training": {"steps": 20}}


def submit(url: str) -> str:
    return str(httpx.post(f"{url}/api/v1/training/jobs", json=SPEC).json()["id"])


def address(url: str, job: str, query: str = "") -> str:
    return f"ws{url.removeprefix('http')}/api/v1/metrics/stream/{job}{query}"


async def frame(viewer: ClientConnection) -> dict[str, Any]:
    async with asyncio.timeout(10):
        answer: dict[str, Any] = json.loads(await viewer.recv())
    return answer


async def closed(viewer: ClientConnection) -> tuple[int, str]:
    async with asyncio.timeout(10):
        with pytest.raises(ConnectionClosed) as caught:
            await _read_on(viewer)
    assert caught.value.rcvd is not None
    return caught.value.rcvd.code, caught.value.rcvd.reason


async def _read_on(viewer: ClientConnection) -> None:
    while True:
        await viewer.recv()


async def test_frames_come_from_the_beginning_and_then_live(url: str) -> None:
    job = await asyncio.to_thread(submit, url)
    async with connect(address(url, job)) as viewer, httpx.AsyncClient(base_url=url) as client:
        first = await frame(viewer)
        assert first["type"] == "state"
        assert first["state"] == "queued"
        await client.put(f"/api/v1/training/jobs/{job}/pause")
        while (latest := await frame(viewer))["type"] != "state":
            pass
        assert latest["state"] == "paused"
        assert latest["seq"] > first["seq"]
        async with connect(address(url, job, f"?after={first['seq']}")) as another:
            behind = await frame(another)
            assert behind["seq"] > first["seq"]
        async with connect(address(url, job, "?after=999999")) as ahead:
            assert (await frame(ahead))["type"] == "reset"


@pytest.mark.parametrize(
    "job", ["unknown", "%00", "%ed%a0%80", "x" * 5000, "%E4%BD%9C" * 99, "a%0d%0ab"]
)
async def test_unknown_job_is_accepted_and_then_closed(url: str, job: str) -> None:
    async with connect(address(url, job)) as viewer:
        code, reason = await closed(viewer)
    assert code == 4404
    assert "there is no job" in reason


@pytest.mark.parametrize("after", ["-1", "x", "1.5", "", "%00", "9" * 40, "%C2%B2"])
async def test_bad_stream_sequence_is_refused(url: str, after: str) -> None:
    job = await asyncio.to_thread(submit, url)
    async with connect(address(url, job, f"?after={after}")) as viewer:
        code, reason = await closed(viewer)
    assert code == 4400
    assert "after" in reason


async def test_stopping_coordinator_asks_viewers_to_reconnect(
    make_app: Callable[..., FastAPI],
) -> None:
    app = make_app(auth="none")
    with served(app) as url:
        job = await asyncio.to_thread(submit, url)
        viewer = await connect(address(url, job))
        await frame(viewer)
        assert app.state.coordinator.hub._feeds
        leaving = asyncio.create_task(closed(viewer))
    # Leaving `served` stopped the server, and this loop had no turn meanwhile.
    code, _ = await leaving
    assert code == 1012


async def test_viewer_that_leaves_is_forgotten(make_app: Callable[..., FastAPI]) -> None:
    app = make_app(auth="none")
    with served(app) as url:
        job = await asyncio.to_thread(submit, url)
        async with connect(address(url, job)) as viewer:
            await frame(viewer)
            await viewer.send("viewers have nothing to say")
            await viewer.send(b"\0" * 1000)
        await asyncio.to_thread(
            eventually, "the feed to end", lambda: not app.state.coordinator.hub._feeds
        )


async def test_websocket_at_no_route_is_refused(url: str) -> None:
    async with httpx.AsyncClient(base_url=url) as client:
        headers = {
            "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        }  # fmt: skip
        reply = await client.get("/api/v1/nothing", headers=headers)
        assert reply.status_code in (403, 404)
        reply = await client.get("/api/v1/agent/connect", headers=headers)
        assert reply.status_code == 401
        assert reply.headers["content-type"] == "application/problem+json"
