"""Attacks that need no credential, since they end before a request is read: on a real process."""

import contextlib
import json
import signal
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
from support.cluster.coordinator_process import coordinator, url_of
from support.waiting import PATIENCE, eventually

MIB = 1024 * 1024
SPEC = {"name": "x", "task": {"name": "digits"}}


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINHALL_HEAD_SECONDS", "1")
    monkeypatch.setenv("TRAINHALL_BODY_SECONDS", "1")


@contextlib.contextmanager
def connected(url: str, source: str = "127.0.0.1") -> Iterator[socket.socket]:
    with socket.create_connection(address(url), timeout=30, source_address=(source, 0)) as made:
        yield made


def address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return str(parts.hostname), int(parts.port or 0)


def answer(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """The status, headers and body of what comes until the connection ends."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            received += piece
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    pairs = (line.split(": ", 1) for line in lines)
    return int(first.split()[1]), {name.lower(): value for name, value in pairs}, body


def flood(connection: socket.socket, piece: bytes, most: int) -> int:
    """Send a piece again and again; how many bytes were taken."""
    sent = 0
    with contextlib.suppress(OSError):
        while sent < most:
            connection.sendall(piece)
            sent += len(piece)
    return sent


@pytest.mark.processes
@pytest.mark.parametrize(
    ("begin", "piece", "status"),
    [(b"GET / HTTP/1.1\r\n", b"X-Line: " + b"a" * 1000 + b"\r\n", 431),
     (b"GET / HTTP/1.1\r\nX-Line: ", b"a" * 1000, 431),
     (b"GET /", b"a" * 1000, 414)],
    ids=["lines", "one line", "url"],
)  # fmt: skip
def test_endless_head_takes_no_memory(
    tmp_path: Path, begin: bytes, piece: bytes, status: int
) -> None:
    with coordinator(tmp_path) as process:
        url = url_of(process)
        used = psutil.Process(process.pid)
        before = used.memory_info().rss
        with connected(url) as attacker:
            attacker.sendall(begin)
            sent = flood(attacker, piece * 64, 128 * MIB)
            found = used.memory_info().rss - before
            assert httpx.get(f"{url}/healthz").is_success
        assert sent < 64 * MIB, "the connection ended"
        assert found < 24 * MIB
        with connected(url) as attacker:
            attacker.sendall(begin + piece * 100)
            status_code, headers, body = answer(attacker)
    assert status_code == status
    assert headers["content-type"] == "application/problem+json"
    assert "64 KiB" in json.loads(body)["detail"]


@pytest.mark.processes
def test_half_requests_end_after_their_time(tmp_path: Path) -> None:
    with coordinator(tmp_path) as process, contextlib.ExitStack() as attackers:
        url = url_of(process)
        begun = [b"GET / HT", b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n", b""]
        opened = [attackers.enter_context(connected(url)) for _ in range(3)]
        for connection, head in zip(opened, begun, strict=True):
            connection.sendall(head)
        assert [answer(connection)[0] for connection in opened[:2]] == [408, 408]
        assert opened[2].recv(1) == b"", "nothing was asked, so nothing is answered"


@pytest.mark.processes
def test_head_in_single_bytes_ends_too(tmp_path: Path) -> None:
    with coordinator(tmp_path) as process, connected(url_of(process)) as attacker:
        attacker.sendall(b"GET / HTTP/1.1\r\nX-Slow: ")
        end = time.monotonic() + 30
        attacker.settimeout(0.05)
        reply = b""
        while not reply and time.monotonic() < end:
            with contextlib.suppress(TimeoutError):
                attacker.sendall(b"a")
                reply = attacker.recv(1000)
    assert b" 408 " in reply


@pytest.mark.processes
def test_body_that_stops_ends_its_request(tmp_path: Path) -> None:
    with coordinator(tmp_path) as process:
        url = url_of(process)
        with connected(url) as attacker:
            attacker.sendall(
                b"POST /api/v1/training/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
            )
            status_code, _, body = answer(attacker)
        assert status_code == 408
        assert "no byte of the body came for 1 s" in json.loads(body)["detail"]
        # A request that takes its time on our side ends in order.
        assert httpx.post(f"{url}/api/v1/training/jobs", json=SPEC).status_code == 201


@pytest.mark.processes
def test_idle_connections_block_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINHALL_HEAD_SECONDS", "60")
    with coordinator(tmp_path, open_files=256) as process, contextlib.ExitStack() as attackers:
        url = url_of(process)
        opened = [
            attackers.enter_context(connected(url, f"127.0.0.{host}"))
            for host in (2, 3, 4, 5) for _ in range(100)
        ]  # fmt: skip
        assert len(opened) > 256
        for _ in range(3):
            assert httpx.get(f"{url}/readyz").status_code == 200
            reply = httpx.post(f"{url}/api/v1/training/jobs", json=SPEC)
            assert reply.status_code == 201, reply.text
        files = psutil.Process(process.pid).num_fds()
        assert files <= 256 - 32, "some are left for the database and for files"


@pytest.mark.processes
def test_connections_of_an_address_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINHALL_CONNECTIONS_PER_ADDRESS", "5")
    monkeypatch.setenv("TRAINHALL_HEAD_SECONDS", "60")
    with coordinator(tmp_path) as process, contextlib.ExitStack() as attackers:
        url = url_of(process)
        opened = [attackers.enter_context(connected(url, "127.0.0.2")) for _ in range(6)]
        status_code, headers, body = answer(opened[5])
        assert status_code == 429
        assert int(headers["retry-after"]) > 0
        assert "127.0.0.2 has 5 connections" in json.loads(body)["detail"]
        assert httpx.get(f"{url}/readyz").status_code == 200, "another address"
        opened[0].close()

        def admitted() -> bool:
            with connected(url, "127.0.0.2") as again:
                again.sendall(
                    b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
                )
                return answer(again)[0] == 200

        eventually("a connection to be free", admitted)


@pytest.mark.processes
def test_ordinary_requests_are_served_as_before(tmp_path: Path) -> None:
    with coordinator(tmp_path) as process:
        url = url_of(process)
        get = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        large = b"X-Large: " + b"a" * 60_000 + b"\r\n"
        last = b"Connection: close\r\n\r\n"
        with connected(url) as pipelined:
            pipelined.sendall((get + b"\r\n") * 3 + get + large + last)
            received = b""
            while piece := pipelined.recv(65536):
                received += piece
        assert received.count(b"HTTP/1.1 200") == 4
        body = b"a" * 300_000
        upload = (
            b"PUT /api/v1/training/code/" + b"0" * 64 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            b"Content-Length: 300000\r\n\r\n" + body
        )
        with connected(url) as mixed:
            mixed.sendall(upload + get + large + last)
            received = b""
            while piece := mixed.recv(65536):
                received += piece
        assert received.startswith(b"HTTP/1.1 422"), "the archive is not what its name says"
        assert b"HTTP/1.1 200" in received
        with httpx.Client() as kept:
            assert kept.get(f"{url}/healthz").is_success
            idle_until = time.monotonic() + 3
            eventually("time to pass", lambda: time.monotonic() > idle_until)
            assert kept.get(f"{url}/healthz").is_success


def held(process: int, source: str) -> int:
    """Connections of a process from an address."""
    found = psutil.Process(process).net_connections(kind="tcp")
    return sum(1 for each in found if each.raddr and each.raddr.ip == source)


@pytest.mark.processes
def test_handshakes_of_an_address_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINHALL_TLS_SELF_SIGNED", "true")
    monkeypatch.setenv("TRAINHALL_CONNECTIONS_PER_ADDRESS", "20")
    monkeypatch.setenv("TRAINHALL_HEAD_SECONDS", "60")
    with coordinator(tmp_path) as process, contextlib.ExitStack() as attackers:
        url = url_of(process)
        silent = [attackers.enter_context(connected(url, "127.0.0.2")) for _ in range(50)]
        eventually("the others to be closed", lambda: held(process.pid, "127.0.0.2") == 5)
        context = ssl.create_default_context(cafile=str(tmp_path / "data" / "tls" / "ca.pem"))
        with httpx.Client(verify=context) as http:
            assert http.get(f"{url}/readyz").status_code == 200, "another address"
        for connection in silent:
            connection.close()
        eventually("all to have left", lambda: held(process.pid, "127.0.0.2") == 0)
        for _ in range(10):
            with httpx.Client(verify=context) as http:
                assert http.get(f"{url}/readyz").status_code == 200
        with connected(url, "127.0.0.2") as plain:
            plain.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):
                assert b"HTTP" not in plain.recv(1000)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors


def asks_for_much(url: str, source: str) -> socket.socket:
    """A connection that asks for far more than a system keeps for it, and reads nothing yet."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.bind((source, 0))
    made.settimeout(30)
    made.connect(address(url))
    made.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 100)
    return made


@pytest.mark.processes
def test_response_that_is_not_read_ends(tmp_path: Path) -> None:
    with coordinator(tmp_path) as process:
        url = url_of(process)
        size = len(httpx.get(f"{url}/openapi.json").content)
        with asks_for_much(url, "127.0.0.2"), asks_for_much(url, "127.0.0.3") as slow:
            read = [slow.recv(1000)]  # the one before is served, too
            assert held(process.pid, "127.0.0.2") == 1

            def reads_slowly() -> int:
                read.append(slow.recv(4096))
                return held(process.pid, "127.0.0.2")

            eventually("the one that reads nothing to end", lambda: reads_slowly() == 0)
            assert all(read), "it reads, if slowly"
            assert sum(map(len, read)) < 10 * size, "most is still to come"
            got = 0
            while got < 20 * size:
                piece = slow.recv(1 << 20)
                assert piece
                got += len(piece)
        assert httpx.get(f"{url}/readyz").status_code == 200
