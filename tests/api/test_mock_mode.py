"""Mock mode as its users start it: a process that answers anybody, and leaves nothing behind."""

import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from support.forking import forks
from support.holds import with_tests
from support.waiting import PATIENCE
from websockets.sync.client import connect
from websockets.typing import Origin

ROOT = Path(__file__).parents[2]


@contextmanager
def uvicorn(
    temporary: Path, data: Path, *, forked: bool
) -> Iterator[tuple[subprocess.Popen[str] | forks.Fork, str]]:
    """`MOCK_DB=true python -m uvicorn api.main:app` on a free port, with less history: a whole one
    is made in tests/cluster/simulator/mock."""
    env = {**with_tests(), "MOCK_DB": "true", "TMPDIR": str(temporary),
           "TRAINHALL_DATA_DIR": str(data), "TRAINHALL_QUOTAS": '{"users": {"*": 24}}'}  # fmt: skip
    arguments = ["api.main:app", "--fd", "0"]
    with socket.socket() as listener, tempfile.TemporaryFile() as output:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        process: subprocess.Popen[str] | forks.Fork
        if forked:
            process = forks.fork(
                "support.forking.mock:with_uvicorn", arguments,
                files=[listener, output, output], env=env, cwd=ROOT,
            )  # fmt: skip
            process.output = [output, output]
        else:
            process = subprocess.Popen(
                [sys.executable, "-m", "support.forking.mock", *arguments],
                cwd=ROOT, stdin=listener.fileno(), stderr=subprocess.PIPE, text=True, env=env,
            )  # fmt: skip
        try:
            yield process, f"http://127.0.0.1:{port}"
        finally:
            process.kill()
            process.communicate()


@pytest.mark.processes
# After SIGINT the interpreter ends in its own time; SIGTERM leaves it none.
@pytest.mark.parametrize(("number", "forked"), [(signal.SIGINT, False), (signal.SIGTERM, True)])
def test_mock_mode_leaves_nothing_on_disk(
    tmp_path: Path, number: signal.Signals, forked: bool
) -> None:
    temporary, data = tmp_path / "temporary", tmp_path / "data"
    temporary.mkdir()
    with (
        uvicorn(temporary, data, forked=forked) as (process, url),
        httpx.Client(base_url=url, headers={"Host": "lab.example:8000"}, timeout=300) as client,
    ):
        jobs = client.get("/api/v1/training/jobs").json()["items"]
        assert jobs
        assert client.get("/api/v1/metrics/cluster/summary").json()["devices"] == 32
        assert client.get("/healthz").json()["simulated"] is True
        quotas = client.get("/api/v1/cluster/quotas").json()
        assert quotas["others"] == {"project": None, "user": 24}
        assert {"project", "user"} == {item["kind"] for item in quotas["items"]}
        refused = client.post("/api/v1/agent/join")
        assert refused.status_code == 403, "an agent would bring hosts that run code"
        assert "simulated" in refused.json()["detail"]
        assert any(temporary.iterdir()), "while it runs it has files"
        running = next(job["id"] for job in jobs if job["state"] == "running")
        stream = f"ws{url.removeprefix('http')}/api/v1/metrics/stream/{running}"
        with connect(stream, origin=Origin("http://elsewhere.example")) as viewer:
            viewer.recv(timeout=PATIENCE)
            process.send_signal(number)
            _, errors = process.communicate(timeout=120)
    assert "Traceback" not in errors.replace("KeyboardInterrupt", ""), errors
    assert list(temporary.iterdir()) == []
    assert not data.exists()
