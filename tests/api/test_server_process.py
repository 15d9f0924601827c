"""The server as a process: port 0, a port that is taken, an orderly end."""

import os
import re
import signal
import socket
import ssl
from pathlib import Path

import httpx
import pytest
from support.cluster.coordinator_process import coordinator, url_of
from support.forking import forks
from support.nodes.certificates import Authority
from support.waiting import PATIENCE
from websockets.sync.client import connect


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_server_ends_cleanly_with_open_streams(tmp_path: Path, number: signal.Signals) -> None:
    with coordinator(tmp_path) as process:
        url = url_of(process)
        assert httpx.get(f"{url}/readyz").status_code == 200
        spec = {"name": "x", "task": {"name": "digits"}}
        job = httpx.post(f"{url}/api/v1/training/jobs", json=spec).json()["id"]
        stream = f"ws{url.removeprefix('http')}/api/v1/metrics/stream/{job}"
        with (
            connect(stream) as viewer,
            socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1]))) as idle,
        ):
            viewer.recv(timeout=PATIENCE)
            idle.sendall(b"POST /api/v1/training/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n")
            process.send_signal(number)
            _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
        assert "Traceback" not in errors
    with coordinator(tmp_path) as again:
        read = httpx.get(f"{url_of(again)}/api/v1/training/jobs/{job}")
        assert read.json()["name"] == "x", "what was submitted is kept"


@pytest.mark.processes
def test_files_of_the_coordinator_are_its_users_alone(tmp_path: Path) -> None:
    (tmp_path / "data" / "code").mkdir(mode=0o755, parents=True)  # as an earlier version left it
    (tmp_path / "data" / "trainhall.db").touch(mode=0o644)
    with coordinator(tmp_path) as process:
        url_of(process)
        found = {path.name: path.lstat().st_mode & 0o077 for path in (tmp_path / "data").iterdir()}
    assert {"code", "trainhall.db", "trainhall.db-wal", "coordinator.lock"} <= found.keys()
    assert not any(found.values()), found


@pytest.mark.processes
def test_coordinator_over_tls_waits_for_no_handshake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINHALL_TLS_SELF_SIGNED", "true")
    monkeypatch.setenv("TRAINHALL_HEAD_SECONDS", "0.2")
    with coordinator(tmp_path) as process:
        url = url_of(process)
        assert url.startswith("https://")
        context = ssl.create_default_context(cafile=str(tmp_path / "data" / "tls" / "ca.pem"))
        with (
            socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1]))) as silent,
            httpx.Client(verify=context) as http,
        ):
            assert http.get(f"{url}/readyz").status_code == 200
            silent.settimeout(20)
            assert silent.recv(1) == b"", "it is closed without a word"
            assert http.get(f"{url}/readyz").status_code == 200
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors


@pytest.mark.processes
@pytest.mark.parametrize(
    ("settings", "message"),
    [({"TLS_CERT": "ca.pem", "TLS_KEY": "ca.pem"}, "the certificate .* cannot be used: "),
     ({"TLS_CERT": "none.pem", "TLS_KEY": "none.pem"}, "No such file"),
     ({"PUBLIC_CA": "none.pem"}, "No such file"),
     ({"TLS_CERT": "ca.pem"}, "tls-cert and tls-key need each other")],
)  # fmt: skip
def test_unusable_certificate_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], message: str
) -> None:
    Authority(tmp_path)
    for name, file in settings.items():
        monkeypatch.setenv(f"TRAINHALL_{name}", str(tmp_path / file))
    with coordinator(tmp_path) as process:
        output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert output == ""
    assert re.search(message, errors)
    assert len(errors.splitlines()) == 1, errors


@pytest.mark.processes
def test_second_signal_ends_server_without_an_error(tmp_path: Path) -> None:
    with coordinator(tmp_path) as process:
        url_of(process)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    assert "critical" not in errors


@pytest.mark.processes
def test_taken_port_is_reported_in_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with coordinator(tmp_path, port=taken.getsockname()[1]) as process:
            output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert output == ""
    assert len(errors.splitlines()) == 1
    assert "--port" in errors


@pytest.mark.processes
@pytest.mark.parametrize(
    ("host", "database", "message"),
    [("256.256.256.256", "", "cannot listen on 256.256.256.256"),
     ("127.0.0.1", "mysql://x/y", "'mysql' is not supported"),
     ("127.0.0.1", "nonsense", "not a database URL"),
     ("127.0.0.1", "postgresql://u:secret@127.0.0.1:1/x", "cannot be used"),
     ("127.0.0.1", "sqlite:////dev/null/x.db", "cannot keep data")],
)  # fmt: skip
def test_start_failure_is_reported_in_one_line(
    tmp_path: Path, host: str, database: str, message: str
) -> None:
    with coordinator(tmp_path, host=host, database=database) as process:
        output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert output == ""
    assert message in errors
    assert "secret" not in errors
    assert len(errors.splitlines()) == 1, errors


@pytest.mark.processes
def test_the_app_is_served_by_uvicorn_too(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        env = {**os.environ, "TRAINHALL_DATA_DIR": str(tmp_path)}
        process = forks.fork(
            "uvicorn:main", ["api.main:app", "--fd", "0"], files=[listener, 2, 2], env=env, cwd=root
        )
        try:
            # The socket listens already, so the request waits until it is served.
            assert httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
        finally:
            process.terminate()
            process.wait(PATIENCE)
