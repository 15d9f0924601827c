"""Ports of jobs as pages: who opens them, what passes, and what is kept from either side."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from sqlalchemy import delete
from support.access.projects import Projects
from support.access.sockets import Socket
from support.access.tunnels import Host, audited, tunnel_of
from support.access.world import Things
from websockets.asyncio.server import ServerConnection, serve

from trainhall.api.forward import port_tunnel
from trainhall.api.login import authentication
from trainhall.cluster.accounts import lookup
from trainhall.cluster.waiting import end_tasks
from trainhall.cluster.wire.tunnel import Stream, Tunnel, splice
from trainhall.db.accounts import Member

PORT = 8888
ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nSet-Cookie: a=1; Domain=fwd.test; Path=/\r\n"
    b"Set-Cookie: trainhall-forward=x\r\nX-Frame-Options: DENY\r\n\r\nhello"
)


@dataclass
class Program:
    """What listens beside the job."""

    answer: bytes = ANSWER
    requests: list[bytes] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(self.answer)
        await writer.drain()
        writer.close()
        await writer.wait_closed()


class _AgentSide:
    def __init__(self, host: Host) -> None:
        self._host = host

    async def send(self, message: str | bytes) -> None:
        self._host.sent.put_nowait(message)

    async def receive(self) -> str | bytes:
        return await self._host.received.get()


@asynccontextmanager
async def agent(projects: Projects, port: int) -> AsyncIterator[None]:
    """Begin the one session that the node is asked for, and connect it to a port of the test."""
    connections: list[asyncio.Task[None]] = []

    async def connect(stream: Stream) -> None:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await stream.reset("connection refused")
            return
        await splice(stream, reader, writer)

    async def work() -> None:
        async with tunnel_of(projects) as host:
            await host.received.get()
            host.sent.put_nowait('{"type":"started"}')
            await Tunnel(
                _AgentSide(host), lambda _: None,
                lambda stream: connections.append(asyncio.create_task(connect(stream))),
            ).run()  # fmt: skip

    working = asyncio.create_task(work())
    try:
        yield
    finally:
        await projects.app.state.forwarding.close()
        await end_tasks([working, *connections])


@asynccontextmanager
async def program(projects: Projects, answer: bytes = ANSWER) -> AsyncIterator[Program]:
    made = Program(answer)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    async with server, agent(projects, server.sockets[0].getsockname()[1]):
        yield made


async def link_of(projects: Projects, things: Things, who: str = "member") -> str:
    reply = await projects.ask(who, "POST", f"/training/jobs/{things.job}/ports/{PORT}/link")
    assert reply.status_code == 201, reply.text
    return str(reply.json()["url"])


class Browser:
    """A client of one origin, whose requests arrive on loopback as those of any other."""

    def __init__(self, projects: Projects, url: str) -> None:
        self.host = urlsplit(url).netloc
        self._client = projects.client
        self.cookie = ""

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
        given = {"Host": self.host, **(headers or {})}
        own = f"trainhall-forward={self.cookie}"
        given["Cookie"] = "; ".join(filter(None, [given.get("Cookie"), own]))
        return await self._client.get(path, headers=given)

    async def open(self, link: str) -> httpx.Response:
        """Follow a link."""
        url = urlsplit(link)
        return await self.get(f"{url.path}?{url.query}")


async def browser(projects: Projects, link: str) -> Browser:
    """A browser that has followed a link."""
    made = Browser(projects, link)
    opened = await made.open(link)
    assert (opened.status_code, opened.headers.get("location")) == (303, "/"), opened.text
    cookie = opened.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "domain" not in cookie.lower()
    made.cookie = cookie.partition("=")[2].partition(";")[0]
    projects.client.cookies.clear()
    return made


async def closed(projects: Projects) -> None:
    """Wait until the only tunnel is closed."""
    (tunnel,) = projects.app.state.forwarding._tunnels
    async with asyncio.timeout(10):
        await tunnel._serving


async def test_link_opens_the_port_once(projects: Projects, running: Things) -> None:
    async with program(projects) as served:
        link = await link_of(projects, running)
        assert link.startswith(f"http://{running.job}-{PORT}.fwd.test:8000/")
        page = await browser(projects, link)
        assert (await page.open(link)).status_code == 403
        headers = {"Cookie": "x=1; trainhall-abc=s", "Referer": f"http://{page.host}/a?b"}
        answer = await page.get("/lab?q=a%20b", headers=headers)
        assert (answer.status_code, answer.text) == (200, "hello")
    (request,) = served.requests
    assert request.startswith(b"GET /lab?q=a%20b HTTP/1.1\r\n")
    assert b"host: 127.0.0.1:8888" in request.lower()
    assert b"referer: http://127.0.0.1:8888/a?b" in request.lower()
    assert b"trainhall" not in request
    assert b"x=1" in request
    assert answer.headers.get_list("set-cookie") == ["a=1; Path=/"]
    assert answer.headers["x-frame-options"] == "DENY"
    assert "content-security-policy" not in answer.headers
    rows = [detail for _, outcome, detail in await audited(projects, "job.forward")]
    assert rows == [f"rank 0: link to port {PORT}", f"rank 0: port {PORT}"]


async def test_without_access_nothing_is_served(projects: Projects, running: Things) -> None:
    link = await link_of(projects, running)
    page = Browser(projects, link)
    for path in ("/", "/api/v1/training/jobs", "/healthz", "/api/v1/agent/join"):
        answer = await page.get(path, projects.header("member"))
        assert (answer.status_code, "Open port" in answer.text) == (401, True), path
    other = Browser(projects, link.replace(f"-{PORT}.", "-8889."))
    assert (await other.open(link)).status_code == 403
    other.cookie = (await browser(projects, link)).cookie
    assert (await other.get("/")).status_code == 401


async def test_foreign_pages_reach_no_port(projects: Projects, running: Things) -> None:
    def fetched(site: str, mode: str, destination: str) -> dict[str, str]:
        return {
            "Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": destination,
        }  # fmt: skip

    async with program(projects) as served:
        page = await browser(projects, await link_of(projects, running))
        for headers in (
            {"Origin": "http://evil.example"},
            {"Origin": "http://other-1.fwd.test:8000"},
            fetched("same-site", "no-cors", "image"),
            fetched("cross-site", "navigate", "iframe"),
        ):
            assert (await page.get("/", headers)).status_code == 403, headers
        assert served.requests == []
        followed = fetched("cross-site", "navigate", "document")
        assert (await page.get("/", followed)).status_code == 200


async def test_access_ends_with_the_role(
    projects: Projects, running: Things, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication, "RECHECK_SECONDS", 0.05)
    monkeypatch.setattr(lookup, "CACHE_SECONDS", 0.0)
    async with program(projects):
        page = await browser(projects, await link_of(projects, running))
        assert (await page.get("/")).status_code == 200
        async with projects.coordinator.db.transaction() as session:
            await session.execute(delete(Member).where(Member.id == "m-member"))

        await closed(projects)
        assert (await page.get("/")).status_code == 404


async def test_unused_tunnel_closes(
    projects: Projects, running: Things, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port_tunnel, "UNUSED_SECONDS", 0.0)
    monkeypatch.setattr(port_tunnel, "CHECK_SECONDS", 0.01)
    async with program(projects):
        page = await browser(projects, await link_of(projects, running))
        assert (await page.get("/")).status_code == 200
        await closed(projects)


async def test_silent_port_is_a_bad_gateway(projects: Projects, running: Things) -> None:
    unused = await asyncio.start_server(lambda _, __: None, "127.0.0.1", 0)
    port = unused.sockets[0].getsockname()[1]
    unused.close()
    async with agent(projects, port):
        page = await browser(projects, await link_of(projects, running))
        answer = await page.get("/")
        assert (answer.status_code, "connection refused" in answer.text) == (502, True)


async def test_messages_of_websockets_pass(projects: Projects, running: Things) -> None:
    heads: list[Any] = []

    async def echo(connection: ServerConnection) -> None:
        assert connection.request is not None
        heads.append(connection.request)
        async for message in connection:
            await connection.send(message)

    async with (
        serve(echo, "127.0.0.1", 0) as server,
        agent(projects, next(iter(server.sockets)).getsockname()[1]),
    ):
        link = await link_of(projects, running)
        page = await browser(projects, link)
        headers = {"host": page.host, "cookie": f"trainhall-forward={page.cookie}; k=1"}
        foreign = {**headers, "origin": "http://evil.example"}
        async with Socket(projects.app, "/ws", foreign, b"") as refused:
            assert (await refused.outcome())[0] == 403
        own = {**headers, "origin": f"http://{page.host}"}
        async with Socket(projects.app, "/ws", own, b"a=1") as user:
            assert (await user.next())["type"] == "websocket.accept"
            user.send("text")
            user.send(b"\x00bytes")
            assert (await user.next())["text"] == "text"
            assert (await user.next())["bytes"] == b"\x00bytes"
    assert heads[0].path == "/ws?a=1"
    assert heads[0].headers["Origin"] == f"http://127.0.0.1:{PORT}"
    assert heads[0].headers["Cookie"] == "k=1"


async def test_refused_links_are_explained(projects: Projects, running: Things) -> None:
    ports = f"/training/jobs/{running.job}/ports"
    for port in ("0", "65536", "x"):
        reply = await projects.ask("member", "POST", f"{ports}/{port}/link")
        assert (reply.status_code, reply.json()["errors"][0]["field"]) == (422, "port")
    assert (await projects.ask("viewer", "POST", f"{ports}/1/link")).status_code == 403
    projects.app.state.forwarding = None
    reply = await projects.ask("member", "POST", f"{ports}/1/link")
    assert reply.status_code == 409
    assert "--forward-domain" in reply.json()["detail"]
