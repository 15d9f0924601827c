"""Floods of callers who have a credential, or need none: on a real process, with its own limits."""

import contextlib
import hashlib
import socket
import threading
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from support.archives import archive
from support.cluster.coordinator_process import coordinator, url_of
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

API = "/api/v1"
MIB = 1024 * 1024
SPEC: dict[str, Any] = {"name": "digits", "task": {"name": "digits"}}


def slow_upload(url: str, source: str) -> socket.socket:
    """A connection that has sent one byte of an archive of 64 MiB."""
    host, _, port = url.removeprefix("http://").partition(":")
    made = socket.create_connection((host, int(port)), timeout=30, source_address=(source, 0))
    sha256 = hashlib.sha256(str(made.getsockname()).encode()).hexdigest()
    made.sendall(
        f"PUT {API}/training/code/{sha256} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Content-Length: {64 * MIB}\r\n\r\n1".encode()
    )
    return made


@pytest.mark.processes
def test_slow_uploads_let_others_upload(tmp_path: Path) -> None:
    with coordinator(tmp_path) as process, contextlib.ExitStack() as attackers:
        url = url_of(process)
        for number in range(128):  # four of each address
            source = f"127.0.1.{number // 4 + 1}"
            attackers.enter_context(slow_upload(url, source))
        used = psutil.Process(process.pid)
        sha256, data = archive(train="print(1)")
        reply = httpx.put(f"{url}{API}/training/code/{sha256}", content=data, timeout=60)
        assert reply.status_code == 201, reply.text
        with slow_upload(url, "127.0.1.1") as fifth:
            fifth.settimeout(60)
            assert b" 429 " in fifth.recv(1000), "an address has four at once"
        assert used.memory_info().rss < 400 * MIB


@pytest.mark.processes
def test_flood_of_viewers_disturbs_no_other_viewer(tmp_path: Path) -> None:
    with coordinator(tmp_path) as process, contextlib.ExitStack() as viewers:
        url = url_of(process)
        job = httpx.post(f"{url}{API}/training/jobs", json=SPEC).json()["id"]
        stream = f"ws{url.removeprefix('http')}{API}/metrics/stream/{job}"

        def view(source: str) -> ClientConnection:
            return viewers.enter_context(connect(stream, source_address=(source, 0)))

        honest = view("127.0.0.1")
        honest.recv(timeout=30)
        flooding = [view("127.0.0.2") for _ in range(20)]
        for _ in range(40):
            with pytest.raises(InvalidStatus, match="429"):
                view("127.0.0.2")

        def flood(viewer: ClientConnection) -> None:
            with contextlib.suppress(ConnectionClosed):
                for _ in range(20_000):
                    viewer.send("x" * 1000)

        threads = [threading.Thread(target=flood, args=[viewer]) for viewer in flooding]
        for thread in threads:
            thread.start()
        cancelled = httpx.delete(f"{url}{API}/training/jobs/{job}", timeout=60)
        assert cancelled.status_code == 202
        while "cancelled" not in str(honest.recv(timeout=60)):
            pass
        for thread in threads:
            thread.join(60)
        assert httpx.get(f"{url}/readyz", timeout=60).status_code == 200
        view("127.0.0.3").recv(timeout=60)
        assert psutil.Process(process.pid).memory_info().rss < 400 * MIB
